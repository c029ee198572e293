package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// symbol is a stretch of text during merging: a node of a doubly linked list
// that lives in a slice. bytes is 0 once it has become part of its neighbour.
type symbol struct {
	start, bytes int32
	prev, next   int32 // -1 at the ends
}

// pair is two neighbours that together are a token.
type pair struct {
	left, right int32
	bytes       int32 // of both, to see whether either has changed since
	score       float32
}

// before orders the heap: the highest score first, then the leftmost.
func (p pair) before(q pair) bool {
	return p.score > q.score || (p.score == q.score && p.left < q.left)
}

// longestMerge bounds the text merged at once, so that offsets fit in 32 bits.
const longestMerge = 1 << 30

// merger joins characters, best pair first, as long as the result is a token.
// Its memory serves one word after another.
type merger struct {
	spm     *SPM
	text    string
	symbols []symbol
	heap    []pair // binary heap by pair.before
}

// encode tokenises text in which spaces are already written as pieces write
// them. Where no token reaches from one word into the next, words are merged
// one by one, which gives the same tokens as all at once.
func (m *merger) encode(dst []int32, text string) []int32 {
	for len(text) > 0 {
		n := min(len(text), longestMerge)
		if m.spm.byWord {
			n = min(wordEnd(text), n)
		}
		dst = m.merge(dst, text[:n])
		text = text[n:]
	}
	return dst
}

// wordEnd returns the length of the first word of text with the spaces before
// it.
func wordEnd(text string) int {
	n := 0
	for strings.HasPrefix(text[n:], space) {
		n += len(space)
	}
	if end := strings.Index(text[n:], space); end >= 0 {
		return n + end
	}
	return len(text)
}

// merge tokenises a word in O(n log n).
func (m *merger) merge(dst []int32, text string) []int32 {
	m.text = text
	m.split()
	for i := int32(1); int(i) < len(m.symbols); i++ {
		m.propose(i-1, i)
	}
	for len(m.heap) > 0 {
		m.join(m.pop())
	}
	for i := int32(0); i >= 0; i = m.symbols[i].next {
		s := m.symbols[i]
		dst = m.spm.appendToken(dst, text[s.start:s.start+s.bytes])
	}
	return dst
}

// appendToken appends the token of a merged stretch, or its bytes' tokens, or
// the unknown token where the vocabulary has no such byte.
func (t *SPM) appendToken(dst []int32, text string) []int32 {
	if id, ok := t.mergeIDs[text]; ok {
		return append(dst, id)
	}
	for i := range len(text) {
		switch id := t.byteIDs[text[i]]; {
		case id >= 0:
			dst = append(dst, id)
		case t.cfg.UNK >= 0:
			dst = append(dst, t.cfg.UNK)
		}
	}
	return dst
}

// split makes a symbol of each character of the text; a byte that belongs to
// none is one by itself.
func (m *merger) split() {
	m.symbols = slices.Grow(m.symbols[:0], utf8.RuneCountInString(m.text))
	for at := 0; at < len(m.text); {
		_, n := utf8.DecodeRuneInString(m.text[at:])
		i := int32(len(m.symbols))
		m.symbols = append(m.symbols, symbol{int32(at), int32(n), i - 1, i + 1})
		at += n
	}
	m.symbols[len(m.symbols)-1].next = -1
}

// propose puts two neighbours into the heap if they make a token.
func (m *merger) propose(left, right int32) {
	if left < 0 || right < 0 {
		return
	}
	l, r := &m.symbols[left], &m.symbols[right]
	id, ok := m.spm.mergeIDs[m.text[l.start:r.start+r.bytes]]
	if ok {
		m.push(pair{left, right, l.bytes + r.bytes, m.spm.cfg.Scores[id]})
	}
}

// join merges a pair unless one of its sides has been merged since.
func (m *merger) join(p pair) {
	l, r := &m.symbols[p.left], &m.symbols[p.right]
	if l.bytes == 0 || r.bytes == 0 || l.bytes+r.bytes != p.bytes {
		return
	}
	l.bytes += r.bytes
	r.bytes = 0
	l.next = r.next
	if r.next >= 0 {
		m.symbols[r.next].prev = p.left
	}
	m.propose(l.prev, p.left)
	m.propose(p.left, l.next)
}

func (m *merger) push(p pair) {
	m.heap = append(m.heap, p)
	i := len(m.heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !m.heap[i].before(m.heap[parent]) {
			return
		}
		m.heap[i], m.heap[parent] = m.heap[parent], m.heap[i]
		i = parent
	}
}

func (m *merger) pop() pair {
	top := m.heap[0]
	last := len(m.heap) - 1
	m.heap[0] = m.heap[last]
	m.heap = m.heap[:last]
	for i := 0; ; {
		best, left := i, 2*i+1
		for child := left; child <= left+1 && child < last; child++ {
			if m.heap[child].before(m.heap[best]) {
				best = child
			}
		}
		if best == i {
			return top
		}
		m.heap[i], m.heap[best] = m.heap[best], m.heap[i]
		i = best
	}
}
