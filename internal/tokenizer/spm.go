// Package tokenizer turns text into the tokens of a model and back.
//
// The one idea: a tokenizer is a pure function made once from a vocabulary.
// Text that comes from users can never yield a control token: those are found
// only where the caller says that the text is a template's own.
package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// ErrVocabulary is matched by errors about a vocabulary that cannot be used.
var ErrVocabulary = errors.New("tokenizer: bad vocabulary")

// The kinds of token, numbered as in GGUF's tokenizer.ggml.token_type.
const (
	TypeNormal      = 1
	TypeUnknown     = 2
	TypeControl     = 3
	TypeUserDefined = 4
	TypeUnused      = 5
	TypeByte        = 6
)

// space is how SentencePiece writes a space inside pieces, U+2581.
const space = "\u2581"

// Config is a SentencePiece vocabulary as GGUF stores it.
type Config struct {
	Pieces []string  // [vocab] text of each token
	Scores []float32 // [vocab] a pair with the higher score is merged first
	Types  []int32   // [vocab] Type…
	// BOS, EOS and UNK are token ids, -1 for none.
	BOS, EOS, UNK  int32
	AddBOS, AddEOS bool
	// AddSpacePrefix puts a space before text at the start and after a special
	// token, as Llama 2's tokenizer does.
	AddSpacePrefix bool
}

// SPM is a SentencePiece-style BPE tokenizer with byte fallback, as llama.cpp
// defines it for tokenizer.ggml.model "llama". It is immutable and safe for
// concurrent use.
type SPM struct {
	cfg      Config
	mergeIDs map[string]int32 // what plain text can become
	byteIDs  [256]int32       // -1 where the vocabulary has no byte token
	specials []special        // longest first
	starts   [256]bool        // first bytes of specials
	decoded  [][]byte         // [vocab]
}

// special is a token that is found as a whole before anything is merged.
type special struct {
	text  string
	id    int32
	plain bool // user-defined: found in any text
}

// NewSPM checks a vocabulary and prepares it. Errors match [ErrVocabulary].
func NewSPM(cfg Config) (*SPM, error) {
	n := len(cfg.Pieces)
	if n == 0 || len(cfg.Scores) != n || len(cfg.Types) != n {
		return nil, fmt.Errorf("%w: %d tokens, %d scores, %d types", ErrVocabulary, n, len(cfg.Scores), len(cfg.Types))
	}
	for name, id := range map[string]int32{"BOS": cfg.BOS, "EOS": cfg.EOS, "UNK": cfg.UNK} {
		if id < -1 || int(id) >= n {
			return nil, fmt.Errorf("%w: %s token %d of %d", ErrVocabulary, name, id, n)
		}
	}
	t := &SPM{cfg: cfg, mergeIDs: make(map[string]int32, n), decoded: make([][]byte, n)}
	for b := range t.byteIDs {
		t.byteIDs[b] = -1
	}
	for i := range cfg.Pieces {
		if err := t.add(int32(i)); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(t.specials, func(a, b special) int { return len(b.text) - len(a.text) })
	return t, nil
}

// add enters token id into the tables its type belongs to. Of two tokens with
// the same text the first wins.
func (t *SPM) add(id int32) error {
	text := t.cfg.Pieces[id]
	switch kind := t.cfg.Types[id]; kind {
	case TypeByte:
		var b byte
		if _, err := fmt.Sscanf(text, "<0x%02X>", &b); err != nil || len(text) != 6 {
			return fmt.Errorf("%w: byte token %d is called %q", ErrVocabulary, id, text)
		}
		t.byteIDs[b] = id
		t.decoded[id] = []byte{b}
	case TypeControl, TypeUnknown, TypeUserDefined:
		if text == "" {
			break
		}
		t.specials = append(t.specials, special{text, id, kind == TypeUserDefined})
		t.starts[text[0]] = true
		if kind == TypeUserDefined {
			t.decoded[id] = []byte(text)
		}
	case TypeNormal, TypeUnused:
		t.decoded[id] = []byte(strings.ReplaceAll(text, space, " "))
		if _, taken := t.mergeIDs[text]; !taken && text != "" && kind == TypeNormal {
			t.mergeIDs[text] = id
		}
	default:
		return fmt.Errorf("%w: token %d has type %d", ErrVocabulary, id, kind)
	}
	return nil
}

// VocabSize is the number of tokens.
func (t *SPM) VocabSize() int { return len(t.cfg.Pieces) }

// BOS returns the begin-of-sequence token, -1 for none.
func (t *SPM) BOS() int32 { return t.cfg.BOS }

// EOS returns the end-of-sequence token, -1 for none.
func (t *SPM) EOS() int32 { return t.cfg.EOS }

// IsControl reports whether id is a token that user text never becomes.
func (t *SPM) IsControl(id int32) bool {
	if id < 0 || int(id) >= len(t.cfg.Types) {
		return false
	}
	kind := t.cfg.Types[id]
	return kind == TypeControl || kind == TypeUnknown
}

// Specials returns the texts of the control tokens, longest first.
func (t *SPM) Specials() []string {
	var list []string
	for _, s := range t.specials {
		if !s.plain {
			list = append(list, s.text)
		}
	}
	return list
}

// Piece returns the bytes that id stands for, nil for control tokens and ids
// outside the vocabulary. The caller must not change them.
func (t *SPM) Piece(id int32) []byte {
	if id < 0 || int(id) >= len(t.decoded) {
		return nil
	}
	return t.decoded[id]
}

// Decode returns the bytes of a sequence of tokens. With AddSpacePrefix it
// begins with the space that Encode put there.
func (t *SPM) Decode(ids []int32) []byte {
	var out []byte
	for _, id := range ids {
		out = append(out, t.Piece(id)...)
	}
	return out
}

// Encode appends the ids of text to dst. With parseSpecial, the texts of
// control tokens become those tokens. User-defined tokens are found in any
// text. Bytes that are not UTF-8 become byte tokens.
func (t *SPM) Encode(dst []int32, text string, parseSpecial bool) []int32 {
	afterSpecial := true
	for len(text) > 0 {
		at, found := t.nextSpecial(text, parseSpecial)
		if at > 0 {
			plain := text[:at]
			if t.cfg.AddSpacePrefix && afterSpecial {
				plain = " " + plain
			}
			dst = t.merge(dst, strings.ReplaceAll(plain, " ", space))
			afterSpecial = false
		}
		text = text[at:]
		if found != nil {
			dst = append(dst, found.id)
			text = text[len(found.text):]
			afterSpecial = true
		}
	}
	return dst
}

// nextSpecial returns where the first special token begins, the longest of
// those that begin there, or the end of text and nil.
func (t *SPM) nextSpecial(text string, parseSpecial bool) (int, *special) {
	for at := range len(text) {
		if !t.starts[text[at]] {
			continue
		}
		for i := range t.specials {
			s := &t.specials[i]
			if (s.plain || parseSpecial) && strings.HasPrefix(text[at:], s.text) {
				return at, s
			}
		}
	}
	return len(text), nil
}

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

// merge tokenises text in which spaces are already written as pieces write
// them: characters are joined, best pair first, as long as the result is a
// token. It takes O(n log n).
func (t *SPM) merge(dst []int32, text string) []int32 {
	for len(text) > longestMerge {
		dst = t.merge(dst, text[:longestMerge])
		text = text[longestMerge:]
	}
	m := merger{spm: t, text: text, symbols: characters(text)}
	for i := int32(1); int(i) < len(m.symbols); i++ {
		m.propose(i-1, i)
	}
	for len(m.heap) > 0 {
		m.join(m.pop())
	}
	for i := int32(0); i >= 0 && len(m.symbols) > 0; i = m.symbols[i].next {
		s := m.symbols[i]
		dst = t.appendToken(dst, text[s.start:s.start+s.bytes])
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

// characters splits text into its characters; a byte that belongs to none is
// one by itself.
func characters(text string) []symbol {
	symbols := make([]symbol, 0, utf8.RuneCountInString(text))
	for at := 0; at < len(text); {
		_, n := utf8.DecodeRuneInString(text[at:])
		i := int32(len(symbols))
		symbols = append(symbols, symbol{int32(at), int32(n), i - 1, i + 1})
		at += n
	}
	if n := len(symbols); n > 0 {
		symbols[n-1].next = -1
	}
	return symbols
}

// merger is the state of one merge.
type merger struct {
	spm     *SPM
	text    string
	symbols []symbol
	heap    []pair // binary heap by pair.before
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
