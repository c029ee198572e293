// Package outage keeps operations from a server that does not answer: each one
// under a deadline, and after some failures in a row none at all, but for one
// that probes the server now and then. cache/redis and fallback/redis share it.
// It imports nothing.
package outage

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"
)

// ErrOff is what an operation gets that was not tried.
var ErrOff = errors.New("the server has been given up for now")

const (
	defaultDeadline = 50 * time.Millisecond
	defaultFailures = 5
	defaultPause    = 100 * time.Millisecond
	defaultMaxPause = 30 * time.Second
)

// Options shape a [Guard].
type Options struct {
	// Deadline bounds each operation. 0 or less means 50 ms.
	Deadline time.Duration
	// Failures in a row turn the Guard off. 0 or less means 5.
	Failures int
	// Pause is how long the Guard is off before one operation probes the server.
	// It doubles with each probe that fails, up to MaxPause. 0 or less means
	// 100 ms, and 30 s for MaxPause.
	Pause, MaxPause time.Duration
	// Well reports whether an error, no timeout, is one of a server that is well
	// and refuses. It still counts as an error. Nil means that none is.
	Well func(error) bool
	// Down is called when the server is given up, with the last error, and Up when
	// it is back, with the time since. Either may be nil.
	Down func(error)
	Up   func(after time.Duration)
}

// Stats is a snapshot of a [Guard]. Counts are since its beginning.
type Stats struct {
	Errors   uint64 // operations that failed otherwise than by the Guard's deadline
	Timeouts uint64 // operations that ran into the Guard's deadline
	Skipped  uint64 // operations not tried, since the Guard was off
	Opened   uint64 // times that the server was given up
	Open     bool   // the server is given up now
}

// Guard runs operations. It starts no goroutine and is safe for concurrent use.
type Guard struct {
	options Options
	breaker breaker
	shut    atomic.Bool

	errors, timeouts, skipped, opened atomic.Uint64
}

// New returns a Guard.
func New(o Options) *Guard {
	orDefault(&o.Deadline, defaultDeadline)
	orDefault(&o.Failures, defaultFailures)
	orDefault(&o.Pause, defaultPause)
	orDefault(&o.MaxPause, defaultMaxPause)
	return &Guard{options: o, breaker: breaker{threshold: o.Failures, pause: o.Pause, maxPause: o.MaxPause}}
}

func orDefault[T int | time.Duration](v *T, to T) {
	if *v <= 0 {
		*v = to
	}
}

// Do runs one operation under the Guard's deadline, if the server has not been
// given up, and notes how it went. An operation has to end with its context.
func (g *Guard) Do(ctx context.Context, operation func(context.Context) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err // the caller has left
	}
	p, ok := permit{}, false
	if !g.shut.Load() {
		p, ok = g.breaker.allow(time.Now())
	}
	if !ok {
		g.skipped.Add(1)
		return ErrOff
	}
	v := void // stays so if the operation panics: a probe must not be lost
	defer func() { g.judged(p, v, err) }()
	bounded, cancel := context.WithTimeout(ctx, g.options.Deadline)
	defer cancel()
	err = operation(bounded)
	v = g.judge(ctx, err)
	return err
}

// Shut turns the Guard off for good. Operations that run go on.
func (g *Guard) Shut() { g.shut.Store(true) }

// Stats returns a snapshot.
func (g *Guard) Stats() Stats {
	return Stats{
		Errors: g.errors.Load(), Timeouts: g.timeouts.Load(), Skipped: g.skipped.Load(),
		Opened: g.opened.Load(), Open: g.breaker.isOpen(),
	}
}

// judge counts a failure and says what it means for the breaker.
func (g *Guard) judge(caller context.Context, err error) verdict {
	var timeout net.Error
	switch {
	case err == nil:
		return good
	case hasLeft(caller):
		return void // not the server's fault
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		g.timeouts.Add(1)
		return bad
	}
	g.errors.Add(1)
	if g.options.Well != nil && g.options.Well(err) {
		return good
	}
	return bad
}

// hasLeft reports whether the caller waits no longer. A socket may notice a
// deadline a moment before the context does.
func hasLeft(caller context.Context) bool {
	deadline, bounded := caller.Deadline()
	return caller.Err() != nil || bounded && !time.Now().Before(deadline)
}

// judged gives the permit back, and tells when the server goes or comes.
func (g *Guard) judged(p permit, v verdict, err error) {
	change, down := g.breaker.done(time.Now(), p, v)
	switch {
	case change == wentDown:
		g.opened.Add(1)
		if g.options.Down != nil {
			g.options.Down(err)
		}
	case change == wentUp && g.options.Up != nil:
		g.options.Up(down)
	}
}
