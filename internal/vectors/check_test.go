package vectors

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// checked is an index that can tell whether its invariants hold.
type checked interface {
	Index
	check(t require.TestingT)
}

func (f *Flat) check(t require.TestingT) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	require.Len(t, f.slot, len(f.ids))
	for i, id := range f.ids {
		require.Equal(t, i, f.slot[id])
		requireUnit(t, f.rows.row(uint32(i)))
	}
	f.rows.check(t, len(f.ids))
}

// check wants room for n rows and at most a chunk more than that needs.
func (r *rows) check(t require.TestingT, n int) {
	require.GreaterOrEqual(t, len(r.chunks)*chunkRows, n)
	require.Less(t, len(r.chunks)*chunkRows, n+2*chunkRows)
}

func requireUnit(t require.TestingT, row []float32) {
	var sum float64
	for _, v := range row {
		sum += float64(v) * float64(v)
	}
	require.InDelta(t, 1, math.Sqrt(sum), 1e-6)
}

func (h *HNSW) check(t require.TestingT) {
	h.writer.Lock()
	defer h.writer.Unlock()
	lives, deads := 0, 0
	for slot := range h.nodes {
		n := &h.nodes[slot]
		switch n.state {
		case live:
			lives++
			require.Equal(t, uint32(slot), h.slot[n.id])
			requireUnit(t, h.rows.row(uint32(slot)))
			require.LessOrEqual(t, len(n.upper), h.top)
		case dead:
			deads++
			require.Contains(t, h.dead, uint32(slot))
		case vacant:
			require.Contains(t, h.free, uint32(slot))
			require.Empty(t, n.upper)
		}
		h.checkLinks(t, uint32(slot))
	}
	require.Len(t, h.slot, lives)
	require.Len(t, h.dead, deads)
	require.Len(t, h.free, len(h.nodes)-lives-deads)
	require.LessOrEqual(t, deads, 32+lives/16, "tombstones are bounded")
	h.rows.check(t, len(h.nodes))
	h.checkEntry(t)
}

func (h *HNSW) checkEntry(t require.TestingT) {
	if len(h.nodes) == len(h.free) {
		require.Equal(t, -1, h.top)
		return
	}
	require.NotEqual(t, vacant, h.nodes[h.entry].state)
	require.Len(t, h.nodes[h.entry].upper, h.top)
}

// checkLinks checks that both ends of each link know of it, that it has the
// similarity it says, and that no live node is without an incoming one.
func (h *HNSW) checkLinks(t require.TestingT, slot uint32) {
	n := &h.nodes[slot]
	for level := range len(n.upper) + 1 {
		layer := n.at(level)
		require.LessOrEqual(t, len(layer.out), h.maxLinks(level)+1)
		require.True(t, slices.IsSortedFunc(layer.out, func(a, b link) int {
			return cmp.Compare(b.sim, a.sim)
		}), "the most similar first")
		seen := map[uint32]bool{slot: true}
		for _, l := range layer.out {
			require.False(t, seen[l.to], "links are distinct")
			seen[l.to] = true
			to := &h.nodes[l.to]
			require.NotEqual(t, vacant, to.state)
			require.GreaterOrEqual(t, len(to.upper), level)
			require.Contains(t, to.at(level).in, slot)
			var w walk
			w.fresh = []uint32{l.to}
			h.similarities(&w, h.rows.row(slot))
			require.Equal(t, w.sims[0], l.sim)
		}
		for _, from := range layer.in {
			require.True(t, leadsTo(h.nodes[from].at(level).out, slot))
		}
		if level == 0 && n.state == live && len(h.slot) > 1 {
			require.NotEmpty(t, layer.in, "slot %d can be reached", slot)
		}
		if n.state == vacant {
			require.Empty(t, layer.in)
			require.Empty(t, layer.out)
		}
	}
}

// reachable is the share of live vectors that a walk over the lowest level
// comes by.
func (h *HNSW) reachable() float64 {
	if len(h.slot) == 0 {
		return 1
	}
	queue := []uint32{h.entry}
	seen := map[uint32]bool{h.entry: true}
	found := 0
	for ; len(queue) > 0; queue = queue[1:] {
		if h.nodes[queue[0]].state == live {
			found++
		}
		for _, l := range h.nodes[queue[0]].base.out {
			if !seen[l.to] {
				seen[l.to] = true
				queue = append(queue, l.to)
			}
		}
	}
	return float64(found) / float64(len(h.slot))
}
