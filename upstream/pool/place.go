package pool

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/fallback"
)

// Generate has one of the servers answer. Before its first token another may be
// asked; after it never.
func (p *Pool) Generate(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
	way := way{affinity: affinityOf(req, p.opts.AffinityBytes), adapter: p.adapterOf(req.Model)}
	return p.try(ctx, &way, func(m *member, call fallback.Call) (spoke bool, err error) {
		return p.ask(ctx, w, m, call, req)
	})
}

// Embed has one of the servers embed the inputs. It implements haiku.Embedder; a
// server that makes no embeddings is an error for the client.
func (p *Pool) Embed(ctx context.Context, req *haiku.EmbeddingRequest) (out *haiku.Embeddings, err error) {
	err = p.try(ctx, &way{adapter: p.adapterOf(req.Model)}, func(m *member, call fallback.Call) (bool, error) {
		out, err = p.embed(ctx, m, call, req)
		return false, err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// embed has one server embed. Its breaker hears of failures, and of no first token.
func (p *Pool) embed(ctx context.Context, m *member, call fallback.Call, req *haiku.EmbeddingRequest) (out *haiku.Embeddings, err error) {
	refused := true // also if it panics
	defer func() {
		p.leave(m, refused)
		call.Done(fallback.OutcomeOf(ctx, err, err == nil && !refused))
	}()
	embedder, able := haiku.ModelAs[haiku.Embedder](m.Model)
	if !able {
		err = haiku.ErrUnsupported.With("model", "this model makes no embeddings")
	} else {
		out, err = embedder.Embed(ctx, req)
	}
	refused = err != nil && ctx.Err() == nil && elsewhere(err)
	return out, err
}

// try has ask ask one server after the other, until one has answered or has begun
// to.
func (p *Pool) try(ctx context.Context, way *way, ask func(*member, fallback.Call) (spoke bool, err error)) error {
	var failed error
	for len(way.tried) < p.opts.Attempts {
		m, call := p.place(way)
		if m == nil {
			break
		}
		spoke, err := ask(m, call)
		if err == nil || spoke || ctx.Err() != nil || !elsewhere(err) {
			return err
		}
		failed = worse(failed, err)
	}
	if failed == nil {
		return ErrNoServer
	}
	return failed
}

// way is a request on its way to a server.
type way struct {
	affinity uint64
	adapter  string // empty for none
	tried    []*member
}

// ask has one server answer, and reports whether anything of its answer has gone
// to the client.
func (p *Pool) ask(ctx context.Context, w *haiku.StreamWriter, m *member, call fallback.Call, req *haiku.Request) (spoke bool, err error) {
	branch := w.Branch(func() bool {
		spoke = true
		return true
	})
	branch.As(w.Model())
	refused := true // also if it ends this goroutine
	defer func() { p.leave(m, refused) }()
	err = branch.Generate(ctx, haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
		return m.chain.GenerateCall(ctx, w, req, call)
	}), req)
	w.SetUsage(branch.Usage())
	refused = err != nil && !spoke && ctx.Err() == nil && elsewhere(err)
	return spoke, err
}

// elsewhere reports whether another server may do better. One may have an adapter
// that another lacks.
func elsewhere(err error) bool {
	status := haiku.ErrorFrom(err).Status
	return status == 429 || status >= 500 || errors.Is(err, haiku.ErrModelNotFound)
}

// worse is the one of two errors that tells a client more: that of a server which
// has the model, and of those the sooner that says when to come back.
func worse(a, b error) error {
	if a == nil || errors.Is(a, haiku.ErrModelNotFound) {
		return b
	}
	if errors.Is(b, haiku.ErrModelNotFound) {
		return a
	}
	x, y := haiku.ErrorFrom(a), haiku.ErrorFrom(b)
	if y.RetryAfter > 0 && (x.RetryAfter == 0 || y.RetryAfter < x.RetryAfter) {
		return b
	}
	return a
}

// place chooses a server that was not tried yet, asks its breaker and counts the
// request there; nil if there is none.
func (p *Pool) place(way *way) (*member, fallback.Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	members, all, anyway := p.candidates(way.tried)
	for chance := rand.Uint64(); len(all) > 0; {
		i := pick(all, way.affinity, way.adapter, chance)
		m := members[i]
		call, ok := m.breaker.Allow()
		if !ok && m.ejected && !anyway { // or somebody else probes it
			members, all = slices.Delete(members, i, i+1), slices.Delete(all, i, i+1)
			continue
		}
		way.tried = append(way.tried, m)
		m.inFlight.Add(1)
		m.stats.Requests++
		return m, call
	}
	return nil, fallback.Call{}
}

// candidates returns the servers that may be asked, with what is known of them.
// anyway says that those which their breakers refuse may be too, as there are no
// others.
func (p *Pool) candidates(tried []*member) (members []*member, all []candidate, anyway bool) {
	up := p.up()
	p.judge(up)
	anyway = !slices.ContainsFunc(up, func(m *member) bool { return !m.ejected })
	for _, m := range up {
		if slices.Contains(tried, m) {
			continue
		}
		c := m.candidate(&p.opts)
		if m.ejected && !anyway {
			c.weight = slowest
		}
		members, all = append(members, m), append(all, c)
	}
	return members, all, anyway
}

// slowest is the part of its full power with which a server starts.
const slowest = 0.1

func (m *member) candidate(o *Options) candidate {
	c := candidate{name: m.Name, hash: m.hash, inFlight: int(m.inFlight.Load()), weight: 1}
	c.load, c.others, c.fresh = m.gauge.read(o.Stale)
	if age := time.Since(m.joined); age < o.SlowStart {
		c.weight = slowest + (1-slowest)*float64(age)/float64(o.SlowStart)
	}
	return c
}

// leave counts a request that a server had.
func (p *Pool) leave(m *member, refused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m.inFlight.Add(-1)
	if refused {
		m.stats.Refused++
	}
	m.rest()
}

// adapterOf returns name if it is an adapter's: one that a server has told of, or
// lists with a parent. For any other name it does not matter what adapters a
// server has.
func (p *Pool) adapterOf(name string) string {
	if name == "" {
		return ""
	}
	telling := false
	members := p.snapshot()
	for _, m := range members {
		load, _, _ := m.gauge.read(p.opts.Stale)
		if _, known := load.Adapters[name]; known {
			return name
		}
		telling = telling || load.Adapters != nil || load.AdapterRoom
	}
	if !telling {
		return "" // and so nothing to compare
	}
	for _, m := range members {
		for _, info := range haiku.ModelsOf(m.Model) {
			if info.ID == name && info.Parent != "" {
				return name
			}
		}
	}
	return ""
}
