package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// longestMerge bounds the text merged at once, so that offsets fit in 32 bits.
const longestMerge = 1 << 30

// merger joins characters, best pair first, as long as the result is a token.
// Its memory serves one word after another.
type merger struct {
	spm     *SPM
	text    string
	symbols []symbol
	queue   pairQueue
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
	for len(m.queue) > 0 {
		m.join(m.queue.pop())
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
		m.symbols = append(m.symbols, symbol{int32(at), int32(n), i - 1, i + 1, -1})
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
		m.queue.push(pair{left, right, l.bytes + r.bytes, id, m.spm.cfg.Scores[id]})
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
