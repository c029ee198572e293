package kserve

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/intelliparadigm/haiku/upstream"
)

// watch ends an attempt that takes too long. Its methods belong to the goroutine
// of the attempt.
type watch struct {
	timer *time.Timer
	late  atomic.Pointer[lateError]
}

// lateError says what did not come in time. It is no error of a context: only
// the request's own is told as one.
type lateError struct {
	kind error
	what string
}

func (l *lateError) Error() string { return "kserve: " + l.what + " in time" }

func (l *lateError) Unwrap() error { return l.kind }

// The phases of an attempt.
var (
	lateConnect = &lateError{upstream.ErrConnect, "no connection"}
	lateFirst   = &lateError{upstream.ErrFirstToken, "no text came"}
	lateIdle    = &lateError{upstream.ErrIdle, "nothing more came"}
	lateEnd     = &lateError{upstream.ErrIdle, "the stream did not end"}
)

// start returns a context that ends with a lateError when a time that was
// allowed has passed.
func (w *watch) start(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	w.timer = time.AfterFunc(time.Hour, func() {
		if late := w.late.Load(); late != nil {
			cancel(late)
		}
	})
	w.timer.Stop()
	return ctx, func() {
		w.timer.Stop()
		cancel(nil)
	}
}

// allow begins a phase that may last d, or as long as it likes if d is negative.
func (w *watch) allow(d time.Duration, late *lateError) {
	if d < 0 {
		w.pause()
		return
	}
	w.late.Store(late)
	w.timer.Reset(d)
}

// pause lets nothing be late.
func (w *watch) pause() {
	w.timer.Stop()
	w.late.Store(nil)
}
