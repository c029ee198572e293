package openai

import (
	"context"
	"errors"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/intelliparadigm/haiku"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const chatPath, completionPath = "/v1/chat/completions", "/v1/completions"

// scripted is a model that pushes pieces and ends with err.
func scripted(err error, pieces ...haiku.Piece) haiku.Model {
	return haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		w.SetModel("frog-1")
		w.SetUsage(haiku.Usage{PromptTokens: 5, CompletionTokens: len(pieces), CachedTokens: 2})
		for _, p := range pieces {
			if p.Text == "" && p.Delta == nil {
				w.Finish(p.Choice, p.Finish)
			} else if _, err := w.Push(ctx, p); err != nil {
				return err
			}
		}
		return err
	})
}

func say(choice int, text string) haiku.Piece {
	return haiku.Piece{Choice: choice, ID: haiku.NoToken, Text: text}
}

func stop(choice int) haiku.Piece { return haiku.Piece{Choice: choice, Finish: haiku.FinishStop} }

var idField = regexp.MustCompile(`"id":"(chatcmpl|cmpl)-[0-9a-f]{24}"`)
var createdField = regexp.MustCompile(`"created":\d+`)

// post returns status and body, with id and time replaced by fixed ones.
func post(t testing.TB, m haiku.Model, path, body string) (int, string) {
	t.Helper()
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	Handler(m, haiku.Logging(quiet)).ServeHTTP(w, r)
	text := idField.ReplaceAllString(w.Body.String(), `"id":"$1-0"`)
	return w.Code, createdField.ReplaceAllString(text, `"created":1`)
}

const hi = `"messages":[{"role":"user","content":"hi"}]`

// lines joins events as they stand in a stream.
func lines(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString("data: " + e + "\n\n")
	}
	return b.String()
}

const head = `{"id":"chatcmpl-0","object":"chat.completion.chunk","created":1,"model":"frog-1","choices":[`

func TestChatStreamsByteForByte(t *testing.T) {
	role := head + `{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`
	text := func(s string) string {
		return head + `{"index":0,"delta":{"content":"` + s + `"},"logprobs":null,"finish_reason":null}]}`
	}
	finish := func(why string) string {
		return head + `{"index":0,"delta":{},"logprobs":null,"finish_reason":"` + why + `"}]}`
	}
	for name, c := range map[string]struct {
		model haiku.Model
		extra string
		want  string
	}{
		"plain": {
			scripted(nil, say(0, "old "), say(0, "\"pond\"\n"), stop(0)), "",
			lines(role, text("old "), text(`\"pond\"\n`), finish("stop"), "[DONE]"),
		},
		"an empty answer": {
			scripted(nil, stop(0)), "",
			lines(role, finish("stop"), "[DONE]"),
		},
		"length": {
			scripted(nil, say(0, "a"), haiku.Piece{Finish: haiku.FinishLength}), "",
			lines(role, text("a"), finish("length"), "[DONE]"),
		},
		"an error after three tokens": {
			scripted(errors.New("the device is on fire"), say(0, "a"), say(0, "b"), say(0, "c")), "",
			lines(role, text("a"), text("b"), text("c"), `{"error":{"message":"the server failed to answer","type":"server_error","param":null,"code":"internal_error"}}`),
		},
		"shutdown after three tokens": {
			scripted(haiku.ErrClosed, say(0, "a"), say(0, "b"), say(0, "c")), "",
			lines(role, text("a"), text("b"), text("c"), `{"error":{"message":"the server is shutting down","type":"server_error","param":null,"code":"shutting_down"}}`),
		},
		"a stop string over two tokens": {
			scripted(nil, say(0, "ab"), say(0, "cd"), say(0, "never")), `,"stop":"bc"`,
			lines(role, text("a"), finish("stop"), "[DONE]"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			status, got := post(t, c.model, chatPath, `{"stream":true,`+hi+c.extra+`}`)
			require.Equal(t, 200, status)
			require.Equal(t, c.want, got)
		})
	}
}

// The end mark never follows an error, whatever ended the stream.
func TestADeadlineAfterThreeTokensIsAnErrorEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, r *haiku.Request) error {
			if err := scripted(nil, say(0, "a"), say(0, "b"), say(0, "c")).Generate(ctx, w, r); err != nil {
				return err
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, "POST", chatPath, strings.NewReader(`{"stream":true,`+hi+`}`))
		w := httptest.NewRecorder()
		Handler(model, haiku.Logging(quiet)).ServeHTTP(w, r)
		require.Equal(t, 200, w.Code)
		_, after, found := strings.Cut(w.Body.String(), `"delta":{"content":"c"},"logprobs":null,"finish_reason":null}]}`+"\n\n")
		require.True(t, found, w.Body.String())
		require.Equal(t, lines(`{"error":{"message":"the request took longer than its deadline","type":"server_error","param":null,"code":"timeout"}}`), after)
	})
}

func TestTwoChoicesInterleave(t *testing.T) {
	_, got := post(t, scripted(nil, say(0, "a"), say(1, "x"), stop(1), say(0, "b"), stop(0)), chatPath, `{"stream":true,"n":2,`+hi+`}`)
	chunk := func(rest string) string { return head + rest + `]}` }
	require.Equal(t, lines(
		chunk(`{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}`),
		chunk(`{"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":null}`),
		chunk(`{"index":1,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}`),
		chunk(`{"index":1,"delta":{"content":"x"},"logprobs":null,"finish_reason":null}`),
		chunk(`{"index":1,"delta":{},"logprobs":null,"finish_reason":"stop"}`),
		chunk(`{"index":0,"delta":{"content":"b"},"logprobs":null,"finish_reason":null}`),
		chunk(`{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}`),
		"[DONE]"), got)
}

func TestUsageIsSentWhenItIsAskedForAndOnlyThen(t *testing.T) {
	model := scripted(nil, say(0, "a"), stop(0))
	const completionHead = `{"id":"cmpl-0","object":"text_completion","created":1,"model":"frog-1","choices":[`
	usage := `{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":2}}`
	for _, form := range []string{"", `,"stream_options":null`, `,"stream_options":{}`, `,"stream_options":{"include_usage":false}`} {
		_, got := post(t, model, chatPath, `{"stream":true,`+hi+form+`}`)
		require.NotContains(t, got, "usage", form)
	}
	_, got := post(t, model, chatPath, `{"stream":true,`+hi+`,"stream_options":{"include_usage":true}}`)
	events := strings.Split(strings.TrimSpace(got), "\n\n")
	require.Equal(t, `data: `+head+`],"usage":`+usage+`}`, events[len(events)-2])
	for _, e := range events[:len(events)-2] {
		require.True(t, strings.HasSuffix(e, `,"usage":null}`), e)
	}
	_, got = post(t, model, chatPath, `{`+hi+`}`)
	require.Contains(t, got, `"usage":`+usage)
	_, got = post(t, model, completionPath, `{"stream":true,"prompt":"x","stream_options":{"include_usage":true}}`)
	require.Equal(t, lines(
		completionHead+`{"index":0,"text":"a","logprobs":null,"finish_reason":null}],"usage":null}`,
		completionHead+`{"index":0,"text":"","logprobs":null,"finish_reason":"stop"}],"usage":null}`,
		completionHead+`],"usage":`+usage+`}`, "[DONE]"), got)
}

func TestAWholeChatCompletion(t *testing.T) {
	status, got := post(t, scripted(nil, say(0, "old "), say(0, "pond"), stop(0)), chatPath, `{`+hi+`}`)
	require.Equal(t, 200, status)
	require.Equal(t, `{"id":"chatcmpl-0","object":"chat.completion","created":1,"model":"frog-1","choices":[`+
		`{"index":0,"message":{"role":"assistant","content":"old pond","refusal":null},"logprobs":null,"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8,"prompt_tokens_details":{"cached_tokens":2}}}`, got)
}

func TestCompletionsByteForByte(t *testing.T) {
	model := scripted(nil, say(0, "a"), stop(0))
	_, got := post(t, model, completionPath, `{"stream":true,"prompt":"x"}`)
	const head = `{"id":"cmpl-0","object":"text_completion","created":1,"model":"frog-1","choices":[`
	require.Equal(t, lines(
		head+`{"index":0,"text":"a","logprobs":null,"finish_reason":null}]}`,
		head+`{"index":0,"text":"","logprobs":null,"finish_reason":"stop"}]}`, "[DONE]"), got)
	_, got = post(t, model, completionPath, `{"prompt":["x"]}`)
	require.Equal(t, head+`{"index":0,"text":"a","logprobs":null,"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":2}}}`, got)
}

func TestLogprobsInBothForms(t *testing.T) {
	logged := func(text string, lp float32, top ...haiku.TokenLogprob) haiku.Piece {
		p := say(0, text)
		p.Logprob = &haiku.TokenLogprob{ID: haiku.NoToken, Bytes: []byte(text), Logprob: lp, Top: top}
		return p
	}
	model := scripted(nil, logged("a", -0.5, haiku.TokenLogprob{Bytes: []byte("a"), Logprob: -0.5}, haiku.TokenLogprob{Bytes: []byte{0xff}, Logprob: -2}),
		logged("é", -1), stop(0))
	const chat = `{"content":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[{"token":"a","logprob":-0.5,"bytes":[97]},{"token":"bytes:\\xff","logprob":-2,"bytes":[255]}]}`
	_, got := post(t, model, chatPath, `{"stream":true,"logprobs":true,"top_logprobs":2,`+hi+`}`)
	require.Contains(t, got, `"delta":{"content":"a"},"logprobs":`+chat+`],"refusal":null},`)
	require.Contains(t, got, `"logprobs":{"content":[{"token":"é","logprob":-1,"bytes":[195,169],"top_logprobs":[]}],"refusal":null},`)
	_, got = post(t, model, chatPath, `{"logprobs":true,"top_logprobs":2,`+hi+`}`)
	require.Contains(t, got, `"logprobs":`+chat+`,{"token":"é","logprob":-1,"bytes":[195,169],"top_logprobs":[]}],"refusal":null}`)
	_, got = post(t, model, completionPath, `{"logprobs":2,"prompt":"x"}`)
	require.Contains(t, got, `"logprobs":{"tokens":["a","é"],"token_logprobs":[-0.5,-1],"top_logprobs":[{"a":-0.5,"bytes:\\xff":-2},{}],"text_offset":[0,1]}`)
	_, got = post(t, model, completionPath, `{"logprobs":2,"prompt":"x","stream":true}`)
	require.Contains(t, got, `"text":"é","logprobs":{"tokens":["é"],"token_logprobs":[-1],"top_logprobs":[{}],"text_offset":[1]}`)
}

func TestAnErrorBeforeTheFirstTokenIsAResponse(t *testing.T) {
	for _, stream := range []string{"true", "false"} {
		status, got := post(t, scripted(haiku.ErrOverloaded), chatPath, `{"stream":`+stream+`,`+hi+`}`)
		require.Equal(t, 503, status)
		require.Equal(t, `{"error":{"message":"the server is overloaded, try again later","type":"overloaded_error","param":null,"code":"overloaded"}}`, got)
	}
	status, got := post(t, scripted(errors.New("secret path")), chatPath, `{`+hi+`}`)
	require.Equal(t, 500, status)
	require.NotContains(t, got, "secret")
	status, _ = post(t, scripted(errors.New("late"), say(0, "a")), chatPath, `{`+hi+`}`)
	require.Equal(t, 500, status, "a whole answer has not begun when it fails")
}
