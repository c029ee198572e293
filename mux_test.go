package haiku_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// says is a handler that answers with text and what the request matched.
func says(text string) haiku.HandlerFunc {
	return func(c *haiku.Context) {
		fmt.Fprintf(c.Writer, "%s %s %s", text, c.Request.Pattern, c.Request.PathValue("id"))
	}
}

// marks is middleware that writes down when it is entered and left.
func marks(log *[]string, name string) haiku.Middleware {
	return func(next haiku.InferenceHandler) haiku.InferenceHandler {
		return haiku.HandlerFunc(func(c *haiku.Context) {
			*log = append(*log, name+">")
			next.ServeInference(c)
			*log = append(*log, "<"+name)
		})
	}
}

func get(h http.Handler, method, target string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(method, target, nil))
	return rec
}

const (
	notFoundBody = `{"error":{"message":"there is nothing at this address","type":"invalid_request_error","param":null,"code":"not_found"}}`
	methodBody   = `{"error":{"message":"the method is not allowed here","type":"invalid_request_error","param":null,"code":"method_not_allowed"}}`
)

func TestPatterns(t *testing.T) {
	mux := haiku.New()
	mux.Register("POST /v1/chat", says("chat"))
	mux.Register("GET /v1/models/{id}", says("model"))
	mux.Register("GET /v1/models/{id}/{rest...}", says("rest"))
	mux.Register("tenant.example/v1/chat", says("tenant"))
	mux.Register("/dir/", says("dir"))
	for _, tt := range []struct {
		method, target string
		status         int
		body           string
		header         http.Header
	}{
		{"POST", "/v1/chat", 200, "chat POST /v1/chat ", nil},
		{"GET", "/v1/models/a%2Fb", 200, "model GET /v1/models/{id} a/b", nil},
		{"GET", "/v1/models/a/b", 200, "rest GET /v1/models/{id}/{rest...} a", nil},
		{"DELETE", "http://tenant.example/v1/chat", 200, "tenant tenant.example/v1/chat ", nil},
		{"PUT", "/dir/x", 200, "dir /dir/ ", nil},
		{"GET", "/v1/chat", 405, methodBody, http.Header{"Allow": {"POST"}}},
		{"PUT", "/v1/models/x", 405, methodBody, http.Header{"Allow": {"GET, HEAD"}}},
		{"GET", "/v1/none", 404, notFoundBody, nil},
		{"GET", "/", 404, notFoundBody, nil},
	} {
		t.Run(tt.method+" "+tt.target, func(t *testing.T) {
			rec := get(mux, tt.method, tt.target)
			require.Equal(t, tt.status, rec.Code)
			require.Equal(t, tt.body, rec.Body.String())
			require.Equal(t, tt.header.Get("Allow"), rec.Header().Get("Allow"))
			if tt.status >= 400 {
				require.Equal(t, "application/json", rec.Header().Get("Content-Type"))
			}
		})
	}
	rec := get(mux, "GET", "/dir")
	require.Equal(t, "/dir/", rec.Header().Get("Location"), "a redirect stays one")
}

func TestBadPatternsPanicAsNetHTTPDoes(t *testing.T) {
	mux := haiku.New()
	mux.Register("/a/{x}", says("a"))
	require.Panics(t, func() { mux.Register("/a/{y}", says("b")) })
	require.Panics(t, func() { mux.Register("no slash", says("b")) })
	require.Panics(t, func() { mux.Register("/nil", nil) })
	require.Equal(t, "a /a/{x} ", get(mux, "GET", "/a/1").Body.String(), "the Mux is as usable as before")
	mux.Use(marks(new([]string), "m"))
	require.Equal(t, 200, get(mux, "GET", "/a/1").Code)
}

func TestMiddlewareOrder(t *testing.T) {
	var log []string
	mux := haiku.New()
	mux.Use(marks(&log, "1"))
	mux.Register("/", haiku.HandlerFunc(func(*haiku.Context) { log = append(log, "handler") }), marks(&log, "a"), marks(&log, "b"))
	mux.Use(marks(&log, "2"), marks(&log, "3"))
	get(mux, "GET", "/")
	require.Equal(t, []string{"1>", "2>", "3>", "a>", "b>", "handler", "<b", "<a", "<3", "<2", "<1"}, log)
	log = nil
	get(mux, "GET", "/") // the same again: the chain is not built anew per request
	require.Len(t, log, 11)
}

func TestMiddlewareMayAnswerItself(t *testing.T) {
	mux := haiku.New()
	mux.Use(func(next haiku.InferenceHandler) haiku.InferenceHandler {
		return haiku.HandlerFunc(func(c *haiku.Context) {
			if c.Request.Header.Get("Authorization") == "" {
				c.AbortWithStatus(401)
				return
			}
			c.SetIdentity(haiku.Identity{Subject: "s", Tenant: "t", Scopes: []string{"x"}})
			next.ServeInference(c)
		})
	})
	mux.Register("/", haiku.HandlerFunc(func(c *haiku.Context) { fmt.Fprint(c.Writer, c.Identity()) }))
	require.Equal(t, 401, get(mux, "GET", "/").Code)
	rec, req := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
	req.Header.Set("Authorization", "Bearer x")
	mux.ServeHTTP(rec, req)
	require.Equal(t, "{s t [x]}", rec.Body.String())
}

func TestMountedOnTheHostsMux(t *testing.T) {
	inner := haiku.New()
	inner.Register("POST /v1/chat/{id}", says("chat"))
	bare := haiku.New()
	bare.Register("GET /models/{id}", says("models"))
	host := http.NewServeMux()
	host.Handle("/v1/", inner)
	host.Handle("/llm/", http.StripPrefix("/llm", bare))
	host.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	require.Equal(t, "chat POST /v1/chat/{id} 7", get(host, "POST", "/v1/chat/7").Body.String())
	require.Equal(t, "models GET /models/{id} m", get(host, "GET", "/llm/models/m").Body.String())
	require.Equal(t, "ok", get(host, "GET", "/healthz").Body.String())
	require.Equal(t, methodBody, get(host, "GET", "/v1/chat/7").Body.String())
	require.Equal(t, notFoundBody, get(host, "GET", "/llm/none").Body.String())
	require.Equal(t, "404 page not found\n", get(host, "GET", "/other").Body.String())
}

func TestTheDefaultMux(t *testing.T) {
	var log []string
	path := fmt.Sprintf("/%p", &log) // nothing leaves the default Mux, so each run needs its own
	haiku.Use(marks(&log, "default"))
	haiku.Register("GET "+path, says("default"), marks(&log, "own"))
	require.Equal(t, "default GET "+path+" ", get(haiku.Handler(), "GET", path).Body.String())
	require.Equal(t, []string{"default>", "own>", "<own", "<default"}, log)
}

func TestTheMuxIsSafeForConcurrentUse(t *testing.T) {
	mux := haiku.New()
	mux.Register("/0", says("0"))
	pass := func(next haiku.InferenceHandler) haiku.InferenceHandler { return next }
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 20 {
				mux.Register(fmt.Sprintf("/%d/%d", i+1, j), says("n"))
				mux.Use(pass)
			}
		})
		wg.Go(func() {
			for range 50 {
				if got := get(mux, "GET", "/0").Body.String(); got != "0 /0 " {
					t.Errorf("got %q", got)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, "n /8/19 ", get(mux, "GET", "/8/19").Body.String())
}

func TestRouteMiddleware(t *testing.T) {
	var log bytes.Buffer
	m := pieces("a")
	opts := haiku.StreamOptions{Buffer: 7}
	mux := haiku.New()
	type got struct {
		model haiku.Model
		opts  haiku.StreamOptions
		limit error
	}
	var with, without got
	look := func(g *got) haiku.HandlerFunc {
		return func(c *haiku.Context) {
			g.model, _ = haiku.ModelFrom(c.Context())
			g.opts = haiku.StreamOptionsFrom(c.Context())
			var v any
			g.limit = c.Bind(&v)
			haiku.LoggerFrom(c.Context()).Info("seen", "path", c.Request.URL.Path)
		}
	}
	mux.Register("/with", look(&with), haiku.Provide(wrapped{m}), haiku.Streaming(opts), haiku.BodyLimit(4),
		haiku.Logging(slog.New(slog.NewTextHandler(&log, nil))))
	mux.Register("/without", look(&without), haiku.Logging(slog.New(slog.DiscardHandler)))
	for _, path := range []string{"/with", "/without"} {
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", path, strings.NewReader(`"12345"`)))
	}
	require.Contains(t, log.String(), "path=/with")
	require.IsType(t, wrapped{}, with.model)
	require.Equal(t, opts, with.opts)
	require.Equal(t, haiku.ErrBodyTooLarge.With("", "the body is larger than 4 bytes"), with.limit)
	require.Equal(t, got{}, without)
}

func TestLoggerFromFallsBack(t *testing.T) {
	require.Same(t, slog.Default(), haiku.LoggerFrom(t.Context()))
	require.Same(t, slog.Default(), haiku.LoggerFrom(haiku.WithLogger(t.Context(), nil)))
}

func TestPanicsInHandlers(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	mux := haiku.New()
	mux.Register("/before", haiku.HandlerFunc(func(c *haiku.Context) {
		c.Writer.Header().Set("Content-Encoding", "gzip")
		panic("secret of a handler")
	}), haiku.Logging(logger))
	mux.Register("/after", haiku.HandlerFunc(func(c *haiku.Context) {
		fmt.Fprint(c.Writer, "half an ans")
		_ = http.NewResponseController(c.Writer).Flush()
		panic("too late")
	}), haiku.Logging(logger))
	mux.Register("/abort", haiku.HandlerFunc(func(*haiku.Context) { panic(fmt.Errorf("wrapped: %w", http.ErrAbortHandler)) }), haiku.Logging(logger))
	mux.Register("/fine", says("fine"))
	inBubble(t, func() *http.Server { return &http.Server{Handler: mux} }, func(t *testing.T, s *site) {
		log.Reset()
		resp, err := s.Get(s.url + "/before")
		require.Equal(t, internalBody, body(t, resp, err))
		require.Equal(t, 500, resp.StatusCode)
		require.Empty(t, resp.Header.Get("Content-Encoding"))
		require.Contains(t, log.String(), "secret of a handler")
		require.Contains(t, log.String(), "mux_test.go")

		log.Reset()
		resp, err = s.Get(s.url + "/after")
		require.NoError(t, err)
		buf := make([]byte, 64)
		n, err := resp.Body.Read(buf)
		require.Equal(t, "half an ans", string(buf[:n]))
		if err == nil {
			_, err = resp.Body.Read(buf)
		}
		require.Error(t, err)
		require.NotErrorIs(t, err, http.ErrBodyReadAfterClose)
		require.NotEqual(t, "EOF", err.Error(), "a cut connection, not an end")
		require.NoError(t, resp.Body.Close())
		require.Contains(t, log.String(), "too late")

		log.Reset()
		_, err = s.Get(s.url + "/abort")
		require.Error(t, err)
		require.Empty(t, log.String(), "an abort on purpose is no news")

		resp, err = s.Get(s.url + "/fine")
		require.Equal(t, "fine /fine ", body(t, resp, err))
	})
}
