package cache

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/intelliparadigm/haiku"
)

// Route is what a table of routes has decided about a kind of prompt: which
// model answers it, and how.
type Route struct {
	// Model is the name of the model that answers; empty is the one asked for.
	Model string
	// Adapter is the name of a low-rank adapter of it, empty for none. Where there
	// is one it is the name the request is made under, as everywhere in Haiku.
	Adapter string
	// AdapterScale and Temperature replace those of the request if they are not
	// nil.
	AdapterScale *float64
	Temperature  *float64
	// Version is that of the table which decided.
	Version string
}

// Apply returns req as the route has it answered. It does not change req.
func (r *Route) Apply(req *haiku.Request) *haiku.Request {
	routed := *req
	if r.Model != "" {
		routed.Model = r.Model
	}
	if r.Adapter != "" {
		routed.Model = r.Adapter
	}
	if r.AdapterScale != nil {
		routed.AdapterScale = r.AdapterScale
	}
	if r.Temperature != nil {
		routed.Sampling.Temperature = *r.Temperature
	}
	return &routed
}

// Table is rules that decide how a request is answered.
type Table struct {
	// Version names the rules. What another version has decided is not used any
	// more from the moment on at which this one is set.
	Version string
	// Kind is what of a request the rules go by, such as the name of its prompt
	// template: requests of one kind have one route. Nil is the model asked for,
	// the names of the request's extensions, and what stands before the user's
	// first message, which is what a template leaves of itself in a request.
	Kind func(req *haiku.Request) string
	// Decide applies the rules, for the first request of a kind. It may be slow: a
	// classifier, a call of another service.
	Decide func(ctx context.Context, req *haiku.Request) (Route, error)
}

// Routes hold the [Table] in force. They may be used concurrently.
type Routes struct{ table atomic.Pointer[Table] }

// NewRoutes returns Routes with a table.
func NewRoutes(t Table) *Routes {
	r := new(Routes)
	r.Set(t)
	return r
}

// Set puts a new table in force. Requests that come after it are decided by it,
// or by what it has decided before; those under way go on as they began.
func (r *Routes) Set(t Table) { r.table.Store(&t) }

// routed is a request with the route that it takes.
type routed struct {
	req     *haiku.Request
	prompt  Key    // of its kind
	fresh   *Route // decided just now, and not in the tier yet; nil else
	decided uint64 // after how many invalidations that was
}

// route finds how a request is answered. What decides anew is told by fresh: it
// comes into the tier with the answer to which it has led.
func (c *Cached) route(ctx context.Context, req *haiku.Request, control Control) (routed, error) {
	if c.policy.Routes == nil {
		return routed{req: req}, nil
	}
	table := c.policy.Routes.table.Load()
	prompt := promptKey(table, req, control.Namespace)
	if !control.NoCache {
		if route, ok := c.tiers.Route(ctx, prompt); ok {
			c.tiers.stats.routed.Add(1)
			return routed{req: route.Apply(req), prompt: prompt}, nil
		}
	}
	c.tiers.stats.decided.Add(1)
	decided := c.tiers.generation()
	route, err := table.Decide(ctx, req)
	if err != nil {
		return routed{}, fmt.Errorf("cache: route a request: %w", err)
	}
	route.Version = table.Version
	return routed{req: route.Apply(req), prompt: prompt, fresh: &route, decided: decided}, nil
}

// promptKey is where the route of a request's kind is found.
func promptKey(t *Table, req *haiku.Request, namespace string) Key {
	var d digest
	d.text("haiku route 2")
	d.text(t.Version)
	d.text(req.Tenant)
	d.text(namespace)
	if t.Kind != nil {
		d.text(t.Kind(req))
		return d.sum()
	}
	d.text(req.Model)
	d.count(len(req.Extensions))
	for i := range req.Extensions { // which a model may not take, whatever they say
		d.text(req.Extensions[i].Name)
	}
	for i := range req.Messages {
		if req.Messages[i].Role == haiku.RoleUser {
			break
		}
		d.message(&req.Messages[i])
	}
	return d.sum()
}
