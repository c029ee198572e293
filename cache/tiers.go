package cache

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// ErrDropped reports a write that a tier did not take. Nothing of it is visible.
var ErrDropped = errors.New("cache: a tier did not take the entry")

// Options shape [Tiers]. The zero value is ready to use.
type Options struct {
	// MaxBytes bounds the answers held, about; 0 means 256 MiB.
	MaxBytes int64
	// Store replaces the output tier's memory; nil is [NewRistretto].
	Store Store
	// TTL is how long an entry lives that names no time; 0 means an hour.
	TTL time.Duration
	// Jitter is the share by which each entry's life is made longer or shorter at
	// random, so that what was written together does not expire together; 0 means
	// 0.1, negative none. What [Through] refreshes lives exactly as long as it
	// should: there it is the refresh that comes earlier, by up to twice this share.
	Jitter float64
	// Semantic turns the vector tier on; nil leaves it off.
	Semantic *Semantic
	// Shared is a level that several processes share, nil for none. It is asked
	// when this process does not hold an answer.
	Shared Shared
	// LocalTTL bounds, beside a Shared level, how old what this process holds may
	// become until that is asked again: so long another process's Invalidate may
	// take to arrive here. 0 means 30 s.
	LocalTTL time.Duration
}

// Write is what [Tiers.SetAll] makes visible.
type Write struct {
	// Key finds the answer in the output tier, and Answer is it.
	Key    Key
	Answer *Answer
	// Prompt, if it is not zero, finds Route in the route tier. The entry that was
	// found by it before is gone then, from all its tiers.
	Prompt Key
	Route  *Route
	// Meaning, if it is not nil, finds Answer in the vector tier.
	Meaning *Meaning
	// TTL is how long; 0 means Options.TTL.
	TTL time.Duration
	// Mark is what it depends on, as that was when computing it began.
	Mark Mark
}

// Tiers are the tiers of one cache. Their methods may be called concurrently.
type Tiers struct {
	opts     Options
	outputs  Store
	meanings *meanings // nil while the vector tier is off
	epoch    atomic.Uint64
	stats    counters
	writing  [64]sync.Mutex // by key: of two writes one is whole before the other begins

	mu            sync.RWMutex
	versions      []uint64 // of tags by their slots, nil while nothing was invalidated
	invalidations uint64
	routes        map[Key]*Record
}

// New returns empty tiers.
func New(o Options) (*Tiers, error) {
	if o.MaxBytes <= 0 {
		o.MaxBytes = 256 << 20
	}
	if o.TTL <= 0 {
		o.TTL = time.Hour
	}
	if o.Jitter == 0 {
		o.Jitter = 0.1
	}
	if o.LocalTTL <= 0 {
		o.LocalTTL = defaultLocalTTL
	}
	t := &Tiers{opts: o, outputs: o.Store, routes: make(map[Key]*Record)}
	if t.outputs == nil {
		var err error
		if t.outputs, err = NewRistretto(o.MaxBytes); err != nil {
			return nil, err
		}
	}
	if o.Semantic != nil {
		t.meanings = newMeanings(*o.Semantic)
	}
	return t, nil
}

// Close frees the tiers. They must no longer be in use.
func (t *Tiers) Close() { t.outputs.Close() }

// SetAll writes an entry to all tiers that it names keys for, and makes it
// visible in them at one moment. Readers before it see nothing of it, readers
// after it all. If a tier does not take it, none shows it and the error matches
// [ErrDropped].
//
// It is then written to the shared level, if there is one, all of it or nothing;
// that it cannot be is counted and no error.
func (t *Tiers) SetAll(ctx context.Context, w Write) error {
	ttl := t.life(w.TTL)
	if err := t.set(w, ttl); err != nil {
		return err
	}
	t.share(ctx, w, ttl)
	return nil
}

// set writes an entry to this process's tiers.
func (t *Tiers) set(w Write, ttl time.Duration) error {
	now := time.Now()
	ends := now.Add(ttl)
	if t.opts.Shared != nil {
		ttl = min(ttl, t.opts.LocalTTL)
	}
	r := &Record{expires: now.Add(ttl), ends: ends, tags: w.Mark.tags}
	if !t.place(&w, r, ttl) {
		t.stats.dropped.Add(1)
		return ErrDropped
	}
	t.stats.writes.Add(1)
	return nil
}

// place enters a record into the tiers and makes it visible in all or, if one does
// not take it, in none.
func (t *Tiers) place(w *Write, r *Record, ttl time.Duration) bool {
	writing := &t.writing[w.Key[0]%uint8(len(t.writing))]
	writing.Lock()
	defer writing.Unlock()
	r.epoch, r.key, r.route, r.evicted = t.epoch.Add(1), w.Key, w.Route, &t.stats.evicted
	r.answer.Store(w.Answer)
	r.draw = rand.Float64()
	taken := true
	if w.Answer != nil {
		if old, ok := t.outputs.Get(w.Key); ok {
			if r.foreign && t.usable(old) { // it may be newer
				return false
			}
			r.trust = old.trust // it is the same question
			old.hide()          // in its other tiers too
		}
		taken = t.outputs.Set(w.Key, r, r.Bytes(), ttl)
	}
	if taken && w.Answer != nil && w.Meaning != nil && t.meanings != nil {
		taken = t.meanings.add(w.Meaning, r)
	}
	if taken && w.Route != nil && w.Prompt != (Key{}) {
		t.setRoute(w.Prompt, r)
	}
	if !taken || !r.publish() {
		r.hide()
		return false
	}
	return true
}

// life is how long an entry lives: its time, more or less.
func (t *Tiers) life(ttl time.Duration) time.Duration {
	if ttl <= 0 {
		ttl = t.opts.TTL
	}
	ttl += time.Duration((2*rand.Float64() - 1) * t.jitter() * float64(ttl))
	return max(ttl, time.Millisecond)
}

func (t *Tiers) jitter() float64 { return min(max(t.opts.Jitter, 0), 1) }

// Get finds an answer by its key.
func (t *Tiers) Get(key Key) (*Answer, bool) {
	h, ok := t.find(key)
	if !ok {
		return nil, false
	}
	return h.Answer, true
}

func (t *Tiers) find(key Key) (hit, bool) {
	r, ok := t.outputs.Get(key)
	if !ok {
		return hit{}, false
	}
	return t.take(r)
}

// Route finds what is remembered for a kind of prompt, here or in the shared
// level.
func (t *Tiers) Route(ctx context.Context, prompt Key) (*Route, bool) {
	if r, ok := t.known(prompt); ok {
		return r, true
	}
	return t.fetchRoute(ctx, prompt)
}

// known finds a route in this process's tier.
func (t *Tiers) known(prompt Key) (*Route, bool) {
	t.mu.RLock()
	r := t.routes[prompt]
	t.mu.RUnlock()
	if r == nil || !t.usable(r) {
		return nil, false
	}
	return r.route, true
}

// maxRoutes bounds the route tier: kinds of prompts are few.
const maxRoutes = 1 << 16

func (t *Tiers) setRoute(prompt Key, r *Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.routes) >= maxRoutes {
		t.thinRoutes()
	}
	if old := t.routes[prompt]; old != nil {
		old.hide()
	}
	t.routes[prompt] = r
}

// thinRoutes makes room: by what is of no use, and then by any.
func (t *Tiers) thinRoutes() {
	now := time.Now()
	for key, old := range t.routes {
		if !old.alive(now) {
			delete(t.routes, key)
		}
	}
	for key, old := range t.routes {
		if len(t.routes) < maxRoutes*15/16 {
			return
		}
		old.Hide()
		delete(t.routes, key)
	}
}

// alive reports whether a record is neither hidden nor past its time.
func (r *Record) alive(now time.Time) bool {
	return r.state.Load() != hidden && now.Before(r.expires)
}

// usable reports whether a record may be used: it is whole, in all its tiers,
// within its time, and nothing it depends on has been invalidated.
func (t *Tiers) usable(r *Record) bool {
	if r.state.Load() != visible || !time.Now().Before(r.expires) {
		return false
	}
	return t.current(r.tags)
}
