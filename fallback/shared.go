package fallback

import (
	"context"
	"errors"
	"iter"
	"time"
)

var (
	// ErrChanged is matched by the error of [Switch.Set] when the setting is no
	// longer the one that was to be replaced.
	ErrChanged = errors.New("fallback: the setting has been changed meanwhile")
	// ErrTaken is matched by the error of [Switch.Probe] when another replica has
	// the permit.
	ErrTaken = errors.New("fallback: another replica probes")
)

// Counts are what became of attempts at one model in a span of time. They add up.
type Counts struct {
	OK, Slow, Failed, Rejected int64     // disjoint; Slow: succeeded, but over the limit
	FirstToken                 [16]int64 // histogram of times to first token: bucket i holds times below 2^i ms (i<15), the last the rest
}

// Counters is where replicas add up what they saw. One round trip, atomic; an error means "judge alone".
type Counters interface {
	// Exchange adds delta to what all replicas saw of name just now, and returns the sum over the last window.
	Exchange(ctx context.Context, name string, delta Counts, window time.Duration) (Counts, error)
}

// State is where a breaker stands.
type State uint8

// The zero State is Closed.
const (
	Closed State = iota
	Open
	HalfOpen
)

// Setting is what the cluster has decided about one model.
type Setting struct {
	State      State
	Forced     bool          // by an operator: no replica changes it
	Share      float64       // of the traffic that is let through while HalfOpen, 0 = single probes only
	Wait       time.Duration // how long from the moment of the write it stays Open
	Remaining  time.Duration // filled by the Switch when read: what is left of Wait, by the store's own reckoning; no wall clocks are compared
	By, Reason string        // for people
	Revision   int64         // grows with every change; 0 is never set
}

// Switch is where the setting lies that all replicas follow.
type Switch interface {
	// Watch yields the present setting of name, then each change, until ctx ends; an error ends the sequence (the caller calls again, with backoff).
	Watch(ctx context.Context, name string) iter.Seq2[Setting, error]
	// Set replaces the setting if s.Revision is still the present one, else the error matches ErrChanged. It returns the new setting with its revision.
	Set(ctx context.Context, name string, s Setting) (Setting, error)
	// Probe takes the cluster's one permit to probe name for at most ttl; ErrTaken if another replica has it. release gives it back (safe after expiry).
	Probe(ctx context.Context, name string, ttl time.Duration) (release func(context.Context) error, err error)
}
