package fallback

import "time"

// Policy is one way in which a model can be found to be sick. It is a
// description; each breaker has a Judge of its own made from it.
type Policy interface {
	// Judge returns a Judge that has seen nothing, for a breaker of these limits.
	Judge(l Limits) Judge
}

// Judge is the memory of a Policy in one breaker, which calls it from one
// goroutine at a time and never while it is open.
type Judge interface {
	// Observe takes a sample in and says in a few words why the model should be
	// left alone, or nothing. It must not keep s.
	Observe(s *Sample) (why string)
	// Reset forgets what was seen of a model that has been left alone since.
	Reset()
}

// Limits are where a breaker's outcomes become slow.
type Limits struct {
	FirstToken time.Duration // time to first token
	Gap        time.Duration // mean time between tokens
	Silence    time.Duration // longest time between two tokens
}

// Moment is the occasion of a Sample.
type Moment uint8

const (
	// Ended: an attempt has ended, and Outcome is what became of it.
	Ended Moment = iota
	// Late: an attempt that goes on has passed the limit of its first token,
	// which is not here yet or only just. Outcome.FirstToken is how long it has
	// taken so far. Its end is another sample: each late attempt is first Late and
	// then Ended.
	Late
	// Silent: an answer that has begun has had no token for longer than its limit,
	// and goes on. Outcome is Silent and Failed so far. Its end is another sample,
	// whose Outcome is Silent too.
	Silent
	// Shared: the other replicas' counts have arrived. There is no Outcome.
	Shared
)

// Sample is what judges see at one moment.
type Sample struct {
	At      time.Duration // since any fixed moment, by a clock that never runs back
	Moment  Moment
	Outcome Outcome
	// Recent are the attempts of the breaker's window up to now, Outcome among
	// them: those of all replicas as far as they are known, else its own.
	Recent *Counts
}

// DefaultPolicies are what a breaker has if it is told nothing else: one of each
// kind.
func DefaultPolicies() []Policy {
	return []Policy{Latency{}, SlowRate{}, ErrorRate{}, Baseline{}, Consecutive{}}
}
