package schedule

import (
	"math"
	"time"
)

// admit moves sequences from the queue to those that run, as long as there are
// places, and blocks for what all of them are expected to need. One that does
// not fit waits, and those behind it too, so that a large one is not passed for
// ever. Sequences make room for it that are paused, whose readers are slow, or
// whose own level is lower.
func (s *Scheduler) admit(now time.Time) {
	if len(s.queue) == 0 {
		return
	}
	reserved := 0
	for _, q := range s.running {
		reserved += s.growth(q)
	}
	for {
		q := s.pick(now)
		if q == nil {
			return
		}
		found, idle := s.cached(q)
		need := s.growth(q) - found
		fits := s.places+1+len(q.Siblings) <= s.cfg.MaxSequences && reserved+need+idle <= s.pool.idle
		if fits || len(s.running) == 0 {
			s.start(q, found, now)
			reserved += need
			continue
		}
		v, places, blocks := s.evictable(q, now)
		if v == nil || s.places-places+1+len(q.Siblings) > s.cfg.MaxSequences || reserved+need+idle > s.pool.idle+blocks {
			return // and nobody gave way in vain
		}
		reserved -= s.growth(v)
		s.preempt(v)
	}
}

// evictable returns the sequence of the lowest rank that may have to give way to
// q, nil if there is none, and how many places and blocks all such sequences
// would free.
func (s *Scheduler) evictable(q *Seq, now time.Time) (lowest *Seq, places, blocks int) {
	for _, v := range s.running {
		// Both levels: one that rose by waiting evicts nobody, and what is evicted
		// is not what comes next.
		below := v.Priority > q.Priority && s.levelOf(v, now) > s.levelOf(q, now)
		if !v.paused && !below {
			continue
		}
		places += 1 + len(v.Siblings)
		blocks += len(v.Blocks) + s.growth(v)
		if lowest == nil || v.paused || !lowest.paused {
			lowest = v
		}
	}
	return lowest, places, blocks
}

// growth is how many blocks more a sequence and its siblings are expected to
// need, for the rest of the prompt and an answer as long as answers are.
func (s *Scheduler) growth(q *Seq) int {
	final := min(q.Limit, max(q.prompt+s.answers.value(), len(q.Tokens)+1))
	blocks := s.BlocksFor(final) - len(q.Blocks)
	if n := len(q.Siblings); n > 0 {
		blocks += n * (s.BlocksFor(final) - q.prompt/s.cfg.BlockTokens)
	}
	return max(blocks, 0)
}

// cached is how many blocks the cache has for the beginning of q, and how many
// of those nobody uses now. At least one token is left to compute, since a
// sequence begins with its logits.
func (s *Scheduler) cached(q *Seq) (found, idle int) {
	if q.Alone || s.cfg.NoReuse {
		return 0, 0
	}
	for found < (len(q.Tokens)-1)/s.cfg.BlockTokens {
		b, ok := s.pool.byKey[q.key(found, s.cfg.BlockTokens)]
		if !ok {
			break
		}
		if s.pool.blocks[b].users == 0 {
			idle++
		}
		found++
	}
	return found, idle
}

// start lets a sequence run, beginning with the blocks found in the cache.
func (s *Scheduler) start(q *Seq, found int, now time.Time) {
	s.dequeue(q)
	q.Blocks = q.Blocks[:0]
	for i := range found {
		b := s.pool.byKey[q.key(i, s.cfg.BlockTokens)]
		s.pool.share(b)
		q.Blocks = append(q.Blocks, b)
	}
	q.Computed = found * s.cfg.BlockTokens
	if !q.admitted {
		q.admitted, q.Reused = true, q.Computed
		q.tenant.served += int64(len(q.Tokens) - q.Reused)
		s.counts.PromptTokens += len(q.Tokens)
		s.counts.ReusedTokens += q.Reused
	}
	s.lastID++
	q.ID = s.lastID
	q.level = s.levelOf(q, now)
	s.places += 1 + len(q.Siblings)
	s.rank(q)
}

// pick returns the sequence that is to be admitted next, nil if none can be. Of
// those of the highest level it is one that has run before, else the one whose
// deadline is the earliest, else the one whose tenant has been served least; and
// of no tenant that is too far ahead of another that waits at the same level.
func (s *Scheduler) pick(now time.Time) *Seq {
	level, least := math.MaxInt, int64(0) // no sequence has this level, see Add
	for _, q := range s.queue {
		if q.Held {
			continue
		}
		if l := s.levelOf(q, now); l < level {
			level, least = l, q.tenant.served
		} else if l == level {
			least = min(least, q.tenant.served)
		}
	}
	var best *Seq
	for _, q := range s.queue {
		if q.Held || s.levelOf(q, now) != level || q.tenant.served > least+s.cfg.TenantTokens {
			continue
		}
		if best == nil || sooner(q, best) {
			best = q
		}
	}
	return best
}

// sooner reports whether q comes before best within a level, where best has
// come earlier.
func sooner(q, best *Seq) bool {
	switch {
	case q.admitted || best.admitted:
		return q.admitted && !best.admitted
	case !q.Deadline.Equal(best.Deadline):
		return !q.Deadline.IsZero() && (best.Deadline.IsZero() || q.Deadline.Before(best.Deadline))
	default:
		return q.tenant.served < best.tenant.served
	}
}

// levelOf is a sequence's level after the time it has waited.
func (s *Scheduler) levelOf(q *Seq, now time.Time) int {
	return q.Priority - int(now.Sub(q.arrived)/s.cfg.Aging)
}
