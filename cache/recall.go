package cache

import (
	"context"

	"github.com/intelliparadigm/haiku"
)

// Recall returns the answer to req if this process holds it and knows the route
// that leads to it: that costs a response neither a goroutine nor a copy.
// Everything else is Generate's: paced replays, the shared level, routes to be
// decided, questions that mean the same.
func (c *Cached) Recall(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) ([]haiku.Token, bool) {
	control := ControlFrom(ctx)
	if c.policy.Pace > 0 || control.NoCache {
		return nil, false
	}
	named, nameless := c.named(w, req)
	a := asked{req: named, control: control, nameless: nameless}
	if c.policy.Routes != nil {
		route, ok := c.tiers.known(promptKey(c.policy.Routes.table.Load(), named, control.Namespace))
		if !ok {
			return nil, false
		}
		a.req = route.Apply(named)
		a.nameless = nameless && a.req.Model == named.Model
	}
	if !fits(a.req, control) {
		return nil, false
	}
	a.key = KeyOf(a.req, control.Namespace)
	h, ok := c.tiers.find(a.key)
	if !ok || !young(h.Answer, control) {
		return nil, false
	}
	if c.policy.Routes != nil {
		c.tiers.stats.routed.Add(1)
	}
	c.tiers.stats.hits.Add(1)
	c.renew(ctx, h, &a)
	describe(w, "hit", h.Answer)
	return h.Answer.Tokens, true
}
