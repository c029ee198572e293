package vectors

import "slices"

// orphan is a node that may have no incoming link on a level.
type orphan struct {
	slot  uint32
	level int
}

// apply writes the planned changes, and gives those that nobody links to any
// more a link. The caller holds mu.
func (h *HNSW) apply(w *walk) {
	for _, c := range w.changes {
		h.setLinks(w, c)
	}
	for _, o := range w.orphans {
		h.adopt(o)
	}
	w.forget()
}

// setLinks replaces a node's links. A node dropped without another incoming link
// becomes an orphan.
func (h *HNSW) setLinks(w *walk, c change) {
	layer := h.nodes[c.slot].at(c.level)
	for _, l := range layer.out {
		if !leadsTo(c.out, l.to) {
			h.dropIn(w, l.to, c.slot, c.level)
		}
	}
	for _, l := range c.out {
		if !leadsTo(layer.out, l.to) {
			to := h.nodes[l.to].at(c.level)
			to.in = append(to.in, c.slot)
		}
	}
	layer.out = append(layer.out[:0], c.out...)
}

func leadsTo(links []link, slot uint32) bool {
	for _, l := range links {
		if l.to == slot {
			return true
		}
	}
	return false
}

// dropIn forgets that from links to slot.
func (h *HNSW) dropIn(w *walk, slot, from uint32, level int) {
	layer := h.nodes[slot].at(level)
	last := len(layer.in) - 1
	layer.in[slices.Index(layer.in, from)] = layer.in[last]
	if layer.in = layer.in[:last]; last == 0 {
		w.orphans = append(w.orphans, orphan{slot, level})
	}
}

// adopt gives a live node that nobody links to an incoming link, from the
// nearest of its own neighbours that has room or a link to spare.
func (h *HNSW) adopt(o orphan) {
	n := &h.nodes[o.slot]
	if n.state != live || len(n.at(o.level).in) > 0 {
		return
	}
	for _, l := range n.at(o.level).out {
		if h.nodes[l.to].state == live && h.spare(l.to, o.level) {
			h.addLink(l.to, o.level, link{o.slot, l.sim})
			return
		}
	}
	// All that its neighbours link to would be orphans in its place. On the level
	// where every node is, one of them gets a link too many; above, nothing is lost.
	if o.level > 0 {
		return
	}
	for _, l := range n.at(o.level).out {
		if h.nodes[l.to].state == live {
			h.addLink(l.to, o.level, link{o.slot, l.sim})
			return
		}
	}
}

// spare makes room for one more link of a node, if need be by dropping the
// neighbour that most others link to, and reports whether it could.
func (h *HNSW) spare(slot uint32, level int) bool {
	layer := h.nodes[slot].at(level)
	if len(layer.out) < h.maxLinks(level) {
		return true
	}
	most, at := 1, -1
	for i, l := range layer.out {
		if n := len(h.nodes[l.to].at(level).in); n > 1 && n >= most {
			most, at = n, i
		}
	}
	if at < 0 {
		return false
	}
	to := h.nodes[layer.out[at].to].at(level)
	i := slices.Index(to.in, slot)
	to.in = slices.Delete(to.in, i, i+1)
	layer.out = slices.Delete(layer.out, at, at+1)
	return true
}

// addLink adds a link where there is none between these nodes.
func (h *HNSW) addLink(slot uint32, level int, l link) {
	layer, to := h.nodes[slot].at(level), h.nodes[l.to].at(level)
	i := len(layer.out)
	for i > 0 && layer.out[i-1].sim < l.sim {
		i--
	}
	layer.out = slices.Insert(layer.out, i, l)
	to.in = append(to.in, slot)
}
