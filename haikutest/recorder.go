package haikutest

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Flush is what left a Recorder at one moment.
type Flush struct {
	At   time.Time
	Body string
}

// Event is a server-sent event, or a comment.
type Event struct {
	Data    string
	Comment string
}

// Recorder is an http.ResponseWriter that remembers when each byte was flushed.
// Unlike httptest's it supports write deadlines and can stop reading, and its
// methods may be called while a handler writes to it. What a handler writes
// counts only once it is flushed.
type Recorder struct {
	mu       sync.Mutex
	header   http.Header
	status   int
	pending  strings.Builder
	flushes  []Flush
	deadline time.Time
	stalled  chan struct{} // closed by Resume; nil while reading
	flushed  chan struct{} // closed and replaced at each flush
}

// NewRecorder returns a Recorder that reads.
func NewRecorder() *Recorder {
	return &Recorder{header: make(http.Header), flushed: make(chan struct{})}
}

// Header returns the response's headers, for the handler.
func (r *Recorder) Header() http.Header { return r.header }

// WriteHeader keeps the first status.
func (r *Recorder) WriteHeader(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status == 0 {
		r.status = status
	}
}

// Write keeps b until the next flush. While the reader is stalled it blocks,
// and fails with os.ErrDeadlineExceeded at the write deadline.
func (r *Recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if err := r.await(); err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pending.Write(b)
}

// await blocks while the reader is stalled.
func (r *Recorder) await() error {
	r.mu.Lock()
	stalled, deadline := r.stalled, r.deadline
	r.mu.Unlock()
	if stalled == nil {
		return nil
	}
	var expired <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-stalled:
		return nil
	case <-expired:
		return os.ErrDeadlineExceeded
	}
}

// FlushError records what has been written since the last flush.
func (r *Recorder) FlushError() error {
	r.WriteHeader(http.StatusOK)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flushes = append(r.flushes, Flush{time.Now(), r.pending.String()})
	r.pending.Reset()
	close(r.flushed)
	r.flushed = make(chan struct{})
	return nil
}

// SetWriteDeadline is what http.ResponseController calls.
func (r *Recorder) SetWriteDeadline(t time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deadline = t
	return nil
}

// SetReadDeadline is what http.ResponseController calls; a Recorder has
// nothing to read from.
func (r *Recorder) SetReadDeadline(time.Time) error { return nil }

// Stall makes the reader stop: writes block until Resume or their deadline.
func (r *Recorder) Stall() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stalled == nil {
		r.stalled = make(chan struct{})
	}
}

// Resume makes a stalled reader read on.
func (r *Recorder) Resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stalled != nil {
		close(r.stalled)
		r.stalled = nil
	}
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

// Flushed returns a channel that is closed at the next flush.
func (r *Recorder) Flushed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.flushed
}

// Body is all that has been written, flushed or not.
func (r *Recorder) Body() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, f := range r.flushes {
		b.WriteString(f.Body)
	}
	return b.String() + r.pending.String()
}

// Events parses the body as server-sent events. A last one that is not
// complete, as a cut connection leaves it, is not returned.
func (r *Recorder) Events() []Event {
	var events []Event
	body := r.Body()
	for {
		block, rest, complete := strings.Cut(body, "\n\n")
		if !complete {
			return events
		}
		body = rest
		var e Event
		for line := range strings.SplitSeq(block, "\n") {
			if data, ok := strings.CutPrefix(line, "data:"); ok {
				e.Data += strings.TrimPrefix(data, " ")
			} else if comment, ok := strings.CutPrefix(line, ":"); ok {
				e.Comment += strings.TrimPrefix(comment, " ")
			}
		}
		events = append(events, e)
	}
}
