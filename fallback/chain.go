package fallback

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/intelliparadigm/haiku"
)

// HeaderServedBy is the response header that names the model which answers.
const HeaderServedBy = "X-Haiku-Served-By"

// Options say when the next model is tried. The zero value is ready to use.
// Durations of zero mean what their comment says.
type Options struct {
	// Breaker is what the models' breakers are like, one each; its Name, if there
	// is one, goes before the models'. That of the last of several models opens
	// for failures alone: while nothing stands in for it, slow is better than not
	// at all.
	Breaker BreakerOptions
	// Names are the names of the models, in logs, in x-haiku-served-by and among
	// replicas. A model without one is called what it calls itself, if it lists
	// one name, else by its place. The breaker of one that is called like another
	// before it has its place in its name: llama/1.
	Names []string
	// FirstToken is how long a model may take to its first token when another can
	// be asked; 0 means the breaker's limit, negative any time. A request that
	// has an objective for its first token gives each model half of that, if it
	// is less: the other half is for the next one. A model that is over this
	// budget has failed; that it is over a client's says nothing of it.
	FirstToken time.Duration
	// HedgeAfter, if positive, is when the next model begins beside one that has
	// said nothing yet. The one to speak first answers, and the other is ended.
	HedgeAfter time.Duration
	// Stall ends an answer that has begun when no token comes for so long; 0 means
	// 10 s, negative never. Time in which the reader is behind does not count.
	Stall time.Duration
	// SameTokens says that all models have the vocabulary of the first, so that
	// requests in terms of token numbers can be asked of any.
	SameTokens bool
	// Observe, if not nil, is called before each attempt, by name of its model, and
	// returns the context that the attempt runs in; a function that it returns is
	// called after it. It is where a span begins and ends. Both may be called by
	// several goroutines at once, and must not block.
	Observe func(ctx context.Context, model string) (context.Context, func(Attempt))
}

// Attempt is what became of one model's try at an answer.
type Attempt struct {
	Model string
	// Served says that the client has its answer from it, whole or not.
	Served bool
	// Hedge says that it ran beside another, and Probe that its model was tried
	// out after having been left alone.
	Hedge, Probe bool
	Outcome      Outcome
	Took         time.Duration
	// Usage is the attempt's own. That of the answer is the usage of the attempt
	// that served.
	Usage haiku.Usage
	Err   error
}

// Chain is a Model that asks the first of several and, as long as nothing has
// been said, moves on to the next: see [New].
type Chain struct {
	opts    Options
	members []*member
}

// member is one model of a chain.
type member struct {
	model   haiku.Model
	name    string
	given   bool // name is its operator's
	named   bool // name is a model's, not a place's
	breaker *Breaker
	stats   memberStats
}

// New returns a Model that answers from primary, and from the next model if that
// is refused by its breaker, fails, or takes too long before its first token with
// text. From then on it never moves on: what fails later is an error event.
//
// Errors that are the client's end the matter at once. What a model that stands
// in does not support, be it an extension of the request, its length, a number of
// a token, or an adapter, makes it no candidate; nothing of a request is dropped.
// When none is left the error is a 502, 503 or 429 with the longest Retry-After
// of all.
//
// The response names the model that serves, in its model field and in the header
// x-haiku-served-by.
func New(primary haiku.Model, secondary ...haiku.Model) *Chain {
	c, _ := Options{}.New(primary, secondary...) // which refuses nothing of them
	return c
}

// New is [New] with options. The error says which option is refused.
func (o Options) New(primary haiku.Model, secondary ...haiku.Model) (*Chain, error) {
	c := &Chain{opts: o}
	if o.HedgeAfter < 0 {
		return nil, fmt.Errorf("fallback: Options.HedgeAfter is negative: %v", o.HedgeAfter)
	}
	if len(o.Names) > 1+len(secondary) {
		return nil, fmt.Errorf("fallback: Options.Names are %d for %d models", len(o.Names), 1+len(secondary))
	}
	for i, m := range append([]haiku.Model{primary}, secondary...) {
		mem := newMember(m, i, o.Names)
		name := mem.name
		if slices.ContainsFunc(c.members, func(other *member) bool { return other.name == name }) {
			name = fmt.Sprintf("%s/%d", name, i)
		}
		var err error
		if mem.breaker, err = NewBreaker(o.breaker(name, i > 0 && i == len(secondary))); err != nil {
			c.Close()
			return nil, err
		}
		c.members = append(c.members, mem)
	}
	limits := c.members[0].breaker.opts.Limits
	c.opts.FirstToken = limit(o.FirstToken, limits.FirstToken)
	c.opts.Stall = limit(o.Stall, 10*time.Second)
	return c, nil
}

// breaker returns the options for a model's breaker.
func (o *Options) breaker(name string, last bool) BreakerOptions {
	b := o.Breaker
	if b.Name != "" {
		name = b.Name + "/" + name
	}
	b.Name = name
	if last {
		b.Limits = Limits{FirstToken: -1, Gap: -1}
		if b.Policies == nil {
			b.Policies = []Policy{ErrorRate{}, Consecutive{}}
		}
	}
	return b
}

func newMember(m haiku.Model, place int, names []string) *member {
	if place < len(names) && names[place] != "" {
		return &member{model: m, name: names[place], given: true, named: true}
	}
	if bases := basesOf(m); len(bases) == 1 && bases[0].ID != "" {
		return &member{model: m, name: bases[0].ID, named: true}
	}
	if place == 0 {
		return &member{model: m, name: "primary"}
	}
	return &member{model: m, name: fmt.Sprintf("fallback-%d", place)}
}

// Unwrap returns the first model, whose abilities beside Generate are the chain's.
func (c *Chain) Unwrap() haiku.Model { return c.members[0].model }

// Breaker is the breaker of the model with a place in the chain, the first being
// 0, and nil beyond the last.
func (c *Chain) Breaker(place int) *Breaker {
	if place < 0 || place >= len(c.members) {
		return nil
	}
	return c.members[place].breaker
}

// Close ends what runs for the breakers and waits for it. Requests are still
// answered.
func (c *Chain) Close() {
	for _, m := range c.members {
		m.breaker.Close()
	}
}

// Generate answers req.
func (c *Chain) Generate(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
	return c.generate(&run{chain: c, ctx: ctx, w: w, req: req, budget: c.opts.FirstToken})
}

// GenerateCall is Generate for one who chooses among models by himself, as a pool
// of servers does, and has asked the first model's breaker: call is what its Allow
// has returned, or the zero Call for an attempt that is not judged. It ends the
// call, and the answer does not name the model.
func (c *Chain) GenerateCall(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request, call Call) error {
	return c.generate(&run{chain: c, ctx: ctx, w: w, req: req, budget: c.opts.FirstToken, chosen: true, call: &call})
}

func (c *Chain) generate(r *run) error {
	if t := r.req.Objective.TTFT; t > 0 {
		r.budget = min(r.budget, max(t/2, 1))
	}
	r.open, r.begun = r.space[0][:0], r.space[1][:0]
	defer r.leave()
	for !r.isDecided() { // a model that ends its goroutine leaves it to the next round
		r.goOn()
		r.all.Wait()
	}
	return r.err
}

// The errors of a chain whose models have all said no.
var errAllFailed = &haiku.Error{Status: 502, Type: "server_error", Code: "no_model_answered", Message: "no model could answer"}

// failure is why a model does not answer.
type failure struct {
	place int
	err   error
	lacks bool // it is no candidate for this request
}

// refusal makes one error of all failures. What a candidate says goes before what
// others lack: the client's request is good for somebody.
func (c *Chain) refusal(all []failure) error {
	var errs []error
	var retry time.Duration
	busy, away := 0, 0 // of those that could have answered: rejections, and what may pass
	var lacking error
	for _, f := range all {
		if f.lacks {
			if lacking == nil {
				lacking = f.err
			}
			continue
		}
		errs = append(errs, fmt.Errorf("%s: %w", c.members[f.place].name, f.err))
		e := haiku.ErrorFrom(f.err)
		retry = max(retry, e.RetryAfter)
		switch {
		case e.Status == haiku.ErrTooBusy.Status:
			busy++
		case e.Status == haiku.ErrOverloaded.Status, errors.Is(f.err, ErrFirstToken):
			away++
		}
	}
	var e *haiku.Error
	switch {
	case len(errs) == 0:
		return lacking
	case len(c.members) == 1:
		return all[0].err
	case busy == len(errs):
		e = haiku.ErrTooBusy
	case busy+away > 0:
		e = haiku.ErrOverloaded
	default:
		e = errAllFailed
	}
	e = e.Because(errors.Join(errs...))
	e.RetryAfter = retry
	return e
}
