package fallback

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Change is a breaker's move from one state, or share of the traffic, to another.
type Change struct {
	Name     string
	From, To State
	Share    float64 // of the traffic, while it is half-open
	Why      string
	Err      error // of the attempt that was the last straw; nil if it had none, or was another replica's
	Merged   int   // changes before this one that are told as part of it
}

// How many changes are told at once, and how long each of the rest takes.
const (
	changeBurst  = 10
	changePeriod = time.Second
)

// changes tells of changes, not faster than people and logs can take. Its fields
// are guarded by the breaker's mu.
type changes struct {
	b       *Breaker
	stop    chan struct{}
	pending bool
	change  Change
	telling bool
	closed  bool
	running sync.WaitGroup
	credit  time.Duration // what it may tell: changePeriod each
	at      time.Duration // when that was true
}

func (c *changes) init(b *Breaker) {
	c.b, c.stop, c.credit = b, make(chan struct{}), changeBurst*changePeriod
}

// note takes a change in.
func (c *changes) note(from State, to mark, why string, err error) {
	next := Change{Name: c.b.opts.Name, From: from, To: to.state, Share: to.share, Why: why, Err: err}
	if c.pending {
		next.From, next.Merged = c.change.From, c.change.Merged+1
	}
	c.change, c.pending = next, true
	if !c.telling && !c.closed {
		c.telling = true
		c.running.Go(c.tell)
	}
}

// tell runs until all is told.
func (c *changes) tell() {
	for {
		change, wait, more := c.next()
		switch {
		case !more:
			return
		case wait == 0:
			c.say(&change)
			continue
		}
		select {
		case <-time.After(wait):
		case <-c.stop:
		}
	}
}

// next returns what is to be told, or how long that has to wait.
func (c *changes) next() (change Change, wait time.Duration, more bool) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	now := c.b.now()
	c.credit = min(c.credit+now-c.at, changeBurst*changePeriod)
	c.at = now
	switch {
	case !c.pending, c.closed && c.credit < changePeriod:
		c.telling = false
		return change, 0, false
	case c.credit < changePeriod:
		return change, changePeriod - c.credit, true
	}
	c.credit -= changePeriod
	c.pending = false
	return c.change, 0, true
}

func (c *changes) say(change *Change) {
	level := slog.LevelWarn
	if change.To == Closed {
		level = slog.LevelInfo
	}
	attrs := []slog.Attr{
		slog.String("model", change.Name), slog.String("was", change.From.String()),
		slog.Float64("share", change.Share), slog.String("why", change.Why), slog.Int("merged", change.Merged),
	}
	if change.Err != nil {
		attrs = append(attrs, slog.Any("error", change.Err))
	}
	c.b.opts.Logger.LogAttrs(context.Background(), level, "haiku: breaker "+change.To.String(), attrs...)
	if c.b.opts.OnChange != nil {
		defer caught(c.b.opts.Logger, "who is told of a breaker's changes", change.Name)
		c.b.opts.OnChange(*change)
	}
}

func (c *changes) close() {
	c.b.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.stop)
	}
	c.b.mu.Unlock()
	c.running.Wait()
}
