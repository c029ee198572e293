package fallback

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// cluster keeps a breaker and those of other replicas together. Three goroutines
// talk to what is shared, and none of them is waited for by a call:
//
//	count    gives what was seen to Counters, and the sums to the judges
//	watch    follows the switch
//	propose  writes changes that were decided here to the switch, and holds the
//	         cluster's permit to probe while it is wanted here
//
// A change is made here first and written then. What is written replaces only the
// setting that was known, so a change that was decided meanwhile elsewhere stands.
type cluster struct {
	b      *Breaker
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	traffic chan struct{} // cap 1: there may be counts to give away
	news    chan struct{} // cap 1: propose should look again
	ready   chan struct{} // closed once the switch has answered, or failed to
	once    sync.Once

	counting, watching, writes outage

	// writing is held while a setting is written: what the watch yields meanwhile
	// may be the echo of that.
	writing sync.Mutex
	rewatch context.CancelFunc // guarded by writing: makes watch begin anew
	own     int64              // guarded by writing: revision that was written last since watch began

	// Guarded by Breaker.mu.
	deaf     bool          // the switch cannot be watched
	mute     bool          // it does not take what is written, as far as is known
	met      bool          // the switch has answered before
	seen     int64         // revision of the setting that is known
	proposed time.Duration // core.until, as written last
	dirty    bool          // what was decided here is not written yet
	decided  time.Duration // when that was

	// propose's own.
	held                 func(context.Context) error // gives the cluster's permit back, nil without it
	heldTo               time.Duration
	askAfter, writeAfter time.Duration // when to ask for the permit, and to write, again
}

func newCluster(b *Breaker) *cluster {
	c := &cluster{
		b: b, traffic: make(chan struct{}, 1), news: make(chan struct{}, 1), ready: make(chan struct{}),
		counting: outage{what: "counters", b: b},
		watching: outage{what: "watch of the switch", b: b}, writes: outage{what: "switch", b: b},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if b.opts.Counters != nil {
		c.wg.Go(c.count)
	}
	if b.opts.Switch != nil {
		c.wg.Go(c.watch)
		c.wg.Go(c.propose)
	} else {
		close(c.ready)
	}
	return c
}

func (c *cluster) close() {
	c.cancel()
	c.wg.Wait()
	if c.b.opts.Switch != nil {
		c.lose(&c.deaf)
	}
}

// alone reports whether the switch is out of reach, and leases whether a probe
// needs the cluster's permit. The caller holds Breaker.mu.
func (c *cluster) alone() bool  { return c.deaf || c.mute }
func (c *cluster) leases() bool { return c.b.opts.Switch != nil && !c.alone() }

func (c *cluster) trafficSeen() { signal(c.traffic) }
func (c *cluster) poke()        { signal(c.news) }

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// sleep waits for a time of about d, and reports whether the cluster goes on.
func (c *cluster) sleep(d time.Duration) bool {
	select {
	case <-time.After(jittered(d)):
		return true
	case <-c.ctx.Done():
		return false
	}
}

// jittered is d give or take a tenth, so that replicas do not march in step.
func jittered(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*float64(d)/5)
}

// count is a goroutine. While there is no traffic it sleeps.
func (c *cluster) count() {
	opts := &c.b.opts
	wait := opts.Interval
	for {
		select {
		case <-c.traffic:
		case <-c.ctx.Done():
			return
		}
		if !c.sleep(wait) {
			return
		}
		delta := c.b.takeDelta()
		ctx, cancel := context.WithTimeout(c.ctx, opts.Patience)
		sum, err := opts.Counters.Exchange(ctx, opts.Name, delta, opts.Window)
		cancel()
		wait = c.counting.next(c.ctx, err, opts.Interval)
		if err == nil {
			c.b.share(&sum, 4*opts.Interval)
		}
	}
}

// takeDelta returns what was counted since the last time. What cannot be given
// away is lost to the others, not counted twice.
func (b *Breaker) takeDelta() Counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	delta := b.delta
	b.delta = Counts{}
	return delta
}

// share judges by what all replicas have seen, which holds for a time.
func (b *Breaker) share(sum *Counts, hold time.Duration) {
	b.mu.Lock()
	before, now := b.core.mark(), b.now()
	sum.Add(&b.delta)
	b.core.share(now, sum, now+hold)
	b.settle(before, here)
}

// watch is a goroutine.
func (c *cluster) watch() {
	for {
		err := c.watchOnce()
		if c.ctx.Err() != nil {
			return
		}
		wait := rewatchPause
		if err != nil {
			wait = c.watching.next(c.ctx, err, rewatchPause)
			c.lose(&c.deaf)
		}
		if !c.sleep(wait) {
			return
		}
	}
}

// rewatchPause is the least time between two watches.
const rewatchPause = 100 * time.Millisecond

var (
	errSilent = errors.New("fallback: the switch does not answer")
	errEnded  = errors.New("fallback: the watch of the switch has ended")
)

// watchOnce follows the switch until the watch ends. It returns nil if that was
// wanted here.
func (c *cluster) watchOnce() error {
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	c.writing.Lock()
	c.rewatch, c.own = func() { cancel(nil) }, 0
	c.writing.Unlock()
	patience := time.AfterFunc(c.b.opts.Patience, func() { cancel(errSilent) })
	defer patience.Stop()
	for s, err := range c.b.opts.Switch.Watch(ctx, c.b.opts.Name) {
		if err != nil {
			return watchEnd(ctx, err)
		}
		patience.Stop()
		c.watching.next(c.ctx, nil, 0)
		c.follow(&s)
		c.once.Do(func() { close(c.ready) })
	}
	return watchEnd(ctx, errEnded)
}

// watchEnd is err, unless the watch's own context explains it.
func watchEnd(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return err
	case errors.Is(cause, errSilent):
		return errSilent
	}
	return nil
}

// lose notes that the switch is out of reach: what is deaf or mute.
func (c *cluster) lose(what *bool) {
	c.b.mu.Lock()
	*what = true
	c.b.mu.Unlock()
	c.once.Do(func() { close(c.ready) })
}

// follow takes in a setting that the switch has now. What is known already says
// nothing, and neither does a switch that was never set: then what was decided
// here is to be written.
func (c *cluster) follow(s *Setting) {
	c.writing.Lock()
	defer c.writing.Unlock()
	b := c.b
	b.mu.Lock()
	before, now := b.core.mark(), b.now()
	c.deaf = false
	// The watch lags behind what was written here. Across watches a revision may be
	// lower than one before, if the store has lost its data.
	outdated := 0 < s.Revision && s.Revision < c.own
	known := outdated || c.met && s.Revision == c.seen
	if !outdated {
		c.met, c.seen = true, s.Revision
	}
	if !known && s.Revision > 0 {
		c.mute = false // it has taken what somebody wrote
	}
	switch {
	case known:
	case s.Revision == 0:
		b.core.forced = false
		c.dirty = b.core.state != Closed
	case c.insists(now, s):
	default:
		c.dirty = false
		b.core.follow(now, s)
		c.proposed = b.core.until
	}
	c.poke()
	b.settle(before, there)
}

// insists reports whether what was decided here stands against s: it has been
// found just now, at the same time as s, that the model is sick.
func (c *cluster) insists(now time.Duration, s *Setting) bool {
	return c.dirty && !s.Forced && s.State != Open && c.b.core.state == Open && now-c.decided < 2*c.b.opts.Patience
}

// changed is told of what was decided here. The caller holds Breaker.mu.
func (c *cluster) changed(before, after mark) {
	if c.b.core.forced {
		return
	}
	switch {
	case after.state == HalfOpen && after.share == 0:
		// All replicas know that by themselves.
	case after.state == Open && before.state == Open && after.until-c.proposed < c.b.opts.OpenFor/10:
		// A little longer is not worth a write.
		return
	default:
		c.dirty, c.decided = true, c.b.now()
	}
	c.poke()
}

// Ready is closed once the breaker knows what the cluster has decided, or knows
// that it cannot be known now. Until then it is closed, in the breaker's sense.
func (b *Breaker) Ready() <-chan struct{} {
	if b.cluster == nil {
		done := make(chan struct{})
		close(done)
		return done
	}
	return b.cluster.ready
}
