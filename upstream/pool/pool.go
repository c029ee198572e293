package pool

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/fallback"
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
	hash    uint64 // of its name
	gauge   *Gauge
	chain   *fallback.Chain // of the endpoint's Model alone
	breaker *fallback.Breaker
	health  fallback.Status // of the breaker, at the last look

	inFlight         atomic.Int64 // changed under the mutex only
	joined           time.Time    // when it came, or came back
	down, draining   bool
	ejected          bool
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
	// Ejected says that it is passed by, because of its Breaker, but for probes.
	Ejected bool
	Breaker fallback.Status
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
			p.Close()
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
	for _, m := range p.snapshot() {
		m.chain.Close()
	}
}

// Add takes in another server, which starts slowly.
func (p *Pool) Add(e Endpoint) error { return p.add(e, time.Now()) }

func (p *Pool) add(e Endpoint, joined time.Time) error {
	if e.Name == "" || e.Model == nil {
		return errors.New("pool: an endpoint needs a name and a model")
	}
	chain, err := p.opts.chain(&e)
	if err != nil {
		return fmt.Errorf("pool: server %q: %w", e.Name, err)
	}
	m := &member{Endpoint: e, hash: hashOf(e.Name), gauge: e.Gauge, chain: chain, breaker: chain.Breaker(0), joined: joined}
	if m.gauge == nil {
		m.gauge = new(Gauge)
	}
	if !p.insert(m) {
		chain.Close()
		return fmt.Errorf("pool: there is a server %q already", e.Name)
	}
	return nil
}

// insert takes m in, unless its name is another's.
func (p *Pool) insert(m *member) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.member(m.Name) != nil {
		return false
	}
	m.gauge.follow(&m.inFlight)
	p.members = append(p.members, m)
	return true
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
	p.remove(m)
	m.chain.Close()
	return nil
}

func (p *Pool) remove(m *member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.members = slices.DeleteFunc(slices.Clone(p.members), func(other *member) bool { return other == m })
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

// snapshot returns the servers of now.
func (p *Pool) snapshot() []*member {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.members)
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
		for _, info := range haiku.ModelsOf(m.Model) {
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
	p.judge(p.up())
	all := make([]Status, len(p.members))
	for i, m := range p.members {
		s := m.stats
		s.Name, s.InFlight, s.Down, s.Draining = m.Name, int(m.inFlight.Load()), m.down, m.draining
		s.Load, _, s.Fresh = m.gauge.read(p.opts.Stale)
		s.Breaker, s.Ejected = m.breaker.Status(), m.ejected
		all[i] = s
	}
	return all
}
