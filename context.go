package haiku

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Context is one HTTP request on its way through middleware and handler. It
// belongs to the goroutine that serves the request and is not reused.
type Context struct {
	// Request is the request. Middleware may replace it, as with WithContext.
	Request *http.Request
	// Writer is the response. Optional abilities are found through its Unwrap
	// method, as http.ResponseController does.
	Writer http.ResponseWriter

	wrote     *wroteWriter
	values    map[any]any
	bodyLimit int64
	aborted   bool
}

func newContext(w http.ResponseWriter, r *http.Request) *Context {
	if t, ok := parseTraceparent(r.Header.Get("Traceparent")); ok {
		r = r.WithContext(context.WithValue(r.Context(), traceKey{}, t))
	}
	var both struct { // of one life, and one piece of memory
		Context
		wroteWriter
	}
	both.wroteWriter.ResponseWriter = w
	both.Context = Context{Request: r, Writer: &both.wroteWriter, wrote: &both.wroteWriter}
	return &both.Context
}

// wroteWriter remembers whether the response has begun.
type wroteWriter struct {
	http.ResponseWriter
	wrote bool
}

func (w *wroteWriter) WriteHeader(status int) {
	w.wrote = w.wrote || status >= 200 || status == http.StatusSwitchingProtocols
	w.ResponseWriter.WriteHeader(status)
}

func (w *wroteWriter) Write(b []byte) (int, error) {
	w.wrote = true
	return w.ResponseWriter.Write(b)
}

// Unwrap gives http.ResponseController the host's own writer.
func (w *wroteWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Context is the request's context: it ends when the client leaves, and it
// carries the identity, the model and the stream options of the route.
func (c *Context) Context() context.Context { return c.Request.Context() }

func (c *Context) setContext(ctx context.Context) { c.Request = c.Request.WithContext(ctx) }

// Set keeps a value for the rest of this request. Keys follow the rule of
// context.WithValue: a type of one's own.
func (c *Context) Set(key, value any) {
	if c.values == nil {
		c.values = make(map[any]any)
	}
	c.values[key] = value
}

// Value returns what [Context.Set] kept under key, else the value in the
// request's context, else nil.
func (c *Context) Value(key any) any {
	if v, ok := c.values[key]; ok {
		return v
	}
	return c.Context().Value(key)
}

// Identity is who the request is from, as verified, or the zero Identity.
func (c *Context) Identity() Identity { return IdentityFrom(c.Context()) }

// SetIdentity records a verified identity. Streams made from [Context.Context]
// after it run on that identity's behalf.
func (c *Context) SetIdentity(id Identity) { c.setContext(WithIdentity(c.Context(), id)) }

// IsAborted reports whether the request has been answered with an error.
func (c *Context) IsAborted() bool { return c.aborted }

// AbortWithStatus answers with an HTTP status and, from 400 on, an error object
// in its words. The handler returns after it; a later Stream or JSON does nothing.
func (c *Context) AbortWithStatus(code int) { c.AbortWithError(statusError(code)) }

// AbortWithError answers with err as [ErrorFrom] sees it, and logs what a
// server error hides from the client. When the response has begun already it
// only marks the request as aborted; a nil err does that too.
func (c *Context) AbortWithError(err error) {
	e := ErrorFrom(err)
	if e != nil && e.Status >= 500 && e.Err != nil && !c.aborted {
		LoggerFrom(c.Context()).Error("haiku: request failed",
			slog.String("path", c.Request.URL.Path), slog.Any("error", err))
	}
	c.abort(e)
}

func (c *Context) abort(e *Error) {
	if !c.aborted && !c.wrote.wrote && e != nil {
		writeError(c.Writer, e)
	}
	c.aborted = true
}

// answered returns an error if there is nothing left to answer.
func (c *Context) answered() error {
	switch {
	case c.aborted:
		return errAborted
	case c.wrote.wrote:
		return errAnswered
	}
	return nil
}

// JSON answers with v as JSON.
func (c *Context) JSON(status int, v any) error {
	if err := c.answered(); err != nil {
		return err
	}
	body, err := json.Marshal(v)
	if err != nil {
		err = ErrInternal.Because(err)
		c.AbortWithError(err)
		return err
	}
	return writeJSON(c.Writer, status, body)
}

var (
	errAborted  = ErrInternal.With("", "the request has been aborted")
	errAnswered = ErrInternal.With("", "the request has been answered already")
)

// statusError is the error that stands for a bare status.
func statusError(code int) *Error {
	for _, e := range []*Error{
		ErrInvalidRequest, ErrUnauthenticated, ErrForbidden, ErrNotFound, ErrMethodNotAllowed,
		ErrBodyTooLarge, ErrRateLimited, ErrOverloaded, ErrTimeout, ErrInternal,
	} {
		if e.Status == code {
			return e
		}
	}
	text := http.StatusText(code)
	if text == "" {
		text = "status " + strconv.Itoa(code)
	}
	kind := typeInvalid
	if code >= 500 {
		kind = typeServer
	}
	return &Error{Status: code, Type: kind, Message: text}
}

// writeError writes the OpenAI error object. Headers that a handler had set
// for another body go; a status below 400 is no error and has no object.
func writeError(w http.ResponseWriter, e *Error) {
	h := w.Header()
	for _, name := range [...]string{"Content-Encoding", "Content-Length", "Etag", "Last-Modified"} {
		h.Del(name)
	}
	setRetryAfter(h, e)
	if e.wireStatus() < 400 {
		w.WriteHeader(e.Status)
		return
	}
	_ = writeJSON(w, e.wireStatus(), AppendError(nil, e)) // the client may be gone, which is no news
}

func setRetryAfter(h http.Header, e *Error) {
	if e.RetryAfter > 0 {
		seconds := (e.RetryAfter + time.Second - 1) / time.Second
		h.Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
		h.Set("retry-after-ms", strconv.FormatInt(e.RetryAfter.Milliseconds(), 10))
	}
}

func writeJSON(w http.ResponseWriter, status int, body []byte) error {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, err := w.Write(body)
	return err
}

// errorBody is the error object of the OpenAI API.
type errorBody struct {
	Error errorFields `json:"error"`
}

type errorFields struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// AppendError appends e as the JSON error object that OpenAI clients expect,
// with what a client may see and nothing else.
func AppendError(dst []byte, e *Error) []byte {
	nullable := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	body, err := json.Marshal(errorBody{errorFields{e.Message, e.Type, nullable(e.Param), nullable(e.Code)}},
		jsontext.AllowInvalidUTF8(true), jsontext.EscapeForJS(true)) // U+2028 ends a line for some readers
	if err != nil { // only strings, and all of them accepted
		body = []byte(`{"error":{"message":"internal error","type":"server_error","param":null,"code":null}}`)
	}
	return append(dst, body...)
}
