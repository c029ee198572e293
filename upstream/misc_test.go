package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/fallback"
	"github.com/intelliparadigm/haiku/openai"
)

func TestLogProbabilities(t *testing.T) {
	chatLP := `{"content":[
		{"token":"Hel","logprob":-0.5,"bytes":[72,101,108],"top_logprobs":[{"token":"Hel","logprob":-0.5,"bytes":[72,101,108]},{"token":"?","logprob":-2,"bytes":[240,159]}]},
		{"token":"lo","logprob":-1,"bytes":null,"top_logprobs":[]}]}`
	legacyLP := `{"tokens":["Hel","lo"],"token_logprobs":[-0.5,-1],"top_logprobs":[{"?":-2,"Hel":-0.5},null],"text_offset":[0,3]}`
	want := []haiku.TokenLogprob{
		{Logprob: -0.5, ID: -1, Bytes: []byte("Hel"), Top: []haiku.TokenLogprob{{Logprob: -0.5, ID: -1, Bytes: []byte("Hel")}, {Logprob: -2, ID: -1, Bytes: []byte("\xF0\x9F")}}},
		{Logprob: -1, ID: -1, Bytes: []byte("lo")},
	}
	line := func(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, "\n", ""), "\t", "") }
	req := hello()
	req.Logprobs, req.TopLogprobs = true, 2
	for name, tt := range map[string]struct{ chunk, text string }{
		"chat":                      {`{"delta":{"content":"Hello"},"logprobs":` + line(chatLP) + `}`, "Hello"},
		"another text than tokens":  {`{"delta":{"content":"Hello!"},"logprobs":` + line(chatLP) + `}`, "Hello!"},
		"completions":               {`{"text":"Hello","logprobs":` + legacyLP + `}`, "Hello"},
		"completions' form in chat": {`{"delta":{"content":"Hello"},"logprobs":` + legacyLP + `}`, "Hello"}, // abetlen/llama-cpp-python#1787
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := serve(t, events(choiceChunk(tt.chunk), stopChunk, doneMark), Options{})
			a := ask(t.Context(), e, req)
			require.NoError(t, a.err)
			require.Equal(t, tt.text, a.texts[0])
			if strings.Contains(tt.chunk, "tokens\":") {
				a.logprobs[0].Top[1].Bytes = []byte("\xF0\x9F") // of which that form shows a "?"
			}
			require.Equal(t, want, a.logprobs)
		})
	}
	e, _ := serve(t, events(choiceChunk(`{"delta":{"content":"a"},"logprobs":{"content":5}}`)), once)
	require.ErrorIs(t, ask(t.Context(), e, req).err, ErrMalformed)
	body, _ := asked(t, t.Context(), Options{Dialect: LlamaCpp}, &haiku.Request{Prompt: "a", Logprobs: true})
	require.Equal(t, 1.0, body["logprobs"], "0 switches them off there")
}

// TestSGLangIsToldToAbort: builds of it go on when a client has left
// (sgl-project/sglang#37833), and abort all requests whose names begin with the
// one they are told (sgl-project/sglang#39461).
func TestSGLangIsToldToAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := &recorder{next: func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/abort_request" {
				return
			}
			then([]string{piece("a")}, hang)(w, r)
		}}
		key := func(context.Context) (string, error) { return "k", nil }
		e, _ := serve(t, rec.serve, Options{Dialect: SGLang, Abort: true, Key: key})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, ask(ctx, e, hello()).err, context.DeadlineExceeded)
		synctest.Wait()
		require.Equal(t, []string{"POST /v1/chat/completions", "POST /abort_request"}, rec.paths)
		_, body, h := rec.last(t)
		rid := body["rid"].(string)
		require.Len(t, rid, 32)
		require.Contains(t, rec.bodies[0], `"rid":"`+rid+`"`)
		require.Equal(t, "Bearer k", h.Get("Authorization"))

		several := hello()
		several.Choices = 2
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ask(ctx, e, several)
		synctest.Wait()
		require.Len(t, rec.paths, 3, "several choices are several requests there: no call")
	})
	synctest.Test(t, func(t *testing.T) {
		rec := &recorder{next: events(plain...)}
		e, _ := serve(t, rec.serve, Options{Dialect: SGLang, Abort: true})
		require.NoError(t, ask(t.Context(), e, hello()).err)
		rec.next = failing(400, busyBody)
		require.Error(t, ask(t.Context(), e, hello()).err)
		synctest.Wait()
		require.Len(t, rec.paths, 2, "there is nothing to abort")
	})
}

func TestStatusErrorsTellWhatTheEngineSaid(t *testing.T) {
	e, _ := serve(t, failing(429, `{"error":{"message":"full\n\u0000up","type":"t","code":"c","param":"p"}}`, "X-Llm-D-Request-Dropped-Reason", "saturated", "Retry-After", "7"), once)
	a := ask(t.Context(), e, hello())
	var status *StatusError
	require.ErrorAs(t, a.err, &status)
	require.Equal(t, &StatusError{Status: 429, Type: "t", Code: "c", Param: "p", Message: "full  up", Dropped: "saturated", RetryAfter: 7 * time.Second}, status)
	require.Equal(t, "upstream: the engine answered 429 (t c), dropped: saturated: full  up", status.Error())
	wire := haiku.ErrorFrom(a.err)
	require.Equal(t, 7*time.Second, wire.RetryAfter)
	require.NotContains(t, wire.Message, "full", "what a busy engine says is for the operator")
}

func TestRetryAfterInAllItsForms(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "3": 3 * time.Second, "0.5": 500 * time.Millisecond, "-1": 0, "NaN": 0, "Inf": maxRetryAfter, "1e300": maxRetryAfter, "soon": 0,
		now.Add(9 * time.Second).Format(http.TimeFormat): 9 * time.Second, now.Add(-time.Hour).Format(http.TimeFormat): 0,
	} {
		require.Equal(t, want, retryAfter(http.Header{"Retry-After": {text}}, now), text)
	}
	require.Equal(t, 1500*time.Millisecond, retryAfter(http.Header{"Retry-After": {"9"}, "Retry-After-Ms": {"1500"}}, now))
}

func TestAClientsContextIsNotConfusedWithTheEngines(t *testing.T) {
	timeout := &hidden{text: "x", kinds: []error{ErrConnect}}
	require.ErrorIs(t, timeout, ErrConnect)
	require.Same(t, errPlain, hide(errPlain))
	inner := hide(errors.Join(ErrIncomplete, context.Canceled))
	require.ErrorIs(t, inner, ErrIncomplete)
	require.NotErrorIs(t, inner, context.Canceled)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, wireError(ended, "m", ErrIdle), context.Canceled)
	require.NoError(t, wireError(ended, "m", nil))
}

var errPlain = errors.New("plain")

// TestAToolCallReachesTheClient goes all the way: client, openai.Handler, Engine,
// engine.
func TestAToolCallReachesTheClient(t *testing.T) {
	rec := &recorder{next: events(roleChunk,
		choiceChunk(`{"index":0,"delta":{"reasoning_content":"think"}}`),
		choiceChunk(`{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"weather","arguments":""}}]}}`),
		choiceChunk(`{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":\"Rom\"}"}}]}}`),
		choiceChunk(`{"index":0,"delta":{},"finish_reason":"tool_calls"}`), usageChunk, doneMark)}
	e, _ := serve(t, rec.serve, Options{Name: "agent"})
	h := openai.Handler(e)
	body := `{"model":"agent","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"Rome?"}],"tools":[{"type":"function","function":{"name":"weather"}}],"tool_choice":"auto"}`
	w := post(t, h, "/v1/chat/completions", body)
	require.Equal(t, 200, w.Code, w.Body.String())
	got := w.Body.String()
	for _, part := range []string{
		`"reasoning_content":"think"`, `"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"weather","arguments":""}}]`,
		`"arguments":"{\"city\":\"Rom\"}"`, `"finish_reason":"tool_calls"`, `"prompt_tokens":5`, `"model":"agent"`, "data: [DONE]",
	} {
		require.Contains(t, got, part)
	}
	_, sent, _ := rec.last(t)
	require.Equal(t, "auto", sent["tool_choice"])
	require.Len(t, sent["tools"], 1)
	w = post(t, h, "/v1/chat/completions", strings.Replace(body, `"stream":true,"stream_options":{"include_usage":true},`, "", 1))
	require.Contains(t, w.Body.String(), `"finish_reason":"tool_calls"`)
}

func TestErrorsReachTheClientWithTheirStatus(t *testing.T) {
	e, _ := serve(t, failing(400, `{"error":{"message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","code":400}}`), Options{})
	w := post(t, openai.Handler(e), "/v1/chat/completions", `{"stream":true,"messages":[{"role":"user","content":"x"}]}`)
	require.Equal(t, 400, w.Code)
	require.JSONEq(t, `{"error":{"message":"This model's maximum context length is 4096 tokens.","type":"invalid_request_error","param":null,"code":"context_length_exceeded"}}`, w.Body.String())
}

// TestAnyRoundTripperWillDo: one that knows nothing of httptrace.
func TestAnyRoundTripperWillDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &closable{Reader: strings.NewReader(strings.Join(plain, ""))}
		e, err := New("http://h", Options{Connect: time.Second, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			_, _ = io.Copy(io.Discard, r.Body)
			soon(2 * time.Second) // longer than connecting may take
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body}, nil
		})})
		require.NoError(t, err)
		a := ask(t.Context(), e, hello())
		require.NoError(t, a.err)
		require.Equal(t, "Hello", a.texts[0])
		require.True(t, body.closed)
		require.NoError(t, e.Close())
	})
}

// closable is a body that knows whether it was closed.
type closable struct {
	io.Reader
	closed bool
}

func (c *closable) Close() error {
	c.closed = true
	return nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestAnEndpointThatAnEngineDoesNotHaveIsNoFailureOfIt: what kind of request it is
// chooses the client, who could have a breaker take the engine away from all.
func TestAnEndpointThatAnEngineDoesNotHaveIsNoFailureOfIt(t *testing.T) {
	for name, engine := range map[string]http.HandlerFunc{
		"nothing there":   failing(404, "404 page not found", "Content-Type", "text/plain"),
		"FastAPI":         failing(404, `{"detail":"Not Found"}`),
		"another method":  failing(405, `{"detail":"Method Not Allowed"}`),
		"not implemented": failing(501, `{"error":{"code":501,"message":"This server does not support embeddings. Start it with --embeddings","type":"not_supported_error"}}`),
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := serve(t, engine, Options{})
			err := ask(t.Context(), e, &haiku.Request{Prompt: "a"}).err
			require.ErrorIs(t, err, haiku.ErrUnsupported)
			require.ErrorContains(t, err, "no /completions")
			require.ErrorContains(t, err, "the engine answered")
			require.Equal(t, fallback.Neutral, fallback.OutcomeOf(t.Context(), err, false).Class)

			_, err = e.Embed(t.Context(), texts("a"))
			require.ErrorIs(t, err, haiku.ErrUnsupported)
			require.ErrorContains(t, err, "no /embeddings")

			err = ask(t.Context(), e, hello()).err
			require.ErrorIs(t, err, ErrFailed, "an engine that does not chat is not where it should be")
			require.Equal(t, fallback.Failed, fallback.OutcomeOf(t.Context(), err, false).Class)
		})
	}
	e, _ := serve(t, failing(404, `{"error":"model \"x\" not found"}`), Options{})
	require.ErrorIs(t, ask(t.Context(), e, &haiku.Request{Prompt: "a"}).err, haiku.ErrModelNotFound)
}
