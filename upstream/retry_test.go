package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

const busyBody = `{"error":{"message":"busy"}}`

func TestWhatMayPassIsTriedAgain(t *testing.T) {
	for name, first := range map[string]http.HandlerFunc{
		"408": failing(408, busyBody), "429": failing(429, busyBody), "502": failing(502, "<html>"), "503": failing(503, busyBody), "504": failing(504, ""), "529": failing(529, busyBody),
		"x-should-retry": failing(500, busyBody, "X-Should-Retry", "true"),
		"a stream that breaks before it says anything": then([]string{roleChunk}, cut),
		"a stream that ends before it says anything":   events(roleChunk, doneMark),
		"an error for now inside of the stream":        events(roleChunk, "data: {\"error\":{\"message\":\"busy\",\"code\":503}}\n\n"),
		"a request that was given up":                  events(roleChunk, choiceChunk(`{"delta":{},"finish_reason":"abort"}`), doneMark),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, served := inTurn(first, first, events(plain...))
				e, _ := serve(t, h, Options{})
				began := time.Now()
				a := ask(t.Context(), e, hello())
				require.NoError(t, a.err)
				require.Equal(t, "Hello", a.texts[0])
				require.Equal(t, 3, served())
				require.LessOrEqual(t, time.Since(began), 300*time.Millisecond, "full jitter of 100 and 200 ms")
			})
		})
	}
}

func TestWhatAFailedAttemptCountedIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := inTurn(then([]string{roleChunk, strings.ReplaceAll(usageChunk, "2", "7")}, cut), events(piece("Hel"), piece("lo"), stopChunk, doneMark))
		e, _ := serve(t, h, Options{})
		a := ask(t.Context(), e, hello())
		require.NoError(t, a.err)
		require.Equal(t, haiku.Usage{PromptTokens: 5, CompletionTokens: 2}, a.usage)
	})
}

func TestWhatWillNotPassIsTriedOnce(t *testing.T) {
	for name, first := range map[string]http.HandlerFunc{
		"400": failing(400, busyBody), "401": failing(401, busyBody), "404": failing(404, busyBody), "500": failing(500, busyBody), "501": failing(501, busyBody),
		"x-should-retry": failing(503, busyBody, "X-Should-Retry", "false"),
		"a broken chunk": events("data: {\n\n"),
		"after content":  then([]string{piece("a")}, cut),
		"after a call":   then([]string{choiceChunk(`{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}}`)}, cut),
		"an error event": events(piece("a"), "data: {\"error\":{\"message\":\"busy\",\"code\":503}}\n\n"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, served := inTurn(first, events(plain...))
				e, _ := serve(t, h, Options{})
				require.Error(t, ask(t.Context(), e, hello()).err)
				require.Equal(t, 1, served())
			})
		})
	}
}

func TestTheEngineSaysWhenToComeBack(t *testing.T) {
	for name, headers := range map[string][]string{
		"seconds":      {"Retry-After", "3"},
		"milliseconds": {"Retry-After-Ms", "3000", "Retry-After", "9"},
		"fractions":    {"Retry-After", "3.0"},
		"a date":       {"Retry-After", "Sat, 01 Jan 2000 00:00:03 GMT"}, // bubbles begin in the year 2000
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, served := inTurn(failing(429, busyBody, headers...), events(plain...))
				e, _ := serve(t, h, Options{})
				began := time.Now()
				require.NoError(t, ask(t.Context(), e, hello()).err)
				require.Equal(t, 2, served())
				require.GreaterOrEqual(t, time.Since(began), 3*time.Second)
				require.LessOrEqual(t, time.Since(began), 3*time.Second+defaultBase)
			})
		})
	}
}

func TestNobodyWaitsLongerThanTheRequestMay(t *testing.T) {
	late := failing(429, busyBody, "Retry-After", "5")
	for name, tt := range map[string]struct {
		opts  Options
		req   func(*haiku.Request)
		limit time.Duration
	}{
		"budget":    {opts: Options{Retry: Retry{Budget: 4 * time.Second}}},
		"objective": {req: func(r *haiku.Request) { r.Objective.TTFT = time.Second }},
		"deadline":  {limit: 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, served := inTurn(late)
				e, _ := serve(t, h, tt.opts)
				ctx := t.Context()
				if tt.limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.limit)
					defer cancel()
				}
				req, began := hello(), time.Now()
				if tt.req != nil {
					tt.req(req)
				}
				a := ask(ctx, e, req)
				require.ErrorIs(t, a.err, haiku.ErrRateLimited)
				require.Equal(t, 5*time.Second, haiku.ErrorFrom(a.err).RetryAfter, "the client is told")
				require.Equal(t, 1, served())
				require.Zero(t, time.Since(began))
			})
		})
	}
}

func TestAWaitEndsWithTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := serve(t, failing(429, busyBody, "Retry-After", "5"), Options{})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		require.ErrorIs(t, ask(ctx, e, hello()).err, context.Canceled)
		require.Equal(t, time.Second, time.Since(began))
	})
}

func TestNoConnectionIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newPipes()
		e := speak(t, network, Options{})
		var dials atomic.Int32
		e.own.DialContext = func(context.Context, string, string) (net.Conn, error) {
			dials.Add(1)
			return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		}
		a := ask(t.Context(), e, hello())
		require.ErrorIs(t, a.err, ErrConnect)
		require.ErrorIs(t, a.err, ErrFailed)
		require.Equal(t, 502, haiku.ErrorFrom(a.err).Status)
		require.EqualValues(t, 3, dials.Load())
		require.Equal(t, haiku.Usage{}, a.usage)
	})
}

// TestAConnectionThatWasClosedWhileIdle plays an engine that closes connections
// sooner than it should: uvicorn does after 5 s (kserve/kserve#5446,
// llm-d/llm-d#1564), and the request is then on its way.
func TestAConnectionThatWasClosedWhileIdle(t *testing.T) {
	for name, tt := range map[string]struct {
		first func(net.Conn) // what the server does with the second request on a connection
		good  bool
	}{
		"closed without a byte":   {func(c net.Conn) {}, true},
		"closed after reading":    {func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)) }, true},
		"closed after a response": {func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)); _, _ = io.WriteString(c, "HTTP/1.1 2") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := newPipes()
				e := speak(t, network, once)
				var requests atomic.Int32
				done := make(chan struct{})
				go func() {
					defer close(done)
					for {
						c, err := network.Accept()
						if err != nil {
							return
						}
						answerOnce(c, &requests)
						tt.first(c)
						_ = c.Close()
					}
				}()
				t.Cleanup(func() {
					_ = network.Close()
					<-done
				})
				require.NoError(t, ask(t.Context(), e, hello()).err)
				a := ask(t.Context(), e, hello())
				if tt.good {
					require.NoError(t, a.err, "on a new connection, although Attempts is 1")
					require.EqualValues(t, 2, requests.Load())
				} else {
					require.ErrorIs(t, a.err, ErrIncomplete, "a byte has come back")
				}
			})
		})
	}
}

// TestAnEngineThatDiesAtWorkIsNotAskedAgain: its connection was not stale.
func TestAnEngineThatDiesAtWorkIsNotAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, served := inTurn(events(plain...), func(w http.ResponseWriter, r *http.Request) {
			soon(staleWithin)
			cut(w, r)
		})
		e, _ := serve(t, h, once)
		require.NoError(t, ask(t.Context(), e, hello()).err)
		require.ErrorIs(t, ask(t.Context(), e, hello()).err, ErrIncomplete)
		require.Equal(t, 2, served())
	})
}

func TestWaitsGrowUpToTheirBound(t *testing.T) {
	e := &Engine{opts: Options{Retry: Retry{Base: time.Minute, Max: time.Hour}}}
	for n := 1; n < 100; n++ {
		wait := e.wait(n, ErrConnect)
		require.GreaterOrEqual(t, wait, time.Duration(0))
		require.LessOrEqual(t, wait, min(time.Hour, time.Minute<<min(n-1, 10)))
	}
	e.opts.Retry.Base = 0
	require.Zero(t, e.wait(70, ErrConnect))
}

// answerOnce answers one request on a connection and leaves it open.
func answerOnce(c net.Conn, requests *atomic.Int32) {
	buf := make([]byte, 4096)
	if _, err := c.Read(buf); err != nil {
		return
	}
	requests.Add(1)
	body := piece("a") + stopChunk + doneMark
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: ")
	_, _ = io.WriteString(c, itoa(len(body))+"\r\n\r\n"+body)
}

func TestIdleConnectionsAreGivenUpBeforeTheEngineDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, network := serve(t, events(plain...), Options{})
		require.NoError(t, ask(t.Context(), e, hello()).err)
		soon(3 * time.Second)
		require.NoError(t, ask(t.Context(), e, hello()).err)
		made, _ := network.connections()
		require.Equal(t, 1, made)
		soon(5 * time.Second)
		_, open := network.connections()
		require.Zero(t, open)
	})
}
