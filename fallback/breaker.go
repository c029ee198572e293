package fallback

import (
	"cmp"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Breaker decides whether a model is to be asked, by how its streams went. Its
// methods may be called by many goroutines at once.
//
// Closed, it lets every call through, until one of its policies finds the model
// sick. Open, it lets none through for a while. Half-open, it lets a single probe
// through and, when that was good, growing shares of the traffic, until it is
// closed; one that fails opens it again.
//
// What replicas share makes them one breaker: rates are judged by what all of
// them saw, a change that one decides on is everybody's within a second, an
// operator's setting stands above all, and one of them probes at a time. Whenever
// that is out of reach they judge by what they see themselves; nothing waits for
// it, and no call ever does.
type Breaker struct {
	opts   BreakerOptions
	origin time.Time     // only its monotonic clock matters
	fast   atomic.Uint64 // core.era<<1, and 1 if it is closed

	mu      sync.Mutex
	core    *core
	delta   Counts // not yet given to Counters
	changes changes

	cluster *cluster // nil if nothing is shared
}

// NewBreaker returns a closed breaker. One that shares something runs until it
// is closed by Close; one that does not needs no Close.
func NewBreaker(o BreakerOptions) (*Breaker, error) {
	o, err := o.filled()
	if err != nil {
		return nil, err
	}
	shares := o.Counters != nil || o.Switch != nil
	if shares && o.Name == "" {
		return nil, errors.New("fallback: a breaker that shares something needs a BreakerOptions.Name")
	}
	b := &Breaker{opts: o, origin: time.Now()}
	b.core = newCore(&b.opts)
	b.changes.init(b)
	b.fast.Store(1)
	if shares {
		b.cluster = newCluster(b)
	}
	return b, nil
}

// Name is the name it was given.
func (b *Breaker) Name() string { return b.opts.Name }

// Close ends what runs for the breaker and waits for it. From then on it judges
// alone and tells nobody. What an operator has forced stays.
func (b *Breaker) Close() {
	if b.cluster != nil {
		b.cluster.close()
	}
	b.changes.close()
}

// now is the time since the breaker was made. Nothing else asks a clock, and this
// one is monotonic: whoever sets the machine's clock changes nothing here.
func (b *Breaker) now() time.Duration { return time.Since(b.origin) }

// Call is one attempt that a breaker has been asked about. The zero Call belongs
// to no breaker and may be used like any other. Its methods are called by one
// goroutine at a time.
type Call struct {
	b     *Breaker
	of    call
	start time.Duration
	first time.Duration // 0 until the first token
	late  bool          // the breaker knows that it is
	quiet bool          // likewise that it was silent
	after time.Duration // if it was refused
}

// Allow asks whether the model may be called now. If so the call has to be ended,
// on every path, by [Call.Done].
func (b *Breaker) Allow() (c Call, ok bool) {
	c = Call{b: b, start: b.now()}
	if fast := b.fast.Load(); fast&1 != 0 {
		c.of.era = fast >> 1
		return c, true
	}
	b.mu.Lock()
	before := b.core.mark()
	v := b.core.allow(c.start, b.cluster != nil && b.cluster.leases())
	c.of, c.after = call{era: b.core.era, probe: v.probe}, v.after
	if b.cluster != nil && b.core.permit.wanted {
		b.cluster.poke()
	}
	b.settle(before, here)
	if !v.allowed {
		c.b = nil
	}
	return c, v.allowed
}

// RetryAfter is, of a call that was refused, when it may be worth asking again.
func (c *Call) RetryAfter() time.Duration { return c.after }

// Probe reports whether the call tries out a model that has been left alone.
func (c *Call) Probe() bool { return c.of.probe != 0 }

// FirstToken says that the first token has come just now.
func (c *Call) FirstToken() {
	if c.b == nil || c.first != 0 {
		return
	}
	if c.first = max(c.b.now()-c.start, 1); c.first > c.b.opts.Limits.FirstToken {
		c.tell(c.first)
	}
}

// Late says that the first token has not come and is over its limit: what
// FirstToken would say as soon as it is here, if that ever happens.
func (c *Call) Late() {
	if c.b != nil && c.first == 0 {
		c.tell(c.b.now() - c.start)
	}
}

// Silent says that the answer has begun and has had no token for longer than the
// limit of a silence.
func (c *Call) Silent() {
	if c.b == nil || c.quiet {
		return
	}
	c.quiet = true
	b := c.b
	b.mu.Lock()
	before := b.core.mark()
	b.core.silent(b.now(), c.of)
	b.settle(before, here)
}

func (c *Call) tell(taken time.Duration) {
	if c.late {
		return
	}
	c.late = true
	b := c.b
	b.mu.Lock()
	before := b.core.mark()
	b.core.late(b.now(), c.of, taken)
	b.settle(before, here)
}

// Done says what became of the call, and returns what that counts as; only the
// first time counts. An answer that was over a limit is Slow whatever o says, and
// so is one of which it was known to be late or silent before the client left.
// Where o has no time to the first token it is what [Call.FirstToken] has seen.
func (c *Call) Done(o Outcome) Outcome {
	b := c.b
	if b == nil {
		return Outcome{}
	}
	now := b.now()
	c.judge(now, &o)
	c.b = nil
	b.mu.Lock()
	before := b.core.mark()
	b.core.end(now, c.of, o)
	if b.opts.Counters != nil && o.Class != Neutral {
		b.delta.count(&o)
		b.cluster.trafficSeen()
	}
	b.settle(before, here)
	return o
}

// judge holds an outcome against the limits.
func (c *Call) judge(now time.Duration, o *Outcome) {
	limits := &c.b.opts.Limits
	o.FirstToken = cmp.Or(o.FirstToken, c.first)
	o.Silent = c.quiet
	over := o.FirstToken > limits.FirstToken
	switch {
	case o.Class == Neutral && !c.late && !c.quiet:
		return
	case o.Class == Neutral:
		o.Class, o.FirstToken = Slow, cmp.Or(o.FirstToken, now-c.start)
	case o.Class == OK && (over || c.quiet || o.Gap > limits.Gap):
		o.Class = Slow
	}
	if over {
		c.tell(o.FirstToken)
	}
}

// mark is what there is to tell about a core.
type mark struct {
	state State
	share float64
	until time.Duration
}

func (c *core) mark() mark { return mark{c.state, c.stage.share, c.until} }

// origin of a change.
const (
	here  = true
	there = false // decided by others, or by an operator
)

// settle makes a change known and gives up b.mu.
func (b *Breaker) settle(before mark, here bool) {
	defer b.mu.Unlock()
	after := b.core.mark()
	if after == before {
		return
	}
	if after.state != before.state || after.share != before.share {
		b.fast.Store(b.core.era<<1 | b.open())
		b.changes.note(before.state, after, b.core.why, b.core.cause)
	}
	if here && b.cluster != nil {
		b.cluster.changed(before, after)
	}
}

// open is the lowest bit of fast.
func (b *Breaker) open() uint64 {
	if b.core.state == Closed {
		return 1
	}
	return 0
}

// Status is how a breaker stands.
type Status struct {
	State  State
	Share  float64       // of the traffic, while it is half-open; 0 for single probes
	After  time.Duration // what is left of the time that it is open
	Forced bool          // by an operator
	Reason string        // for the last change
	Alone  bool          // it shares the switch, which is out of reach
	// Recent is what was seen here in the last window, since the last change.
	Recent Counts
}

// Status returns how the breaker stands now.
func (b *Breaker) Status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	b.core.recent.at(now)
	s := Status{State: b.core.state, Share: b.core.stage.share, Forced: b.core.forced, Reason: b.core.why, Recent: b.core.recent.sum}
	if s.State == Open {
		s.After = max(b.core.until-now, 0)
	}
	s.Alone = b.cluster != nil && b.cluster.alone()
	return s
}
