package cache

import (
	"cmp"
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/intelliparadigm/haiku"
)

// Policy says how [Through] uses the tiers. The zero value is ready to use.
type Policy struct {
	// Model is what the model is called where a request does not say. Models that
	// share tiers need a name each, for theirs is all that tells their answers
	// apart. Empty is the name under which an infer.Registry has found it, itself or
	// as the first of a chain, or its own name in a chain; there is none behind
	// another cache.
	Model string
	// Tags names what an answer to req depends on beside the request itself, such
	// as the model's version: see [Tiers.Invalidate]. The tenant and the model's
	// name are always among them, as "tenant:…" and "model:…".
	Tags func(req *haiku.Request) []string
	// Routes decide which model answers a request, nil for the one asked for. What
	// they have decided is kept in the route tier.
	Routes *Routes
	// Pace is how long a token of a replayed answer takes; 0 is at once.
	Pace time.Duration
	// Refresh is the last share of an entry's life in which a request that finds
	// it has it computed anew in the background; 0 means 0.05, negative never. By
	// Options.Jitter it begins earlier, differently for each entry.
	Refresh float64
}

// Cached is a Model around a Model: see [Through].
type Cached struct {
	inner   haiku.Model
	tiers   *Tiers
	policy  Policy
	flights flights
	alone   atomic.Uint64 // flights that nobody may join

	mu      sync.Mutex
	closed  bool
	ctx     context.Context // of refreshes
	cancel  context.CancelFunc
	refresh sync.WaitGroup
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
	c := &Cached{inner: inner, tiers: tiers, policy: policy}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Unwrap returns the model around which this is.
func (c *Cached) Unwrap() haiku.Model { return c.inner }

// TakesExtensions asks the model around which this is. Where a route may lead to
// another than the one asked for, Generate asks, when it is known.
func (c *Cached) TakesExtensions(req *haiku.Request) error {
	if c.policy.Routes != nil {
		return nil
	}
	return haiku.TakesExtensions(c.inner, req)
}

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
	named, nameless := c.named(w, req)
	route, err := c.route(ctx, named, control)
	if err != nil {
		return err
	}
	a := asked{req: route.req, control: control, route: route, nameless: nameless && route.req.Model == named.Model}
	if err := haiku.TakesExtensions(c.inner, a.inner()); err != nil {
		return err
	}
	if !fits(a.req, control) {
		c.tiers.stats.bypassed.Add(1)
		w.SetHeader(headerCache, "bypass")
		c.keepRoute(ctx, &a)
		return c.inner.Generate(ctx, w, a.inner())
	}
	a.key = KeyOf(a.req, control.Namespace)
	if h, ok := c.exact(ctx, &a); ok {
		c.tiers.stats.hits.Add(1)
		return c.serve(ctx, w, "hit", h, &a)
	}
	a.meaning, _ = c.tiers.Meaning(ctx, a.req, control.Namespace) // without one it is a miss, which is counted
	if !control.NoCache {
		h, doubt := c.tiers.similar(ctx, a.meaning)
		if h.Answer != nil && young(h.Answer, control) {
			c.tiers.stats.semantic.Add(1)
			return c.serve(ctx, w, "semantic", h, &a)
		}
		a.doubt = doubt
	}
	c.tiers.stats.misses.Add(1)
	w.SetHeader(headerCache, "miss")
	return c.compute(ctx, w, &a)
}

// asked is a request on its way through the cache.
type asked struct {
	req     *haiku.Request
	control Control
	route   routed
	key     Key
	tags    []string
	meaning *Meaning
	unmeant bool   // meaning is to be asked for yet
	doubt   *doubt // a kept answer that the one to be computed will judge

	nameless bool // req has the model's name from here, and its asker said none
}

// inner is the request as the model behind the cache is asked.
func (a *asked) inner() *haiku.Request {
	if !a.nameless {
		return a.req
	}
	r := *a.req
	r.Model = ""
	return &r
}

// named is req with the name of the model that it is for, and whether req has none.
func (c *Cached) named(w *haiku.StreamWriter, req *haiku.Request) (*haiku.Request, bool) {
	name := cmp.Or(c.policy.Model, w.Model())
	if req.Model != "" || name == "" {
		return req, false
	}
	r := *req
	r.Model = name
	return &r, true
}

// exact finds the answer to the very same request, here or in the shared level.
func (c *Cached) exact(ctx context.Context, a *asked) (hit, bool) {
	if a.control.NoCache {
		return hit{}, false
	}
	h, ok := c.tiers.find(a.key)
	if !ok {
		if h, ok = c.tiers.fetch(ctx, a.key); ok {
			c.tiers.stats.fetched.Add(1)
		}
	}
	return h, ok && young(h.Answer, a.control)
}

// serve replays a kept answer, and has it computed anew if its time is near.
func (c *Cached) serve(ctx context.Context, w *haiku.StreamWriter, how string, h hit, a *asked) error {
	c.renew(ctx, h, a)
	describe(w, how, h.Answer)
	if err := c.replay(ctx, w, h.Answer); err != nil {
		return err
	}
	c.keepRoute(ctx, a)
	return nil
}

// fits reports whether a request is one for the cache at all.
func fits(req *haiku.Request, control Control) bool {
	random := req.Sampling.Temperature > 0 && req.Sampling.Seed == nil
	return !req.Logprobs && (!random || control.Random) && !(control.NoCache && control.NoStore)
}

func young(a *Answer, control Control) bool {
	return control.MaxAge == 0 || time.Since(a.Created) <= control.MaxAge
}

// describe tells all of a kept answer but its tokens.
func describe(w *haiku.StreamWriter, how string, a *Answer) {
	w.SetHeader(headerCache, how)
	w.SetHeader(headerAge, strconv.Itoa(int(time.Since(a.Created)/time.Second)))
	tellModel(w, a.Model)
	usage := a.Usage
	usage.CachedTokens = usage.PromptTokens
	w.SetUsage(usage)
}

// tellModel names the model that answers. One that has told no name keeps the one
// under which it was found.
func tellModel(w *haiku.StreamWriter, name string) {
	if name != "" {
		w.SetModel(name)
	}
}

// replay streams a kept answer.
func (c *Cached) replay(ctx context.Context, w *haiku.StreamWriter, a *Answer) error {
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
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// push gives a token to a stream. Stop strings have been found already.
func push(ctx context.Context, w *haiku.StreamWriter, tok *haiku.Token) error {
	if tok.Text != "" || tok.Delta != "" {
		p := haiku.Piece{Choice: tok.Choice, ID: haiku.NoToken, Text: tok.Text, Delta: []byte(tok.Delta)}
		if _, err := w.Push(ctx, p); err != nil {
			return err
		}
	}
	if tok.Finish != "" {
		w.Finish(tok.Choice, tok.Finish)
	}
	return nil
}
