package haikutest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/infer"
)

func TestTheRecorderKeepsFlushesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder()
		start := time.Now()
		flushed := r.Flushed()
		rc := http.NewResponseController(r)
		r.Write([]byte("data: a\n\n: x\n\nda"))
		require.Empty(t, r.Flushes())
		require.NoError(t, rc.Flush())
		<-flushed
		<-time.After(time.Second)
		r.Write([]byte("ta: b\ndata: c\n\n"))
		r.Flush()
		r.Write([]byte("data: d\n\ndata: cut"))
		later := start.Add(time.Second)
		require.Equal(t, []Flush{{start, "data: a\n\n: x\n\nda"}, {later, "ta: b\ndata: c\n\n"}}, r.Flushes())
		require.Equal(t, []Event{
			{Data: "a", At: start}, {Comment: "x", At: start}, {Data: "b\nc", At: later}, {Data: "d"},
		}, r.Events())
		require.Equal(t, "data: a\n\n: x\n\ndata: b\ndata: c\n\ndata: d\n\ndata: cut", r.Body())
	})
}

func TestTheResultIsWhatWasSent(t *testing.T) {
	r := NewRecorder()
	require.Zero(t, r.Status())
	r.Header().Set("A", "1")
	r.WriteHeader(http.StatusEarlyHints)
	require.Zero(t, r.Status(), "early hints are no answer")
	r.Header().Set("B", "2")
	r.WriteHeader(http.StatusTeapot)
	r.WriteHeader(http.StatusOK)
	r.Header().Set("C", "too late")
	io.WriteString(r, "short and stout")
	require.Equal(t, http.StatusTeapot, r.Status())

	got := r.Result()
	body, err := io.ReadAll(got.Body)
	require.NoError(t, err)
	require.Equal(t, "short and stout", string(body))
	require.Equal(t, "418 I'm a teapot", got.Status)
	require.Equal(t, 418, got.StatusCode)
	require.Equal(t, http.Header{"A": {"1"}, "B": {"2"}}, got.Header)

	require.Equal(t, "200 OK", NewRecorder().Result().Status)
}

func TestSomeStatusesHaveNoBody(t *testing.T) {
	r := NewRecorder()
	r.WriteHeader(http.StatusNoContent)
	_, err := r.Write([]byte("x"))
	require.ErrorIs(t, err, http.ErrBodyNotAllowed)
	require.Empty(t, r.Body())
}

// write and flush in one, as a stream does it.
func send(r *Recorder, s string) error {
	_, err := io.WriteString(r, s)
	return errors.Join(err, r.FlushError())
}

func TestAStalledReaderHoldsWritesBackUntilItReadsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder()
		r.OnFlush(func(n int) {
			if n == 1 {
				r.Stall()
				time.AfterFunc(time.Hour, r.Resume)
			}
		})
		start := time.Now()
		require.NoError(t, send(r, "a"))
		require.NoError(t, send(r, "b"))
		require.Equal(t, []Flush{{start, "a"}, {start.Add(time.Hour), "b"}}, r.Flushes())
	})
}

func TestAStalledReaderHoldsFlushesBackAsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder()
		io.WriteString(r, "a")
		r.Stall()
		time.AfterFunc(time.Minute, r.Resume)
		start := time.Now()
		require.NoError(t, r.FlushError())
		require.Equal(t, []Flush{{start.Add(time.Minute), "a"}}, r.Flushes())
	})
}

func TestAWriteFailsAtItsDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		deadline func(r *Recorder) // called before the write
		after    time.Duration     // the write fails
	}{
		"set before": {func(r *Recorder) { r.SetWriteDeadline(time.Now().Add(time.Minute)) }, time.Minute},
		"set meanwhile": {func(r *Recorder) {
			time.AfterFunc(time.Second, func() { r.SetWriteDeadline(time.Now()) })
		}, time.Second},
		"put off meanwhile": {func(r *Recorder) {
			end := time.Now().Add(time.Hour)
			r.SetWriteDeadline(time.Now().Add(time.Minute))
			time.AfterFunc(time.Second, func() { r.SetWriteDeadline(end) })
		}, time.Hour},
		"passed before": {func(r *Recorder) { r.Resume(); r.SetWriteDeadline(time.Now()) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := NewRecorder()
				r.Stall()
				start := time.Now()
				c.deadline(r)
				_, err := r.Write([]byte("x"))
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				require.Equal(t, c.after, time.Since(start))

				r.Resume()
				require.NoError(t, r.SetWriteDeadline(time.Time{}))
				require.ErrorIs(t, r.FlushError(), os.ErrDeadlineExceeded, "the connection stays broken")
				require.Empty(t, r.Body())
			})
		})
	}
}

func TestAReaderThatGoesAwayFailsEvenAWriteThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder()
		require.NoError(t, send(r, "a"))
		r.Stall()
		time.AfterFunc(time.Minute, func() { r.Fail(syscall.ECONNRESET) })
		require.ErrorIs(t, send(r, "b"), syscall.ECONNRESET)
		require.Equal(t, "a", r.Body())
	})
}

// api serves conversations of an engine, and reports how its streams end.
func api(engine *infer.Engine, ends chan<- error, options haiku.StreamOptions) *haiku.Mux {
	mux := haiku.New()
	mux.Register("POST /", haiku.HandlerFunc(func(c *haiku.Context) {
		ends <- c.Stream(infer.NewStream(c.Context(), chat("go")))
	}), haiku.Provide(engine), haiku.Streaming(options))
	return mux
}

func words(n int) []string { return strings.SplitAfter(strings.Repeat("word ", n), " ")[:n] }

func TestAStreamToAReaderThatSleepsIsCutAtTheWriteDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Says(words(500)...)
		cfg.Costs.Step = time.Millisecond
		exec, ends := New(cfg), make(chan error, 1)
		r := NewRecorder()
		r.OnFlush(func(n int) {
			if n == 10 {
				r.Stall()
			}
		})
		start := time.Now()
		handler := api(NewEngine(t, exec, infer.Options{}), ends, haiku.StreamOptions{WriteTimeout: 5 * time.Second})
		handler.ServeHTTP(r, httptest.NewRequest("POST", "/", nil))
		require.ErrorIs(t, <-ends, haiku.ErrSlowReader)
		require.InDelta(t, 5, time.Since(start).Seconds(), 1.5)
		require.Len(t, r.Flushes(), 10)
		require.Zero(t, exec.Counts().OpenSequences)
		require.Less(t, exec.Counts().DecodeTokens, 200, "the answer is not made for nobody")
	})
}

func TestAStreamToAReaderThatLeavesEndsWithinAStep(t *testing.T) {
	for name, leave := range map[string]func(r *Recorder, cancel context.CancelFunc){
		"reset":     func(r *Recorder, _ context.CancelFunc) { r.Fail(syscall.ECONNRESET) },
		"cancelled": func(_ *Recorder, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := Says(words(500)...)
				cfg.Costs.Step = time.Second
				exec, ends := New(cfg), make(chan error, 1)
				engine := NewEngine(t, exec, infer.Options{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r := NewRecorder()
				r.OnFlush(func(n int) {
					if n == 3 {
						leave(r, cancel)
					}
				})
				api(engine, ends, haiku.StreamOptions{}).ServeHTTP(r, httptest.NewRequestWithContext(ctx, "POST", "/", nil))
				require.Error(t, <-ends)
				require.LessOrEqual(t, exec.Counts().Steps, 5)
				require.Zero(t, exec.Counts().OpenSequences)
			})
		})
	}
}

// Characters that span tokens leave whole, wherever the tokens are cut.
func TestPiecesOfCharactersLeaveWhole(t *testing.T) {
	whole := "😀 你e\u0301\x00\"\\é"
	for _, cuts := range [][]int{{2, 3, 5, 6, 9, 10}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {4}, nil} {
		var pieces []string
		from := 0
		for _, cut := range append(cuts, len(whole)) {
			pieces = append(pieces, whole[from:cut])
			from = cut
		}
		ends, r := make(chan error, 1), NewRecorder()
		api(NewModel(t, pieces...), ends, haiku.StreamOptions{}).ServeHTTP(r, httptest.NewRequest("POST", "/", nil))
		require.NoError(t, <-ends)
		require.NotContains(t, r.Body(), "\uFFFD")
		require.NotContains(t, r.Body(), `\ufffd`)
		require.Equal(t, r.Body(), string(bytes.ToValidUTF8([]byte(r.Body()), []byte("?"))))
	}
}
