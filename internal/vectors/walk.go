package vectors

import "slices"

// walk is what one search, or the writer, works with.
type walk struct {
	query []float32
	seen  []uint32 // of each slot, the last walk that came by
	now   uint32   // this walk
	near  heap     // where to go on, with similarities negated: the nearest first
	found heap     // the nearest nodes so far, the farthest of them first
	fresh []uint32
	sims  []float32
	best  best

	starts []link

	// The rest is the writer's.
	rivals  []link
	pruned  []link
	arena   []link // behind the lists of changes
	changes []change
	orphans []orphan
}

// begin forgets what earlier walks have seen.
func (w *walk) begin(slots int) {
	if len(w.seen) < slots {
		w.seen = append(w.seen, make([]uint32, max(slots, 2*len(w.seen))-len(w.seen))...)
	}
	if w.now++; w.now == 0 { // after 2³² walks the numbers begin again
		clear(w.seen)
		w.now = 1
	}
	w.near, w.found = w.near[:0], w.found[:0]
}

// heap is a heap of links with the least similarity at the root.
type heap []link

func (h *heap) push(l link) {
	s := append(*h, l)
	i := len(s) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if s[parent].sim <= l.sim {
			break
		}
		s[i] = s[parent]
		i = parent
	}
	s[i] = l
	*h = s
}

func (h *heap) pop() link {
	s := *h
	root, last := s[0], s[len(s)-1]
	s = s[:len(s)-1]
	*h = s
	for i := 0; len(s) > 0; {
		child := 2*i + 1
		if child+1 < len(s) && s[child+1].sim < s[child].sim {
			child++
		}
		if child >= len(s) || last.sim <= s[child].sim {
			s[i] = last
			break
		}
		s[i] = s[child]
		i = child
	}
	return root
}

// similarities computes w.sims: of x to each of w.fresh.
func (h *HNSW) similarities(w *walk, x []float32) {
	n := len(w.fresh)
	w.sims = slices.Grow(w.sims[:0], n)[:n]
	var four [4]float32
	for i := 0; i < n; i += 4 {
		rest := w.fresh[i:min(i+4, n)]
		last := rest[len(rest)-1]
		var rows [4]uint32
		for j := range rows {
			rows[j] = last
		}
		copy(rows[:], rest)
		h.level.Dot4(&four, h.rows.row(rows[0]), h.rows.row(rows[1]), h.rows.row(rows[2]), h.rows.row(rows[3]), x)
		copy(w.sims[i:], four[:])
	}
}

// descend walks greedily from the entry down to the level above the given one
// and returns where it came to. There is an entry.
func (h *HNSW) descend(w *walk, query []float32, level int) link {
	w.fresh = append(w.fresh[:0], h.entry)
	h.similarities(w, query)
	at := link{h.entry, w.sims[0]}
	for l := h.top; l > level; l-- {
		for moved := true; moved; {
			moved = false
			w.fresh = w.fresh[:0]
			for _, next := range h.nodes[at.to].at(l).out {
				w.fresh = append(w.fresh, next.to)
			}
			h.similarities(w, query)
			for i, sim := range w.sims {
				if sim > at.sim {
					at, moved = link{w.fresh[i], sim}, true
				}
			}
		}
	}
	return at
}

// explore is the paper's algorithm 2: it fills w.found with the ef nodes nearest
// to query that it comes by on a level, of those that are live and accepted.
func (h *HNSW) explore(w *walk, query []float32, starts []link, level, ef int, accept func(id uint64) bool) {
	w.begin(len(h.nodes))
	for _, s := range starts {
		w.seen[s.to] = w.now
		h.meet(w, s, ef, accept)
	}
	for len(w.near) > 0 {
		at := w.near.pop()
		if len(w.found) == ef && -at.sim < w.found[0].sim {
			return
		}
		w.fresh = w.fresh[:0]
		for _, next := range h.nodes[at.to].at(level).out {
			if w.seen[next.to] != w.now {
				w.seen[next.to] = w.now
				w.fresh = append(w.fresh, next.to)
			}
		}
		h.similarities(w, query)
		for i, sim := range w.sims {
			h.meet(w, link{w.fresh[i], sim}, ef, accept)
		}
	}
}

// meet takes a node that was not seen before: as a way on and, if it may be
// returned, into w.found, unless that has ef nearer ones.
func (h *HNSW) meet(w *walk, l link, ef int, accept func(id uint64) bool) {
	if len(w.found) == ef && l.sim <= w.found[0].sim {
		return
	}
	w.near.push(link{l.to, -l.sim})
	n := &h.nodes[l.to]
	if n.state != live || accept != nil && !accept(n.id) {
		return
	}
	if len(w.found) == ef {
		w.found.pop()
	}
	w.found.push(l)
}
