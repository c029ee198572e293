package kserve

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/upstream"
)

// quirk is a way in which a server answers. Where it was met in the wild, report
// names the public thread.
type quirk struct {
	name, report string
	opts         Options
	req          haiku.Request
	send         []message
	status       error // the end of the stream, nil for OK

	texts  []string
	finish []haiku.FinishReason // nil: all stop
	usage  haiku.Usage          // zero: not looked at
	fails  []error              // nil: the answer is whole
	code   int                  // the HTTP status of a failure
}

var (
	two  = haiku.Request{Prompt: "p", Choices: 2, Sampling: haiku.Sampling{Temperature: 1}}
	bare = Options{Dialect: VLLM{Basic: true}}
	old  = Options{Dialect: VLLM{Full: true}}
	trt  = Options{Dialect: TensorRTLLM{}}
)

var quirks = []quirk{
	{
		name: "the last text is marked", report: "triton-inference-server/server#5878",
		send:  []message{says("a").last(false).stream(), says("b").last(true).stream()},
		texts: []string{"ab"},
	},
	{
		name: "a last response without a text", report: "triton-inference-server/server#5936", opts: bare,
		send:  []message{says("a").last(false).stream(), new(infer).last(true).stream()},
		texts: []string{"a"},
	},
	{
		name: "no mark at all", report: "triton-inference-server/server#5198", opts: bare,
		send:  []message{says("a").stream(), says("b").stream()},
		texts: []string{"ab"},
	},
	{
		name: "the mark stays false", report: "triton-inference-server/tensorrtllm_backend#552", opts: bare,
		send:  []message{says("a").last(false).stream(), says("b").last(false).stream()},
		texts: []string{"ab"}, fails: []error{upstream.ErrIncomplete, upstream.ErrFailed}, code: http.StatusBadGateway,
	},
	{
		name: "the mark stays false, and a reason is given", report: "triton-inference-server/server#6463",
		send:  []message{says("a").texts("finish_reason", "length").last(false).stream()},
		texts: []string{"a"}, finish: []haiku.FinishReason{haiku.FinishLength},
	},
	{
		name:  "responses after the last one",
		send:  []message{says("a").last(true).stream(), says("a").last(true).stream()},
		texts: []string{"a"},
	},
	{
		name:  "nothing",
		texts: []string{""}, fails: []error{upstream.ErrIncomplete}, code: http.StatusBadGateway,
	},
	{
		name: "nothing but the end", report: "triton-inference-server/server#5936",
		send:  []message{new(infer).last(true).stream()},
		texts: []string{""}, fails: []error{upstream.ErrIncomplete}, code: http.StatusBadGateway,
	},
	{
		name:  "an empty answer",
		send:  []message{says("").texts("finish_reason", "stop").counts("num_input_tokens", 9).counts("num_output_tokens", 1).last(true).stream()},
		texts: []string{""}, usage: haiku.Usage{PromptTokens: 9, CompletionTokens: 1},
	},
	{
		name:  "responses without outputs and texts without text",
		send:  []message{new(infer).last(false).stream(), says("").stream(), says("a").stream(), says("").last(true).stream()},
		texts: []string{"a"},
	},
	{
		name: "an error at once", report: "NVIDIA/NeMo-Retriever#1077",
		send:  []message{failed("[request id: x] Exceeds maximum queue size")},
		texts: []string{""}, fails: []error{haiku.ErrRateLimited}, code: http.StatusTooManyRequests,
	},
	{
		name:  "an error after texts",
		send:  []message{says("a").stream(), failed("Error generating stream: boom")},
		texts: []string{"a"}, fails: []error{upstream.ErrFailed, upstream.ErrIncomplete}, code: http.StatusBadGateway,
	},
	{
		name:  "an error that names a path",
		send:  []message{failed("Traceback: File \"/models/secret/model.py\"")},
		texts: []string{""}, fails: []error{upstream.ErrFailed}, code: http.StatusBadGateway,
	},
	{
		name:  "the prompt is too long",
		send:  []message{failed("Error generating stream: The decoder prompt (length 9000) is longer than the maximum model length of 8192.")},
		texts: []string{""}, fails: []error{haiku.ErrContextLength}, code: http.StatusBadRequest,
	},
	{
		name:  "the model has other tensors",
		send:  []message{failed("[request id: x] unexpected inference input 'stream' for model 'llm'")},
		texts: []string{""}, fails: []error{upstream.ErrFailed}, code: http.StatusBadGateway,
	},
	{
		name: "it was unloaded", report: "triton-inference-server/vllm_backend docs/health_check.md",
		send:  []message{failed("Model is unavailable due to unhealthy vLLM engine")},
		texts: []string{""}, fails: []error{haiku.ErrOverloaded}, code: http.StatusServiceUnavailable,
	},
	{
		name: "it has given up", send: []message{says("a").stream(), says("").texts("finish_reason", "abort").last(true).stream()},
		texts: []string{"a"}, fails: []error{upstream.ErrIncomplete}, code: http.StatusBadGateway,
	},
	{
		name: "somebody cancelled", send: []message{says("a").stream(), failed("Request was cancelled")},
		texts: []string{"a"}, fails: []error{upstream.ErrIncomplete}, code: http.StatusBadGateway,
	},
	{
		name: "two choices", req: two,
		send: []message{
			says("a", "x").texts("finish_reason", "None", "None").counts("num_input_tokens", 4).counts("num_output_tokens", 1, 1).stream(),
			says("b", "").texts("finish_reason", "None", "stop").counts("num_input_tokens", 4).counts("num_output_tokens", 2, 1).stream(),
			says("", "").texts("finish_reason", "length", "stop").counts("num_input_tokens", 4).counts("num_output_tokens", 0, 0).last(true).stream(),
		},
		texts: []string{"ab", "x"}, finish: []haiku.FinishReason{haiku.FinishLength, haiku.FinishStop},
		usage: haiku.Usage{PromptTokens: 4, CompletionTokens: 5},
	},
	{
		name: "two choices one by one", report: "NVIDIA/TensorRT-LLM triton_backend", opts: trt, req: two,
		send: []message{
			says("a").counts("sequence_index", 0).stream(), says("x").counts("sequence_index", 1).stream(),
			says("b").counts("sequence_index", 0).stream(), new(infer).last(true).stream(),
		},
		texts: []string{"ab", "x"},
	},
	{
		name: "a choice that nobody asked for", send: []message{says("a", "b").stream()},
		texts: []string{"a"}, fails: []error{upstream.ErrMalformed}, code: http.StatusBadGateway,
	},
	{
		name: "a text of another type", send: []message{new(infer).output("text_output", "FP32", []byte{1, 2, 3, 4}, 1).stream()},
		texts: []string{""}, fails: []error{upstream.ErrMalformed}, code: http.StatusBadGateway,
	},
	{
		name: "a reason of another type", send: []message{says("a").counts("finish_reason", 1).stream()},
		texts: []string{"a"}, fails: []error{upstream.ErrMalformed}, code: http.StatusBadGateway,
	},
	{
		name: "a text without its length", report: "triton-inference-server/server#6463",
		send:  []message{new(infer).output("text_output", "BYTES", []byte("hello"), 1).stream()},
		texts: []string{""}, fails: []error{upstream.ErrMalformed}, code: http.StatusBadGateway,
	},
	{
		name: "an output of another name", send: []message{new(infer).texts("OUTPUT_0", "a").stream()},
		texts: []string{""}, fails: []error{upstream.ErrMalformed}, code: http.StatusBadGateway,
	},
	{
		name: "an answer to somebody else", send: []message{says("a").of("another").stream()},
		texts: []string{""}, fails: []error{upstream.ErrMalformed}, code: http.StatusBadGateway,
	},
	{
		name: "no message", send: []message{says("a").stream(), {0xff, 0xff}},
		texts: []string{"a"}, fails: []error{upstream.ErrMalformed}, code: http.StatusBadGateway,
	},
	{
		name: "a message that is too long", opts: Options{MaxMessageBytes: 1000},
		send:  []message{says("a").stream(), says(strings.Repeat("b", 2000)).stream()},
		texts: []string{"a"}, fails: []error{upstream.ErrMalformed}, code: http.StatusBadGateway,
	},
	{
		name:  "a long text",
		send:  []message{says(strings.Repeat("long ", 100_000)).last(true).stream()},
		texts: []string{strings.Repeat("long ", 100_000)},
	},
	{
		name: "all of the text and the prompt each time", report: "triton-inference-server/vllm_backend#35", opts: old,
		send:  []message{says("pa").stream(), says("pab").stream(), says("pab").last(true).stream()},
		texts: []string{"ab"},
	},
	{
		name: "a prompt that is not the same", report: "triton-inference-server/tensorrtllm_backend#57", opts: old,
		send:  []message{says("<s> p and more").stream()},
		texts: []string{""}, fails: []error{upstream.ErrMalformed}, code: http.StatusBadGateway,
	},
	{
		name: "characters in parts", report: "triton-inference-server/tensorrtllm_backend#192", opts: old,
		send:  []message{says("p\uFFFD").stream(), says("p你\uFFFD\uFFFD").stream(), says("p你好").last(true).stream()},
		texts: []string{"你好"},
	},
	{
		name: "the prompt before the parts", opts: Options{Dialect: echoing{}}, req: haiku.Request{Prompt: "What? "},
		send:  []message{says("Wh").stream(), says("at? No").stream(), says(".").last(true).stream()},
		texts: []string{"No."},
	},
	{
		name: "a character that stays a part", opts: old,
		send:  []message{says("pa\uFFFD").stream(), new(infer).last(true).stream()},
		texts: []string{"a\uFFFD"},
	},
	{
		name: "as many texts as tokens were asked for", opts: bare, req: haiku.Request{Prompt: "p", MaxTokens: 2},
		send:  []message{says("a").stream(), says("b").last(true).stream()},
		texts: []string{"ab"}, finish: []haiku.FinishReason{haiku.FinishLength}, usage: haiku.Usage{PromptTokens: 1, CompletionTokens: 2},
	},
	{
		name: "a stop string that the engine does not know", report: "triton-inference-server/tensorrtllm_backend#128", opts: trt,
		req:   haiku.Request{Prompt: "p", Stop: []string{"STOP"}},
		send:  []message{says("a S").stream(), says("TOP").stream(), says(" more").last(true).stream()},
		texts: []string{"a "},
	},
	{
		name: "one of two choices stops here and goes on there", opts: bare,
		req: haiku.Request{Prompt: "p", Choices: 2, Stop: []string{"STOP"}, Sampling: haiku.Sampling{Temperature: 1}},
		send: []message{
			says("a STOP", "x").stream(), says(" more", "y").stream(), says(" and more", "z").last(true).stream(),
		},
		texts: []string{"a ", "xyz"},
	},
	{
		name: "a status instead of an answer", status: status.Error(codes.InvalidArgument, "no such sampling parameter"),
		texts: []string{""}, fails: []error{haiku.ErrInvalidRequest}, code: http.StatusBadRequest,
	},
	{
		name: "a status after texts", send: []message{says("a").stream()}, status: status.Error(codes.Unavailable, "going away"),
		texts: []string{"a"}, fails: []error{upstream.ErrIncomplete, upstream.ErrFailed}, code: http.StatusBadGateway,
	},
	{
		name: "a status after the end", send: []message{says("a").last(true).stream()}, status: status.Error(codes.Canceled, "too late"),
		texts: []string{"a"},
	},
	{
		name: "the whole answer in one call", opts: Options{Dialect: VLLM{}, Unary: true},
		send:  []message{says("a b c").texts("finish_reason", "stop").counts("num_input_tokens", 2).counts("num_output_tokens", 3).unary()},
		texts: []string{"a b c"}, usage: haiku.Usage{PromptTokens: 2, CompletionTokens: 3},
	},
	{
		name: "the whole answer in one call, without more", opts: Options{Dialect: VLLM{Basic: true}, Unary: true},
		send:  []message{says("a b c").unary()},
		texts: []string{"a b c"},
	},
	{
		name: "one call to a decoupled model", report: "triton-inference-server/tensorrtllm_backend#51", opts: Options{Unary: true},
		status: status.Error(codes.Unimplemented, "ModelInfer RPC doesn't support models with decoupled transaction policy"),
		texts:  []string{""}, fails: []error{upstream.ErrFailed}, code: http.StatusBadGateway,
	},
	{
		name: "one call without an answer", opts: Options{Unary: true}, send: []message{new(infer).unary()},
		texts: []string{""}, fails: []error{upstream.ErrIncomplete}, code: http.StatusBadGateway,
	},
}

// echoing is a backend that repeats the prompt in parts.
type echoing struct{ VLLM }

func (echoing) Answer() Answer { return Answer{Text: "text_output", Echo: true} }

func TestQuirks(t *testing.T) {
	for _, q := range quirks {
		t.Run(q.name, func(t *testing.T) { synctest.Test(t, q.run) })
	}
}

func (q *quirk) run(t *testing.T) {
	s := &triton{answer: func(c *call) error {
		if err := c.send(q.send...); err != nil {
			return err
		}
		return q.status
	}}
	e := s.start(t, q.opts)
	req := q.req
	if req.Prompt == "" {
		req.Prompt = "p"
	}
	got, err := read(t.Context(), e, &req)
	require.Equal(t, q.texts, got.texts)
	if q.usage != (haiku.Usage{}) {
		require.Equal(t, q.usage, got.stream.Usage())
	}
	if q.fails == nil {
		require.NoError(t, err)
		want := q.finish
		for len(want) < len(q.texts) {
			want = append(want, haiku.FinishStop)
		}
		require.Equal(t, want, got.finish)
		return
	}
	for _, kind := range q.fails {
		require.ErrorIs(t, err, kind)
	}
	wire := haiku.ErrorFrom(err)
	require.Equal(t, q.code, wire.Status, "%v", err)
	for _, secret := range []string{"/models", "boom", "vLLM", "prompt p"} {
		require.NotContains(t, wire.Message, secret)
	}
}
