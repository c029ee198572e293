package models

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/fallback"
	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/upstream/pool"
)

// Set is the models that a [Config] describes. It is a haiku.Model that passes
// each request to the model of its name or alias, and lists them; more can be
// added by its Registry. Its methods may be called at any time by any goroutine.
type Set struct {
	infer.Registry
	pools   map[string]*pool.Pool
	chains  map[string]*fallback.Chain
	closers []func() error // in the order in which things were made
	close   sync.Once
}

// Open makes the models that c describes. It makes no connection. Its error tells
// all that is wrong with the description.
//
// A model of several servers is a pool.Pool of them. One with a Fallback is a
// fallback.Chain, whose members have the models' names.
func Open(c Config, p Parts) (*Set, error) {
	if err := c.check(&p); err != nil {
		return nil, fmt.Errorf("models: %w", err)
	}
	b := &builder{parts: &p, set: &Set{pools: map[string]*pool.Pool{}, chains: map[string]*fallback.Chain{}}}
	if err := b.build(&c); err != nil {
		return nil, fmt.Errorf("models: %w", errors.Join(err, b.set.Close()))
	}
	return b.set, nil
}

// builder makes a Set.
type builder struct {
	parts *Parts
	set   *Set
	polls *http.Client // nil until something is to be asked
}

func (b *builder) build(c *Config) error {
	bare := make(map[string]haiku.Model, len(c.Models)) // without what stands in for them
	var wrong []error
	for i := range c.Models {
		m := &c.Models[i]
		var err error
		if bare[m.Name], err = b.bare(m); err != nil {
			wrong = append(wrong, fmt.Errorf("model %q: %w", m.Name, err))
		}
	}
	if len(wrong) > 0 {
		return errors.Join(wrong...)
	}
	for _, m := range c.offered() {
		whole, err := b.chain(m, bare)
		if err != nil {
			return fmt.Errorf("model %q: %w", m.Name, err)
		}
		whole = b.wrap(m, whole)
		for _, name := range append([]string{m.Name}, m.Aliases...) {
			b.set.Add(name, whole)
		}
	}
	return nil
}

// chain is a model with what stands in for it.
func (b *builder) chain(m *Model, bare map[string]haiku.Model) (haiku.Model, error) {
	if len(m.Fallback) == 0 {
		return bare[m.Name], nil
	}
	o := b.parts.Fallback
	o.Names = append([]string{m.Name}, m.Fallback...)
	o.Breaker.Limits.FirstToken = cmp.Or(o.Breaker.Limits.FirstToken, time.Duration(m.FirstToken)) // what it may take is not slow
	o.FirstToken = cmp.Or(time.Duration(m.FirstToken), o.FirstToken)
	o.HedgeAfter = cmp.Or(time.Duration(m.HedgeAfter), o.HedgeAfter)
	o.Stall = cmp.Or(time.Duration(m.Stall), o.Stall)
	o.Breaker.OpenFor = cmp.Or(time.Duration(m.OpenFor), o.Breaker.OpenFor)
	o.Breaker.Name = under(o.Breaker.Name, m.Name) // a model may stand in several chains
	others := make([]haiku.Model, len(m.Fallback))
	for i, name := range m.Fallback {
		others[i] = bare[name]
	}
	chain, err := o.New(bare[m.Name], others...)
	if err != nil {
		return nil, err
	}
	b.set.chains[m.Name] = chain
	b.closing(chain.Close)
	return chain, nil
}

// under is a name below that of what it is part of, which may have none.
func under(whole, name string) string { return strings.TrimPrefix(whole+"/"+name, "/") }

// wrap puts around a model what its description names.
func (b *builder) wrap(m *Model, inner haiku.Model) haiku.Model {
	for _, name := range slices.Backward(m.Wrap) {
		var end func()
		if inner, end = b.parts.Wrappers[name](m.Name, inner); end != nil {
			b.closing(end)
		}
	}
	return inner
}

func (b *builder) closing(end func()) {
	b.set.closers = append(b.set.closers, func() error { end(); return nil })
}

// Pool returns the pool of a model with several servers, to look at it, to add
// servers and to drain them.
func (s *Set) Pool(name string) (*pool.Pool, bool) {
	p, ok := s.pools[name]
	return p, ok
}

// Chain returns the chain of a model with a fallback, to look at its breakers.
func (s *Set) Chain(name string) (*fallback.Chain, bool) {
	c, ok := s.chains[name]
	return c, ok
}

// Close ends what Open and wrappers have made, outermost first. Models of Parts are
// the host's own. Requests under way are still answered.
func (s *Set) Close() error {
	var all []error
	s.close.Do(func() {
		for _, end := range slices.Backward(s.closers) {
			all = append(all, end())
		}
	})
	return errors.Join(all...)
}
