package cache

import (
	"context"
	"slices"
	"time"
)

// Shared is a level of the cache that several processes share, such as
// cache/redis. It keeps these rules:
//
//   - Its methods may be called concurrently, and return within a time of the
//     store's own, whatever the context allows. Nothing that goes wrong with it is
//     an error to its caller: it is a miss.
//   - What was invalidated is not read any more, in no process.
type Shared interface {
	// Get returns the values of keys that were written together, nil where there
	// is none: never parts of two writes.
	Get(ctx context.Context, keys ...string) [][]byte
	// GetEach returns the value of each key, whichever write it is of.
	GetEach(ctx context.Context, keys ...string) [][]byte
	// Mark returns the present version of each tag, for entries that are computed
	// from now on; nil if it cannot be told.
	Mark(ctx context.Context, tags ...string) []uint64
	// SetAll stores all entries or none, and reports which. It stores none if a tag
	// has another version than its entry says. Of two writes the one with the
	// higher epoch is the newer.
	SetAll(ctx context.Context, epoch uint64, entries []Entry) bool
	// Invalidate makes everything under the tags unreadable. It reports whether
	// that has happened; if not, the store makes up for it.
	Invalidate(ctx context.Context, tags ...string) bool
	Close() error
}

// Entry is one value of a write to a [Shared] level.
type Entry struct {
	Key   string
	Value []byte
	TTL   time.Duration // 0 is for as long as the store keeps it
	Tags  []string
	// Versions are those of Tags when the value began to be computed, as Mark gave
	// them; nil stands for those at the time of the write.
	Versions []uint64
}

// defaultLocalTTL is how old what this process holds may become until the shared
// level is asked again.
const defaultLocalTTL = 30 * time.Second

// share writes an entry to the shared level, whole or not at all.
func (t *Tiers) share(ctx context.Context, w Write, ttl time.Duration) {
	if t.opts.Shared == nil {
		return
	}
	tags := w.Mark.names()
	ends := time.Now().Add(ttl)
	var values []Entry
	if w.Answer != nil {
		values = append(values, Entry{Key: answerKey(w.Key), Value: packAnswer(&w, ends, tags)})
		if w.Meaning != nil && t.meanings != nil {
			for _, key := range bucketKeys(w.Meaning) {
				values = append(values, Entry{Key: key, Value: w.Key[:]})
			}
		}
	}
	if w.Route != nil && w.Prompt != (Key{}) {
		values = append(values, Entry{Key: routeKey(w.Prompt), Value: packRoute(w.Route, ends, tags)})
	}
	for i := range values {
		values[i].TTL, values[i].Tags, values[i].Versions = ttl, tags, w.Mark.versions
	}
	// Without versions nobody knows what was invalidated meanwhile.
	known := len(tags) == 0 || w.Mark.versions != nil
	if !known || !t.opts.Shared.SetAll(ctx, uint64(time.Now().UnixNano()), values) {
		t.stats.unshared.Add(1)
	}
}

// fetch looks for an answer in the shared level, and keeps what it finds here
// too.
func (t *Tiers) fetch(ctx context.Context, key Key) (hit, bool) {
	if t.opts.Shared == nil {
		return hit{}, false
	}
	seen := t.generation()
	p := unpackAnswer(t.opts.Shared.Get(ctx, answerKey(key))[0])
	if p == nil {
		return hit{}, false
	}
	return t.adopt(key, p, seen), true
}

// adopt keeps here what another process has written, unless something was
// invalidated since it was asked for. If it is not kept, the next request asks
// again.
func (t *Tiers) adopt(key Key, p *packed, seen uint64) hit {
	answer := p.answer()
	r, ttl, ok := t.fetched(p.Expires, p.Tags, seen)
	if ok {
		t.place(&Write{Key: key, Answer: answer, Meaning: p.Meaning.meaning()}, r, ttl)
	}
	return hit{Answer: answer, record: r}
}

// fetchRoute looks for a route in the shared level likewise.
func (t *Tiers) fetchRoute(ctx context.Context, prompt Key) (*Route, bool) {
	if t.opts.Shared == nil {
		return nil, false
	}
	seen := t.generation()
	p := unpackRoute(t.opts.Shared.Get(ctx, routeKey(prompt))[0])
	if p == nil {
		return nil, false
	}
	if r, ttl, ok := t.fetched(p.Expires, p.Tags, seen); ok {
		t.place(&Write{Prompt: prompt, Route: p.Route}, r, ttl)
	}
	return p.Route, true
}

// fetchNear looks in the shared level for answers to questions near m, and keeps
// here what it finds. It reports whether there was any. The level knows equality
// only: it is asked for the buckets in which near vectors meet.
func (t *Tiers) fetchNear(ctx context.Context, m *Meaning) bool {
	if t.opts.Shared == nil {
		return false
	}
	seen := t.generation()
	var keys []Key
	var names []string
	for _, value := range t.opts.Shared.GetEach(ctx, bucketKeys(m)...) {
		if len(value) != len(Key{}) || slices.Contains(keys, Key(value)) {
			continue
		}
		if _, here := t.find(Key(value)); !here {
			keys, names = append(keys, Key(value)), append(names, answerKey(Key(value)))
		}
	}
	if len(keys) == 0 {
		return false
	}
	found := false
	for i, value := range t.opts.Shared.GetEach(ctx, names...) {
		p := unpackAnswer(value)
		if p == nil {
			continue
		}
		if other := p.Meaning.meaning(); other != nil && other.Partition == m.Partition && t.meanings.close(m, other) {
			t.adopt(keys[i], p, seen)
			found = true
		}
	}
	return found
}

// fetched is a record of what another process has written, which is held here for
// LocalTTL at most; false if something was invalidated since seen.
func (t *Tiers) fetched(ends time.Time, tags []string, seen uint64) (*Record, time.Duration, bool) {
	ttl := min(time.Until(ends), t.opts.LocalTTL)
	r := &Record{foreign: true, expires: time.Now().Add(ttl), ends: ends}
	t.mu.RLock()
	defer t.mu.RUnlock()
	r.tags = t.markLocked(tags)
	return r, ttl, t.invalidations == seen
}
