package upstream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// watch ends an attempt whose engine is too slow: to connect, to send the first
// content, or between two events. What it is waiting for is a phase with a
// limit. Progress within a phase is a mark, so that an event costs neither a
// timer nor a look at the clock. A timer looks for marks several times per limit,
// and ends the attempt once the limit has passed since the last look that found
// one, or since the phase began.
type watch struct {
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	timer  *time.Timer
	due    time.Time     // when the timer looks, at the latest
	limit  time.Duration // of the phase, 0 for none
	reason error         // what it means to exceed it
	last   time.Time     // when the phase began, or a look found a mark but still
	over   bool

	mark atomic.Uint32

	untimed bool // there is no first token: only connecting has a limit
}

// What a look finds.
const (
	still    uint32 = iota
	moved           // the engine has sent something since the last look
	paused          // this side does not read: the engine is not to blame
	pausedOn        // and did not at the last look
)

// looks is how often the timer looks within a limit.
const looks = 4

func newWatch(cancel context.CancelCauseFunc) *watch { return &watch{cancel: cancel} }

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
	w.limit, w.reason, w.last = limit, reason, since
	w.mark.Store(still)
	if limit > 0 {
		w.lookAt(since.Add(limit / looks))
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

// progress notes that the engine has sent something.
func (w *watch) progress() {
	if w.mark.Load() != moved {
		w.mark.Store(moved)
	}
}

// pause and resume are around what this side does instead of reading; what pause
// returns is for resume. A pause that a look has seen is a new beginning: an
// engine that was not read could not send.
func (w *watch) pause() (was uint32) { return w.mark.Swap(paused) }

func (w *watch) resume(was uint32) {
	if !w.mark.CompareAndSwap(paused, was) { // a look has made it pausedOn
		w.mark.Store(moved)
	}
}

// look runs several times per limit.
func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.due = time.Time{}
	if w.over || w.limit <= 0 {
		return
	}
	now := time.Now()
	mark := w.mark.Load()
	switch mark {
	case moved:
		w.mark.CompareAndSwap(moved, still)
	case paused:
		w.mark.CompareAndSwap(paused, pausedOn)
	}
	if mark != still {
		now = time.Now() // not before the mark that was found
		w.last = now
	}
	if now.Sub(w.last) >= w.limit {
		w.cancel(w.reason)
		return
	}
	due, end := now.Add(w.limit/looks), w.last.Add(w.limit)
	if end.Before(due) {
		due = end
	}
	w.lookAt(due)
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
