package pool

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/intelliparadigm/haiku"
)

// ErrNoServer is the error of a request when no server of the pool is well.
var ErrNoServer = haiku.ErrOverloaded.With("", "no server of this model can answer now")

// Pool is a Model of several servers. Its methods may be called concurrently.
type Pool struct {
	opts   Options
	cancel context.CancelFunc
	tasks  sync.WaitGroup // the watch, and what it asks servers

	mu      sync.Mutex
	members []*member
}

// member is a server of a pool. What is below is guarded by the pool's mutex.
type member struct {
	Endpoint
	hash  uint64 // of its name
	gauge *Gauge

	inFlight         atomic.Int64 // changed under the mutex only
	joined           time.Time    // when it came, or came back
	down, draining   bool
	failures         int // of probes, in a row
	polling, probing bool
	polled, probed   time.Time
	idle             chan struct{} // closed when it is drained; nil before
	stats            Status
}

// Status is what a pool knows of a server.
type Status struct {
	Name           string
	InFlight       int // requests of this process
	Down, Draining bool
	// Load is what the server told last, if Fresh.
	Load  Load
	Fresh bool
	// Requests were sent there since it joined. Refused are those of them that
	// failed before their first token, neither by the client's fault nor by its
	// leaving.
	Requests, Refused int64
}

// New returns a pool, which Close ends.
func New(o Options, endpoints ...Endpoint) (*Pool, error) {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Pool{opts: o.filled(), cancel: cancel}
	for _, e := range endpoints {
		if err := p.add(e, time.Now().Add(-p.opts.SlowStart)); err != nil { // all begin together: none is cold
			cancel()
			return nil, err
		}
	}
	p.tasks.Go(func() { p.watch(ctx) })
	return p, nil
}

// Close ends what the pool does by itself and waits for it. Requests under way go
// on.
func (p *Pool) Close() {
	p.cancel()
	p.tasks.Wait()
}

// Add takes in another server, which starts slowly.
func (p *Pool) Add(e Endpoint) error { return p.add(e, time.Now()) }

func (p *Pool) add(e Endpoint, joined time.Time) error {
	if e.Name == "" || e.Model == nil {
		return errors.New("pool: an endpoint needs a name and a model")
	}
	m := &member{Endpoint: e, hash: hashOf(e.Name), gauge: e.Gauge, joined: joined}
	if m.gauge == nil {
		m.gauge = new(Gauge)
	}
	m.gauge.follow(&m.inFlight)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, other := range p.members {
		if other.Name == e.Name {
			return fmt.Errorf("pool: there is a server %q already", e.Name)
		}
	}
	p.members = append(p.members, m)
	return nil
}

// Drain sends a server no more requests, waits for those that it has, and takes it
// out. If ctx ends first it stays as it is, without new requests, until it is
// drained again.
func (p *Pool) Drain(ctx context.Context, name string) error {
	p.mu.Lock()
	m := p.member(name)
	if m == nil {
		p.mu.Unlock()
		return fmt.Errorf("pool: there is no server %q", name)
	}
	m.draining = true
	if m.idle == nil {
		m.idle = make(chan struct{})
		m.rest()
	}
	idle := m.idle
	p.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
		return fmt.Errorf("pool: drain %q: %w", name, ctx.Err())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.members {
		if other == m {
			p.members = append(p.members[:i:i], p.members[i+1:]...)
		}
	}
	return nil
}

// rest tells whoever drains the server that it has nothing left to do.
func (m *member) rest() {
	if m.idle != nil && m.inFlight.Load() == 0 {
		select {
		case <-m.idle:
		default:
			close(m.idle)
		}
	}
}

// hashOf is the same in every process.
func hashOf(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return h.Sum64()
}

func (p *Pool) member(name string) *member {
	for _, m := range p.members {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// Generate has one of the servers answer. Before its first token another may be
// asked; after it never.
func (p *Pool) Generate(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
	var failed error
	way := way{affinity: affinityOf(req, p.opts.AffinityBytes), adapter: p.adapterOf(req.Model)}
	for len(way.tried) < p.opts.Attempts {
		m := p.place(&way)
		if m == nil {
			break
		}
		spoke, err := p.ask(ctx, w, m, req)
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
func (p *Pool) ask(ctx context.Context, w *haiku.StreamWriter, m *member, req *haiku.Request) (spoke bool, err error) {
	branch := w.Branch(func() bool {
		spoke = true
		return true
	})
	refused := true // also if it ends this goroutine
	defer func() { p.leave(m, refused) }()
	err = branch.Generate(ctx, m.Model, req)
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

// place chooses a server that was not tried yet, and counts the request there.
func (p *Pool) place(way *way) *member {
	p.mu.Lock()
	defer p.mu.Unlock()
	var members []*member
	var all []candidate
	for _, m := range p.members {
		if !m.down && !m.draining && !slices.Contains(way.tried, m) {
			members = append(members, m)
			all = append(all, m.candidate(p.opts))
		}
	}
	if len(all) == 0 {
		return nil
	}
	m := members[pick(all, way.affinity, way.adapter, rand.Uint64())[0]]
	way.tried = append(way.tried, m)
	m.inFlight.Add(1)
	m.stats.Requests++
	return m
}

func (m *member) candidate(o Options) candidate {
	c := candidate{name: m.Name, hash: m.hash, inFlight: int(m.inFlight.Load()), weight: 1}
	c.load, c.others, c.fresh = m.gauge.read(o.Stale)
	if age := time.Since(m.joined); age < o.SlowStart {
		c.weight = 0.1 + 0.9*float64(age)/float64(o.SlowStart)
	}
	return c
}

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
		for _, info := range modelsOf(m.Model) {
			if info.ID == name && info.Parent != "" {
				return name
			}
		}
	}
	return ""
}

// snapshot returns the servers of now.
func (p *Pool) snapshot() []*member {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.members)
}

// modelsOf returns what a model lists, if it lists anything.
func modelsOf(m haiku.Model) []haiku.ModelInfo {
	if lister, ok := haiku.ModelAs[haiku.Lister](m); ok {
		return lister.Models()
	}
	return nil
}

// TakesExtensions asks the first server: all have the same model.
func (p *Pool) TakesExtensions(req *haiku.Request) error {
	members := p.snapshot()
	if len(members) == 0 {
		return nil // there is nobody to refuse it
	}
	return haiku.TakesExtensions(members[0].Model, req)
}

// Models lists what the servers list, each name once.
func (p *Pool) Models() []haiku.ModelInfo {
	var all []haiku.ModelInfo
	seen := map[string]bool{}
	for _, m := range p.snapshot() {
		for _, info := range modelsOf(m.Model) {
			if !seen[info.ID] {
				seen[info.ID] = true
				all = append(all, info)
			}
		}
	}
	return all
}

// Status tells what is known of each server, in the order in which they came.
func (p *Pool) Status() []Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]Status, len(p.members))
	for i, m := range p.members {
		s := m.stats
		s.Name, s.InFlight, s.Down, s.Draining = m.Name, int(m.inFlight.Load()), m.down, m.draining
		s.Load, _, s.Fresh = m.gauge.read(p.opts.Stale)
		all[i] = s
	}
	return all
}
