package sse

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeResponse is a ResponseWriter that remembers what was done to it.
type fakeResponse struct {
	header        http.Header
	status        int
	body          []byte
	writes        int
	flushes       int
	read, write   time.Time // the deadlines in force
	deadlineCalls int
	writeErr      error
}

func newFake() *fakeResponse { return &fakeResponse{header: http.Header{}} }

func (f *fakeResponse) Header() http.Header    { return f.header }
func (f *fakeResponse) WriteHeader(status int) { f.status = status }
func (f *fakeResponse) FlushError() error      { f.flushes++; return nil }
func (f *fakeResponse) Write(p []byte) (int, error) {
	if f.writeErr != nil {
		return 0, f.writeErr
	}
	f.writes++
	f.body = append(f.body, p...)
	return len(p), nil
}

func (f *fakeResponse) SetReadDeadline(t time.Time) error {
	f.read = t
	return nil
}

func (f *fakeResponse) SetWriteDeadline(t time.Time) error {
	f.write = t
	f.deadlineCalls++
	return nil
}

// Wrappers as middleware writes them. Embedding the interface hides all else.
type (
	unwrapOnly struct{ http.ResponseWriter }
	flushOnly  struct{ http.ResponseWriter }
	neither    struct{ http.ResponseWriter }
)

func (u unwrapOnly) Unwrap() http.ResponseWriter { return u.ResponseWriter }
func (f flushOnly) Flush()                       { _ = http.NewResponseController(f.ResponseWriter).Flush() }

func request() *http.Request { return httptest.NewRequest("POST", "/", nil) }

func TestCanFlushLooksThroughWrappers(t *testing.T) {
	rec := httptest.NewRecorder()
	for _, c := range []struct {
		w    http.ResponseWriter
		want bool
	}{
		{rec, true},
		{newFake(), true},
		{unwrapOnly{unwrapOnly{rec}}, true},
		{flushOnly{neither{rec}}, true},
		{neither{rec}, false},
		{unwrapOnly{neither{rec}}, false},
	} {
		require.Equal(t, c.want, CanFlush(c.w), "%T", c.w)
	}
	http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		require.False(t, CanFlush(w))
	}), time.Minute, "").ServeHTTP(rec, request())
}

func TestOpenWritesTheHeadersOnce(t *testing.T) {
	f := newFake()
	f.header = http.Header{
		"Content-Length": {"12"}, "Content-Encoding": {"gzip"}, "Transfer-Encoding": {"chunked"},
		"Connection": {"close"}, "Keep-Alive": {"timeout=5"}, "Content-Type": {"a/b", "c/d"},
		"X-Accel-Buffering": {"yes", "yes"}, "Cache-Control": {"public"}, "X-Request-Id": {"7"},
	}
	w := NewWriter(f, request(), Options{})
	require.Len(t, f.header, 9, "NewWriter changes nothing")
	require.False(t, w.Opened())
	require.NoError(t, w.Open(200))
	require.NoError(t, w.Open(500))
	require.True(t, w.Opened())
	require.Equal(t, 200, f.status)
	require.Equal(t, http.Header{
		"Content-Type": {"text/event-stream"}, "Cache-Control": {"no-cache"},
		"X-Accel-Buffering": {"no"}, "X-Request-Id": {"7"},
	}, f.header)
	require.Equal(t, 0, f.flushes)
	require.NoError(t, w.Flush())
	require.NoError(t, w.Flush())
	require.Equal(t, []int{0, 1}, []int{f.writes, f.flushes}, "headers alone are flushed, and once")
}

func TestOpenRefusesAWriterWithoutFlush(t *testing.T) {
	f := newFake()
	w := NewWriter(neither{f}, request(), Options{})
	err := w.Open(200)
	require.ErrorIs(t, err, ErrCannotFlush)
	require.ErrorIs(t, err, http.ErrNotSupported)
	require.Equal(t, newFake(), f, "nothing was written: an error can still be answered")
	w.Buf = append(w.Buf, `{"error":{}}`...)
	require.NoError(t, w.Reply(500))
	require.Equal(t, `{"error":{}}`, string(f.body))
	require.Equal(t, 500, f.status)
}

func TestFlushIsOneWrite(t *testing.T) {
	f := newFake()
	w := NewWriter(f, request(), Options{})
	require.NoError(t, w.Open(200))
	w.Buf = append(w.Buf, "data: a\n\n"...)
	w.Buf = append(w.Buf, "data: b\n\n"...)
	require.NoError(t, w.Flush())
	require.Equal(t, []int{1, 1, 0}, []int{f.writes, f.flushes, len(w.Buf)})
	require.NoError(t, w.Flush())
	require.Equal(t, []int{1, 1}, []int{f.writes, f.flushes}, "nothing to send")
	require.Equal(t, "data: a\n\ndata: b\n\n", string(f.body))
}

func TestFlushErrorStays(t *testing.T) {
	f := newFake()
	w := NewWriter(f, request(), Options{})
	require.NoError(t, w.Open(200))
	gone := errors.New("peer gone")
	f.writeErr = gone
	w.Buf = append(w.Buf, "data: a\n\n"...)
	require.Equal(t, gone, w.Flush())
	f.writeErr = nil
	w.Buf = append(w.Buf, "data: b\n\n"...)
	require.Equal(t, gone, w.Flush())
	require.Equal(t, gone, w.Open(200))
	require.Empty(t, f.body, "nothing follows half a frame")
}

func TestLargeBufferIsNotKept(t *testing.T) {
	w := NewWriter(newFake(), request(), Options{})
	require.NoError(t, w.Open(200))
	w.Buf = make([]byte, maxKeptBytes+1)
	require.NoError(t, w.Flush())
	require.Zero(t, cap(w.Buf))
	w.Buf = append(w.Buf, "x"...)
	kept := cap(w.Buf)
	require.NoError(t, w.Flush())
	require.Equal(t, kept, cap(w.Buf))
}

func TestAWriterThatWaitsHoldsNoMemory(t *testing.T) {
	w := NewWriter(newFake(), request(), Options{})
	require.NoError(t, w.Open(200))
	for range 3 {
		w.Acquire()
		lent := cap(w.Buf)
		require.GreaterOrEqual(t, lent, lentBytes)
		w.Acquire() // again before the flush: the same
		require.Equal(t, lent, cap(w.Buf))
		w.Buf = append(w.Buf, "data: x\n\n"...)
		require.NoError(t, w.Flush())
		require.Nil(t, w.Buf)
	}
	w.Acquire()
	w.Buf = append(w.Buf, make([]byte, maxKeptBytes+1)...)
	require.NoError(t, w.Flush())
	w.Acquire()
	require.LessOrEqual(t, cap(w.Buf), maxKeptBytes, "an unusually large buffer is not lent on")
}

func TestReplySendsOneWholeBody(t *testing.T) {
	f := newFake()
	f.header.Set("Content-Encoding", "br")
	w := NewWriter(f, request(), Options{ContentType: "application/json"})
	w.Buf = append(w.Buf, `{"ok":true}`...)
	require.NoError(t, w.Reply(201))
	require.Equal(t, 201, f.status)
	require.Equal(t, http.Header{"Content-Type": {"application/json"}, "Content-Length": {"11"}}, f.header)
	require.Equal(t, `{"ok":true}`, string(f.body))
	require.Error(t, w.Reply(200), "only once")
	require.Equal(t, `{"ok":true}`, string(f.body))
}

// TestDeadlineIsRearmedLazily flushes often: each flush has at least three
// quarters of the timeout, and few of them set the deadline.
func TestDeadlineIsRearmedLazily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		const timeout, gap = 4 * time.Second, 300 * time.Millisecond
		w := NewWriter(f, request(), Options{WriteTimeout: timeout})
		require.NoError(t, w.Open(200))
		f.deadlineCalls = 0
		for range 100 {
			<-time.After(gap)
			w.Buf = append(w.Buf, 'x')
			require.NoError(t, w.Flush())
			require.GreaterOrEqual(t, time.Until(f.write), timeout*3/4)
			require.LessOrEqual(t, time.Until(f.write), timeout)
		}
		require.Equal(t, 25, f.deadlineCalls) // every 4th flush of 100
		w.Restore()                           // stops the timer
	})
}

func TestDeadlineIsLiftedBetweenFlushesOnHTTP2(t *testing.T) {
	f := newFake()
	r := request()
	r.ProtoMajor = 2
	w := NewWriter(f, r, Options{})
	require.NoError(t, w.Open(200))
	f.deadlineCalls = 0
	for range 3 {
		w.Buf = append(w.Buf, 'x')
		require.NoError(t, w.Flush())
		require.Zero(t, f.write)
	}
	require.Equal(t, 6, f.deadlineCalls)
}

func TestNoWriteTimeoutLeavesNoDeadline(t *testing.T) {
	f := newFake()
	f.write = time.Now().Add(time.Second) // the server's
	w := NewWriter(f, request(), Options{WriteTimeout: -1})
	require.NoError(t, w.Open(200))
	w.Buf = append(w.Buf, 'x')
	require.NoError(t, w.Flush())
	require.Zero(t, f.write)
	require.Equal(t, 1, f.deadlineCalls)
}

func TestUnsupportedDeadlinesAreAskedForOnce(t *testing.T) {
	f := newFake()
	w := NewWriter(flushOnly{f}, request(), Options{})
	require.NoError(t, w.Open(200))
	require.True(t, w.noDeadlines)
	w.Buf = append(w.Buf, 'x')
	require.NoError(t, w.Flush())
	w.Restore()
	require.Equal(t, []int{1, 1, 0}, []int{f.writes, f.flushes, f.deadlineCalls})
}

func TestRestoreGivesTheServersDeadlinesBack(t *testing.T) {
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ serverRead, serverWrite, own, wantRead, wantWrite time.Duration }{
			{0, 0, 300 * ms, 0, 300 * ms},
			{0, 0, -1, 0, 0},
			{100 * ms, 200 * ms, 300 * ms, 100 * ms, 200 * ms},
		} {
			f := newFake()
			w := NewWriter(f, request(), Options{WriteTimeout: c.own})
			w.server = &http.Server{ReadTimeout: c.serverRead, WriteTimeout: c.serverWrite}
			f.read, f.write = time.Now(), time.Now()
			w.Claim()
			require.Equal(t, []time.Time{{}, {}}, []time.Time{f.read, f.write})
			require.NoError(t, w.Open(200))
			require.NoError(t, w.Flush())
			<-time.After(time.Hour)
			w.Restore()
			now := time.Now()
			require.Equal(t, []time.Time{deadline(now, c.wantRead), deadline(now, c.wantWrite)}, []time.Time{f.read, f.write})
			calls := f.deadlineCalls
			w.Restore()
			require.Equal(t, calls, f.deadlineCalls, "once")
		}
	})
}

func TestFlushDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, rw := range []http.ResponseWriter{newFake(), unwrapOnly{newFake()}, flushOnly{newFake()}} {
		w := NewWriter(rw, request(), Options{WriteTimeout: time.Nanosecond}) // rearms each time
		require.NoError(t, w.Open(200))
		text := []byte("tok\"en ")
		require.Zero(t, testing.AllocsPerRun(1000, func() {
			w.Buf = append(w.Buf, `data: {"text":"`...)
			w.Buf = AppendEscaped(w.Buf, text)
			w.Buf = append(w.Buf, "\"}\n\n"...)
			if err := w.Flush(); err != nil {
				t.Error(err)
			}
			if f, ok := rw.(*fakeResponse); ok {
				f.body = f.body[:0]
			}
		}), "%T", rw)
	}
}

func BenchmarkFlush(b *testing.B) {
	b.ReportAllocs()
	f := newFake()
	w := NewWriter(f, request(), Options{})
	require.NoError(b, w.Open(200))
	frame := []byte("data: {\"text\":\" token\"}\n\n")
	for b.Loop() {
		w.Buf = append(w.Buf, frame...)
		if err := w.Flush(); err != nil {
			b.Fatal(err)
		}
		f.body = f.body[:0]
	}
}

func TestAWholeStreamTellsItsLength(t *testing.T) {
	f := newFake()
	w := NewWriter(f, request(), Options{})
	w.Buf = append(w.Buf, "data: x\n\n"...)
	w.Whole()
	require.NoError(t, w.Open(200))
	require.NoError(t, w.Flush())
	require.Equal(t, "9", f.header.Get("Content-Length"))
	require.Equal(t, "text/event-stream", f.header.Get("Content-Type"))
	require.Equal(t, "data: x\n\n", string(f.body))

	f = newFake() // too late to tell
	w = NewWriter(f, request(), Options{})
	require.NoError(t, w.Open(200))
	w.Buf = append(w.Buf, "data: x\n\n"...)
	w.Whole()
	require.NoError(t, w.Flush())
	require.Empty(t, f.header.Get("Content-Length"))
}
