package upstream

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// quirk is something that engines or what stands before them have sent, and what
// it means. report is the public thread from which it is known.
type quirk struct {
	name, report string
	engine       http.HandlerFunc
	opts         Options
	req          func(*haiku.Request)

	text   string
	finish haiku.FinishReason
	usage  haiku.Usage // zero: not looked at
	deltas []string
	err    error // matched by errors.Is
	status int   // on the wire, with err
	took   time.Duration
	// closed: the connection is not used again.
	closed bool
}

// bytewise is a handler that streams a text in writes of one byte.
func bytewise(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range len(text) {
			_, _ = io.WriteString(w, text[i:i+1])
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// choiceChunk is a chunk whose one choice is given.
func choiceChunk(choice string) string {
	return "data: {\"model\":\"big\",\"choices\":[" + choice + "]}\n\n"
}

// then is events followed by another handler.
func then(first []string, rest http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		events(first...)(w, r)
		rest(w, r)
	}
}

// hang waits for the client to leave.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice
	<-r.Context().Done()
}

// cut breaks the connection.
func cut(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// once is no retries.
var once = Options{Retry: Retry{Attempts: 1}}

var quirks = []quirk{
	// Framing.
	{name: "each byte by itself, after a mark and a comment", report: "spiceai/spiceai#12588",
		engine: bytewise("\xEF\xBB\xBF: ping\n\n" + strings.Join(plain, "")), text: "Hello", finish: "stop"},
	{name: "a character split between two reads", report: "intendant-dev/Intendant#411",
		engine: bytewise(piece("日本") + piece("😀") + stopChunk + doneMark), text: "日本😀", finish: "stop"},
	{name: "a character split between two chunks", report: "antonellof/ferrox#124",
		engine: events(choiceChunk("{\"delta\":{\"content\":\"\xF0\x9F\"}}"), choiceChunk("{\"delta\":{\"content\":\"\x98\x80\"}}"), stopChunk, doneMark), text: "😀", finish: "stop"},
	{name: "no space after the colon", report: "SamSaffron/term-llm#487",
		engine: events(strings.ReplaceAll(strings.Join(plain, ""), "data: ", "data:")), text: "Hello", finish: "stop"},
	{name: "lines that end in CRLF", report: "praxis-proxy/praxis#739",
		engine: bytewise(strings.ReplaceAll(strings.Join(plain, ""), "\n", "\r\n")), text: "Hello", finish: "stop"},
	{name: "lines that end in CR", report: "praxis-proxy/praxis#739",
		engine: bytewise(strings.ReplaceAll(strings.Join(plain, ""), "\n", "\r")), text: "Hello", finish: "stop"},
	{name: "a line of 300 KiB", report: "openai/openai-go#368",
		engine: events(piece(strings.Repeat("long ", 60<<10)), stopChunk, doneMark), text: strings.Repeat("long ", 60<<10), finish: "stop"},
	{name: "a line over the limit", report: "openai/openai-go#368", opts: Options{MaxEventBytes: 1 << 10, Retry: once.Retry},
		engine: events(piece(strings.Repeat("long ", 1<<10)), stopChunk, doneMark), err: ErrMalformed, status: 502, closed: true},
	{name: "line separators inside of JSON", report: "Soju06/codex-lb#1010",
		engine: events(choiceChunk("{\"delta\":{\"content\":\"a\u2028b\u0085c\"}}"), stopChunk, doneMark), text: "a\u2028b\u0085c", finish: "stop"},
	{name: "comments, empty events, ids and retry lines", report: "coddy-project/coddy-agent#106",
		engine: events(": ping\n\n", "data:\n\n", "retry: 100\nid: 7\n\n", piece("a"), ": ping\n\n", "event: message\nid: 8\n"+stopChunk, doneMark), text: "a", finish: "stop"},
	{name: "one event in several data lines", report: "SamSaffron/term-llm#454",
		engine: events("data: {\"choices\":[\ndata: {\"delta\":\ndata: {\"content\":\"a\"}}]}\n\n", stopChunk, doneMark), text: "a", finish: "stop"},
	{name: "the blank line between two events lost", report: "ggml-org/llama.cpp#14268",
		engine: events(strings.TrimSuffix(piece("a"), "\n")+piece("b"), strings.TrimSuffix(stopChunk, "\n")+doneMark), text: "ab", finish: "stop"},
	{name: "both line ends between two events lost", report: "1jehuang/jcode#613",
		engine: events(strings.TrimSpace(piece("a"))+strings.TrimPrefix(piece("b"), "data: "), strings.TrimSpace(piece("c"))+piece("d"), stopChunk, doneMark), text: "abcd", finish: "stop"},
	{name: "no blank line after the end mark", report: "darshi1337/apogee#139",
		engine: events(piece("a"), stopChunk, "data: [DONE]"), text: "a", finish: "stop"},
	{name: "no line end after the last chunk", report: "darshi1337/apogee#139",
		engine: events(piece("a"), strings.TrimSpace(stopChunk)), text: "a", finish: "stop"},
	{name: "an answer that is no stream", report: "earendil-works/pi#1125",
		engine: failing(200, `{"model":"big","choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2}}`),
		text:   "Hello", finish: "stop", usage: haiku.Usage{PromptTokens: 5, CompletionTokens: 2}},
	{name: "an answer that is no stream, with calls", report: "PrimeIntellect-ai/verifiers#2369",
		engine: failing(200, `{"choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function"},{"id":"b","type":"function"}]},"finish_reason":"stop"}]}`),
		finish: "tool_calls", deltas: []string{`"tool_calls":[{"index":0,"id":"a","type":"function"},{"index":1,"id":"b","type":"function"}]`}},
	{name: "a page of HTML", report: "langchain-ai/langchain#18317", opts: once,
		engine: failing(200, "<html>login</html>", "Content-Type", "text/html"), err: ErrIncomplete, status: 502},

	// The end of a stream.
	{name: "no end mark", report: "quangdang46/openproxy#242", engine: events(piece("a"), stopChunk), text: "a", finish: "stop"},
	{name: "no end mark, and the connection stays open", report: "diegosouzapw/OmniRoute#6777",
		engine: then([]string{piece("a"), stopChunk}, hang), text: "a", finish: "stop", took: tailAfterFinish, closed: true},
	{name: "an end mark, and the connection stays open", report: "diegosouzapw/OmniRoute#6777",
		engine: then(plain, hang), text: "Hello", finish: "stop", took: tailAfterDone, closed: true},
	{name: "an empty stream", report: "earendil-works/pi#2537", opts: once, engine: events(""), err: ErrIncomplete, status: 502},
	{name: "nothing but the end mark", report: "ferro-labs/ai-gateway#136", opts: once, engine: events(doneMark), err: ErrIncomplete, status: 502},
	{name: "an end mark without a finish reason", report: "vercel/ai#19165", engine: events(piece("a"), doneMark), text: "a", err: ErrIncomplete, status: 502},
	{name: "an end mark without a finish reason, and the connection stays open", report: "vercel/ai#19165",
		engine: then([]string{piece("a"), doneMark}, hang), text: "a", err: ErrIncomplete, status: 502, closed: true},
	{name: "an end without a finish reason", report: "justrach/codegraff#146", engine: events(piece("a")), text: "a", err: ErrIncomplete, status: 502},
	{name: "a connection that breaks", report: "earendil-works/pi#8460", engine: then([]string{piece("a")}, cut), text: "a", err: ErrIncomplete, status: 502, closed: true},
	{name: "half an event, then a break", report: "CommandCodeAI/command-code#785",
		engine: then([]string{piece("a"), "data: {\"choices\":[{\"delta\":{\"conte"}, cut), text: "a", err: ErrIncomplete, status: 502, closed: true},
	{name: "half an event, then an end", report: "CommandCodeAI/command-code#785",
		engine: events(piece("a"), "data: {\"choices\":[{\"delta\":{\"conte"), text: "a", err: ErrMalformed, status: 502},
	{name: "a break after the finish reason", report: "justrach/codegraff#146", engine: then([]string{piece("a"), stopChunk}, cut), text: "a", finish: "stop", closed: true},

	// Finish reasons.
	{name: "an empty finish reason in each chunk", report: "ollama/ollama#4357",
		engine: events(choiceChunk(`{"index":0,"delta":{"content":"a"},"finish_reason":""}`), stopChunk, doneMark), text: "a", finish: "stop"},
	{name: "two finish reasons", report: "langchain-ai/langchain#38349", engine: events(piece("a"), stopChunk, stopChunk, usageChunk, doneMark), text: "a", finish: "stop", usage: haiku.Usage{PromptTokens: 5, CompletionTokens: 2}},
	{name: "text beside the finish reason", report: "linagora/openrag#462",
		engine: events(piece("a"), choiceChunk(`{"delta":{"content":"b"},"finish_reason":"length"}`), doneMark), text: "ab", finish: "length"},
	{name: "all of the answer again in a last message", report: "abundantbeing/hermes-browser-extension#11",
		engine: events(piece("a"), piece("b"), choiceChunk(`{"message":{"role":"assistant","content":"ab"},"finish_reason":"stop"}`), doneMark), text: "ab", finish: "stop"},
	{name: "all of the answer again, with its calls", report: "abundantbeing/hermes-browser-extension#11",
		engine: events(choiceChunk(`{"delta":{"tool_calls":[{"index":0,"id":"c"}]}}`), choiceChunk(`{"message":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"c"}]},"finish_reason":"tool_calls"}`), doneMark),
		finish: "tool_calls", deltas: []string{`"tool_calls":[{"index":0,"id":"c"}]`}},
	{name: "calls that come in a last message alone", report: "abundantbeing/hermes-browser-extension#11",
		engine: events(choiceChunk(`{"delta":{"reasoning_content":"hm"}}`), choiceChunk(`{"message":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"c"}]},"finish_reason":"tool_calls"}`), doneMark),
		finish: "tool_calls", deltas: []string{`"reasoning_content":"hm"`, `"tool_calls":[{"index":0,"id":"c"}]`}},
	{name: "stop after tool calls", report: "BerriAI/litellm#35663",
		engine: events(choiceChunk(`{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]}}`), stopChunk, doneMark),
		finish: "tool_calls", deltas: []string{`"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]`}},
	{name: "length after half a tool call", report: "vllm-project/vllm#53269",
		engine: events(choiceChunk(`{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}}`), choiceChunk(`{"delta":{},"finish_reason":"length"}`), doneMark),
		finish: "length", deltas: []string{`"tool_calls":[{"index":0,"function":{"arguments":"{"}}]`}},
	{name: "an answer that was aborted", report: "vllm-project/vllm#57082", engine: events(piece("a"), choiceChunk(`{"delta":{},"finish_reason":"abort"}`), doneMark), text: "a", err: ErrIncomplete, status: 502},
	{name: "an answer that ended in an error", report: "togethercomputer/together-python#153", engine: events(piece("a"), choiceChunk(`{"delta":{},"finish_reason":"error"}`), doneMark), text: "a", err: ErrIncomplete, status: 502},
	{name: "a reason of another API", report: "BerriAI/litellm#12481", engine: events(piece("a"), choiceChunk(`{"delta":{},"finish_reason":"end_turn"}`), doneMark), text: "a", finish: "stop"},
	{name: "a null delta at the end", report: "microsoft/agent-framework#5734", engine: events(piece("a"), choiceChunk(`{"delta":null,"finish_reason":"stop"}`), doneMark), text: "a", finish: "stop"},
	{name: "no delta at the end", report: "QwenLM/qwen-code#1448", engine: events(piece("a"), choiceChunk(`{"index":0,"finish_reason":"stop"}`), doneMark), text: "a", finish: "stop"},
	{name: "an engine that heeds no stop strings", report: "Blaizzy/mlx-vlm#1044", req: func(r *haiku.Request) { r.Stop = []string{"END"} },
		engine: then([]string{piece("a E"), piece("ND b"), piece(" c")}, hang), text: "a ", finish: "stop", closed: true},
	{name: "an engine that shows the stop string", report: "mzau/mlx-knife#68", req: func(r *haiku.Request) { r.Stop = []string{"END"} },
		engine: events(piece("a E"), piece("ND"), stopChunk, usageChunk, doneMark), text: "a ", finish: "stop", usage: haiku.Usage{PromptTokens: 5, CompletionTokens: 2}},

	// Usage.
	{name: "usage beside an empty list of choices", report: "XSpoonAi/spoon-core#179", engine: events(plain...), text: "Hello", finish: "stop", usage: haiku.Usage{PromptTokens: 5, CompletionTokens: 2}},
	{name: "usage without choices", report: "ROCm/ATOM#1711",
		engine: events(piece("a"), stopChunk, "data: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1}}\n\n", doneMark), text: "a", finish: "stop", usage: haiku.Usage{PromptTokens: 5, CompletionTokens: 1}},
	{name: "usage beside null choices", report: "cline/cline#8518",
		engine: events(piece("a"), stopChunk, "data: {\"choices\":null,\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1}}\n\n", doneMark), text: "a", finish: "stop", usage: haiku.Usage{PromptTokens: 5, CompletionTokens: 1}},
	{name: "usage inside the choice", report: "earendil-works/pi#2017",
		engine: events(piece("a"), choiceChunk(`{"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":19,"completion_tokens":13}}`), doneMark), text: "a", finish: "stop", usage: haiku.Usage{PromptTokens: 19, CompletionTokens: 13}},
	{name: "usage in every chunk", report: "vllm-project/vllm#7262",
		engine: events("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1}}\n\n",
			"data: {\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}\n\n", doneMark),
		text: "ab", finish: "stop", usage: haiku.Usage{PromptTokens: 5, CompletionTokens: 2}},
	{name: "usage before the finish reason", report: "BerriAI/litellm#25410", engine: events(piece("Hello"), usageChunk, stopChunk, doneMark), text: "Hello", finish: "stop", usage: haiku.Usage{PromptTokens: 5, CompletionTokens: 2}},
	{name: "usage in the names of another API", report: "earendil-works/pi#2326",
		engine: events(piece("a"), stopChunk, "data: {\"choices\":[],\"usage\":{\"input_tokens\":11,\"output_tokens\":5,\"total_tokens\":16}}\n\n", doneMark), text: "a", finish: "stop", usage: haiku.Usage{PromptTokens: 11, CompletionTokens: 5}},
	{name: "a usage of nothing", report: "nextlevelbuilder/goclaw#52",
		engine: events(piece("Hel"), piece("lo"), stopChunk, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":0,\"total_tokens\":0}}\n\n", doneMark), text: "Hello", finish: "stop", usage: haiku.Usage{PromptTokens: 5, CompletionTokens: 2}},
	{name: "no usage", report: "langchain-ai/langchainjs#5551", engine: events(piece("Hel"), piece("lo"), stopChunk, doneMark), text: "Hello", finish: "stop", usage: haiku.Usage{PromptTokens: 5, CompletionTokens: 2}},
	{name: "cached tokens of DeepSeek's kind", report: "vllm-project/vllm#6371",
		engine: events(piece("a"), stopChunk, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1,\"prompt_cache_hit_tokens\":8}}\n\n", doneMark),
		text:   "a", finish: "stop", usage: haiku.Usage{PromptTokens: 9, CompletionTokens: 1, CachedTokens: 8}},

	// Deltas.
	{name: "a role with null content, null calls and a refusal", report: "darshi1337/apogee#139",
		engine: events(choiceChunk(`{"delta":{"role":"assistant","content":null,"refusal":null,"tool_calls":[]}}`), piece("a"), stopChunk, doneMark), text: "a", finish: "stop"},
	{name: "tool calls without an index", report: "ollama/ollama#7881",
		engine: events(choiceChunk(`{"delta":{"role":"assistant","content":"","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},"finish_reason":"tool_calls"}`), doneMark),
		finish: "tool_calls", deltas: []string{`"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]`}},
	{name: "reasoning before the text", report: "vllm-project/guidellm#795",
		engine: events(choiceChunk(`{"delta":{"reasoning_content":"hm","content":null}}`), choiceChunk(`{"delta":{"reasoning_content":null,"content":"a"}}`), stopChunk, doneMark),
		text:   "a", finish: "stop", deltas: []string{`"reasoning_content":"hm"`}},
	{name: "log-probabilities asked for and not given", report: "ggml-org/llama.cpp#11346", req: func(r *haiku.Request) { r.Logprobs = true }, engine: events(plain...), text: "Hello", finish: "stop"},

	// Errors inside of a stream, and beside it.
	{name: "an error in a field of its own", report: "ggml-org/llama.cpp#16104",
		engine: events("error: {\"code\":400,\"message\":\"the request exceeds the available context size\",\"type\":\"invalid_request_error\"}\n\n", doneMark), err: haiku.ErrContextLength, status: 400},
	{name: "an error without a frame", report: "lemonade-sdk/lemonade#2826",
		engine: events(`{"error":{"code":400,"message":"request (6009 tokens) exceeds the available context size (4096 tokens)","type":"exceed_context_size_error"}}`), err: haiku.ErrContextLength, status: 400},
	{name: "an error in place of the first chunk", report: "ggml-org/llama.cpp#14566",
		engine: events(roleChunk, "data: {\"error\":{\"message\":\"bad grammar\",\"type\":\"invalid_request_error\",\"code\":400}}\n\n", doneMark), err: haiku.ErrInvalidRequest, status: 400},
	{name: "an error before the first token", report: "vllm-project/vllm#40986", opts: once,
		engine: events("data: {\"error\":{\"message\":\"Internal server error\",\"type\":\"InternalServerError\",\"code\":500}}\n\n", doneMark), err: ErrFailed, status: 502},
	{name: "an error without a code", report: "apache/rocketmq-dashboard#2178", opts: once, engine: events("data: {\"error\":{\"message\":\"quota exceeded\"}}\n\n", doneMark), err: ErrFailed, status: 502},
	{name: "an error with a word for a code", report: "vercel/ai#13506",
		engine: events("data: {\"error\":{\"message\":\"too long\",\"code\":\"CONTEXT_LENGTH_EXCEEDED\"}}\n\n"), err: haiku.ErrContextLength, status: 400},
	{name: "an error that is a string", report: "huggingface/huggingface_hub#2558", opts: once,
		engine: events("data: {\"error\":\"Input validation error\",\"error_type\":\"validation\"}\n\n"), err: ErrFailed, status: 502},
	{name: "an error event", report: "tobocop2/lilbee#324", opts: once, engine: events(roleChunk, "event: error\ndata: it broke\n\n"), err: ErrFailed, status: 502},
	{name: "an error after some text", report: "vllm-project/guidellm#795", engine: events(piece("a"), "data: {\"error\":{\"message\":\"x\",\"code\":500}}\n\n", doneMark), text: "a", err: ErrFailed, status: 502},
	{name: "an error object of its own kind", report: "voideditor/void#128",
		engine: failing(400, `{"object":"error","message":"[{'type': 'extra_forbidden'}]","type":"BadRequestError","param":null,"code":400}`), err: haiku.ErrInvalidRequest, status: 400},
	{name: "FastAPI's detail", report: "open-webui/open-webui#11906",
		engine: failing(404, `{"detail":"Model 'x' was not found"}`), err: haiku.ErrModelNotFound, status: 404},
	{name: "FastAPI's list of details", report: "open-webui/open-webui#11906",
		engine: failing(422, `{"detail":[{"type":"missing","loc":["body","messages"],"msg":"Field required"}]}`), err: haiku.ErrInvalidRequest, status: 400},
	{name: "Ollama's string", report: "ollama/ollama#9905", engine: failing(404, `{"error":"model \"x\" not found, try pulling it first"}`), err: haiku.ErrModelNotFound, status: 404},
	{name: "a prompt that is too long, with status 500", report: "ggml-org/llama.cpp#14566",
		engine: failing(500, `{"error":{"message":"the request exceeds the available context size","code":500}}`), err: haiku.ErrContextLength, status: 400},
	{name: "credentials of this side that are refused", report: "ever-works/ever-works#2318",
		engine: failing(401, `{"error":{"message":"Incorrect API key provided: sk-secret"}}`), err: ErrCredentials, status: 502},
	{name: "a wrong address", report: "FerroxLabs/wayland#1178", engine: failing(404, `{"detail":"Not Found"}`), err: ErrFailed, status: 502},
	{name: "a redirect", report: "openai/openai-python#3516", engine: failing(307, "", "Location", "http://elsewhere/v1/chat/completions"), err: ErrFailed, status: 502},
	{name: "too many requests, for longer than one may wait", report: "openai/openai-python#3555", engine: failing(429, `{"error":{"message":"slow down"}}`, "Retry-After", "3600"), err: haiku.ErrRateLimited, status: 429},
	{name: "a chunk that is broken JSON", report: "amd/gaia#3501", opts: once, engine: events(piece("a"), "data: {\"choices\":[{]}\n\n", doneMark), text: "a", err: ErrMalformed, status: 502},
	{name: "a ping as an event", report: "anthony-chaudhary/fak#5486", engine: events("event: ping\ndata: {\"type\":\"ping\"}\n\n", piece("a"), stopChunk, doneMark), text: "a", finish: "stop"},
}

func TestQuirksOfEngines(t *testing.T) {
	require.GreaterOrEqual(t, len(quirks), 40)
	for _, q := range quirks {
		t.Run(q.name, func(t *testing.T) {
			require.Regexp(t, `[\w.-]+/[\w.-]+#\d+$`, q.report)
			synctest.Test(t, q.check)
		})
	}
}

func (q *quirk) check(t *testing.T) {
	e, network := serve(t, q.engine, q.opts)
	req := hello()
	if q.req != nil {
		q.req(req)
	}
	began := time.Now()
	a := ask(t.Context(), e, req)
	took := time.Since(began)
	require.Equal(t, q.text, a.texts[0])
	require.Equal(t, q.deltas, a.deltas)
	if q.err != nil {
		require.ErrorIs(t, a.err, q.err)
		require.Equal(t, q.status, haiku.ErrorFrom(a.err).Status, "%v", a.err)
		require.NotContains(t, haiku.ErrorFrom(a.err).Message, "sk-secret")
	} else {
		require.NoError(t, a.err)
		require.Equal(t, q.finish, a.finish[0])
	}
	if q.usage != (haiku.Usage{}) {
		require.Equal(t, q.usage, a.usage)
	}
	require.Equal(t, q.took, took)
	synctest.Wait()
	switch _, open := network.connections(); {
	case q.closed:
		require.Zero(t, open, "the connection is closed")
	case q.err == nil:
		require.Equal(t, 1, open, "the connection can be used again")
	}
}
