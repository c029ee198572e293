package haikutest

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Flush is what left a Recorder at one moment.
type Flush struct {
	At   time.Time
	Body string
}

// Recorder is an http.ResponseWriter that remembers when each byte was flushed.
// Unlike httptest's it supports write deadlines, and its reader can stop
// reading or go away. What a handler writes and does not flush leaves when the
// handler returns; until then it is in Body and in no Flush.
//
// The handler has the methods of a ResponseWriter, one goroutine at a time; the
// others may be called by any goroutine meanwhile.
type Recorder struct {
	header http.Header // the handler's

	mu       sync.Mutex
	status   int
	sent     http.Header // as it was when the status was written
	body     []byte
	flushed  int // bytes of body
	flushes  []Flush
	onFlush  func(n int)
	stalled  bool
	deadline time.Time
	failure  error         // of the connection, final
	changed  chan struct{} // closed and replaced when a write that waits should look again
	news     chan struct{} // closed and replaced at each flush
}

// NewRecorder returns a Recorder whose reader reads.
func NewRecorder() *Recorder {
	return &Recorder{header: make(http.Header), changed: make(chan struct{}), news: make(chan struct{})}
}

// Header returns the response's headers, for the handler.
func (r *Recorder) Header() http.Header { return r.header }

// WriteHeader keeps the first status that is not informational, and the headers
// as they are now.
func (r *Recorder) WriteHeader(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status == 0 && status >= 200 {
		r.status = status
		r.sent = r.header.Clone()
	}
}

// Write keeps b until the next flush. While the reader is stalled it blocks,
// and fails with os.ErrDeadlineExceeded at the write deadline. As with net/http
// a connection that has failed once stays failed.
func (r *Recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if err := r.await(); err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status == http.StatusNoContent || r.status == http.StatusNotModified {
		return 0, http.ErrBodyNotAllowed
	}
	r.body = append(r.body, b...)
	return len(b), nil
}

// Flush is FlushError for handlers that ask for an http.Flusher.
func (r *Recorder) Flush() { _ = r.FlushError() }

// FlushError records what has been written since the last flush. It blocks and
// fails as Write does.
func (r *Recorder) FlushError() error {
	r.WriteHeader(http.StatusOK)
	if err := r.await(); err != nil {
		return err
	}
	n, then := r.record()
	if then != nil {
		then(n)
	}
	return nil
}

func (r *Recorder) record() (n int, then func(n int)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flushes = append(r.flushes, Flush{time.Now(), string(r.body[r.flushed:])})
	r.flushed = len(r.body)
	close(r.news)
	r.news = make(chan struct{})
	return len(r.flushes), r.onFlush
}

// await blocks while the reader is stalled.
func (r *Recorder) await() error {
	for {
		changed, deadline, err := r.state()
		if changed == nil || err != nil {
			return err
		}
		sleep(changed, deadline)
	}
}

// state says why a write cannot go on: err, or nobody reads until deadline,
// which is when changed is not nil.
func (r *Recorder) state() (changed <-chan struct{}, deadline time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == nil && !r.deadline.IsZero() && !time.Now().Before(r.deadline) {
		r.failure = os.ErrDeadlineExceeded
	}
	if r.failure != nil || !r.stalled {
		return nil, time.Time{}, r.failure
	}
	return r.changed, r.deadline, nil
}

func sleep(changed <-chan struct{}, deadline time.Time) {
	if deadline.IsZero() {
		<-changed
		return
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	}
}

// change lets f change the state and wakes a write that waits.
func (r *Recorder) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	close(r.changed)
	r.changed = make(chan struct{})
}

// SetWriteDeadline is what http.ResponseController calls. It holds for a write
// under way as well.
func (r *Recorder) SetWriteDeadline(t time.Time) error {
	r.change(func() { r.deadline = t })
	return nil
}

// SetReadDeadline is what http.ResponseController calls; a Recorder has
// nothing to read from.
func (r *Recorder) SetReadDeadline(time.Time) error { return nil }

// Stall makes the reader stop: writes and flushes block until Resume or their
// deadline.
func (r *Recorder) Stall() { r.change(func() { r.stalled = true }) }

// Resume makes a stalled reader read on.
func (r *Recorder) Resume() { r.change(func() { r.stalled = false }) }

// Fail makes the reader go away: every write and flush from now on fails with
// err, as syscall.ECONNRESET.
func (r *Recorder) Fail(err error) { r.change(func() { r.failure = err }) }

// OnFlush sets what runs after each flush, on the handler's goroutine, with the
// number of flushes so far. It is the place to Stall, to Fail or to cancel the
// request at an exact point of the answer.
func (r *Recorder) OnFlush(f func(n int)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onFlush = f
}

// Flushed returns a channel that is closed at the next flush.
func (r *Recorder) Flushed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.news
}

// Status is the response's status, 0 before there is one.
func (r *Recorder) Status() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// Flushes lists what has been flushed so far.
func (r *Recorder) Flushes() []Flush {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.flushes)
}

// Body is all that has been written, flushed or not.
func (r *Recorder) Body() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.body)
}

// Result is the response as a client has it at the end: the status, 200 if the
// handler said nothing, the headers as they were sent, and the body.
func (r *Recorder) Result() *http.Response {
	r.WriteHeader(http.StatusOK)
	r.mu.Lock()
	defer r.mu.Unlock()
	return &http.Response{
		StatusCode: r.status, Status: strconv.Itoa(r.status) + " " + http.StatusText(r.status),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: r.sent.Clone(), ContentLength: -1,
		Body: io.NopCloser(bytes.NewReader(slices.Clone(r.body))),
	}
}

// Events parses the body as server-sent events, each with the time at which
// its last byte was flushed. See [ParseEvents].
func (r *Recorder) Events() []Event {
	flushes := r.Flushes()
	i, end := 0, 0 // flushes[:i] carried end bytes
	return parseEvents(r.Body(), func(e *Event, bytes int) {
		for i < len(flushes) && end < bytes {
			end += len(flushes[i].Body)
			i++
		}
		if end >= bytes {
			e.At = flushes[i-1].At
		}
	})
}
