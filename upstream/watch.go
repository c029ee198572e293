package upstream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// watch ends an attempt whose engine is too slow: to connect, to send the first
// content, or between two events. What it is waiting for is a phase with a
// limit; progress within a phase is a note of the time, so that an event costs
// no timer.
type watch struct {
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	timer  *time.Timer
	due    time.Time     // when the timer looks, at the latest
	limit  time.Duration // of the phase, 0 for none
	reason error         // what it means to exceed it
	since  time.Time     // when the phase began
	moved  atomic.Int64  // nanoseconds from began to the last progress
	began  time.Time
	paused atomic.Bool // this side does not read: the engine is not to blame
	over   bool

	untimed bool // there is no first token: only connecting has a limit
}

func newWatch(cancel context.CancelCauseFunc) *watch {
	return &watch{cancel: cancel, began: time.Now()}
}

// phase begins to wait for something else. since is when the wait began. The
// timer is left alone if it looks in time: mostly nothing comes of it.
func (w *watch) phase(limit time.Duration, reason error, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	if w.untimed && reason == ErrFirstToken {
		limit = 0
	}
	w.limit, w.reason, w.since = limit, reason, since
	if limit > 0 {
		w.lookAt(since.Add(limit))
	}
}

// lookAt makes sure that the timer looks at a time or before. The caller holds
// mu.
func (w *watch) lookAt(due time.Time) {
	switch {
	case w.timer == nil:
		w.timer = time.AfterFunc(time.Until(due), w.look)
	case w.due.IsZero() || due.Before(w.due):
		w.timer.Reset(time.Until(due))
	default:
		return
	}
	w.due = due
}

// now is the time for progress and resume: since the watch began.
func (w *watch) now() time.Duration { return time.Since(w.began) }

// progress notes that the engine has sent something.
func (w *watch) progress(now time.Duration) { w.moved.Store(int64(now)) }

// pause and resume are around what this side does instead of reading. A long
// pause is a new beginning: an engine that was not read could not send.
func (w *watch) pause() { w.paused.Store(true) }

func (w *watch) resume(since time.Duration) {
	if now := w.now(); now-since > longPause {
		w.progress(now)
	}
	w.paused.Store(false)
}

// longPause is longer than a write to a client that reads.
const longPause = 100 * time.Millisecond

// look runs when a limit may have passed.
func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.due = time.Time{}
	if w.over || w.limit <= 0 {
		return
	}
	last := w.since
	paused := w.paused.Load() // asked first: who goes on notes the progress before that
	if moved := w.began.Add(time.Duration(w.moved.Load())); moved.After(last) {
		last = moved
	}
	if paused {
		last = time.Now()
	}
	if due := last.Add(w.limit); time.Until(due) > 0 {
		w.lookAt(due)
		return
	}
	w.cancel(w.reason)
}

// stop ends the watch: nothing is cancelled by it afterwards.
func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if w.timer != nil {
		w.timer.Stop()
	}
}
