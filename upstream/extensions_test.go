package upstream

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/cache"
	"github.com/intelliparadigm/haiku/openai"
)

// TestParametersOfTheEngineReachIt goes from a client's body to the engine's.
// What the engine does not get is left out: the API does not have it.
func TestParametersOfTheEngineReachIt(t *testing.T) {
	const known = `"chat_template_kwargs":{"enable_thinking":false },"guided_json":{"b":1.0,"a":[]},"ignore_eos":true`
	const decided = `"cache_salt":"mine","priority":-9,"rid":"other","repeat_last_n":3,"prompt":"x","max_new_tokens":5,"kv_transfer_params":{"remote_host":"h"}`
	for name, tt := range map[string]struct {
		opts Options
		want []string // of those above that come behind what the engine is sent in any case
	}{
		"by name":           {Options{Dialect: VLLM}, []string{"chat_template_kwargs", "guided_json", "ignore_eos"}},
		"another by name":   {Options{Dialect: SGLang, Extensions: []string{"max_new_tokens"}}, []string{"chat_template_kwargs", "guided_json", "ignore_eos", "max_new_tokens"}},
		"all":               {Options{Dialect: LlamaCpp, Extensions: []string{"*"}}, []string{"chat_template_kwargs", "guided_json", "ignore_eos", "max_new_tokens", "kv_transfer_params"}},
		"not what is fixed": {Options{Extensions: []string{"cache_salt", "priority", "rid", "prompt", "repeat_last_n"}}, []string{"chat_template_kwargs", "guided_json", "ignore_eos"}},
		"a strict API":      {Options{Dialect: OpenAI}, nil},
		"one by name there": {Options{Dialect: OpenAI, Extensions: []string{"guided_json"}}, []string{"guided_json"}},
	} {
		t.Run(name, func(t *testing.T) {
			rec := &recorder{next: events(plain...)}
			e, _ := serve(t, rec.serve, tt.opts)
			w := post(t, openai.Handler(e), "/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],`+known+`,`+decided+`}`)
			require.Equal(t, 200, w.Code, w.Body.String())
			require.Equal(t, tt.want, beyond(t, rec.bodies[0]))
			if tt.want != nil && tt.opts.Dialect != OpenAI {
				require.Contains(t, rec.bodies[0], known, "as it was written")
			}
		})
	}
}

// beyond are the names in a body, in order, behind those that a request has in
// any case, of which none is given twice.
func beyond(t *testing.T, body string) (names []string) {
	t.Helper()
	own := map[string]bool{}
	for _, name := range []string{"model", "messages", "stream", "stream_options", "temperature", "top_p", "presence_penalty", "frequency_penalty",
		"top_k", "min_p", "typical_p", "repetition_penalty", "repeat_penalty", "repeat_last_n"} {
		own[name] = true
	}
	seen := map[string]bool{}
	dec := json.NewDecoder(strings.NewReader(body))
	_, err := dec.Token()
	require.NoError(t, err)
	for dec.More() {
		name, err := dec.Token()
		require.NoError(t, err)
		var value json.RawMessage
		require.NoError(t, dec.Decode(&value))
		require.False(t, seen[name.(string)], "%s twice in %s", name, body)
		if seen[name.(string)] = true; !own[name.(string)] {
			names = append(names, name.(string))
		}
	}
	return names
}

// TestACacheKnowsParametersOfTheEngine: they shape the answer.
func TestACacheKnowsParametersOfTheEngine(t *testing.T) {
	rec := &recorder{next: events(plain...)}
	e, _ := serve(t, rec.serve, Options{Dialect: VLLM})
	tiers, err := cache.New(cache.Options{})
	require.NoError(t, err)
	defer tiers.Close()
	kept := cache.Through(e, tiers, cache.Policy{})
	defer kept.Close()
	h := openai.Handler(kept)
	for _, kwargs := range []string{`{"enable_thinking":true}`, `{"enable_thinking":false}`, `{"enable_thinking":true}`} {
		w := post(t, h, "/v1/chat/completions", `{"temperature":0,"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":`+kwargs+`}`)
		require.Equal(t, 200, w.Code, w.Body.String())
	}
	require.Len(t, rec.bodies, 2)
}

// TestACacheEmbedsWithAnEngine: questions that mean the same by the vectors of a
// server elsewhere are answered once.
func TestACacheEmbedsWithAnEngine(t *testing.T) {
	vectors := map[string]string{"where is the pond": "[3,4]", "the pond is where": "[3.1,4]", "who is the frog": "[-4,3]"}
	var inputs []string
	server := &recorder{}
	server.next = func(w http.ResponseWriter, r *http.Request) {
		_, body, _ := server.last(t)
		input := body["input"].([]any)[0].(string)
		inputs = append(inputs, input)
		vector, ok := vectors[input]
		if !ok {
			failing(400, `{"error":{"message":"no"}}`)(w, r)
			return
		}
		failing(200, `{"data":[{"index":0,"embedding":`+vector+`}],"usage":{"prompt_tokens":4}}`)(w, r)
	}
	embedder, _ := serve(t, server.serve, Options{Model: "org/e"})
	answers := &recorder{next: events(plain...)}
	e, _ := serve(t, answers.serve, Options{})
	tiers, err := cache.New(cache.Options{Semantic: &cache.Semantic{Embedder: embedder, Gate: func(_, _ string) bool { return true }}})
	require.NoError(t, err)
	defer tiers.Close()
	kept := cache.Through(e, tiers, cache.Policy{})
	defer kept.Close()
	asks := func(question string) (asked int) {
		ctx := haiku.WithIdentity(t.Context(), haiku.Identity{Tenant: "acme"})
		text, err := haiku.NewStream(ctx, kept, &haiku.Request{Messages: []haiku.Message{{Role: haiku.RoleUser, Content: question}}}).Text()
		require.NoError(t, err)
		require.Equal(t, "Hello", text)
		return len(answers.bodies)
	}
	require.Equal(t, 1, asks("where is the pond"))
	require.Equal(t, 1, asks("the pond is where"))
	require.Equal(t, 2, asks("who is the frog"))
	require.Equal(t, 3, asks("a question that the embedder refuses"), "it costs nothing else")
	require.Equal(t, 3, asks("who is the frog"))
	stats := tiers.Stats()
	require.EqualValues(t, 1, stats.Semantic)
	require.EqualValues(t, 1, stats.Unembedded)
	path, body, h := server.last(t)
	require.Equal(t, "POST /v1/embeddings", path)
	require.Equal(t, "org/e", body["model"])
	require.Equal(t, embedder.salt("acme"), h.Get(headerFairness), "for whom")
}
