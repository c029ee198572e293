package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// pipes is a network of its own: it works inside synctest's bubbles.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once

	mu     sync.Mutex
	dialed []*pipeConn // the client's ends, in order
}

// pipeConn notes its end.
type pipeConn struct {
	net.Conn
	once  sync.Once
	ended chan struct{}
}

func (c *pipeConn) Close() error {
	c.once.Do(func() { close(c.ended) })
	return c.Conn.Close()
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.IPAddr{} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	c := &pipeConn{Conn: client, ended: make(chan struct{})}
	select {
	case p.conns <- server:
		p.mu.Lock()
		p.dialed = append(p.dialed, c)
		p.mu.Unlock()
		return c, nil
	case <-p.closed:
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Err: ctx.Err()}
	}
}

// connections returns how many connections have been made and how many of them
// are open.
func (p *pipes) connections() (made, open int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.dialed {
		select {
		case <-c.ended:
		default:
			open++
		}
	}
	return len(p.dialed), open
}

// serve runs an engine's server on a network of its own and returns an Engine
// that speaks to it.
func serve(t testing.TB, h http.HandlerFunc, o Options) (*Engine, *pipes) {
	t.Helper()
	network := newPipes()
	server := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(network)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return speak(t, network, o), network
}

func speak(t testing.TB, network *pipes, o Options) *Engine {
	t.Helper()
	e, err := New("http://engine/v1", o)
	require.NoError(t, err)
	e.own.Proxy, e.own.DialContext = nil, network.dial
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// quiet is a context whose failures are not logged into the test's output.
func quiet(ctx context.Context) context.Context {
	return haiku.WithLogger(ctx, slog.New(slog.DiscardHandler))
}

// answer is all that a reader gets from a stream.
type answer struct {
	texts    map[int]string
	deltas   []string
	finish   map[int]haiku.FinishReason
	logprobs []haiku.TokenLogprob
	tokens   int
	model    string
	usage    haiku.Usage
	err      error // what Generate returned
}

// ask reads the answer to req.
func ask(ctx context.Context, m haiku.Model, req *haiku.Request) answer {
	var returned error
	seen := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
		returned = m.Generate(ctx, w, req)
		return returned
	})
	var asked haiku.Model = seen
	if e, ok := m.(*Engine); ok {
		asked = struct {
			haiku.Model
			haiku.Extended
		}{seen, e}
	}
	s := haiku.NewStream(quiet(ctx), asked, req)
	a := answer{texts: map[int]string{}, finish: map[int]haiku.FinishReason{}}
	for tok, err := range s.Tokens() {
		if err != nil {
			break
		}
		a.tokens++
		a.texts[tok.Choice] += tok.Text
		if tok.Delta != "" {
			a.deltas = append(a.deltas, tok.Delta)
		}
		if tok.Finish != "" {
			a.finish[tok.Choice] = tok.Finish
		}
		a.logprobs = append(a.logprobs, tok.Logprobs...)
	}
	a.model, a.usage, a.err = s.Model(), s.Usage(), returned
	return a
}

// hello is a request.
func hello() *haiku.Request {
	return &haiku.Request{ID: "req-1", Model: "m", Messages: []haiku.Message{{Role: haiku.RoleUser, Content: "hello"}}}
}

// events is a handler that streams texts as they are, one flush each.
func events(texts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, text := range texts {
			if _, err := io.WriteString(w, text); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// piece is a chunk with text.
func piece(text string) string {
	return fmt.Sprintf("data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"big\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q},\"finish_reason\":null}]}\n\n", text)
}

const (
	roleChunk  = "data: {\"model\":\"big\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n"
	stopChunk  = "data: {\"model\":\"big\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
	usageChunk = "data: {\"model\":\"big\",\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2,\"total_tokens\":7}}\n\n"
	doneMark   = "data: [DONE]\n\n"
)

// plain is a good answer of two pieces.
var plain = []string{roleChunk, piece("Hel"), piece("lo"), stopChunk, usageChunk, doneMark}

// failing answers with a status and a body.
func failing(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		if w.Header().Get("Content-Type") == "" && strings.HasPrefix(body, "{") {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// inTurn serves the n-th request with the n-th handler, and the last one for all
// that follow.
func inTurn(handlers ...http.HandlerFunc) (h http.HandlerFunc, served func() int) {
	var mu sync.Mutex
	n := 0
	return func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			i := min(n, len(handlers)-1)
			n++
			mu.Unlock()
			handlers[i](w, r)
		}, func() int {
			mu.Lock()
			defer mu.Unlock()
			return n
		}
}

// soon waits in virtual time.
func soon(d time.Duration) { time.Sleep(d) }

func itoa(n int) string { return strconv.Itoa(n) }

// post sends a request to a handler of this side.
func post(t *testing.T, h http.Handler, path, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest("POST", path, strings.NewReader(body)).WithContext(quiet(t.Context()))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
