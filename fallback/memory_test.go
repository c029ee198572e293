package fallback

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"
)

var errGone = errors.New("the store is gone")

// memory is what replicas share, in memory, with the faults that a network and a
// server have. It is Counters and Switch.
type memory struct {
	mu      sync.Mutex
	origin  time.Time
	news    chan struct{} // closed, and made anew, at each change
	setting map[string]Setting
	at      map[string]time.Time // of the setting's write
	rev     int64
	permit  map[string]time.Time // until when somebody probes
	holder  map[string]int64
	counts  map[string]*window

	fault fault
	did   tally
}

// tally is what a store was asked for so far.
type tally struct {
	sets      int // writes that were tried
	granted   int // permits
	exchanges int
}

func (m *memory) tally() tally {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.did
}

// permits is how many are out.
func (m *memory) permits() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.permit)
}

// fault is what is wrong with the store.
type fault uint8

const (
	sound fault = iota
	failing
	stalling  // nothing is answered until the caller's patience ends
	forgetful // everything is lost
)

func newMemory() *memory {
	return &memory{
		origin: time.Now(), news: make(chan struct{}), setting: map[string]Setting{}, at: map[string]time.Time{},
		permit: map[string]time.Time{}, holder: map[string]int64{}, counts: map[string]*window{},
	}
}

func (m *memory) tell() {
	close(m.news)
	m.news = make(chan struct{})
}

// be makes the store sound or not.
func (m *memory) be(f fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f == forgetful {
		clear(m.setting)
		clear(m.permit)
		clear(m.counts)
		f = sound
	}
	m.fault = f
	m.tell()
}

// gate lets an operation through, or fails it.
func (m *memory) gate(ctx context.Context) error {
	m.mu.Lock()
	f := m.fault
	m.mu.Unlock()
	switch f {
	case failing:
		return errGone
	case stalling:
		<-ctx.Done()
		return ctx.Err()
	}
	return ctx.Err()
}

func (m *memory) Exchange(ctx context.Context, name string, delta Counts, span time.Duration) (Counts, error) {
	if err := m.gate(ctx); err != nil {
		return Counts{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.did.exchanges++
	w := m.counts[name]
	if w == nil {
		own := newWindow(span)
		w = &own
		m.counts[name] = w
	}
	w.at(time.Since(m.origin)).Add(&delta)
	w.sum.Add(&delta)
	return w.sum, nil
}

func (m *memory) read(name string) Setting {
	s := m.setting[name]
	s.Remaining = max(s.Wait-time.Since(m.at[name]), 0)
	return s
}

func (m *memory) Watch(ctx context.Context, name string) iter.Seq2[Setting, error] {
	return func(yield func(Setting, error) bool) {
		last := int64(-1)
		for {
			m.mu.Lock()
			news, f, s := m.news, m.fault, m.read(name)
			m.mu.Unlock()
			switch {
			case f == failing:
				yield(Setting{}, errGone)
				return
			case f == sound && s.Revision != last:
				last = s.Revision
				if !yield(s, nil) {
					return
				}
				continue
			}
			select {
			case <-news:
			case <-ctx.Done():
				yield(Setting{}, ctx.Err())
				return
			}
		}
	}
}

func (m *memory) Set(ctx context.Context, name string, s Setting) (Setting, error) {
	m.mu.Lock()
	m.did.sets++
	m.mu.Unlock()
	if err := m.gate(ctx); err != nil {
		return Setting{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.Revision != m.setting[name].Revision {
		return Setting{}, ErrChanged
	}
	return m.put(name, s), nil
}

func (m *memory) put(name string, s Setting) Setting {
	m.rev++
	s.Revision = m.rev
	m.setting[name], m.at[name] = s, time.Now()
	m.tell()
	return m.read(name)
}

// operate is an operator's hand.
func (m *memory) operate(name string, s Setting) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(name, s)
}

func (m *memory) now(name string) Setting {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.read(name)
}

func (m *memory) Probe(ctx context.Context, name string, ttl time.Duration) (func(context.Context) error, error) {
	if err := m.gate(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Now().Before(m.permit[name]) {
		return nil, ErrTaken
	}
	m.did.granted++
	m.rev++
	own := m.rev
	m.permit[name], m.holder[name] = time.Now().Add(ttl), own
	return func(ctx context.Context) error {
		if err := m.gate(ctx); err != nil {
			return err
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.holder[name] == own {
			delete(m.permit, name)
		}
		return nil
	}, nil
}

// link is one replica's way to a store, which can be cut without anybody telling.
type link struct {
	*memory
	watchOnly bool // all but the watch goes on
	mu        sync.Mutex
	dead      chan struct{} // not nil while it is cut; closed when it is whole
}

func (l *link) cut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cut {
		l.dead = make(chan struct{})
	} else if l.dead != nil {
		close(l.dead)
		l.dead = nil
	}
}

// await blocks while the link is cut for what is no watch.
func (l *link) await(ctx context.Context) error {
	if l.watchOnly {
		return nil
	}
	return l.whole(ctx)
}

// whole blocks while the link is cut.
func (l *link) whole(ctx context.Context) error {
	l.mu.Lock()
	dead := l.dead
	l.mu.Unlock()
	if dead == nil {
		return nil
	}
	select {
	case <-dead:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *link) Exchange(ctx context.Context, name string, delta Counts, span time.Duration) (Counts, error) {
	if err := l.await(ctx); err != nil {
		return Counts{}, err
	}
	return l.memory.Exchange(ctx, name, delta, span)
}

func (l *link) Watch(ctx context.Context, name string) iter.Seq2[Setting, error] {
	return func(yield func(Setting, error) bool) {
		for s, err := range l.memory.Watch(ctx, name) {
			if e := l.whole(ctx); e != nil {
				s, err = Setting{}, e
			}
			if !yield(s, err) || err != nil {
				return
			}
		}
	}
}

func (l *link) Set(ctx context.Context, name string, s Setting) (Setting, error) {
	if err := l.await(ctx); err != nil {
		return Setting{}, err
	}
	return l.memory.Set(ctx, name, s)
}

func (l *link) Probe(ctx context.Context, name string, ttl time.Duration) (func(context.Context) error, error) {
	if err := l.await(ctx); err != nil {
		return nil, err
	}
	return l.memory.Probe(ctx, name, ttl)
}
