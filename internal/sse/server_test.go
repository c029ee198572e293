package sse

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// pipeListener is a net.Listener over net.Pipe, so that servers run on the
// virtual clock of a synctest bubble.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

func (l *pipeListener) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// protocols names the ways a server may speak without TLS.
var protocols = map[string]func(*http.Protocols){
	"HTTP1": func(p *http.Protocols) { p.SetHTTP1(true) },
	"h2c":   func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
}

// eachProtocol runs test per protocol, in a bubble, with a running server and
// the number of connections it has been dialled for.
func eachProtocol(t *testing.T, srv func() *http.Server, test func(t *testing.T, c *http.Client, dials *int)) {
	for name, set := range protocols {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := srv(), newPipeListener()
				s.Protocols = new(http.Protocols)
				set(s.Protocols)
				served := make(chan error, 1)
				go func() { served <- s.Serve(l) }()
				dials := 0
				tr := &http.Transport{Protocols: s.Protocols, DialContext: func(ctx context.Context, n, a string) (net.Conn, error) {
					dials++
					return l.DialContext(ctx, n, a)
				}}
				test(t, &http.Client{Transport: tr}, &dials)
				tr.CloseIdleConnections()
				require.NoError(t, s.Close())
				require.ErrorIs(t, <-served, http.ErrServerClosed)
			})
		})
	}
}

// ticker streams n events, one per gap, after it has waited in a queue.
func ticker(wait, gap time.Duration, n int, o Options) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		w := NewWriter(rw, r, o)
		defer w.Restore()
		w.Claim()
		for i := range n {
			if i > 0 {
				wait = gap
			}
			select {
			case <-time.After(wait):
			case <-r.Context().Done():
				return
			}
			if err := w.Open(200); err != nil {
				http.Error(rw, err.Error(), http.StatusNotImplemented)
				return
			}
			w.Buf = append(w.Buf, "data: x\n\n"...)
			if w.Flush() != nil {
				return
			}
		}
	}
}

// lingering calls h and returns only after a while, with the response open.
func lingering(h http.HandlerFunc, d time.Duration) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		h(rw, r)
		<-time.After(d)
	}
}

// arrivals reads a stream of data lines and returns when each came.
func arrivals(body io.Reader) (at []time.Duration, err error) {
	start := time.Now()
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		if lines.Text() == "data: x" {
			at = append(at, time.Since(start))
		}
	}
	return at, lines.Err()
}

// TestStreamOutlivesTheServersTimeouts waits in a queue, and then streams with
// gaps, for longer than the server allows whole requests and, between events,
// for longer than a flush may take.
func TestStreamOutlivesTheServersTimeouts(t *testing.T) {
	const gap = 3 * time.Second
	srv := func() *http.Server {
		return &http.Server{
			ReadTimeout: time.Second, WriteTimeout: time.Second,
			Handler: ticker(5*time.Second, gap, 4, Options{WriteTimeout: 2 * time.Second}),
		}
	}
	eachProtocol(t, srv, func(t *testing.T, c *http.Client, _ *int) {
		resp, err := c.Get("http://haiku/")
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, []string{"text/event-stream"}, resp.Header["Content-Type"])
		require.Equal(t, []string{"no-cache"}, resp.Header["Cache-Control"])
		require.Equal(t, []string{"no"}, resp.Header["X-Accel-Buffering"])
		require.Equal(t, int64(-1), resp.ContentLength)
		at, err := arrivals(resp.Body)
		require.NoError(t, err)
		require.Equal(t, []time.Duration{0, gap, 2 * gap, 3 * gap}, at, "each event at its own time")
	})
}

func TestEventsArriveThroughWrappers(t *testing.T) {
	const gap = time.Minute
	for name, wrap := range map[string]func(http.ResponseWriter) http.ResponseWriter{
		"unwrap": func(w http.ResponseWriter) http.ResponseWriter { return unwrapOnly{w} },
		"flush":  func(w http.ResponseWriter) http.ResponseWriter { return flushOnly{w} },
	} {
		t.Run(name, func(t *testing.T) {
			srv := func() *http.Server {
				h := ticker(0, gap, 3, Options{})
				return &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h(wrap(w), r) })}
			}
			eachProtocol(t, srv, func(t *testing.T, c *http.Client, _ *int) {
				resp, err := c.Get("http://haiku/")
				require.NoError(t, err)
				defer resp.Body.Close()
				at, err := arrivals(resp.Body)
				require.NoError(t, err)
				require.Equal(t, []time.Duration{0, gap, 2 * gap}, at)
			})
		})
	}
}

func TestWriterWithoutFlushIsRefusedCleanly(t *testing.T) {
	srv := func() *http.Server {
		return &http.Server{Handler: http.TimeoutHandler(ticker(0, 0, 1, Options{}), time.Minute, "late")}
	}
	eachProtocol(t, srv, func(t *testing.T, c *http.Client, _ *int) {
		resp, err := c.Get("http://haiku/")
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusNotImplemented, resp.StatusCode)
		require.Equal(t, ErrCannotFlush.Error()+"\n", string(body))
	})
}

// TestConnectionServesTheNextRequest lets a stream's handler linger after
// Restore until the last flush's deadline has passed, idles for longer than all
// deadlines, and then asks a plain handler on the same connection.
func TestConnectionServesTheNextRequest(t *testing.T) {
	for name, limit := range map[string]time.Duration{"server without timeouts": 0, "server with timeouts": time.Second} {
		t.Run(name, func(t *testing.T) {
			srv := func() *http.Server {
				mux := http.NewServeMux()
				mux.Handle("/stream", lingering(ticker(0, 200*time.Millisecond, 8, Options{WriteTimeout: time.Second}), 900*time.Millisecond))
				mux.HandleFunc("/plain", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
				return &http.Server{Handler: mux, ReadTimeout: limit, WriteTimeout: limit, IdleTimeout: time.Hour}
			}
			eachProtocol(t, srv, func(t *testing.T, c *http.Client, dials *int) {
				for range 3 {
					require.Equal(t, 72, len(get(t, c, "/stream")))
					<-time.After(10 * time.Second)
					require.Equal(t, "ok", get(t, c, "/plain"))
				}
				require.Equal(t, 1, *dials)
			})
		})
	}
}

// get returns the whole body of a 200 answer.
func get(t *testing.T, c *http.Client, path string) string {
	t.Helper()
	resp, err := c.Get("http://haiku" + path)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(body)
}

func TestReplyOverTheWire(t *testing.T) {
	srv := func() *http.Server {
		return &http.Server{WriteTimeout: time.Second, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			w := NewWriter(rw, r, Options{ContentType: "application/json"})
			defer w.Restore()
			w.Claim()
			<-time.After(time.Minute) // the whole answer is generated first
			w.Buf = append(w.Buf, `{"text":"done"}`...)
			_ = w.Reply(200)
		})}
	}
	eachProtocol(t, srv, func(t *testing.T, c *http.Client, _ *int) {
		resp, err := c.Get("http://haiku/")
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, `{"text":"done"}`, string(body))
		require.Equal(t, int64(15), resp.ContentLength)
		require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	})
}

// flood flushes events until one fails and reports how long that flush took.
func flood(o Options, result chan<- flushFailure) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		w := NewWriter(rw, r, o)
		defer w.Restore()
		err := w.Open(200)
		start := time.Now()
		for frame := make([]byte, 32<<10); err == nil; {
			w.Buf = append(w.Buf, frame...)
			start = time.Now()
			err = w.Flush()
		}
		result <- flushFailure{err, time.Since(start)}
	}
}

type flushFailure struct {
	err  error
	took time.Duration
}

func TestPeerThatStopsReadingEndsItsOwnStream(t *testing.T) {
	const timeout = 5 * time.Second
	result := make(chan flushFailure, 1)
	srv := func() *http.Server {
		result = make(chan flushFailure, 1)
		return &http.Server{Handler: flood(Options{WriteTimeout: timeout}, result)}
	}
	eachProtocol(t, srv, func(t *testing.T, c *http.Client, _ *int) {
		resp, err := c.Get("http://haiku/")
		require.NoError(t, err)
		defer resp.Body.Close()
		got := <-result // nobody reads the body
		require.Error(t, got.err)
		require.GreaterOrEqual(t, got.took, timeout*3/4)
		require.LessOrEqual(t, got.took, timeout)
	})
}

// TestClosingChunkIsBounded has a peer that takes every event and then stops:
// what is left to write is the server's closing chunk.
func TestClosingChunkIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 5 * time.Second
		l, closed := newPipeListener(), make(chan time.Time, 1)
		s := &http.Server{
			Handler: ticker(0, 0, 1, Options{WriteTimeout: timeout}),
			ConnState: func(_ net.Conn, state http.ConnState) {
				if state == http.StateClosed {
					closed <- time.Now()
				}
			},
		}
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		conn, err := l.DialContext(t.Context(), "", "")
		require.NoError(t, err)
		_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: haiku\r\n\r\n")
		require.NoError(t, err)
		var got []byte
		for buf := make([]byte, 4096); !bytes.HasSuffix(got, []byte("data: x\n\n\r\n")); {
			n, err := conn.Read(buf)
			require.NoError(t, err)
			got = append(got, buf[:n]...)
		}
		start := time.Now()
		require.Equal(t, timeout, (<-closed).Sub(start))
		require.NoError(t, conn.Close())
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
}

// TestLoopback repeats the essentials over real sockets: plain, h2c and TLS.
func TestLoopback(t *testing.T) {
	for _, name := range []string{"HTTP1", "h2c", "TLS1", "TLS2"} {
		t.Run(name, func(t *testing.T) {
			step := make(chan struct{})
			result := make(chan flushFailure, 1)
			mux := http.NewServeMux()
			mux.HandleFunc("/lockstep", lockstep(step))
			mux.Handle("/flood", flood(Options{WriteTimeout: 100 * time.Millisecond}, result))
			s := httptest.NewUnstartedServer(mux)
			c := startLoopback(s, name)
			defer s.Close()

			resp, err := c.Get(s.URL + "/lockstep")
			require.NoError(t, err)
			require.Equal(t, name == "h2c" || name == "TLS2", resp.ProtoMajor == 2)
			lines := bufio.NewReader(resp.Body)
			for range 3 {
				step <- struct{}{} // the next event is made only after the last was read
				line, err := lines.ReadString('\n')
				require.NoError(t, err)
				require.Equal(t, "data: x\n", line)
				_, err = lines.ReadString('\n')
				require.NoError(t, err)
			}
			close(step)
			_, err = lines.ReadByte()
			require.Equal(t, io.EOF, err)
			require.NoError(t, resp.Body.Close())

			resp, err = c.Get(s.URL + "/flood")
			require.NoError(t, err)
			got := <-result
			require.Error(t, got.err)
			if resp.ProtoMajor == 1 {
				require.ErrorIs(t, got.err, os.ErrDeadlineExceeded)
			}
			require.NoError(t, resp.Body.Close())
		})
	}
}

// lockstep streams one event, headers first, per value of step.
func lockstep(step <-chan struct{}) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		w := NewWriter(rw, r, Options{})
		defer w.Restore()
		if errors.Join(w.Open(200), w.Flush()) != nil {
			return
		}
		for range step {
			w.Buf = append(w.Buf, "data: x\n\n"...)
			if w.Flush() != nil {
				return
			}
		}
	}
}

// startLoopback starts s for the named protocol and returns a client for it.
func startLoopback(s *httptest.Server, name string) *http.Client {
	set, plain := protocols[name]
	if !plain {
		s.EnableHTTP2 = name == "TLS2"
		s.StartTLS()
		return s.Client()
	}
	s.Config.Protocols = new(http.Protocols)
	set(s.Config.Protocols)
	s.Start()
	c := s.Client()
	c.Transport.(*http.Transport).Protocols = s.Config.Protocols
	return c
}
