package pool

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/fallback"
)

// Endpoint is one server.
type Endpoint struct {
	// Name is unique in the pool and the same in every process: what belongs to
	// which server depends on it.
	Name string
	// Model answers requests there. The pool moves on to another server when it
	// fails, so it should not try again itself, nor wait for ever: an engine of
	// package upstream has Options.Retry.Attempts 1 and a bound in
	// Options.FirstToken.
	Model haiku.Model
	// Gauge is where the Model reports the server's load as it is told with
	// answers; nil for none.
	Gauge *Gauge
	// Metrics asks the server for its load, such as [Metrics]; nil for none. It is
	// polled while Gauge tells nothing new of what it has told.
	Metrics func(ctx context.Context) (Load, error)
	// Probe tells whether the server can answer, by having it do so ([Answers]) or
	// by asking its health check ([Healthy]); nil is always. An error means no.
	Probe func(ctx context.Context) error
}

// Options shape a [Pool]. The zero value is ready to use.
type Options struct {
	// AffinityBytes is how much of a conversation's opening, which is all up to
	// and with the first message of the user's, decides which server it belongs to.
	// Later turns of it find its keys and values there, and so do conversations
	// that share the whole opening, or one longer than this, as about a document.
	// Of a prompt that is no conversation it is how much of the beginning decides:
	// turns of one stay together from that length on. 0 means 16 KiB of an opening
	// and 1 KiB of a prompt, negative switches affinity off.
	AffinityBytes int
	// Attempts is how many servers are asked for an answer before its first token;
	// 0 means 3.
	Attempts int
	// SlowStart is the time in which a server that is new or back comes to its full
	// share, from a tenth; 0 means 10 s, negative gives it at once.
	SlowStart time.Duration
	// Poll is the time between two questions for a server's load; 0 means 100 ms.
	Poll time.Duration
	// Stale is the age from which on a reported load is not believed; 0 means
	// 500 ms, or three times Poll if that is longer.
	Stale time.Duration
	// Probe is the time between two probes, and how long one may take; 0 means 2 s.
	Probe time.Duration
	// Breaker is what the servers' breakers are like, one each, with the server's
	// name after a slash if it has a Name. What is left zero is for a pool: OpenFor
	// 30 s, no limits on times unless some are given, and without them policies for
	// failures alone. After a good probe it takes RampAnswers more, while the pool's
	// slow start stands in for Ramp. Policies that are empty but not nil eject
	// nobody.
	Breaker fallback.BreakerOptions
	// MaxEjected is the share of the servers that may be ejected at once, though
	// always one; 0 means 0.5. Of those that are sick beyond it, and when there
	// is nobody else, requests are served as if they were not.
	MaxEjected float64
	// Stall ends an answer that has begun when no token comes for so long; 0 means
	// 10 s, negative never. Time in which the reader is behind does not count.
	Stall time.Duration
	// Failures is how many probes in a row have to fail for a server to be passed
	// by; 0 means 2. One that succeeds brings it back.
	Failures int
	// Logger is told of servers that go and come back; nil means slog's default.
	Logger *slog.Logger
}

func (o Options) filled() Options {
	o.Attempts = max(cmp.Or(o.Attempts, 3), 1)
	o.SlowStart = cmp.Or(o.SlowStart, 10*time.Second)
	o.Poll = max(cmp.Or(o.Poll, 100*time.Millisecond), time.Millisecond)
	o.Stale = cmp.Or(o.Stale, max(500*time.Millisecond, 3*o.Poll))
	o.Probe = max(cmp.Or(o.Probe, 2*time.Second), time.Millisecond)
	o.MaxEjected = cmp.Or(o.MaxEjected, 0.5)
	o.Failures = max(cmp.Or(o.Failures, 2), 1)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}
