package vectors

import (
	"cmp"
	"fmt"
	"slices"
)

// change is a node's new list of links on a level, computed while searches go
// on and written when they must wait.
type change struct {
	slot  uint32
	level int
	out   []link
}

// Add implements [Index]. It takes as long as a search with EfConstruction
// candidates on each of the vector's levels, and some more.
func (h *HNSW) Add(id uint64, vector []float32) error {
	h.writer.Lock()
	defer h.writer.Unlock()
	w := &h.edit
	row, err := unit(w.query[:0], vector, h.rows.dim)
	if w.query = row; err != nil {
		return err
	}
	old, known := h.slot[id]
	if !known && h.opts.Capacity > 0 && len(h.slot) >= h.opts.Capacity {
		return fmt.Errorf("%w: it holds %d vectors", ErrFull, len(h.slot))
	}
	level := h.randomLevel()
	slot := h.claim(level)
	copy(h.rows.row(slot), row) // nobody has a link to it
	h.planInsert(w, slot, level)

	h.mu.Lock()
	h.nodes[slot].id, h.nodes[slot].state = id, live
	if known {
		h.bury(old)
	}
	h.slot[id] = slot
	h.apply(w)
	if level > h.top {
		h.entry, h.top = slot, level
	}
	h.mu.Unlock()
	h.mend(w)
	return nil
}

// claim returns a vacant slot with layers up to level.
func (h *HNSW) claim(level int) uint32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	var slot uint32
	if last := len(h.free) - 1; last >= 0 {
		slot = h.free[last]
		h.free = h.free[:last]
	} else {
		slot = uint32(len(h.nodes))
		h.nodes = append(h.nodes, node{})
		h.rows.fit(len(h.nodes))
	}
	if level > 0 {
		h.nodes[slot].upper = make([]layer, level)
	}
	return slot
}

// planInsert finds the links of a new node and those that lead to it.
func (h *HNSW) planInsert(w *walk, slot uint32, level int) {
	w.forget()
	if h.top < 0 {
		return
	}
	query := h.rows.row(slot)
	w.starts = append(w.starts[:0], h.descend(w, query, level))
	for l := min(level, h.top); l >= 0; l-- {
		h.explore(w, query, w.starts, l, h.opts.EfConstruction, nil)
		if len(w.found) > 0 { // else there are only tombstones
			w.starts = append(w.starts[:0], w.found...)
			sortLinks(w.starts)
			h.planLinks(w, slot, l, w.starts)
		}
	}
}

// forget drops the plans of an earlier write.
func (w *walk) forget() {
	w.arena, w.changes, w.orphans = w.arena[:0], w.changes[:0], w.orphans[:0]
}

// planLinks links slot with the best of candidates, sorted, and them with it.
func (h *HNSW) planLinks(w *walk, slot uint32, level int, candidates []link) {
	out := h.choose(w, candidates, h.opts.M)
	w.changes = append(w.changes, change{slot, level, out})
	w.orphans = append(w.orphans, orphan{slot, level}) // unless a link back survives
	for _, l := range out {
		back := h.nodes[l.to].at(level).out
		if slices.ContainsFunc(back, func(b link) bool { return b.to == slot }) {
			continue
		}
		w.rivals = append(w.rivals[:0], link{slot, l.sim})
		full := len(back) >= h.maxLinks(level)
		for _, b := range back {
			if !full || h.nodes[b.to].state == live { // a tombstone gives way
				w.rivals = append(w.rivals, b)
			}
		}
		sortLinks(w.rivals)
		w.changes = append(w.changes, change{l.to, level, h.choose(w, w.rivals, h.maxLinks(level))})
	}
}

func sortLinks(links []link) {
	slices.SortFunc(links, func(a, b link) int {
		if a.sim != b.sim {
			return cmp.Compare(b.sim, a.sim)
		}
		return cmp.Compare(a.to, b.to)
	})
}

// choose is the paper's algorithm 4. Of candidates, the nearest first, it takes
// those that are nearer to the node they are candidates of than to one already
// taken, so that links lead in different directions; then the nearest of the
// others, up to limit. The list it returns, sorted, lives until w.forget.
func (h *HNSW) choose(w *walk, candidates []link, limit int) []link {
	from := len(w.arena)
	if len(candidates) <= limit {
		w.arena = append(w.arena, candidates...)
		return w.arena[from:len(w.arena):len(w.arena)]
	}
	w.pruned = w.pruned[:0]
	for _, c := range candidates {
		switch {
		case len(w.arena)-from == limit:
		case h.apart(c, w.arena[from:]):
			w.arena = append(w.arena, c)
		default:
			w.pruned = append(w.pruned, c)
		}
	}
	w.arena = append(w.arena, w.pruned[:min(len(w.pruned), limit-(len(w.arena)-from))]...)
	chosen := w.arena[from:len(w.arena):len(w.arena)]
	sortLinks(chosen)
	return chosen
}

// apart reports whether no node of taken stands between c and the node it is a
// candidate of: nearer to c than that. Where all three are equally far from each
// other the first stands for both, or else copies of one vector would have links
// to each other alone.
func (h *HNSW) apart(c link, taken []link) bool {
	row := h.rows.row(c.to)
	var four [4]float32
	for i := 0; i < len(taken); i += 4 {
		last := len(taken) - 1
		h.level.Dot4(&four, h.rows.row(taken[i].to), h.rows.row(taken[min(i+1, last)].to),
			h.rows.row(taken[min(i+2, last)].to), h.rows.row(taken[min(i+3, last)].to), row)
		for j, sim := range four[:min(4, len(taken)-i)] {
			if sim > c.sim || sim == c.sim && taken[i+j].sim == c.sim {
				return false
			}
		}
	}
	return true
}
