package cache

import (
	"context"
	"slices"
	"time"

	"github.com/intelliparadigm/haiku"
)

// compute has an answer computed, or follows one that is under way.
func (c *Cached) compute(ctx context.Context, w *haiku.StreamWriter, a *asked) error {
	group := a.key
	if a.control.NoCache || a.control.NoStore { // what others began is not what is asked for
		group = KeyOf(a.req, a.control.Namespace+"\x00alone\x00"+a.req.ID)
	}
	f, first := c.flights.join(ctx, group, func(ctx context.Context, f *flight) { c.fly(ctx, f, a) })
	defer func() { // whoever leaves last learns what has been used for nothing
		c.flights.leave(group, f)
		w.SetUsage(f.usage())
	}()
	if !first {
		c.tiers.stats.shared.Add(1)
	}
	for n := 0; ; {
		tokens, news, done, err := f.after(n)
		for i := range tokens {
			if n == 0 && i == 0 {
				w.SetModel(f.model())
			}
			if err := push(ctx, w, &tokens[i]); err != nil {
				return err
			}
		}
		n += len(tokens)
		switch {
		case len(tokens) > 0:
		case done:
			return err
		default:
			select {
			case <-news:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// fly computes an answer for all who ride, and keeps it if it is fit.
func (c *Cached) fly(ctx context.Context, f *flight, a *asked) {
	mark := c.mark(ctx, a.req)
	stream := haiku.NewStream(ctx, c.inner, a.req)
	var failed error
	for tok, err := range stream.Tokens() {
		if err != nil {
			failed = err
			break
		}
		f.begin(stream.Model())
		f.add(tok)
	}
	f.end(stream.Model(), stream.Usage())
	fit := failed == nil && !a.control.NoStore && c.fit(&f.answer)
	var write Write
	ttl := c.life(a.control.TTL)
	if fit {
		write = c.write(a, new(f.answer), mark)
		fit = c.tiers.set(write, ttl) == nil // what is dropped is counted there
	}
	f.finish(failed)
	if fit { // nobody waits for this but who comes last, and not for long
		c.tiers.share(context.WithoutCancel(ctx), write, ttl)
	}
}

// write is what is kept of a request that has its answer: together with it, under
// which meaning and by which route, unless the tiers know those already.
func (c *Cached) write(a *asked, answer *Answer, mark Mark) Write {
	w := Write{Key: a.key, Answer: answer, Mark: mark}
	if !c.tiers.judge(a.doubt, answer) {
		w.Meaning = a.meaning
	}
	if a.route.fresh != nil && !c.tiers.knows(a.route.prompt) { // one more would take that one's place, and its answer with it
		w.Prompt, w.Route = a.route.prompt, a.route.fresh
	}
	return w
}

// keepRoute keeps a route that was decided for a request whose answer is not.
func (c *Cached) keepRoute(ctx context.Context, a *asked) {
	if a.route.fresh == nil || a.control.NoStore || c.tiers.knows(a.route.prompt) {
		return
	}
	_ = c.tiers.SetAll(ctx, Write{Prompt: a.route.prompt, Route: a.route.fresh, Mark: c.mark(ctx, a.req)}) // what is dropped is counted
}

// mark notes what an answer to req depends on.
func (c *Cached) mark(ctx context.Context, req *haiku.Request) Mark {
	tags := []string{"tenant:" + req.Tenant, "model:" + req.Model}
	if c.policy.Tags != nil {
		tags = append(tags, c.policy.Tags(req)...)
	}
	return c.tiers.Mark(ctx, tags...)
}

// fit reports whether a complete answer may be kept.
func (c *Cached) fit(a *Answer) bool {
	if !a.whole() {
		c.tiers.stats.refused.Add(1) // cut off, withheld, or not an answer but a call
		return false
	}
	return true
}

// life is how long an answer is kept. Jitter of the end would have some go before
// those who ask at intervals of about that time come back; what is refreshed
// spreads by that.
func (c *Cached) life(ttl time.Duration) time.Duration {
	switch {
	case c.policy.Refresh < 0:
		return c.tiers.life(ttl)
	case ttl > 0:
		return ttl
	default:
		return c.tiers.opts.TTL
	}
}

// due reports whether it is time to compute an answer anew: the end of its life is
// nearer than Policy.Refresh and, by a draw for each record, jitter ask for.
func (c *Cached) due(h hit) bool {
	share := c.policy.Refresh + 2*c.tiers.jitter()*h.record.draw
	return c.policy.Refresh >= 0 && time.Until(h.record.ends) <= time.Duration(share*float64(h.record.ends.Sub(h.Created)))
}

// renew computes an answer anew that is about to expire, while it is still
// served: once for each record. What was found by its meaning is computed for the
// question that it was kept for.
func (c *Cached) renew(ctx context.Context, h hit, a *asked) {
	r := h.record
	if !c.due(h) || a.control.NoStore {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || !r.renewing.CompareAndSwap(false, true) {
		return
	}
	c.refresh.Add(1)
	ctx = context.WithoutCancel(ctx)
	again, own := *a, *a.req
	again.req, again.key = &own, r.key
	if h.text != "" { // all but the question is the same
		own.Messages = slices.Clone(own.Messages)
		own.Messages[len(own.Messages)-1].Content = h.text
		again.meaning = nil
	}
	go func() {
		defer c.refresh.Done()
		f, _ := c.flights.join(ctx, again.key, func(ctx context.Context, f *flight) {
			if again.meaning == nil {
				again.meaning, _ = c.tiers.Meaning(ctx, again.req, again.control.Namespace)
			}
			c.fly(ctx, f, &again)
		})
		select {
		case <-f.over:
		case <-c.ctx.Done():
		}
		c.flights.leave(again.key, f)
		c.tiers.stats.refreshed.Add(1)
		if !f.succeeded() {
			r.renewing.Store(false) // the next request tries again
		}
	}()
}
