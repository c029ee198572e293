package haiku_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// line is a line of a response and when it came.
type line struct {
	at   time.Duration
	text string
}

// lines reads what is left of a stream, without its empty lines.
func lines(start time.Time, r io.Reader) (got []line, err error) {
	s := bufio.NewScanner(r)
	for s.Scan() {
		if s.Text() != "" {
			got = append(got, line{time.Since(start), s.Text()})
		}
	}
	return got, s.Err()
}

// timed is a Model that waits before each text.
func timed(texts map[time.Duration]string, end time.Duration, err error) haiku.Model {
	return haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		for at := time.Duration(0); at < end; at += time.Second {
			if text := texts[at]; text != "" {
				w.TryPush(haiku.Piece{ID: -1, Text: text})
			}
			<-time.After(time.Second)
		}
		if err == nil {
			w.Finish(0, haiku.FinishStop)
		}
		return err
	})
}

// plain answers with the default encoder, under options.
func plain(m haiku.Model, o haiku.StreamOptions) http.Handler {
	mux := quietMux()
	mux.Register("/", haiku.HandlerFunc(func(c *haiku.Context) {
		_ = c.Stream(haiku.NewStream(c.Context(), m, &haiku.Request{}))
	}), haiku.Streaming(o))
	return mux
}

const overloadedEvent = "data: " + overloadedBody

func TestSilence(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name   string
		opts   haiku.StreamOptions
		model  haiku.Model
		opened time.Duration
		want   []line
	}{
		{
			"the default keeps silences to 15 s", haiku.StreamOptions{},
			timed(map[time.Duration]string{40 * s: "a", 41 * s: "b"}, 75*s, nil), 15 * s,
			[]line{{15 * s, ": keepalive"}, {30 * s, ": keepalive"}, {40 * s, `data: "a"`}, {41 * s, `data: "b"`},
				{55 * s, ": keepalive"}, {70 * s, ": keepalive"}, {75 * s, "data: [DONE]"}},
		},
		{
			"an early open makes a late failure an event", haiku.StreamOptions{OpenAfter: 2 * s, Keepalive: time.Minute},
			timed(nil, 10*s, haiku.ErrOverloaded), 2 * s,
			[]line{{2 * s, ": keepalive"}, {10 * s, overloadedEvent}},
		},
		{
			"no early open, but keepalives after the first token", haiku.StreamOptions{OpenAfter: -1, Keepalive: 4 * s},
			timed(map[time.Duration]string{30 * s: "a"}, 40*s, nil), 30 * s,
			[]line{{30 * s, `data: "a"`}, {34 * s, ": keepalive"}, {38 * s, ": keepalive"}, {40 * s, "data: [DONE]"}},
		},
		{
			"an early open and no keepalives", haiku.StreamOptions{OpenAfter: 5 * s, Keepalive: -1},
			timed(map[time.Duration]string{100 * s: "a"}, 200*s, nil), 5 * s,
			[]line{{5 * s, ": keepalive"}, {100 * s, `data: "a"`}, {200 * s, "data: [DONE]"}},
		},
		{
			"a healthy stream has no comments", haiku.StreamOptions{Keepalive: 5 * s},
			timed(map[time.Duration]string{0: "a", s: "b", 2 * s: "c", 3 * s: "d"}, 4*s, nil), 0,
			[]line{{0, `data: "a"`}, {s, `data: "b"`}, {2 * s, `data: "c"`}, {3 * s, `data: "d"`}, {4 * s, "data: [DONE]"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := func() *http.Server { return &http.Server{Handler: plain(tt.model, tt.opts)} }
			inBubble(t, srv, func(t *testing.T, s *site) {
				start := time.Now()
				resp, err := s.Get(s.url)
				require.NoError(t, err)
				defer resp.Body.Close()
				require.Equal(t, tt.opened, time.Since(start))
				require.Equal(t, 200, resp.StatusCode)
				got, err := lines(start, resp.Body)
				require.NoError(t, err)
				require.Equal(t, tt.want, got)
			})
		})
	}
}

func TestTheStatusCanWaitForTheFirstToken(t *testing.T) {
	h := plain(timed(nil, time.Hour, haiku.ErrOverloaded), haiku.StreamOptions{OpenAfter: -1})
	inBubble(t, func() *http.Server { return &http.Server{Handler: h, WriteTimeout: time.Second} }, func(t *testing.T, s *site) {
		start := time.Now()
		resp, err := s.Get(s.url)
		require.Equal(t, overloadedBody, body(t, resp, err))
		require.Equal(t, 503, resp.StatusCode)
		require.Equal(t, time.Hour, time.Since(start))
	})
}

// A stream that waits, and then has long gaps, on a server made for short
// requests; afterwards the same connection serves the next request.
func TestTheServersTimeoutsDoNotCutAStream(t *testing.T) {
	srv := func() *http.Server {
		const s = time.Second
		mux := quietMux()
		m := timed(map[time.Duration]string{5 * s: "a", 8 * s: "b"}, 12*s, nil)
		mux.Register("/", streaming(m, haiku.Request{ID: "id"}))
		return &http.Server{Handler: mux, ReadTimeout: time.Second, WriteTimeout: time.Second, IdleTimeout: time.Hour}
	}
	inBubble(t, srv, func(t *testing.T, s *site) {
		for range 2 {
			start := time.Now()
			resp, err := s.Get(s.url)
			require.NoError(t, err)
			got, err := lines(start, resp.Body)
			require.NoError(t, errors.Join(err, resp.Body.Close()))
			require.Equal(t, []line{
				{5 * time.Second, "data: begin id "}, {5 * time.Second, `data: 0 "a"`}, {8 * time.Second, `data: 0 "b"`},
				{12 * time.Second, `data: 0 "" stop`}, {12 * time.Second, "data: end 0+0"},
			}, got)
			<-time.After(time.Minute)

			resp, err = s.Post(s.url+"/?form=json", "application/json", strings.NewReader("{}"))
			require.Equal(t, `{"text":"ab","tokens":0}`, body(t, resp, err))
			require.Equal(t, 12*time.Second+time.Minute+12*time.Second, time.Since(start))
			<-time.After(time.Minute)
		}
		require.EqualValues(t, 1, s.dials.Load(), "all on one connection")
	})
}

// unwrapOnly hides everything but Unwrap; flushOnly everything but Flush.
type unwrapOnly struct{ http.ResponseWriter }

func (w unwrapOnly) Unwrap() http.ResponseWriter { return w.ResponseWriter }

type flushOnly struct{ http.ResponseWriter }

func (w flushOnly) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

type hideAll struct{ http.ResponseWriter }

func TestWrappersOfTheWriter(t *testing.T) {
	model := func() haiku.Model {
		return timed(map[time.Duration]string{0: "a", time.Second: "b"}, 2*time.Second, nil)
	}
	for name, tt := range map[string]struct {
		wrap   func(http.ResponseWriter) http.ResponseWriter
		status int
		want   []line
	}{
		"unwrap": {func(w http.ResponseWriter) http.ResponseWriter { return unwrapOnly{w} }, 200,
			[]line{{0, `data: "a"`}, {time.Second, `data: "b"`}, {2 * time.Second, "data: [DONE]"}}},
		"flush": {func(w http.ResponseWriter) http.ResponseWriter { return flushOnly{w} }, 200,
			[]line{{0, `data: "a"`}, {time.Second, `data: "b"`}, {2 * time.Second, "data: [DONE]"}}},
		"neither": {func(w http.ResponseWriter) http.ResponseWriter { return hideAll{w} }, 500,
			[]line{{0, string(haiku.AppendError(nil, haiku.ErrCannotFlush))}}},
	} {
		t.Run(name, func(t *testing.T) {
			srv := func() *http.Server {
				h := plain(model(), haiku.StreamOptions{})
				return &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(tt.wrap(w), r) })}
			}
			inBubble(t, srv, func(t *testing.T, s *site) {
				start := time.Now()
				resp, err := s.Get(s.url)
				require.NoError(t, err)
				defer resp.Body.Close()
				require.Equal(t, tt.status, resp.StatusCode)
				got, err := lines(start, resp.Body)
				require.NoError(t, err)
				require.Equal(t, tt.want, got)
			})
		})
	}
}

func TestAClientThatStopsReadingIsCutAndHarmsNobody(t *testing.T) {
	type end struct {
		at  time.Duration
		err error
	}
	ends := make(chan end, 1)
	srv := func() *http.Server {
		mux := quietMux()
		start := time.Now()
		mux.Register("/dead", haiku.HandlerFunc(func(c *haiku.Context) {
			err := c.Stream(haiku.NewStream(c.Context(), endless(strings.Repeat("x", 500)), &haiku.Request{}))
			ends <- end{time.Since(start), err}
		}), haiku.Streaming(haiku.StreamOptions{WriteTimeout: 20 * time.Second}))
		mux.Register("/good", streaming(timed(map[time.Duration]string{0: "a", 30 * time.Second: "b"}, time.Minute, nil), haiku.Request{ID: "id"}),
			haiku.Streaming(haiku.StreamOptions{Keepalive: -1}))
		return &http.Server{Handler: mux}
	}
	inBubble(t, srv, func(t *testing.T, s *site) {
		dead, err := s.Get(s.url + "/dead")
		require.NoError(t, err)
		defer dead.Body.Close()
		start := time.Now()
		good, err := s.Get(s.url + "/good")
		require.NoError(t, err)
		got, err := lines(start, good.Body)
		require.NoError(t, errors.Join(err, good.Body.Close()))
		require.Equal(t, []line{
			{0, "data: begin id "}, {0, `data: 0 "a"`}, {30 * time.Second, `data: 0 "b"`},
			{time.Minute, `data: 0 "" stop`}, {time.Minute, "data: end 0+0"},
		}, got)
		cut := <-ends
		require.Equal(t, 20*time.Second, cut.at.Round(20*time.Second), "at %v", cut.at)
		require.Error(t, cut.err)
		if dead.ProtoMajor == 1 {
			require.ErrorIs(t, cut.err, haiku.ErrSlowReader)
		}
	})
}

// A stream without deadlines of its own still ends under the server's: the
// closing chunk is the first write after it.
func TestTheServersTimeoutHoldsAgainAfterTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := make(chan time.Duration, 1)
		start := time.Now()
		srv := &http.Server{
			Handler:      plain(pieces("a"), haiku.StreamOptions{WriteTimeout: -1}),
			WriteTimeout: time.Second,
			ConnState: func(_ net.Conn, state http.ConnState) {
				if state == http.StateClosed {
					closed <- time.Since(start)
				}
			},
		}
		l := newPipeListener()
		on(t, srv, protocols["HTTP1"], l, "", l.dial, func(*site) {
			conn, err := l.dial(t.Context(), "", "")
			require.NoError(t, err)
			defer conn.Close()
			_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: haiku\r\n\r\n")
			require.NoError(t, err)
			// The last chunk to its end, which sets the handler free, and not a byte of
			// what follows: in writing that the server waits for its own timeout.
			var text []byte
			for !bytes.HasSuffix(text, []byte("data: [DONE]\n\n\r\n")) {
				var next [1]byte
				_, err := io.ReadFull(conn, next[:])
				require.NoError(t, err)
				text = append(text, next[0])
			}
			require.LessOrEqual(t, <-closed, 2*time.Second)
		})
	})
}

func TestADeadlineOfTheHandlerIsATimeout(t *testing.T) {
	srv := func() *http.Server {
		mux := quietMux()
		mux.Register("/", haiku.HandlerFunc(func(c *haiku.Context) {
			other := quiet(context.Background())
			if c.Request.FormValue("own") != "" {
				other = c.Context()
			}
			ctx, cancel := context.WithTimeout(c.Context(), time.Second)
			defer cancel()
			c.Request = c.Request.WithContext(ctx)
			_ = c.Stream(haiku.NewStream(other, waiting(make(chan error, 1)), &haiku.Request{}))
		}))
		return &http.Server{Handler: mux}
	}
	inBubble(t, srv, func(t *testing.T, s *site) {
		for _, query := range []string{"", "?own=1"} {
			resp, err := s.Get(s.url + "/" + query)
			require.Equal(t, string(haiku.AppendError(nil, haiku.ErrTimeout)), body(t, resp, err))
			require.Equal(t, 504, resp.StatusCode)
		}
	})
}
