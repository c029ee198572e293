package cache

import (
	"context"
	"hash/fnv"
)

// Mark is the state of what an entry depends on: see [Tiers.Mark].
type Mark struct {
	tags     []tag
	versions []uint64 // in the shared level, nil without one
}

// tag is what a record depends on, at the version it was written under.
type tag struct {
	name    string
	slot    uint16
	version uint64
}

// slotOf says which version is a tag's.
func slotOf(name string) uint16 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	sum := h.Sum64()
	return uint16(sum ^ sum>>16 ^ sum>>32 ^ sum>>48)
}

// current reports whether none of the tags has been invalidated since.
func (t *Tiers) current(tags []tag) bool {
	if len(tags) == 0 {
		return true
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	for i := range tags {
		if t.versionOf(tags[i].slot) != tags[i].version {
			return false
		}
	}
	return true
}

// tagSlots is how many versions there are for all tags. Two that share one fall
// together, which costs a miss.
const tagSlots = 1 << 16

func (t *Tiers) versionOf(slot uint16) uint64 {
	if t.versions == nil {
		return 0
	}
	return t.versions[slot]
}

// generation counts invalidations. What was asked of others before one is not
// kept after it.
func (t *Tiers) generation() uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.invalidations
}

// Mark notes the present state of tags: names of what an answer depends on, such
// as a model's version, an adapter, a tenant. It is taken before the answer is
// computed, so that one which was under way during an Invalidate does not
// survive it, in whatever process that came from.
func (t *Tiers) Mark(ctx context.Context, tags ...string) Mark {
	m := Mark{tags: t.mark(tags)}
	if t.opts.Shared != nil && len(tags) > 0 {
		m.versions = t.opts.Shared.Mark(ctx, tags...)
	}
	return m
}

func (t *Tiers) mark(tags []string) []tag {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.markLocked(tags)
}

func (t *Tiers) markLocked(tags []string) []tag {
	marked := make([]tag, len(tags))
	for i, name := range tags {
		slot := slotOf(name)
		marked[i] = tag{name, slot, t.versionOf(slot)}
	}
	return marked
}

// Invalidate makes every entry that was written with one of the tags unusable,
// in all tiers, at one moment. What is written with them later is new. In other
// processes that share a level it does so within their LocalTTL; the result says
// whether the shared level has taken it, true without one.
func (t *Tiers) Invalidate(ctx context.Context, tags ...string) bool {
	t.outdate(tags)
	if t.opts.Shared == nil {
		return true
	}
	ok := t.opts.Shared.Invalidate(ctx, tags...)
	t.outdate(tags) // what was fetched meanwhile
	return ok
}

func (t *Tiers) outdate(tags []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.invalidations++
	if t.versions == nil {
		t.versions = make([]uint64, tagSlots)
	}
	for _, name := range tags {
		t.versions[slotOf(name)]++
	}
}

// names are the tags of a mark.
func (m Mark) names() []string {
	names := make([]string, len(m.tags))
	for i, tag := range m.tags {
		names[i] = tag.name
	}
	return names
}
