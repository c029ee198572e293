package models_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/cache"
	"github.com/intelliparadigm/haiku/fallback"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/models"
	"github.com/intelliparadigm/haiku/openai"
	"github.com/intelliparadigm/haiku/upstream"
	"github.com/intelliparadigm/haiku/upstream/pool"
)

// server speaks OpenAI's API and notes what it is asked.
type server struct {
	*httptest.Server

	mu    sync.Mutex
	says  string   // empty is status 500
	asked []string // path, model, credentials
}

func (s *server) set(says string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.says = says
}

func serve(t *testing.T, says string) *server {
	s := &server{says: says}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Model string `json:"model"`
	}
	data, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(data, &body)
	s.mu.Lock()
	s.asked = append(s.asked, strings.TrimSpace(r.URL.Path+" "+body.Model+" "+r.Header.Get("Authorization")))
	says := s.says
	s.mu.Unlock()
	switch {
	case says == "":
		w.WriteHeader(http.StatusInternalServerError)
	case strings.HasSuffix(r.URL.Path, "/models"):
		_, _ = io.WriteString(w, `{"data":[{"id":"org/chat"},{"id":"sql","parent":"org/chat"}]}`)
	case strings.HasSuffix(r.URL.Path, "/metrics"):
		_, _ = io.WriteString(w, "vllm:num_requests_waiting 3\n")
	case strings.HasSuffix(r.URL.Path, "/health"):
	default:
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "data: {\"model\":%q,\"choices\":[{\"index\":0,\"delta\":{\"content\":%q},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", body.Model, says)
	}
}

// heard is what it has been asked so far, each question once.
func (s *server) heard() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]bool{}
	for _, a := range s.asked {
		all[a] = true
	}
	return all
}

func open(t *testing.T, config string, p models.Parts) *models.Set {
	t.Helper()
	c, err := models.Parse([]byte(config))
	require.NoError(t, err)
	p.Fallback.Breaker.Logger, p.Pool.Logger = slog.New(slog.DiscardHandler), slog.New(slog.DiscardHandler)
	s, err := models.Open(c, p)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// ask returns the text of an answer, and the name of the model that served.
func ask(t *testing.T, m haiku.Model, name string) (text, served string) {
	t.Helper()
	ctx := haiku.WithLogger(t.Context(), slog.New(slog.DiscardHandler))
	stream := haiku.NewStream(ctx, m, &haiku.Request{Model: name, Messages: []haiku.Message{{Role: haiku.RoleUser, Content: "hi"}}})
	text, err := stream.Text()
	require.NoError(t, err)
	return text, stream.Model()
}

// local is an engine in this process that says text.
func local(t *testing.T, text string) haiku.Model {
	return haikutest.NewEngine(t, haikutest.New(haikutest.Says(text)), infer.Options{Name: "tiny"})
}

func TestModelsAreAskedAndListedByNameAndAlias(t *testing.T) {
	gpu := serve(t, "from the gpu")
	s := open(t, `{"default": "chat", "models": [
		{"name": "small", "local": "tiny"},
		{"name": "chat", "aliases": ["gpt-4o", "best"], "servers": [{"url": "`+gpu.URL+`/v1", "model": "org/chat", "dialect": "vllm"}]},
		{"name": "spare", "hidden": true, "local": "tiny"}
	]}`, models.Parts{Models: map[string]haiku.Model{"tiny": local(t, "from here")}})
	for name, want := range map[string][2]string{
		"":       {"from the gpu", "chat"},
		"chat":   {"from the gpu", "chat"},
		"gpt-4o": {"from the gpu", "chat"},
		"small":  {"from here", "tiny"},
	} {
		text, served := ask(t, s, name)
		require.Equal(t, want, [2]string{text, served}, name)
	}
	_, err := haiku.NewStream(t.Context(), s, &haiku.Request{Model: "spare", Prompt: "x"}).Text()
	require.ErrorIs(t, err, haiku.ErrModelNotFound)
	require.Eventually(t, func() bool { return len(listed(t, s)) == 5 }, 5*time.Second, time.Millisecond, "with the engine's adapter, when that has told of it")
	require.Equal(t, []string{"best", "chat", "gpt-4o", "small", "sql"}, listed(t, s))
	text, served := ask(t, s, "sql")
	require.Equal(t, [2]string{"from the gpu", "sql"}, [2]string{text, served})
	require.Equal(t, map[string]bool{"/v1/chat/completions org/chat": true, "/v1/chat/completions sql": true, "/v1/models": true}, gpu.heard())
}

// listed is what a client finds at /v1/models.
func listed(t *testing.T, m haiku.Model) []string {
	w := httptest.NewRecorder()
	openai.Handler(m).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/models", nil))
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &list))
	var ids []string
	for _, m := range list.Data {
		ids = append(ids, m.ID)
	}
	return ids
}

func TestAModelStandsInForAnother(t *testing.T) {
	sick := serve(t, "")
	var tried []string
	s := open(t, `{"models": [
		{"name": "chat", "servers": [{"url": "`+sick.URL+`"}], "fallback": ["spare", "small"], "first_token": "2s", "open_for": "1m"},
		{"name": "spare", "hidden": true, "servers": [{"url": "`+sick.URL+`"}]},
		{"name": "small", "local": "tiny"}
	]}`, models.Parts{
		Models:   map[string]haiku.Model{"tiny": local(t, "from here")},
		Upstream: upstream.Options{Retry: upstream.Retry{Attempts: 1}},
		Fallback: fallback.Options{Observe: func(ctx context.Context, model string) (context.Context, func(fallback.Attempt)) {
			tried = append(tried, model)
			return ctx, nil
		}},
	})
	text, served := ask(t, s, "")
	require.Equal(t, [2]string{"from here", "tiny"}, [2]string{text, served})
	require.Equal(t, []string{"chat", "spare", "small"}, tried)
	chain, ok := s.Chain("chat")
	require.True(t, ok)
	require.Equal(t, []string{"chat/chat", "chat/spare", "chat/small"}, []string{chain.Breaker(0).Name(), chain.Breaker(1).Name(), chain.Breaker(2).Name()})
	_, ok = s.Chain("small")
	require.False(t, ok, "nothing stands in for it")
}

func TestSeveralServersAreAPoolThatAsksThem(t *testing.T) {
	servers := map[string]*server{"vllm": serve(t, "one"), "llama.cpp": serve(t, "two"), "": serve(t, "three"), "ollama": serve(t, "four")}
	loads := make(chan upstream.Load, 1)
	s := open(t, `{"models": [{"name": "chat", "servers": [
		{"name": "a", "url": "`+servers["vllm"].URL+`/v1", "dialect": "vLLM"},
		{"name": "b", "url": "`+servers["llama.cpp"].URL+`/openai/v1/", "dialect": "llama.cpp", "metrics": "none", "health": "/up/health"},
		{"url": "`+servers[""].URL+`"},
		{"name": "d", "url": "`+servers["ollama"].URL+`", "dialect": "Ollama", "health": "none"}
	]}]}`, models.Parts{
		Upstream: upstream.Options{OnLoad: func(l upstream.Load) { loads <- l }},
		Pool:     pool.Options{Poll: time.Millisecond, Probe: time.Millisecond, Stale: time.Hour},
	})
	p, ok := s.Pool("chat")
	require.True(t, ok)
	require.Eventually(t, func() bool {
		return servers["vllm"].heard()["/health"] && p.Status()[0].Load.Queued == 3 &&
			servers["llama.cpp"].heard()["/openai/up/health"] && servers[""].heard()["/v1/models"]
	}, 5*time.Second, time.Millisecond)
	require.Equal(t, strings.TrimPrefix(servers[""].URL, "http://"), p.Status()[2].Name)
	require.NotContains(t, servers["llama.cpp"].heard(), "/openai/metrics")
	require.Empty(t, servers["ollama"].heard())
	for _, name := range []string{"a", "b", p.Status()[2].Name} {
		require.NoError(t, p.Drain(t.Context(), name))
	}
	text, served := ask(t, s, "chat")
	require.Equal(t, [2]string{"four", "chat"}, [2]string{text, served})
	require.Equal(t, map[string]bool{"/v1/chat/completions chat": true}, servers["ollama"].heard())
}

func TestASecretGoesToNoServerThatDoesNotNameIt(t *testing.T) {
	paid, free := serve(t, "paid"), serve(t, "free")
	s := open(t, `{"models": [
		{"name": "paid", "servers": [{"url": "`+paid.URL+`", "key": "acme"}]},
		{"name": "free", "servers": [{"url": "`+free.URL+`"}]}
	]}`, models.Parts{
		Key:      func(_ context.Context, name string) (string, error) { return "secret of " + name, nil },
		Upstream: upstream.Options{Key: func(context.Context) (string, error) { return "of all", nil }, Abort: true},
	})
	ask(t, s, "paid")
	ask(t, s, "free")
	require.Equal(t, map[string]bool{"/v1/chat/completions paid Bearer secret of acme": true}, paid.heard())
	require.Equal(t, map[string]bool{"/v1/chat/completions free": true}, free.heard())
}

func TestWrappersStandAroundWhatTheyName(t *testing.T) {
	tiers, err := cache.New(cache.Options{})
	require.NoError(t, err)
	defer tiers.Close()
	var order, ended []string
	note := func(what string) func(string, haiku.Model) (haiku.Model, func()) {
		return func(name string, inner haiku.Model) (haiku.Model, func()) {
			return haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
				order = append(order, what+" of "+name)
				return inner.Generate(ctx, w, req)
			}), func() { ended = append(ended, what+" of "+name) }
		}
	}
	p := models.Parts{
		Models: map[string]haiku.Model{"a": local(t, "I am a"), "b": local(t, "I am b")},
		Wrappers: map[string]func(string, haiku.Model) (haiku.Model, func()){
			"outer": note("outer"), "inner": note("inner"),
			"cache": func(name string, inner haiku.Model) (haiku.Model, func()) {
				c := cache.Through(inner, tiers, cache.Policy{Model: name})
				return c, c.Close
			},
			"nothing": func(_ string, inner haiku.Model) (haiku.Model, func()) { return inner, nil },
		},
	}
	s := open(t, `{"models": [
		{"name": "a", "aliases": ["alias"], "local": "a", "wrap": ["outer", "cache", "nothing", "inner"]},
		{"name": "b", "local": "b", "wrap": ["cache"]}
	]}`, p)
	for _, name := range []string{"a", "alias", "b", ""} {
		text, _ := ask(t, s, name)
		require.Equal(t, "I am "+map[string]string{"b": "b"}[name]+map[bool]string{true: "a"}[name != "b"], text)
	}
	require.Equal(t, []string{"outer of a", "inner of a", "outer of a", "outer of a"}, order, "one answer for all names")
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.Equal(t, []string{"outer of a", "inner of a"}, ended)
}

func TestAnswersByAModelThatStandsInAreNotKept(t *testing.T) {
	tiers, err := cache.New(cache.Options{})
	require.NoError(t, err)
	defer tiers.Close()
	main := serve(t, "")
	s := open(t, `{"models": [
		{"name": "chat", "servers": [{"url": "`+main.URL+`"}], "fallback": ["small"], "wrap": ["cache"]},
		{"name": "small", "local": "tiny", "hidden": true}
	]}`, models.Parts{
		Models:   map[string]haiku.Model{"tiny": local(t, "standing in")},
		Upstream: upstream.Options{Retry: upstream.Retry{Attempts: 1}},
		Wrappers: map[string]func(string, haiku.Model) (haiku.Model, func()){
			"cache": func(name string, inner haiku.Model) (haiku.Model, func()) {
				c := cache.Through(inner, tiers, cache.Policy{Model: name})
				return c, c.Close
			},
		},
	})
	get := func() [3]string {
		w := httptest.NewRecorder()
		body := `{"model": "chat", "temperature": 0, "messages": [{"role": "user", "content": "hi"}]}`
		r := httptest.NewRequestWithContext(haiku.WithLogger(t.Context(), slog.New(slog.DiscardHandler)), http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		openai.Handler(s).ServeHTTP(w, r)
		var answer struct {
			Choices []struct{ Message struct{ Content string } }
		}
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
		return [3]string{answer.Choices[0].Message.Content, w.Header().Get("X-Haiku-Cache"), w.Header().Get(fallback.HeaderServedBy)}
	}
	require.Equal(t, [3]string{"standing in", "miss", "small"}, get())
	main.set("from the gpu")
	require.Equal(t, [3]string{"from the gpu", "miss", "chat"}, get())
	main.set("")
	require.Equal(t, [3]string{"from the gpu", "hit", ""}, get())
}

func TestADescriptionIsToldAllThatIsWrongWithIt(t *testing.T) {
	for config, want := range map[string][]string{
		`{}`:             {"no model is offered"},
		`{"models": []}`: {"no model is offered"},
		`{"models": [{"name": "a", "local": "tiny", "hidden": true, "aliases": ["b"]}]}`: {
			"no model is offered", `model "a": it is hidden`},
		`{"default": "b", "models": [{"name": "a", "local": "tiny"}, {"name": "b", "local": "tiny", "hidden": true}]}`: {
			`default: no model of the name "b" is offered`},
		`{"models": [{"name": "", "local": "tiny"}]}`: {"model 1 of 1 has an empty name or alias"},
		`{"models": [{"name": "a", "aliases": ["a"], "local": "tiny"}, {"name": "b", "aliases": ["a"], "local": "tiny"}]}`: {
			`"a" is the name of two: a name or alias of "a" and of "a"`, `"a" is the name of two: a name or alias of "a" and of "b"`},
		`{"models": [{"name": "a"}, {"name": "b", "local": "no"}, {"name": "c", "local": "tiny", "servers": [{"url": "http://h"}]}]}`: {
			`model "a": it is neither local nor has servers`, `model "b": local: there is no "no" among Parts.Models`, `model "c": it is local and has servers`},
		`{"models": [{"name": "a", "local": "tiny", "fallback": ["a", "b", "b", "c"]}, {"name": "b", "local": "tiny", "stall": "1s"}]}`: {
			`model "a": fallback: "a" is in the chain twice`, `model "a": fallback: "b" is in the chain twice`,
			`model "a": fallback: there is no model of the name "c"`, `model "b": stall needs a fallback or several servers`},
		`{"models": [{"name": "a", "local": "tiny", "open_for": "1s"}, {"name": "b", "local": "tiny", "hidden": true, "fallback": ["a"]}]}`: {
			`model "a": first_token, hedge_after and open_for need a fallback`, `model "b": it is hidden`},
		`{"models": [{"name": "a", "servers": [{"url": "http://h", "metrics": "http://i/metrics"}, {"url": "http://g", "health": "health"}]}]}`: {
			`model "a": servers[0]: "http://i/metrics" is neither a path that begins with / nor "none"`,
			`model "a": servers[1]: "health" is neither a path`},
		`{"models": [{"name": "a", "local": "tiny", "wrap": ["x"]}]}`: {`model "a": wrap: there is no "x" among Parts.Wrappers`},
		`{"models": [{"name": "a", "servers": [{"url": "http://h/v1", "key": "k"}, {"url": "http://h/v2"}]}]}`: {
			`servers[0]: its key is "k", and there is no Parts.Key`, `servers[1]: there is a server "h" already`},
		`{"models": [{"name": "a", "servers": [{"url": "h:8000"}]}, {"name": "b", "servers": [{"url": "http://h"}, {"url": "http://g", "dialect": "TGI"}]}]}`: {
			`model "a": server "h:8000": upstream: base URL`, `model "b": server "g": upstream: no dialect "TGI"`},
		`{"models": [{"name": "a", "local": "tiny", "fallback": ["b"], "hedge_after": "-1s"}, {"name": "b", "local": "tiny"}]}`: {
			`model "a": fallback: Options.HedgeAfter is negative`},
	} {
		c, err := models.Parse([]byte(config))
		require.NoError(t, err, config)
		_, err = models.Open(c, models.Parts{Models: map[string]haiku.Model{"tiny": haiku.ModelFunc(nil)}})
		for _, text := range want {
			require.ErrorContains(t, err, text)
		}
		require.Len(t, strings.Split(err.Error(), "\n"), len(want), err)
	}
}

func TestParseIsStrict(t *testing.T) {
	for config, want := range map[string]string{
		``:                                      "models: parse",
		`{"models": [{"nam": "a"}]}`:            `unknown object member name "nam"`,
		`{"models": [], "models": []}`:          "duplicate",
		`{"models": [{"stall": "soon"}]}`:       `"soon" is no duration`,
		`{"models": [{"stall": 5}]}`:            "models: parse",
		`{"models": []} x`:                      "models: parse",
		`{"models": [{"Name": "a"}]}`:           `unknown object member name "Name"`,
		`{"models": [{"servers": "http://h"}]}`: "/models/0/servers",
	} {
		_, err := models.Parse([]byte(config))
		require.ErrorContains(t, err, want, config)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"default":"a","models":[{"name":"a","aliases":["b"],"servers":[{"url":"http://h/v1","dialect":"vLLM","key":"k","metrics":"none"}],"fallback":["c"],"first_token":"120ms","wrap":["w"]},{"name":"c","hidden":true,"local":"l"}]}`))
	f.Add([]byte(`{"models":[{"name":"a","local":"l","open_for":"-5m0.5s"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := models.Parse(data)
		if err != nil {
			return
		}
		text, err := json.Marshal(c)
		require.NoError(t, err)
		again, err := models.Parse(text)
		require.NoError(t, err, "%s", text)
		more, err := json.Marshal(again)
		require.NoError(t, err)
		require.True(t, bytes.Equal(text, more), "%s\n%s", text, more)
		c.Models = c.Models[:min(len(c.Models), 1)]
		for i := range c.Models {
			c.Models[i].Servers = nil // no goroutines here
		}
		if s, err := models.Open(c, models.Parts{Models: map[string]haiku.Model{"l": haiku.ModelFunc(nil)}}); err == nil {
			require.NoError(t, s.Close())
		}
	})
}
