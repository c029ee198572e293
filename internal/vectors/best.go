package vectors

import "slices"

// best keeps the k first of the matches it is offered, as a heap with the last
// of them at the root.
type best struct {
	k    int
	heap []Match
}

// full reports whether a match must come before worst to be kept.
func (b *best) full() bool { return len(b.heap) == b.k }

// offer keeps m if it is one of the k first.
func (b *best) offer(m Match) {
	switch {
	case !b.full():
		b.heap = append(b.heap, m)
		b.rise(len(b.heap) - 1)
	case m.before(b.heap[0]):
		b.heap[0] = m
		b.sink()
	}
}

func (b *best) rise(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !b.heap[parent].before(b.heap[i]) {
			return
		}
		b.heap[parent], b.heap[i] = b.heap[i], b.heap[parent]
		i = parent
	}
}

func (b *best) sink() {
	h := b.heap
	for i := 0; ; {
		last := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if h[last].before(h[child]) {
				last = child
			}
		}
		if last == i {
			return
		}
		h[i], h[last] = h[last], h[i]
		i = last
	}
}

// appendTo appends the matches to dst in order.
func (b *best) appendTo(dst []Match) []Match {
	slices.SortFunc(b.heap, compare)
	return append(dst, b.heap...)
}

func compare(a, b Match) int {
	switch {
	case a.before(b):
		return -1
	case b.before(a):
		return 1
	}
	return 0
}
