package cache

import "sync/atomic"

// counters are Stats as they are counted.
type counters struct {
	hits, semantic, misses, shared, bypassed atomic.Int64
	writes, dropped, refused, refreshed      atomic.Int64
	fetched, unshared, gated, unembedded     atomic.Int64
	evicted, routed, decided                 atomic.Int64
	verified, wrong                          atomic.Int64
}

// Stats is what a cache has done since it began.
type Stats struct {
	// Hits were answered by the output tier, Semantic ones by the vector tier;
	// Misses were computed. Shared of the Misses followed another's computation.
	// Bypassed requests did not ask.
	Hits, Semantic, Misses, Shared, Bypassed int64
	// Writes are entries made visible. Dropped ones were not taken by a tier,
	// Refused answers were not fit to be kept. Refreshed were computed anew before
	// they expired.
	Writes, Dropped, Refused, Refreshed int64
	// Fetched of the Hits came from the shared level; Unshared writes it did not
	// take.
	Fetched, Unshared int64
	// Gated are answers to similar questions that did not ask for the same.
	// Unembedded questions had no vector, for the embedder failed.
	Gated, Unembedded int64
	// Verified answers of the vector tier were computed all the same, and Wrong of
	// them turned out to differ: the tier's error rate. With a Budget they are what
	// it explored, and what it serves is wrong less often.
	Verified, Wrong int64
	// Routed requests found their route in the route tier, Decided ones had it
	// decided.
	Routed, Decided int64
	// Evicted are entries that had to make room before their time. Bytes is about
	// what the answers held take now.
	Evicted, Bytes int64
}

// Stats tells what has happened so far.
func (t *Tiers) Stats() Stats {
	c := &t.stats
	return Stats{
		Hits: c.hits.Load(), Semantic: c.semantic.Load(), Misses: c.misses.Load(), Shared: c.shared.Load(), Bypassed: c.bypassed.Load(),
		Writes: c.writes.Load(), Dropped: c.dropped.Load(), Refused: c.refused.Load(), Refreshed: c.refreshed.Load(),
		Fetched: c.fetched.Load(), Unshared: c.unshared.Load(),
		Gated: c.gated.Load(), Unembedded: c.unembedded.Load(),
		Verified: c.verified.Load(), Wrong: c.wrong.Load(), Routed: c.routed.Load(), Decided: c.decided.Load(),
		Evicted: c.evicted.Load(), Bytes: t.outputs.Bytes(),
	}
}
