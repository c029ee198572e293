package upstream

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// front serves h on a network of its own and returns a client for it.
func front(t *testing.T, h http.Handler) *http.Client {
	t.Helper()
	e, network := serve(t, h.ServeHTTP, Options{}) // its transport is what matters
	e.own.DisableKeepAlives = true
	_ = network
	return &http.Client{Transport: e.own}
}

// passing is a mux whose chat route passes through to e.
func passingTo(e *Engine, mw ...haiku.Middleware) *haiku.Mux {
	mux := haiku.New()
	mux.Use(mw...)
	mux.Use(func(next haiku.InferenceHandler) haiku.InferenceHandler {
		return haiku.HandlerFunc(func(c *haiku.Context) {
			c.Request = c.Request.WithContext(quiet(c.Context()))
			next.ServeInference(c)
		})
	})
	mux.Register("POST /v1/", e.Passthrough())
	return mux
}

const (
	streamBody  = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hello"}]}`
	countedBody = `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hello"}]}`
)

// passed sends a body through and returns the response, read to its end.
func passThrough(t *testing.T, mux http.Handler, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://front/v1/chat/completions", strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := front(t, mux).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

func TestEventsPassThroughAsTheyCame(t *testing.T) {
	odd := []string{roleChunk, `data:{"id":1e400,"x":{"a":1,"a":2},"choices":[{"index":0,"delta":{"content":"a","y":"\ud83d"}}]}` + "\r\n\r\n", "event: x\nid: 7\n" + piece("b")}
	for name, tt := range map[string]struct {
		engine     []string
		body, want string
	}{
		"all of it, with the usage that was asked for": {append(odd, stopChunk, usageChunk, doneMark), countedBody, strings.Join(odd, "") + stopChunk + usageChunk + doneMark},
		"without the usage that was not":               {append(odd, stopChunk, usageChunk, doneMark), streamBody, strings.Join(odd, "") + stopChunk + doneMark},
		"without comments":                             {[]string{": ping\n\n", roleChunk, piece("a"), ": ping\n\n", stopChunk, doneMark}, streamBody, roleChunk + piece("a") + stopChunk + doneMark},
		"with the end mark that was missing":           {[]string{piece("a"), stopChunk}, streamBody, piece("a") + stopChunk + doneMark},
		"with the line ends that were missing":         {[]string{piece("a"), stopChunk, "data: [DONE]"}, streamBody, piece("a") + stopChunk + doneMark},
		"an answer without content":                    {[]string{roleChunk, stopChunk, doneMark}, streamBody, roleChunk + stopChunk + doneMark},
	} {
		t.Run(name, func(t *testing.T) {
			for how, engine := range map[string]http.HandlerFunc{
				"events": events(tt.engine...), "at once": events(strings.Join(tt.engine, "")), "bytewise": bytewise(strings.Join(tt.engine, "")),
			} {
				e, _ := serve(t, engine, Options{})
				resp, got := passThrough(t, passingTo(e), tt.body)
				require.Equal(t, 200, resp.StatusCode)
				require.Equal(t, tt.want, got, how)
				require.Equal(t, []string{"text/event-stream"}, resp.Header["Content-Type"])
				require.Equal(t, []string{"no"}, resp.Header["X-Accel-Buffering"])
				require.Equal(t, []string{"no-cache"}, resp.Header["Cache-Control"])
			}
		})
	}
}

// TestQuirksThroughTwoEngines puts an engine with each quirk behind a server
// that passes its stream through: what a client gets means the same.
func TestQuirksThroughTwoEngines(t *testing.T) {
	for _, q := range quirks {
		if strings.HasPrefix(q.name, "an answer that is no stream") {
			continue // see TestAnAnswerThatIsNoStreamIsRefused
		}
		t.Run(q.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner, _ := serve(t, q.engine, q.opts)
				outer, _ := serve(t, passingTo(inner).ServeHTTP, once)
				req := hello()
				if q.req != nil {
					q.req(req)
				}
				a := ask(t.Context(), outer, req)
				require.Equal(t, q.text, a.texts[0])
				if q.err != nil {
					require.Error(t, a.err)
					require.Equal(t, q.status, haiku.ErrorFrom(a.err).Status, "%v", a.err)
					return
				}
				require.NoError(t, a.err)
				require.Equal(t, q.finish, a.finish[0])
				require.Equal(t, q.deltas, a.deltas)
				if q.usage != (haiku.Usage{}) {
					require.Equal(t, q.usage, a.usage)
				}
			})
		})
	}
}

func TestTheBodyPassesThrough(t *testing.T) {
	rec := &recorder{next: events(plain...)}
	e, _ := serve(t, rec.serve, Options{Dialect: VLLM, Model: "org/big", Name: "m", Priority: true, SaltKey: []byte("k"), Extensions: []string{"*"}})
	mux := passingTo(e, func(next haiku.InferenceHandler) haiku.InferenceHandler {
		return haiku.HandlerFunc(func(c *haiku.Context) {
			c.SetIdentity(haiku.Identity{Tenant: "acme"})
			c.Request = c.Request.WithContext(haiku.WithObjective(c.Context(), haiku.Objective{Priority: -1}))
			next.ServeInference(c)
		})
	})
	body := `{ "seed" : 12345678901234567890, "cache_salt":"mine", "model":"m","priority":-99, "rid":"x" ,"stream":true,"messages":[{"role":"user","content":"\u0068i 😀"}], "own":{"b":1.50,"a":[ ]}}`
	resp, text := passThrough(t, mux, body, "Authorization", "Bearer client", "X-Request-Id", "r-1", headerState, "a=b", headerFairness, "else")
	require.Equal(t, 200, resp.StatusCode, text)
	require.Equal(t, `{"model":"org/big","cache_salt":"`+e.salt("acme")+`","priority":-1,"stream_options":{"include_usage":true},`+
		`"seed":12345678901234567890,"stream":true,"messages":[{"role":"user","content":"\u0068i 😀"}],"own":{"b":1.50,"a":[ ]}}`, rec.bodies[0])
	_, _, h := rec.last(t)
	require.Empty(t, h.Get("Authorization"))
	require.Equal(t, "r-1", h.Get(headerRequestID))
	require.Equal(t, e.salt("acme"), h.Get(headerFairness))
	require.Contains(t, text, `"model":"big"`, "as the engine has it")
}

func TestABodyThatDoesNotPass(t *testing.T) {
	for name, tt := range map[string]struct {
		body, param string
		status      int
		all         bool
	}{
		"no JSON":               {body: `{"model":`, status: 400},
		"no object":             {body: `[]`, status: 400},
		"a name given twice":    {body: `{"model":"m","model":"other"}`, param: "model", status: 400},
		"a nested one as well":  {body: `{"model":"m","messages":[{"role":"user","role":"system"}]}`, param: "messages[0].role", status: 400},
		"a name with escapes":   {body: `{"mod\u0065l":"other"}`, status: 400, param: `mod\u0065l`},
		"an escape among all":   {body: `{"model":"m","cache\u005fsalt":"x"}`, status: 400, param: `cache\u005fsalt`, all: true},
		"another case":          {body: `{"model":"m","MODEL":"other"}`, param: "MODEL", status: 400, all: true},
		"another case of salt":  {body: `{"model":"m","Cache_Salt":"x"}`, param: "Cache_Salt", status: 400, all: true},
		"something unknown":     {body: `{"model":"m","kv_transfer_params":{}}`, param: "kv_transfer_params", status: 400},
		"another model":         {body: `{"model":"other"}`, param: "model", status: 404},
		"no model":              {body: `{"stream":true}`, param: "model", status: 404},
		"a model of no name":    {body: `{"model":7}`, param: "model", status: 400},
		"a stream that is text": {body: `{"model":"m","stream":"yes"}`, param: "stream", status: 400},
		"too many choices":      {body: `{"model":"m","n":1000}`, param: "n", status: 400},
		"no choices":            {body: `{"model":"m","n":-1}`, param: "n", status: 400},
	} {
		t.Run(name, func(t *testing.T) {
			rec := &recorder{next: events(plain...)}
			o := Options{Name: "m"}
			if tt.all {
				o.Extensions = []string{"*"}
			}
			e, _ := serve(t, rec.serve, o)
			resp, text := passThrough(t, passingTo(e), tt.body)
			require.Equal(t, tt.status, resp.StatusCode, text)
			if tt.param != "" {
				require.Contains(t, text, `"param":"`+strings.ReplaceAll(tt.param, `\`, `\\`)+`"`)
			}
			require.Empty(t, rec.bodies)
		})
	}
}

func TestRoutesOfPassthrough(t *testing.T) {
	rec := &recorder{next: failing(200, `{"data":[{"index":0,"embedding":[1]}],"usage":{"prompt_tokens":3,"total_tokens":3}}`)}
	var served []Served
	e, _ := serve(t, rec.serve, Options{OnServed: func(s Served) { served = append(served, s) }})
	mux := passingTo(e)
	w := post(t, mux, "/v1/embeddings", `{"model":"e","input":["a"]}`)
	require.Equal(t, 200, w.Code)
	require.JSONEq(t, `{"data":[{"index":0,"embedding":[1]}],"usage":{"prompt_tokens":3,"total_tokens":3}}`, w.Body.String())
	require.Equal(t, "POST /v1/embeddings", rec.paths[0])
	require.Equal(t, []Served{{Model: "e", Usage: haiku.Usage{PromptTokens: 3}, Counted: true}}, served)
	require.Equal(t, 404, post(t, mux, "/v1/other", `{}`).Code)
}

func TestAnAnswerThatIsNoStreamPassesWhole(t *testing.T) {
	whole := `{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2}}`
	rec := &recorder{next: failing(200, whole)}
	e, _ := serve(t, rec.serve, Options{})
	resp, text := passThrough(t, passingTo(e), `{"model":"m","messages":[]}`)
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, whole, text)
	require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	require.Equal(t, `{"model":"m","messages":[]}`, rec.bodies[0])
	rec.next = failing(200, `{"error":{"message":"no","code":429}}`)
	resp, _ = passThrough(t, passingTo(e), `{"model":"m","messages":[]}`)
	require.Equal(t, 429, resp.StatusCode)
	rec.next = failing(200, "<html>")
	resp, _ = passThrough(t, passingTo(e), `{"model":"m","messages":[]}`)
	require.Equal(t, 502, resp.StatusCode)
}

func TestAnAnswerThatIsNoStreamIsRefused(t *testing.T) {
	e, _ := serve(t, failing(200, `{"choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}]}`), Options{})
	resp, _ := passThrough(t, passingTo(e), streamBody)
	require.Equal(t, 502, resp.StatusCode, "it cannot be passed on as it is")
}

func TestFailuresPassInTheFormOfTheAPI(t *testing.T) {
	broken := `data: {"error":{"message":"the model's engine failed","type":"server_error","param":null,"code":"upstream_failed"}}` + "\n\n"
	for name, tt := range map[string]struct {
		engine http.HandlerFunc
		status int
		want   string
	}{
		"before the response":    {failing(400, `{"error":{"message":"bad"}}`), 400, `{"error":{"message":"bad","type":"invalid_request_error","param":null,"code":"invalid_request"}}`},
		"before the content":     {events(roleChunk, "data: {\"error\":{\"message\":\"bad\",\"code\":400}}\n\n"), 400, `{"error":{"message":"bad","type":"invalid_request_error","param":null,"code":"invalid_request"}}`},
		"after some content":     {events(piece("a"), "data: {\"error\":{\"message\":\"cuda:0 died at /srv/x\",\"code\":500}}\n\n", doneMark), 200, piece("a") + broken},
		"a break":                {then([]string{piece("a"), "data: {\"half"}, cut), 200, piece("a") + broken},
		"an end without reason":  {events(piece("a"), doneMark), 200, piece("a") + broken},
		"an abort":               {events(piece("a"), choiceChunk(`{"delta":{},"finish_reason":"abort"}`), doneMark), 200, piece("a") + broken},
		"no chunk":               {events(piece("a"), "data: {]\n\n"), 200, piece("a") + broken},
		"a choice out of bounds": {events(piece("a"), choiceChunk(`{"index":1,"delta":{"content":"b"}}`)), 200, piece("a") + broken},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := serve(t, tt.engine, once)
			resp, got := passThrough(t, passingTo(e), streamBody)
			require.Equal(t, tt.status, resp.StatusCode)
			require.Equal(t, tt.want, got)
		})
	}
}

// TestBlankLinesDoNotOpenAStream: until the first content a failure has a status
// of its own.
func TestBlankLinesDoNotOpenAStream(t *testing.T) {
	failure := "data: {\"error\":{\"message\":\"bad\",\"code\":400}}\n\n"
	for name, engine := range map[string]http.HandlerFunc{
		"in front":             events("\n\n", failure),
		"behind the role":      events(roleChunk+"\n", "\n"+failure),
		"around a comment":     events("\n: ping\n\n\n"+roleChunk, failure),
		"an LF of a late CRLF": bytewise(strings.ReplaceAll(roleChunk+failure, "\n", "\r\n")),
	} {
		e, _ := serve(t, engine, once)
		resp, text := passThrough(t, passingTo(e), streamBody)
		require.Equal(t, 400, resp.StatusCode, "%s: %q", name, text)
	}
}

func TestPassingIsTriedAgainUntilContentHasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := strings.ReplaceAll(roleChunk, "big", "first")
		h, served := inTurn(failing(503, busyBody), then([]string{first, doneMark}, hang), events(plain...))
		e, _ := serve(t, h, Options{})
		resp, got := passThrough(t, passingTo(e), streamBody)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, roleChunk+piece("Hel")+piece("lo")+stopChunk+doneMark, got, "nothing of what failed")
		require.Equal(t, 3, served())
	})
}

// TestSilenceIsBroken has an engine that is slow at first and in between, and
// fails once while the client is being kept waiting.
func TestSilenceIsBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := inTurn(
			then([]string{roleChunk}, slowly(25*time.Second, "data: {\"error\":{\"message\":\"busy\",\"code\":503}}\n\n")),
			then([]string{roleChunk}, slowly(25*time.Second, piece("a"), piece("b"), stopChunk+doneMark)))
		e, _ := serve(t, h, Options{Retry: Retry{Budget: time.Hour}})
		policy := haiku.Streaming(haiku.StreamOptions{Keepalive: 10 * time.Second, OpenAfter: 20 * time.Second})
		resp, got := passThrough(t, passingTo(e, policy), streamBody)
		require.Equal(t, 200, resp.StatusCode)
		ping := ": keepalive\n\n"
		require.Equal(t, 1, strings.Count(got, roleChunk), "of the second attempt alone")
		require.Equal(t, roleChunk+piece("a")+piece("b")+stopChunk+doneMark, strings.ReplaceAll(got, ping, ""))
		require.GreaterOrEqual(t, strings.Count(got, ping), 6)
	})
}

func TestAStatusThatCannotWaitAnyLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := serve(t, slowly(25*time.Second, "data: {\"error\":{\"message\":\"bad\",\"code\":400}}\n\n"), Options{})
		resp, got := passThrough(t, passingTo(e), streamBody)
		require.Equal(t, 200, resp.StatusCode, "open since 15 s")
		require.True(t, strings.HasPrefix(got, ": keepalive\n\n"), got)
		require.Contains(t, got, `"code":"invalid_request"`)
		require.NotContains(t, got, "[DONE]")
	})
}

func TestTimeoutsOfAPassingStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := serve(t, then([]string{roleChunk}, hang), timeouts)
		began := time.Now()
		resp, _ := passThrough(t, passingTo(e), streamBody)
		require.Equal(t, 504, resp.StatusCode)
		require.Equal(t, 3*time.Second, time.Since(began))

		e, network := serve(t, then([]string{piece("a"), "data: {\"half"}, hang), timeouts)
		began = time.Now()
		_, got := passThrough(t, passingTo(e), streamBody)
		require.Contains(t, got, `"code":"timeout"`)
		require.NotContains(t, got, "half", "only whole events")
		require.Equal(t, afterAToken, time.Since(began))
		synctest.Wait()
		_, open := network.connections()
		require.Zero(t, open)
	})
}

func TestAClientThatLeavesEndsTheEnginesWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var ended []Served
		e, network := serve(t, then([]string{piece("a"), piece("b")}, hang), Options{OnServed: func(s Served) {
			mu.Lock()
			defer mu.Unlock()
			ended = append(ended, s)
		}})
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "POST", "http://front/v1/chat/completions", strings.NewReader(streamBody))
		require.NoError(t, err)
		resp, err := front(t, passingTo(e)).Do(req)
		require.NoError(t, err)
		line, err := bufio.NewReader(resp.Body).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, piece("a")[:len(line)], line)
		synctest.Wait()
		cancel()
		_ = resp.Body.Close()
		synctest.Wait()
		_, open := network.connections()
		require.Zero(t, open)
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, ended, 1)
		require.Error(t, ended[0].Err)
		require.Equal(t, haiku.Usage{CompletionTokens: 2}, ended[0].Usage)
		require.False(t, ended[0].Counted)
	})
}

// TestAClientThatStopsReadingIsLetGo: its connection takes nothing, and the
// write deadline ends its stream and the engine's work.
func TestAClientThatStopsReadingIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, network := serve(t, then([]string{piece("a")}, slowly(time.Second, repeat(piece("b"), 100)...)), Options{})
		policy := haiku.Streaming(haiku.StreamOptions{WriteTimeout: 5 * time.Second})
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://front/v1/chat/completions", strings.NewReader(streamBody))
		require.NoError(t, err)
		client := front(t, passingTo(e, policy))
		client.Transport.(*http.Transport).ReadBufferSize = 64
		resp, err := client.Do(req)
		require.NoError(t, err)
		soon(20 * time.Second)
		_, open := network.connections()
		require.Zero(t, open)
		_ = resp.Body.Close()
	})
}

func TestWhatWasServedIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var served []Served
		e, _ := serve(t, slowly(time.Second, piece("a")+piece("b"), stopChunk+usageChunk+doneMark), Options{OnServed: func(s Served) { served = append(served, s) }})
		mux := passingTo(e, func(next haiku.InferenceHandler) haiku.InferenceHandler {
			return haiku.HandlerFunc(func(c *haiku.Context) {
				c.SetIdentity(haiku.Identity{Subject: "ann", Tenant: "acme"})
				next.ServeInference(c)
			})
		})
		_, _ = passThrough(t, mux, streamBody)
		require.Equal(t, []Served{{
			Identity: haiku.Identity{Subject: "ann", Tenant: "acme"}, Model: "m", Usage: haiku.Usage{PromptTokens: 5, CompletionTokens: 2}, Counted: true, FirstToken: time.Second,
		}}, served)
	})
}
