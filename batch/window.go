package batch

import (
	"math"
	"time"
)

// Window is the rule by which a batch starts or waits. Its fields are hard
// bounds; between them it adapts. It has no state: what it looks at is handed
// in, so the same rule drives a [DynamicBatcher], a simulation and a test.
//
// # The rule
//
// Let a call with n requests take a·n + b. A worker is idle, n ≥ 1 requests
// wait, and the next one arrives after a gap g; during the call k more follow
// it. Compare when each is done, counted from now:
//
//	start now:   the n at          a·n + b
//	             the other 1 + k at a·n + b + a·(1+k) + b
//	wait for g:  the n + 1 at      g + a·(n+1) + b
//	             the other k at    g + a·(n+1) + b + a·k + b
//
// Waiting delays the n by g + a each and the k by g each, and brings the next
// one forward by b + a·k − g. So the sum of all delays falls by
//
//	gain(g) = b + (k − n)·a − (n + 1 + k)·g                              (1)
//
// The fixed cost b is what the next one saves by not needing, or not waiting
// for, a call of its own. If one gives up after u without an arrival, n·u was
// lost. With F the distribution of the rest of the present gap, given that it
// has lasted until now, the window that gains most is the u that maximises
//
//	V(u) = ∫₀ᵘ gain(g) dF(g) − (1 − F(u))·n·u                            (2)
//
// and the batch starts at once if no u has V(u) > 0. F and k come from the
// histogram of the recent gaps in [Arrivals]. For Poisson arrivals of rate λ,
// with a = 0 and no followers, (2) comes down to a threshold: wait while
// (n+1)/λ < b. That is never so when arrivals are rare. For arrivals in volleys
// (2) finds the short wait that collects the volley, which no mean rate shows:
// many gaps of microseconds and a few of seconds have the mean of neither.
//
// What (1) leaves out: that one might go on waiting after the next arrival, and
// all that happens after the second call. The table "window" in bench shows how
// far that is from a schedule that knows the arrivals. With more than one worker
// idle the next request would not have to wait for this batch, so there is no
// gain at all, and the batch starts at once.
type Window struct {
	// MaxDelay is how long a request waits at most for others while a worker is
	// idle, counted from its arrival. Zero or less: not at all.
	MaxDelay time.Duration
	// MaxBatchSize is how many requests one call gets at most. At least 1.
	MaxBatchSize int
	// PreferredSizes, ascending and none above MaxBatchSize, are sizes at which
	// a batch starts at once; of those that fit the largest is taken, and the
	// rest of the requests waits for the next batch.
	PreferredSizes []int
	// Fixed turns adapting off: a batch waits until it is full, has a preferred
	// size, or a bound is reached.
	Fixed bool
}

// State is what a [Window] looks at. Times are durations since any fixed epoch.
type State struct {
	Waiting     int           // requests that wait
	IdleWorkers int           // how many calls could start now
	Oldest      time.Duration // arrival of the request that has waited longest
	Deadline    time.Duration // earliest context deadline of those that wait, 0 for none
	Expiry      time.Duration // earliest queue timeout of those that wait, 0 for none
	Arrivals    *Arrivals     // the gaps so far; nil as long as nothing is known
	Cost        *Cost         // the calls so far; nil as long as nothing is known
}

// Verdict is either a batch of Size requests that starts now or, if Size is
// zero, the time until which nothing happens unless a request arrives, leaves,
// or a worker becomes idle. Until is zero if only such an event can help.
type Verdict struct {
	Size  int
	Until time.Duration
}

// Decide returns what to do at the time now. It changes nothing.
func (w *Window) Decide(now time.Duration, s State) Verdict {
	if s.Waiting == 0 || s.IdleWorkers == 0 {
		return Verdict{}
	}
	if size := w.complete(s.Waiting); size > 0 {
		return Verdict{Size: size}
	}
	until := w.bound(s)
	if until > now && !w.Fixed {
		until = min(until, worthwhile(now, s))
	}
	if until <= now {
		return Verdict{Size: s.Waiting}
	}
	return Verdict{Until: until}
}

// complete returns the size of a batch that has nothing to wait for, or 0.
func (w *Window) complete(waiting int) int {
	for i := len(w.PreferredSizes) - 1; i >= 0; i-- {
		if size := w.PreferredSizes[i]; size <= waiting {
			return size
		}
	}
	if waiting >= w.MaxBatchSize {
		return w.MaxBatchSize
	}
	return 0
}

// after is at+d, or the end of time if that is later.
func after(at, d time.Duration) time.Duration {
	if d > math.MaxInt64-at {
		return math.MaxInt64
	}
	return at + d
}

// bound returns the time at which a batch starts whatever else holds. For a
// context's deadline it allows for a call with one request more: if that
// arrives in time, it can still join.
func (w *Window) bound(s State) time.Duration {
	until := after(s.Oldest, max(w.MaxDelay, 0))
	if s.Expiry > 0 {
		until = min(until, s.Expiry)
	}
	if s.Deadline > 0 {
		latest := s.Deadline
		if s.Cost != nil {
			latest -= s.Cost.AtMost(s.Waiting + 1)
		}
		until = min(until, latest)
	}
	return until
}

// worthwhile returns the end of the window with the largest expected gain, now
// if no window has any.
func worthwhile(now time.Duration, s State) time.Duration {
	if s.IdleWorkers > 1 || s.Arrivals == nil || s.Cost == nil {
		return now
	}
	perItem, perBatch := s.Cost.affine()
	n := float64(s.Waiting)
	k := s.Arrivals.followers(n*perItem + perBatch)
	saving := perBatch + (k-n)*perItem
	if saving <= 0 {
		return now
	}
	return now + s.Arrivals.window(now, n, n+1+k, saving)
}
