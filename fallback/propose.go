package fallback

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"
)

// propose is a goroutine.
func (c *cluster) propose() {
	defer c.giveBack()
	for {
		if !c.isMute() { // any more, maybe
			c.writes.next(c.ctx, nil, 0)
		}
		again := c.write() // before the permit goes: others then know how the probe went
		wake := c.tendPermit()
		if wake == 0 || again > 0 && again < wake {
			wake = again
		}
		if !c.wait(wake) || !c.sleep(c.b.opts.Interval/2) { // what changes fast is written once
			return
		}
	}
}

func (c *cluster) isMute() bool {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	return c.mute
}

// wait waits for news, and no longer than d if that is not 0.
func (c *cluster) wait(d time.Duration) bool {
	var due <-chan time.Time
	if d > 0 {
		due = time.After(d)
	}
	select {
	case <-c.news:
	case <-due:
	case <-c.ctx.Done():
		return false
	}
	return true
}

// write writes what was decided here. It returns when to try again, 0 for never.
func (c *cluster) write() (again time.Duration) {
	c.writing.Lock()
	defer c.writing.Unlock()
	b := c.b
	b.mu.Lock()
	now := b.now()
	if !c.dirty || !c.met || c.deaf || b.core.forced || now < c.writeAfter {
		b.mu.Unlock()
		return max(c.writeAfter-now, 0)
	}
	c.dirty = false
	s := b.core.setting(now)
	until := b.core.until
	s.Revision, s.By = c.seen, b.opts.Replica
	b.mu.Unlock()

	ctx, cancel := context.WithTimeout(c.ctx, b.opts.Patience)
	set, err := b.opts.Switch.Set(ctx, b.opts.Name, s)
	cancel()
	again = c.writes.next(c.ctx, ignore(err, ErrChanged), 0)

	b.mu.Lock()
	defer b.mu.Unlock()
	c.mute, c.writeAfter = again > 0, now+again
	switch {
	case err == nil:
		c.seen, c.own, c.proposed = set.Revision, set.Revision, until
	case errors.Is(err, ErrChanged):
		c.dirty = true // until the watch says by what it was overtaken
		c.rewatch()
	default:
		c.dirty = true
	}
	return again
}

// ignore is err, or nil if it matches expected.
func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// retryPermit is when to ask again for a permit that another replica has.
const retryPermit = time.Second

// tendPermit takes the cluster's permit to probe when it is wanted here, and gives
// it back when it is not needed any more. It returns when to look again, 0 for
// when there is news.
func (c *cluster) tendPermit() (again time.Duration) {
	b := c.b
	b.mu.Lock()
	now, era, p := b.now(), b.core.era, b.core.permit
	alone := c.alone()
	b.mu.Unlock()
	if c.held != nil && (p.leased != c.heldTo || now >= c.heldTo) {
		c.giveBack()
	}
	switch {
	case c.held != nil || !p.wanted || alone:
		return 0
	case now < c.askAfter:
		return c.askAfter - now
	}
	ctx, cancel := context.WithTimeout(c.ctx, b.opts.Patience)
	release, err := b.opts.Switch.Probe(ctx, b.opts.Name, b.opts.ProbeFor)
	cancel()
	again = c.writes.next(c.ctx, ignore(err, ErrTaken), jittered(retryPermit))
	if err != nil {
		if !errors.Is(err, ErrTaken) {
			c.lose(&c.mute)
		}
		c.askAfter = now + again
		return again
	}
	c.held, c.heldTo = release, now+b.opts.ProbeFor
	b.mu.Lock()
	b.core.lease(era, c.heldTo)
	b.mu.Unlock()
	return 0
}

// lease is told that the cluster's permit is here until a time. If it is of no use
// any more there is news, and it is given back.
func (c *core) lease(era uint64, until time.Duration) {
	if c.era == era && c.state == HalfOpen && c.stage.share == 0 {
		c.permit.leased = until
	}
}

// giveBack gives the cluster's permit back, if it is here. If that fails it
// expires.
func (c *cluster) giveBack() {
	if c.held == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), c.b.opts.Patience)
	defer cancel()
	_ = c.held(ctx)
	c.held = nil
}

// outage is what there is to say about something shared that fails. It belongs to
// one goroutine.
type outage struct {
	what string
	b    *Breaker

	since   time.Duration // when it began, 0 for none
	backoff time.Duration
	logged  bool // that it began
	quiet   time.Duration
}

// Limits of the time between two attempts at something that is out of reach, and
// how long after an outage was logged the next one goes unsaid.
const (
	leastBackoff = 250 * time.Millisecond
	mostBackoff  = 10 * time.Second
	outageQuiet  = time.Minute
)

// next takes in how an operation ended and returns when the next one may come,
// which is usual after a good one. An outage is logged once, and so is its end.
func (o *outage) next(ctx context.Context, err error, usual time.Duration) time.Duration {
	if ctx.Err() != nil {
		return usual // the breaker is being closed
	}
	now := o.b.now()
	log := o.b.opts.Logger
	if err == nil {
		if o.logged {
			log.Info("haiku: breaker shares again", slog.String("model", o.b.opts.Name), slog.String("what", o.what), slog.Duration("after", now-o.since))
		}
		o.backoff, o.logged = 0, false
		return usual
	}
	if o.backoff == 0 {
		o.since = now
		if o.logged = now >= o.quiet; o.logged {
			o.quiet = now + outageQuiet
			log.Warn("haiku: breaker judges alone", slog.String("model", o.b.opts.Name), slog.String("what", o.what), slog.Any("error", err))
		}
	}
	o.backoff = min(max(2*o.backoff, leastBackoff), mostBackoff)
	return o.backoff/2 + rand.N(o.backoff/2+1)
}
