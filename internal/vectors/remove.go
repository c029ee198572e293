package vectors

// mended is how many links to tombstones a write replaces, in units of M. A
// node has 2·M incoming links on average, so twice that keeps up with removals.
const mended = 4

// Remove implements [Index]. It hides the vector at once; then it mends links
// around it and around others that were removed before.
func (h *HNSW) Remove(id uint64) bool {
	h.writer.Lock()
	defer h.writer.Unlock()
	slot, known := h.slot[id]
	if !known {
		return false
	}
	h.mu.Lock()
	h.bury(slot)
	if len(h.slot) == 0 {
		h.reset()
	}
	h.mu.Unlock()
	h.mend(&h.edit)
	return true
}

// bury makes a node a tombstone. The caller holds mu.
func (h *HNSW) bury(slot uint32) {
	delete(h.slot, h.nodes[slot].id)
	h.nodes[slot].state = dead
	h.dead = append(h.dead, slot)
}

// reset returns to an empty graph. The caller holds mu.
func (h *HNSW) reset() {
	clear(h.nodes)
	h.nodes, h.free, h.dead, h.top = h.nodes[:0], h.free[:0], h.dead[:0], -1
	h.rows.fit(0)
}

// mend replaces links to tombstones, the oldest first, and frees those that
// have none left.
func (h *HNSW) mend(w *walk) {
	for left := mended * h.opts.M; len(h.dead) > 0; left-- {
		if left <= 0 && len(h.dead) <= 32+len(h.slot)/16 {
			return
		}
		slot := h.dead[0]
		level := len(h.nodes[slot].upper)
		for level >= 0 && len(h.nodes[slot].at(level).in) == 0 {
			level--
		}
		if level < 0 {
			h.release(w, slot)
			continue
		}
		in := h.nodes[slot].at(level).in
		h.bypass(w, in[len(in)-1], slot, level)
	}
}

// release makes the slot of the oldest tombstone, which nobody links to, vacant.
func (h *HNSW) release(w *walk, slot uint32) {
	w.forget()
	h.mu.Lock()
	defer h.mu.Unlock()
	n := &h.nodes[slot]
	for level := range len(n.upper) + 1 {
		h.setLinks(w, change{slot, level, nil})
	}
	n.upper, n.state = nil, vacant
	h.free = append(h.free, slot)
	h.dead = h.dead[:copy(h.dead, h.dead[1:])]
	if slot == h.entry {
		h.electEntry()
	}
	h.apply(w)
}

// electEntry finds another entry: there is a live node.
func (h *HNSW) electEntry() {
	h.top = -1
	for slot := range h.nodes {
		if n := &h.nodes[slot]; n.state == live && len(n.upper) > h.top {
			h.entry, h.top = uint32(slot), len(n.upper)
		}
	}
}

// bypass replaces the link of a node to a tombstone by one to a neighbour of
// that: the nearest that leads in a direction of its own, or else the nearest.
func (h *HNSW) bypass(w *walk, slot, gone uint32, level int) {
	w.forget()
	old := h.nodes[slot].at(level).out
	out := w.arena
	alive := 0
	for _, l := range old {
		if l.to != gone {
			out = append(out, l)
		}
		if h.nodes[l.to].state == live {
			alive++
		}
	}
	w.arena = out
	if h.nodes[slot].state == live {
		if next, ok := h.substitute(w, slot, gone, level, out); ok {
			w.arena = append(w.arena, next)
			sortLinks(w.arena)
			alive++
		}
	}
	w.changes = append(w.changes, change{slot, level, w.arena[:len(w.arena):len(w.arena)]})
	h.commit(w)
	if h.nodes[slot].state == live && alive < h.opts.M/2 {
		h.relink(w, slot, level)
	}
}

// substitute chooses among the neighbours of gone one that slot, whose other
// links are kept, should link to.
func (h *HNSW) substitute(w *walk, slot, gone uint32, level int, kept []link) (next link, ok bool) {
	w.fresh = w.fresh[:0]
	for _, l := range h.nodes[gone].at(level).out {
		if l.to != slot && h.nodes[l.to].state == live && !leadsTo(kept, l.to) {
			w.fresh = append(w.fresh, l.to)
		}
	}
	h.similarities(w, h.rows.row(slot))
	w.rivals = w.rivals[:0]
	for i, to := range w.fresh {
		w.rivals = append(w.rivals, link{to, w.sims[i]})
	}
	sortLinks(w.rivals)
	for _, c := range w.rivals {
		if h.apart(c, kept) {
			return c, true
		}
	}
	if len(w.rivals) > 0 {
		return w.rivals[0], true
	}
	return link{}, false
}

// relink links a node that has few live neighbours left as if it were new.
func (h *HNSW) relink(w *walk, slot uint32, level int) {
	w.forget()
	query := h.rows.row(slot)
	start := h.descend(w, query, level)
	h.explore(w, query, []link{start}, level, h.opts.EfConstruction, nil)
	w.starts = w.starts[:0]
	for _, l := range w.found {
		if l.to != slot {
			w.starts = append(w.starts, l)
		}
	}
	if len(w.starts) == 0 {
		return
	}
	sortLinks(w.starts)
	h.planLinks(w, slot, level, w.starts)
	h.commit(w)
}

// commit applies what was planned.
func (h *HNSW) commit(w *walk) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.apply(w)
}
