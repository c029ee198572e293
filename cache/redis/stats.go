package redis

import "sync/atomic"

// Stats is a snapshot of a [Store]. Counts are since its beginning.
type Stats struct {
	Hits   uint64 // keys that had a value
	Misses uint64 // keys that had none, for whatever reason
	Stored uint64 // writes
	// Refused is the writes that were not even tried: a value too large, too many
	// tags, a negative TTL.
	Refused uint64
	// Outrun is the writes given up because their tags were invalidated again and
	// again while they were under way.
	Outrun uint64

	Errors   uint64 // operations that failed otherwise than by their deadline
	Timeouts uint64 // operations that ran into the Store's own deadline
	Skipped  uint64 // operations not tried, since the Store was off
	Corrupt  uint64 // records that were torn or foreign
	Mixed    uint64 // keys left out, since their value was of another write

	Opened uint64 // times that the server was given up
	Open   bool   // the server is given up now
	// Unusable says that the client does not heed deadlines, so that the Store
	// stays off for good.
	Unusable bool
}

type counters struct {
	hits, misses, stored, refused, outrun atomic.Uint64
	corrupt, mixed                        atomic.Uint64
}

// Stats returns a snapshot.
func (s *Store) Stats() Stats {
	c, g := &s.count, s.guard.Stats()
	return Stats{
		Hits: c.hits.Load(), Misses: c.misses.Load(),
		Stored: c.stored.Load(), Refused: c.refused.Load(), Outrun: c.outrun.Load(),
		Errors: g.Errors, Timeouts: g.Timeouts, Skipped: g.Skipped,
		Corrupt: c.corrupt.Load(), Mixed: c.mixed.Load(),
		Opened: g.Opened, Open: g.Open, Unusable: s.unusable,
	}
}
