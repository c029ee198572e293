package cache

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/intelliparadigm/haiku"
)

// Policy says how [Through] uses the tiers. The zero value is ready to use.
type Policy struct {
	// Tags names what an answer to req depends on beside the request itself, such
	// as the model's version: see [Tiers.Invalidate]. The tenant and the model's
	// name are always among them, as "tenant:…" and "model:…".
	Tags func(req *haiku.Request) []string
	// Pace is how long a token of a replayed answer takes; 0 is at once.
	Pace time.Duration
	// Refresh is the last share of an entry's life in which a request that finds
	// it has it computed anew in the background; 0 means 0.05, negative never.
	Refresh float64
}

// Cached is a Model around a Model: see [Through].
type Cached struct {
	inner   haiku.Model
	tiers   *Tiers
	policy  Policy
	flights flights

	mu      sync.Mutex
	closed  bool
	ctx     context.Context // of refreshes
	cancel  context.CancelFunc
	refresh sync.WaitGroup
	fresh   map[Key]bool // being refreshed
}

// Through answers from tiers what it can and has the rest computed by inner,
// once for all that ask at the same time. What the response says of it is the
// header x-haiku-cache: hit, semantic, miss, or bypass for a request that is not
// for the cache; and x-haiku-cache-age in seconds.
//
// Requests for log-probabilities pass by, and so do those that are drawn at
// random, without a seed, unless [Control.Random] allows it.
func Through(inner haiku.Model, tiers *Tiers, policy Policy) *Cached {
	if policy.Refresh == 0 {
		policy.Refresh = 0.05
	}
	c := &Cached{inner: inner, tiers: tiers, policy: policy, fresh: make(map[Key]bool)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Unwrap returns the model around which this is.
func (c *Cached) Unwrap() haiku.Model { return c.inner }

// Close ends refreshes and waits for them. Requests are still answered.
func (c *Cached) Close() {
	c.mu.Lock()
	c.closed = true
	c.cancel()
	c.mu.Unlock()
	c.refresh.Wait()
}

// The headers that say what the cache did.
const (
	headerCache = "X-Haiku-Cache"
	headerAge   = "X-Haiku-Cache-Age"
)

// Generate answers req.
func (c *Cached) Generate(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
	control := ControlFrom(ctx)
	if !fits(req, control) {
		c.tiers.stats.bypassed.Add(1)
		w.SetHeader(headerCache, "bypass")
		return c.inner.Generate(ctx, w, req)
	}
	key := KeyOf(req, control.Namespace)
	if !control.NoCache {
		r, ok := c.tiers.find(key)
		if !ok {
			if r, ok = c.tiers.fetch(ctx, key); ok {
				c.tiers.stats.fetched.Add(1)
			}
		}
		if ok && young(r.answer, control) {
			c.tiers.stats.hits.Add(1)
			c.renew(ctx, key, r, req, control)
			return c.replay(ctx, w, "hit", r.answer)
		}
	}
	meaning, _ := c.tiers.Meaning(ctx, req, control.Namespace) // without one it is a miss, which is counted
	if !control.NoCache {
		if r, ok := c.tiers.similar(meaning); ok && young(r.answer, control) {
			c.tiers.stats.semantic.Add(1)
			return c.replay(ctx, w, "semantic", r.answer)
		}
	}
	c.tiers.stats.misses.Add(1)
	w.SetHeader(headerCache, "miss")
	return c.compute(ctx, w, key, req, control, meaning)
}

// fits reports whether a request is one for the cache at all.
func fits(req *haiku.Request, control Control) bool {
	random := req.Sampling.Temperature > 0 && req.Sampling.Seed == nil
	return !req.Logprobs && (!random || control.Random) && !(control.NoCache && control.NoStore)
}

func young(a *Answer, control Control) bool {
	return control.MaxAge == 0 || time.Since(a.Created) <= control.MaxAge
}

// replay streams a kept answer.
func (c *Cached) replay(ctx context.Context, w *haiku.StreamWriter, how string, a *Answer) error {
	w.SetHeader(headerCache, how)
	w.SetHeader(headerAge, strconv.Itoa(int(time.Since(a.Created)/time.Second)))
	w.SetModel(a.Model)
	usage := a.Usage
	usage.CachedTokens = usage.PromptTokens
	w.SetUsage(usage)
	for i := range a.Tokens {
		if c.policy.Pace > 0 && i > 0 {
			if err := pause(ctx, c.policy.Pace); err != nil {
				return err
			}
		}
		if err := push(ctx, w, &a.Tokens[i]); err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// push gives a token to a stream. Stop strings have been found already.
func push(ctx context.Context, w *haiku.StreamWriter, tok *haiku.Token) error {
	if tok.Text == "" && tok.Finish == "" {
		return nil
	}
	if tok.Text != "" {
		if _, err := w.Push(ctx, haiku.Piece{Choice: tok.Choice, ID: haiku.NoToken, Text: tok.Text}); err != nil {
			return err
		}
	}
	if tok.Finish != "" {
		w.Finish(tok.Choice, tok.Finish)
	}
	return nil
}

// compute has an answer computed, or follows one that is under way.
func (c *Cached) compute(ctx context.Context, w *haiku.StreamWriter, key Key, req *haiku.Request, control Control, meaning *Meaning) error {
	group := key
	if control.NoCache || control.NoStore { // what others began is not what is asked for
		group = KeyOf(req, control.Namespace+"\x00alone\x00"+req.ID)
	}
	f, first := c.flights.join(ctx, group, func(ctx context.Context, f *flight) { c.fly(ctx, f, key, req, control, meaning) })
	defer c.flights.leave(group, f)
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
			w.SetUsage(f.usage())
			return err
		default:
			select {
			case <-news:
			case <-ctx.Done():
				w.SetUsage(f.usage())
				return ctx.Err()
			}
		}
	}
}

// fly computes an answer for all who ride, and keeps it if it is fit.
func (c *Cached) fly(ctx context.Context, f *flight, key Key, req *haiku.Request, control Control, meaning *Meaning) {
	mark := c.mark(ctx, req)
	stream := haiku.NewStream(ctx, c.inner, req)
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
	fit := failed == nil && !control.NoStore && c.fit(&f.answer)
	write, ttl := Write{Key: key, Answer: new(f.answer), Meaning: meaning, Mark: mark}, c.tiers.life(control.TTL)
	if fit {
		fit = c.tiers.set(write, ttl) == nil // what is dropped is counted there
	}
	f.finish(failed)
	if fit { // nobody waits for this but who comes last, and not for long
		c.tiers.share(context.WithoutCancel(ctx), write, ttl)
	}
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
	for i := range a.Tokens {
		if reason := a.Tokens[i].Finish; reason != "" && reason != haiku.FinishStop {
			c.tiers.stats.refused.Add(1) // cut off, withheld, or not an answer but a call
			return false
		}
	}
	return true
}

// renew computes an answer anew that is about to expire, while it is still
// served.
func (c *Cached) renew(ctx context.Context, key Key, r *Record, req *haiku.Request, control Control) {
	life := r.ends.Sub(r.answer.Created)
	if c.policy.Refresh < 0 || time.Until(r.ends) > time.Duration(c.policy.Refresh*float64(life)) || control.NoStore {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.fresh[key] {
		return
	}
	c.fresh[key] = true
	c.refresh.Add(1)
	ctx = context.WithoutCancel(ctx)
	own := *req
	go func() {
		defer c.refresh.Done()
		f, _ := c.flights.join(ctx, key, func(ctx context.Context, f *flight) {
			meaning, _ := c.tiers.Meaning(ctx, &own, control.Namespace)
			c.fly(ctx, f, key, &own, control, meaning)
		})
		select {
		case <-f.over:
		case <-c.ctx.Done():
		}
		c.flights.leave(key, f)
		c.tiers.stats.refreshed.Add(1)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.fresh, key)
	}()
}
