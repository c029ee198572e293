package haiku

import (
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// InferenceHandler answers an HTTP request. What http.Handler is to the web,
// this is to inference: middleware wraps it and a [Mux] routes to it.
type InferenceHandler interface {
	ServeInference(c *Context)
}

// HandlerFunc makes a function an [InferenceHandler].
type HandlerFunc func(c *Context)

// ServeInference calls f.
func (f HandlerFunc) ServeInference(c *Context) { f(c) }

// Middleware wraps a handler with something that happens before, after or
// instead of it. A [Mux] may call it more than once for the same route; the
// last result serves, so what must be shared is made outside of it.
type Middleware func(next InferenceHandler) InferenceHandler

// Mux routes requests to inference handlers. It is an http.Handler that a host
// mounts on its own mux, inside any middleware. Its methods may be called at
// any time from any goroutine.
type Mux struct {
	mu         sync.Mutex
	middleware []Middleware
	routes     []*route
	mux        *http.ServeMux
}

// route is one registered pattern. chain is handler inside the Mux's
// middleware inside nothing: the outermost runs first.
type route struct {
	handler InferenceHandler // with its own middleware
	chain   atomic.Pointer[InferenceHandler]
}

// New returns an empty Mux.
func New() *Mux { return &Mux{mux: http.NewServeMux()} }

var defaultMux = New()

// Register adds a route to the default Mux, as [Mux.Register] does.
func Register(pattern string, h InferenceHandler, mw ...Middleware) {
	defaultMux.Register(pattern, h, mw...)
}

// Use adds middleware to the default Mux, as [Mux.Use] does.
func Use(mw ...Middleware) { defaultMux.Use(mw...) }

// Handler returns the default Mux, to be mounted on the host's own:
//
//	mux.Handle("/v1/", haiku.Handler())
func Handler() http.Handler { return defaultMux }

// Register makes h answer the requests that match pattern, inside the Mux's
// middleware and then mw, whose first is the outermost. Patterns are those of
// [http.ServeMux]: an optional method, an optional host, and a path with
// wildcards, which h reads with c.Request.PathValue. Like http.ServeMux it
// panics on a pattern that is malformed or conflicts with another.
func (m *Mux) Register(pattern string, h InferenceHandler, mw ...Middleware) {
	if h == nil {
		panic("haiku: Register with a nil handler")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &route{handler: wrap(h, mw)}
	r.compose(m.middleware)
	m.mux.Handle(pattern, r)
	m.routes = append(m.routes, r)
}

// Use puts middleware around every route of the Mux, those registered already
// and those to come. The first is the outermost.
func (m *Mux) Use(mw ...Middleware) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.middleware = append(m.middleware, mw...)
	for _, r := range m.routes {
		r.compose(m.middleware)
	}
}

func wrap(h InferenceHandler, mw []Middleware) InferenceHandler {
	for i := len(mw) - 1; i >= 0; i-- {
		h = mw[i](h)
	}
	return h
}

func (r *route) compose(mw []Middleware) {
	h := wrap(r.handler, mw)
	r.chain.Store(&h)
}

// ServeHTTP answers with the matching route's handler. An address that no
// route matches and a method that no route allows get an error object with
// status 404 and 405.
func (m *Mux) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h, pattern := m.mux.Handler(r)
	if pattern != "" {
		m.mux.ServeHTTP(w, r)
		return
	}
	var refusal refusalWriter
	h.ServeHTTP(&refusal, r)
	e := ErrNotFound
	if refusal.status == http.StatusMethodNotAllowed {
		e = ErrMethodNotAllowed
		w.Header()["Allow"] = refusal.Header()["Allow"]
	}
	writeError(w, e)
}

// refusalWriter learns why http.ServeMux refuses a request.
type refusalWriter struct {
	header http.Header
	status int
}

func (w *refusalWriter) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header)
	}
	return w.header
}
func (w *refusalWriter) WriteHeader(status int)      { w.status = status }
func (w *refusalWriter) Write(b []byte) (int, error) { return len(b), nil }

// ServeHTTP runs the route's handler. A panic in it ends its own request only:
// with an error object if nothing has been written, otherwise by cutting the
// connection, which is the one sign a client understands in mid-response.
func (r *route) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	c := newContext(w, req)
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(http.ErrAbortHandler)
		}
		LoggerFrom(c.Context()).Error("haiku: handler panicked",
			slog.String("path", req.URL.Path), slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
		if c.wrote.wrote {
			panic(http.ErrAbortHandler)
		}
		writeError(w, ErrInternal)
	}()
	(*r.chain.Load()).ServeInference(c)
}

// Provide is middleware that gives a route the model its streams come from.
func Provide(m Model) Middleware {
	return around(func(c *Context) { c.setContext(WithModel(c.Context(), m)) })
}

// BodyLimit is middleware that bounds the request body [Context.Bind] reads; 0
// means 4 MiB.
func BodyLimit(bytes int64) Middleware {
	return around(func(c *Context) { c.bodyLimit = bytes })
}

// Streaming is middleware that sets the policy of a route's streams.
func Streaming(o StreamOptions) Middleware {
	return around(func(c *Context) { c.setContext(WithStreamOptions(c.Context(), o)) })
}

// Logging is middleware that says where a route's failures are logged; without
// it they go to slog's default logger.
func Logging(l *slog.Logger) Middleware {
	return around(func(c *Context) { c.setContext(WithLogger(c.Context(), l)) })
}

func around(before func(c *Context)) Middleware {
	return func(next InferenceHandler) InferenceHandler {
		return HandlerFunc(func(c *Context) {
			before(c)
			next.ServeInference(c)
		})
	}
}
