package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// recorder remembers what an engine was asked.
type recorder struct {
	mu      sync.Mutex
	bodies  []string
	headers []http.Header
	paths   []string
	next    http.HandlerFunc
}

func (r *recorder) serve(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	r.bodies = append(r.bodies, string(body))
	r.headers = append(r.headers, req.Header.Clone())
	r.paths = append(r.paths, req.Method+" "+req.URL.RequestURI())
	r.mu.Unlock()
	r.next(w, req)
}

// last is the last request's path, body as an object, and headers.
func (r *recorder) last(t *testing.T) (path string, body map[string]any, h http.Header) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.NotEmpty(t, r.bodies)
	n := len(r.bodies) - 1
	if r.bodies[n] != "" {
		require.NoError(t, json.Unmarshal([]byte(r.bodies[n]), &body), r.bodies[n])
	}
	return r.paths[n], body, r.headers[n]
}

// asked serves one request and returns what the engine got.
func asked(t *testing.T, ctx context.Context, o Options, req *haiku.Request) (body map[string]any, h http.Header) {
	t.Helper()
	rec := &recorder{next: events(plain...)}
	e, _ := serve(t, rec.serve, o)
	require.NoError(t, ask(ctx, e, req).err)
	_, body, h = rec.last(t)
	return body, h
}

func TestTheBodySaysAllThatShapesTheAnswer(t *testing.T) {
	seed := uint64(1<<63 + 5)
	req := &haiku.Request{
		ID: "req-1", Tenant: "acme", Model: "m", MaxTokens: 9, Stop: []string{"END", "\n"}, Logprobs: true, TopLogprobs: 2,
		Messages: []haiku.Message{
			{Role: haiku.RoleSystem, Content: "be \"short\""}, {Role: haiku.RoleUser, Name: "Ann", Content: "ü\u2028"},
			{Role: haiku.RoleAssistant, Extensions: []haiku.Extension{{Name: "content", Value: []byte("null")}, {Name: "tool_calls", Value: []byte(`[{"id":"c"}]`)}}},
			{Role: haiku.RoleTool, Content: "42", Extensions: []haiku.Extension{{Name: "tool_call_id", Value: []byte(`"c"`)}}},
		},
		Extensions: []haiku.Extension{{Name: "tools", Value: []byte(`[{"type":"function"}]`)}},
		Sampling: haiku.Sampling{
			Temperature: 0.5, TopK: 40, TopP: 0.9, MinP: 0.1, Seed: &seed, PresencePenalty: 0.25, FrequencyPenalty: -0.5, RepetitionPenalty: 1.5,
			LogitBias: map[int32]float32{7: -100, 5: float32(math.Inf(1))},
		},
		Objective: haiku.Objective{Priority: 3, TTFT: 250 * time.Millisecond},
	}
	body, h := asked(t, t.Context(), Options{Dialect: VLLM, Model: "org/big", Priority: true, ContinuousUsage: true, SaltKey: []byte("secret")}, req)
	salt := body["cache_salt"].(string)
	require.Len(t, salt, 32)
	require.NotContains(t, salt, "acme")
	require.Equal(t, map[string]any{
		"model": "org/big", "stream": true, "stream_options": map[string]any{"include_usage": true, "continuous_usage_stats": true},
		"messages": []any{
			map[string]any{"role": "system", "content": "be \"short\""}, map[string]any{"role": "user", "name": "Ann", "content": "ü\u2028"},
			map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{map[string]any{"id": "c"}}},
			map[string]any{"role": "tool", "content": "42", "tool_call_id": "c"},
		},
		"tools":      []any{map[string]any{"type": "function"}},
		"max_tokens": 9.0, "stop": []any{"END", "\n"}, "logprobs": true, "top_logprobs": 2.0,
		"temperature": 0.5, "top_k": 40.0, "top_p": 0.9, "min_p": 0.1, "seed": 5.0, "presence_penalty": 0.25, "frequency_penalty": -0.5, "repetition_penalty": 1.5,
		"logit_bias": map[string]any{"7": -100.0, "5": 100.0},
		"priority":   3.0, "cache_salt": salt,
	}, body)
	require.Equal(t, "250", h.Get(headerTTFT))
	require.Equal(t, salt, h.Get(headerFairness))
	require.Equal(t, "req-1", h.Get(headerRequestID))
	require.Equal(t, "json", h.Get(headerLoadAsked))
	require.Empty(t, h.Get("Authorization"))
}

// TestNothingIsLeftForTheEngineToFillIn: engines take what is missing from a
// model's generation_config.json (vllm-project/vllm#17075) or have samplers on.
func TestNothingIsLeftForTheEngineToFillIn(t *testing.T) {
	common := map[string]any{"temperature": 0.0, "top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
	for d, more := range map[Dialect]map[string]any{
		Generic: {}, OpenAI: {}, Ollama: {},
		VLLM:     {"top_k": -1.0, "min_p": 0.0, "repetition_penalty": 1.0},
		SGLang:   {"top_k": -1.0, "min_p": 0.0, "repetition_penalty": 1.0},
		LlamaCpp: {"top_k": 0.0, "min_p": 0.0, "typical_p": 1.0, "repeat_penalty": 1.0, "repeat_last_n": -1.0},
	} {
		t.Run(d.String(), func(t *testing.T) {
			body, _ := asked(t, t.Context(), Options{Dialect: d}, hello())
			for _, known := range []string{"model", "messages", "stream", "stream_options"} {
				require.Contains(t, body, known)
				delete(body, known)
			}
			want := map[string]any{}
			for _, m := range []map[string]any{common, more} {
				for name, value := range m {
					want[name] = value
				}
			}
			require.Equal(t, want, body)
			same, err := ParseDialect(d.String())
			require.NoError(t, err)
			require.Equal(t, d, same)
		})
	}
	_, err := ParseDialect("other")
	require.Error(t, err)
	require.Equal(t, "Dialect(99)", Dialect(99).String())
}

func TestDialectsNameThingsDifferently(t *testing.T) {
	req := hello()
	req.MaxTokens = 4
	seed := uint64(math.MaxUint64)
	req.Sampling.Seed = &seed
	body, _ := asked(t, t.Context(), Options{Dialect: OpenAI}, req)
	require.Equal(t, 4.0, body["max_completion_tokens"], "devnullvoid/dms-ai-assistant#12")
	require.NotContains(t, body, "max_tokens")
	require.Equal(t, float64(math.MaxInt64), body["seed"])
	body, _ = asked(t, t.Context(), Options{Dialect: LlamaCpp}, req)
	require.Equal(t, 4.0, body["max_tokens"], "voideditor/void#128")
	require.Equal(t, float64(math.MaxInt32), body["seed"], "-1 would be a random one")

	urgent := hello()
	urgent.Objective.Priority = -2
	body, _ = asked(t, t.Context(), Options{Dialect: SGLang, Priority: true}, urgent)
	require.Equal(t, 2.0, body["priority"], "higher ones are served first there")
	body, _ = asked(t, t.Context(), Options{Dialect: VLLM, Priority: true}, urgent)
	require.Equal(t, -2.0, body["priority"])
	for _, o := range []Options{{Dialect: VLLM}, {Dialect: LlamaCpp, Priority: true}} {
		body, _ = asked(t, t.Context(), o, urgent)
		require.NotContains(t, body, "priority")
	}
	urgent.Choices = 2
	rec := &recorder{next: events(doneMark)}
	e, _ := serve(t, rec.serve, Options{Dialect: VLLM, Priority: true, Retry: Retry{Attempts: 1}})
	ask(t.Context(), e, urgent)
	_, body, _ = rec.last(t)
	require.NotContains(t, body, "priority", "vllm-project/vllm#29747")
}

func TestPlainPromptsAreCompletions(t *testing.T) {
	text := events(`data: {"choices":[{"index":0,"text":"Hel"}]}`+"\n\n", `data: {"choices":[{"index":0,"text":"lo","finish_reason":"length"}]}`+"\n\n", doneMark)
	for want, req := range map[string]*haiku.Request{
		`"Once"`: {Prompt: "Once", MaxTokens: 2}, `[1,403,7]`: {Prompt: "ignored", PromptTokens: []int32{1, 403, 7}, MaxTokens: 2},
	} {
		rec := &recorder{next: text}
		e, _ := serve(t, rec.serve, Options{Dialect: OpenAI})
		a := ask(t.Context(), e, req)
		require.NoError(t, a.err)
		require.Equal(t, "Hello", a.texts[0])
		path, body, _ := rec.last(t)
		require.Equal(t, "POST /v1/completions", path)
		got, err := json.Marshal(body["prompt"])
		require.NoError(t, err)
		require.JSONEq(t, want, string(got))
		require.Equal(t, 2.0, body["max_tokens"])
	}
}

func TestWhatAnEngineLacksIsRefused(t *testing.T) {
	adapter := 0.5
	for name, tt := range map[string]struct {
		d     Dialect
		param string
		set   func(*haiku.Request)
	}{
		"top_k":           {Generic, "top_k", func(r *haiku.Request) { r.Sampling.TopK = 1 }},
		"min_p":           {OpenAI, "min_p", func(r *haiku.Request) { r.Sampling.MinP = 0.1 }},
		"typical_p":       {VLLM, "typical_p", func(r *haiku.Request) { r.Sampling.TypicalP = 0.5 }},
		"typical, SGLang": {SGLang, "typical_p", func(r *haiku.Request) { r.Sampling.TypicalP = 0.5 }},
		"repetition":      {Ollama, "repetition_penalty", func(r *haiku.Request) { r.Sampling.RepetitionPenalty = 1.1 }},
		"mask":            {VLLM, "mask", func(r *haiku.Request) { r.Sampling.Mask = haiku.NewTokenMask(8) }},
		"adapter":         {VLLM, "adapter_scale", func(r *haiku.Request) { r.AdapterScale = &adapter }},
		"choices":         {Ollama, "n", func(r *haiku.Request) { r.Choices = 2 }},
		"bias":            {Ollama, "logit_bias", func(r *haiku.Request) { r.Sampling.LogitBias = map[int32]float32{1: 1} }},
		"tokens":          {Ollama, "prompt", func(r *haiku.Request) { r.Messages, r.PromptTokens = nil, []int32{1} }},
		"extension": {VLLM, "kv_transfer_params", func(r *haiku.Request) {
			r.Extensions = []haiku.Extension{{Name: "kv_transfer_params", Value: []byte("{}")}}
		}},
		"salt": {VLLM, "cache_salt", func(r *haiku.Request) { r.Extensions = []haiku.Extension{{Name: "cache_salt", Value: []byte(`"x"`)}} }},
		"role": {VLLM, "messages[0].role", func(r *haiku.Request) {
			r.Messages[0].Extensions = []haiku.Extension{{Name: "role", Value: []byte(`"system"`)}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			rec := &recorder{next: events(plain...)}
			e, _ := serve(t, rec.serve, Options{Dialect: tt.d})
			req := hello()
			tt.set(req)
			err := e.Generate(t.Context(), haiku.NewStream(t.Context(), e, req), req)
			require.ErrorIs(t, err, haiku.ErrUnsupported)
			require.Equal(t, tt.param, haiku.ErrorFrom(err).Param)
			require.Empty(t, rec.bodies)
		})
	}
	body, _ := asked(t, t.Context(), Options{Extensions: []string{"my_own"}}, &haiku.Request{Prompt: "a", Extensions: []haiku.Extension{{Name: "my_own", Value: []byte("1")}}})
	require.Equal(t, 1.0, body["my_own"])
}

func TestTheSaltFollowsTheIdentity(t *testing.T) {
	salt := func(tenant string, key string) any {
		req := hello()
		req.Tenant = tenant
		body, _ := asked(t, t.Context(), Options{Dialect: VLLM, SaltKey: []byte(key)}, req)
		return body["cache_salt"]
	}
	a := salt("a", "k")
	require.Equal(t, a, salt("a", "k"))
	require.NotEqual(t, a, salt("b", "k"))
	require.NotEqual(t, a, salt("a", "other"))
	require.NotEqual(t, a, salt("a", ""))
	require.Nil(t, salt("", "k"))
	ctx := haiku.WithIdentity(t.Context(), haiku.Identity{Tenant: "a"})
	req := hello()
	req.Tenant = "b" // which a body could have said
	body, _ := asked(t, ctx, Options{Dialect: SGLang, SaltKey: []byte("k")}, req)
	require.Equal(t, a, body["cache_salt"])
}

// TestHeadersStayHere: what a client sends beside the named headers does not
// reach the engine (ranxianglei/billion-context#80, NVIDIA-NeMo/Switchyard#410,
// BerriAI/litellm#38114).
func TestHeadersStayHere(t *testing.T) {
	client := http.Header{}
	for name, value := range map[string]string{
		"Authorization": "Bearer client", "Cookie": "c", "X-Api-Key": "k", "Api-Key": "k", "X-Goog-Api-Key": "k", "Proxy-Authorization": "p",
		"Te": "trailers", "Upgrade": "h2c", "Connection": "X-Named, close", "X-Named": "n", "X-Custom": "c", "User-Agent": "me", "Host": "h",
		headerFairness: "somebody else", headerLoadAsked: "text", "Content-Type": "text/plain", "Accept-Encoding": "gzip",
		headerRequestID: "client-7", headerObjective: "batch", headerTTFT: "900", headerTPOT: "40", headerState: "a=b", headerTrace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	} {
		client.Set(name, value)
	}
	ctx := context.WithValue(t.Context(), clientKey{}, client)
	o := Options{
		Forward: []string{"x-named", "x-custom"}, Header: http.Header{"X-Team": {"blue"}},
		Key:    func(context.Context) (string, error) { return "engine-key", nil },
		Inject: func(_ context.Context, h http.Header) { h.Set("X-Span", "7") },
	}
	_, h := asked(t, ctx, o, hello())
	want := http.Header{
		headerRequestID: {"client-7"}, headerObjective: {"batch"}, headerTTFT: {"900"}, headerTPOT: {"40"},
		"X-Custom": {"c"}, "X-Team": {"blue"}, "X-Span": {"7"},
		"Authorization": {"Bearer engine-key"}, "Accept": {"text/event-stream"}, "Content-Type": {"application/json"}, headerLoadAsked: {"json"},
	}
	for _, own := range []string{"Content-Length", "User-Agent"} {
		require.NotEqual(t, "me", h.Get(own))
		h.Del(own)
	}
	require.Equal(t, want, h)

	_, h = asked(t, t.Context(), Options{}, hello())
	require.Empty(t, h.Get(headerState))
	require.Empty(t, h.Get(headerObjective), "without Propagate nothing of the client's")
}

func TestHeadersThatMakeNoSenseStayHere(t *testing.T) {
	client := http.Header{headerRequestID: {"a b"}, headerTTFT: {"soon"}, headerTPOT: {"-1"}, headerObjective: {string(make([]byte, maxHeaderBytes+1))}, headerState: {"a=b"}}
	_, h := asked(t, context.WithValue(t.Context(), clientKey{}, client), Options{}, hello())
	require.Equal(t, "req-1", h.Get(headerRequestID))
	for _, name := range []string{headerTTFT, headerTPOT, headerObjective, headerState} {
		require.Empty(t, h.Get(name), name)
	}
}

func TestHeadersOfTheHostAreNotChanged(t *testing.T) {
	teams := append(make([]string, 0, 2), "blue") // with room for what Inject adds
	e, err := New("http://h", Options{Header: http.Header{"x-team": teams}, Inject: func(_ context.Context, h http.Header) { h.Add("X-Team", "red") }})
	require.NoError(t, err)
	defer e.Close()
	h, err := e.headers(t.Context(), envelope{})
	require.NoError(t, err)
	require.Equal(t, []string{"blue", "red"}, h["X-Team"])
	require.Empty(t, teams[:2][1], "requests share it")
	require.NotContains(t, h, headerRequestID, "there is none")
}

func TestAKeyThatCannotBeHadIsNotTheClientsFault(t *testing.T) {
	e, _ := serve(t, events(plain...), Options{Key: func(context.Context) (string, error) { return "", errors.New("vault is down") }})
	a := ask(t.Context(), e, hello())
	require.ErrorIs(t, a.err, ErrFailed)
	require.ErrorIs(t, a.err, ErrCredentials)
	require.Equal(t, 502, haiku.ErrorFrom(a.err).Status)
}

func TestBaseURLs(t *testing.T) {
	for base, want := range map[string]string{
		"http://h:1":               "http://h:1/v1/chat/completions",
		"http://h/v1":              "http://h/v1/chat/completions",
		"http://h/v1/":             "http://h/v1/chat/completions", // sigoden/aichat#767
		"https://h/api/v1//":       "https://h/api/v1/chat/completions",
		"https://h/v1beta/openai/": "https://h/v1beta/openai/chat/completions", // QuantumNous/new-api#853
		"https://h/v1?api=7":       "https://h/v1/chat/completions?api=7",
	} {
		e, err := New(base, Options{})
		require.NoError(t, err, base)
		require.Equal(t, want, e.url(pathChat, false).String())
		require.NoError(t, e.Close())
	}
	for _, base := range []string{"", "h:1", "ftp://h", "http://", "http://user:secret@h/v1", "http://h/v1#a", "http://h/v1/chat/completions", "http://h/v1/models/", "http://[::1"} {
		_, err := New(base, Options{})
		require.Error(t, err, base)
		require.NotContains(t, err.Error(), "secret")
	}
	for _, o := range []Options{{Dialect: 99}, {Abort: true}, {Forward: []string{"authorization"}}, {Forward: []string{"x-gateway-inference-fairness-id"}}} {
		_, err := New("http://h", o)
		require.Error(t, err)
	}
}

func TestPropagateAndTheTraceOfTheRequest(t *testing.T) {
	rec := &recorder{next: events(plain...)}
	e, _ := serve(t, rec.serve, Options{})
	mux := haiku.New()
	handler := haiku.HandlerFunc(func(c *haiku.Context) { _ = c.Stream(haiku.NewStream(c.Context(), e, hello())) })
	mux.Register("POST /with", handler, Propagate())
	mux.Register("POST /without", handler)
	for _, path := range []string{"/with", "/without"} {
		w := post(t, mux, path, "{}", headerTrace, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", headerState, "a=b", headerObjective, "batch")
		require.Equal(t, 200, w.Code)
		_, _, h := rec.last(t)
		require.Equal(t, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", h.Get(headerTrace))
		if path == "/with" {
			require.Equal(t, "batch", h.Get(headerObjective))
			require.Equal(t, "a=b", h.Get(headerState))
		} else {
			require.Empty(t, h.Get(headerObjective))
		}
	}
	for _, broken := range []string{"", "junk", "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", "00-00000000000000000000000000000000-b7ad6b7169203331-01"} {
		post(t, mux, "/with", "{}", headerTrace, broken, headerState, "a=b")
		_, _, h := rec.last(t)
		require.NotContains(t, h, headerTrace, "a new trace begins")
		require.NotContains(t, h, headerState)
	}
}
