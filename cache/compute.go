package cache

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/intelliparadigm/haiku"
)

// compute has an answer computed, or follows one that is under way.
func (c *Cached) compute(ctx context.Context, w *haiku.StreamWriter, a *asked) error {
	group := a.key
	if a.control.NoCache || a.control.NoStore { // what others began is not what is asked for
		group = Key{}
		binary.LittleEndian.PutUint64(group[:], c.alone.Add(1)) // no hash is so short
	}
	a.req = own(a.req) // the flight may outlast this request
	a.tags = c.tags(a.req)
	f, first := c.flights.join(ctx, group, c.tiers.mark(a.tags), c.tiers.current, func(ctx context.Context, f *flight) { c.fly(ctx, f, a) })
	n := 0
	defer func() { // whoever leaves last learns what has been used for nothing
		c.flights.leave(group, f)
		used := f.usage()
		if used == (haiku.Usage{}) { // others ride on
			used.CompletionTokens = n
		}
		w.SetUsage(used)
	}()
	if !first {
		c.tiers.stats.shared.Add(1)
	}
	for {
		tokens, news, done, err := f.after(n)
		for i := range tokens {
			if n == 0 && i == 0 {
				f.describe(w)
			}
			if err := push(ctx, w, &tokens[i]); err != nil {
				return err
			}
			n++
		}
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
	ended := errors.New("cache: the computation ended its own goroutine")
	defer func() { // of what the host has hooked in
		if v := recover(); v != nil {
			ended = &haiku.PanicError{Value: v, Stack: debug.Stack()}
		}
		f.finish(ended)
	}()
	if a.unmeant {
		a.meaning, _ = c.tiers.Meaning(ctx, a.req, a.control.Namespace)
	}
	mark := c.tiers.Mark(ctx, a.tags...)
	stream := haiku.NewStream(ctx, c.inner, a.inner())
	var failed error
	for tok, err := range stream.Tokens() {
		if err != nil {
			failed = err
			break
		}
		f.add(stream, tok)
	}
	f.end(stream.Model(), stream.Usage())
	fit := failed == nil && !a.control.NoStore && c.fit(&f.answer, stream.Degraded())
	var write Write
	ttl := c.life(a.control)
	if fit {
		kept := f.answer
		kept.Tokens = slices.Clone(kept.Tokens) // what append has taken ahead is not kept
		write = c.write(a, &kept, mark)
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
	if !c.tiers.judge(a.doubt, answer) || a.doubt.key == a.key {
		w.Meaning = a.meaning
	}
	if c.keeps(a) {
		w.Prompt, w.Route = a.route.prompt, a.route.fresh
	}
	return w
}

// keepRoute keeps a route that was decided for a request whose answer is not.
func (c *Cached) keepRoute(ctx context.Context, a *asked) {
	if a.control.NoStore || !c.keeps(a) {
		return
	}
	mark := c.tiers.Mark(ctx, c.tags(a.req)...)
	_ = c.tiers.SetAll(ctx, Write{Prompt: a.route.prompt, Route: a.route.fresh, Mark: mark}) // what is dropped is counted
}

// keeps reports whether a route was decided that belongs into the tier: not one
// that is outdated, nor one more, which would take that one's place and its answer
// with it.
func (c *Cached) keeps(a *asked) bool {
	if a.route.fresh == nil || a.route.decided != c.tiers.generation() {
		return false
	}
	_, known := c.tiers.known(a.route.prompt)
	return !known
}

// tags are what an answer to req depends on.
func (c *Cached) tags(req *haiku.Request) []string {
	tags := []string{"tenant:" + req.Tenant, "model:" + req.Model}
	if c.policy.Tags != nil {
		tags = append(tags, c.policy.Tags(req)...)
	}
	return tags
}

// own is a copy of a request that shares nothing with it.
func own(req *haiku.Request) *haiku.Request {
	r := *req
	r.Messages, r.PromptTokens, r.Stop = slices.Clone(r.Messages), slices.Clone(r.PromptTokens), slices.Clone(r.Stop)
	for i := range r.Messages {
		r.Messages[i].Extensions = ownExtensions(r.Messages[i].Extensions)
	}
	r.Extensions = ownExtensions(r.Extensions)
	r.Sampling.LogitBias, r.Sampling.Mask = maps.Clone(r.Sampling.LogitBias), slices.Clone(r.Sampling.Mask)
	if r.Sampling.Seed != nil {
		r.Sampling.Seed = new(*r.Sampling.Seed)
	}
	if r.AdapterScale != nil {
		r.AdapterScale = new(*r.AdapterScale)
	}
	return &r
}

func ownExtensions(list []haiku.Extension) []haiku.Extension {
	list = slices.Clone(list)
	for i := range list {
		list[i].Value = slices.Clone(list[i].Value)
	}
	return list
}

// fit reports whether a complete answer may be kept.
func (c *Cached) fit(a *Answer, degraded bool) bool {
	if degraded || !a.whole() {
		c.tiers.stats.refused.Add(1) // a stand-in's, cut off, withheld, or not an answer but a call
		return false
	}
	return true
}

// life is how long an answer is kept. Jitter of the end would have some go before
// those who ask at intervals of about that time come back; what is refreshed
// spreads by that.
func (c *Cached) life(control Control) time.Duration {
	ttl := control.TTL
	if ttl <= 0 {
		ttl = c.tiers.opts.TTL
	}
	if control.most > 0 {
		ttl = min(ttl, control.most)
	}
	if c.policy.Refresh < 0 {
		return c.tiers.life(ttl)
	}
	return ttl
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
	again := *a
	again.req, again.key, again.doubt = own(a.req), r.key, nil
	if h.text != "" { // all but the question is the same
		again.req.Messages[len(again.req.Messages)-1].Content = h.text
		again.meaning = nil
	}
	again.unmeant = again.meaning == nil
	again.tags = c.tags(again.req)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && r.renewing.CompareAndSwap(false, true) {
		c.refresh.Go(func() { c.refreshed(context.WithoutCancel(ctx), r, &again) })
	}
}

// refreshed computes an answer anew, at most until the old one is served no more:
// from then on those who ask see to it.
func (c *Cached) refreshed(ctx context.Context, r *Record, a *asked) {
	f, _ := c.flights.join(ctx, a.key, c.tiers.mark(a.tags), c.tiers.current, func(ctx context.Context, f *flight) { c.fly(ctx, f, a) })
	end := time.NewTimer(time.Until(r.ends))
	defer end.Stop()
	select {
	case <-f.over:
	case <-c.ctx.Done():
	case <-end.C:
	}
	c.flights.leave(a.key, f)
	if f.succeeded() {
		c.tiers.stats.refreshed.Add(1)
	} else {
		r.renewing.Store(false) // the next request tries again
	}
}
