package tokenizer

// symbol is a stretch of text during merging: a node of a doubly linked list
// that lives in a slice. bytes is 0 once it has become part of its neighbour.
type symbol struct {
	start, bytes int32
	prev, next   int32 // -1 at the ends
	id           int32 // of its token, where the tokenizer keeps it
}

// pair is two neighbours that together are a token.
type pair struct {
	left, right int32
	bytes       int32 // of both, to see whether either has changed since
	id          int32 // of the token they make
	score       float32
}

// before orders the queue: the highest score first, then the leftmost.
func (p pair) before(q pair) bool {
	return p.score > q.score || (p.score == q.score && p.left < q.left)
}

// pairQueue is a binary heap by pair.before.
type pairQueue []pair

func (q *pairQueue) push(p pair) {
	*q = append(*q, p)
	h := *q
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h[i].before(h[parent]) {
			return
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

func (q *pairQueue) pop() pair {
	h := *q
	top, last := h[0], len(h)-1
	h[0] = h[last]
	h = h[:last]
	*q = h
	for i := 0; ; {
		best, left := i, 2*i+1
		for child := left; child <= left+1 && child < last; child++ {
			if h[child].before(h[best]) {
				best = child
			}
		}
		if best == i {
			return top
		}
		h[i], h[best] = h[best], h[i]
		i = best
	}
}
