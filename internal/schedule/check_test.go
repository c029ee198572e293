package schedule

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// check walks everything that a Scheduler holds and fails if it does not fit
// together.
func (s *Scheduler) check(t require.TestingT) {
	if h, ok := t.(*testing.T); ok {
		h.Helper()
	}
	users := make([]int32, len(s.pool.blocks))
	places := 0
	sequences := make(map[*tenant]int)
	for i, q := range s.running {
		require.Equal(t, running, q.place)
		require.Zero(t, q.lead)
		require.LessOrEqual(t, q.Computed, len(q.Blocks)*s.cfg.BlockTokens)
		require.LessOrEqual(t, q.Computed, len(q.Tokens))
		if i > 0 {
			require.False(t, q.before(s.running[i-1]), "out of rank")
		}
		own := make(map[int32]bool)
		for _, b := range q.Blocks {
			require.False(t, own[b], "block %d is twice in a table", b)
			own[b] = true
			users[b]++
		}
		places += 1 + len(q.Siblings)
		sequences[q.tenant]++
	}
	require.Equal(t, places, s.places)
	require.LessOrEqual(t, places, s.cfg.MaxSequences)
	for i, q := range s.queue {
		require.Equal(t, queued, q.place)
		require.Empty(t, q.Blocks)
		require.Zero(t, q.Computed)
		if i > 0 {
			require.LessOrEqual(t, s.queue[i-1].order, q.order)
		}
		sequences[q.tenant]++
	}
	for tenant, n := range sequences {
		require.LessOrEqual(t, n, tenant.sequences) // parked ones are in no list
		require.Same(t, tenant, s.tenants[tenant.name])
	}

	idle, cached := make(map[int32]bool), 0
	previous := int32(none)
	for b := s.pool.first; b != none; previous, b = b, s.pool.blocks[b].next {
		require.False(t, idle[b], "a ring in the list")
		require.Equal(t, previous, s.pool.blocks[b].prev)
		idle[b] = true
	}
	require.Equal(t, previous, s.pool.last)
	require.Len(t, idle, s.pool.idle)
	for b, at := range s.pool.blocks {
		require.Equal(t, users[b], at.users, "users of block %d", b)
		require.Equal(t, at.users == 0 && !at.lent, idle[int32(b)], "block %d", b)
		if at.cached {
			cached++
			require.Equal(t, int32(b), s.pool.byKey[at.key])
		}
	}
	require.Len(t, s.pool.byKey, cached)
}

// device is memory for keys and values: what each slot holds is a hash of the
// token there and all before it, salted as the sequence is.
type device struct {
	blockTokens int
	slots       []uint64 // [blocks · blockTokens]
}

func newDevice(cfg Config) *device {
	return &device{cfg.BlockTokens, make([]uint64, cfg.Blocks*cfg.BlockTokens)}
}

func (d *device) slot(table []int32, position int) *uint64 {
	return &d.slots[int(table[position/d.blockTokens])*d.blockTokens+position%d.blockTokens]
}

// value is what belongs at a position.
func value(q *Seq, position int) uint64 {
	hash := uint64(14695981039346656037)
	for _, b := range q.Root {
		hash = (hash ^ uint64(b)) * 1099511628211
	}
	for _, id := range q.Tokens[:position+1] {
		hash = (hash ^ uint64(uint32(id))) * 1099511628211
	}
	return hash
}

// compute runs a step, and fails if what an item builds on is not there.
func (d *device) compute(t require.TestingT, step *Step) {
	for i := range step.Items {
		it := &step.Items[i]
		q := it.Seq
		if it.CopyFrom != none {
			n := q.Computed % d.blockTokens
			require.Positive(t, n)
			from, to := int(it.CopyFrom)*d.blockTokens, int(q.Blocks[q.Computed/d.blockTokens])*d.blockTokens
			copy(d.slots[to:to+n], d.slots[from:from+n])
		}
	}
	for i := range step.Items {
		it := &step.Items[i]
		q := it.Seq
		for p := q.Computed; p < q.Computed+it.N; p++ {
			*d.slot(q.Blocks, p) = value(q, p)
		}
	}
	for i := range step.Items { // a step may be computed again: what is copied has to stay
		if it := &step.Items[i]; it.CopyFrom != none {
			n := it.Seq.Computed % d.blockTokens
			for slot := range n {
				require.Equal(t, value(it.Seq, it.Seq.Computed-n+slot), d.slots[int(it.CopyFrom)*d.blockTokens+slot], "a copied slot is overwritten")
			}
		}
	}
	for i := range step.Items { // after all have written: nobody wrote into another's
		q := step.Items[i].Seq
		for p := range q.Computed + step.Items[i].N {
			require.Equal(t, value(q, p), *d.slot(q.Blocks, p), "position %d", p)
		}
	}
}
