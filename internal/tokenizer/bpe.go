package tokenizer

import (
	"fmt"
	"math"
	"strings"
)

// BPEConfig is a byte-level BPE vocabulary as GGUF stores it for
// tokenizer.ggml.model "gpt2".
type BPEConfig struct {
	// Pieces are the tokens' texts, [vocab], in which each byte is written as a
	// character of its own (GPT-2's bytes_to_unicode).
	Pieces []string
	Types  []int32 // [vocab] Type…
	// Merges are two pieces with a space between, the first merged first.
	Merges []string
	// Pre is the name of the pre-tokeniser, as in tokenizer.ggml.pre.
	Pre string
	// BOS, EOS and UNK are token ids, -1 for none.
	BOS, EOS, UNK int32
}

// BPE is a byte-level BPE tokenizer. It is immutable and safe for concurrent
// use. Any text comes back from its tokens byte for byte, but for bytes that
// the vocabulary has no token for, which are left out: some lack those that
// UTF-8 never uses, or control characters.
type BPE struct {
	Vocabulary
	preset  preset
	byteIDs [256]int32       // -1 where the vocabulary has no token for a byte
	ids     map[string]int32 // by the bytes they stand for
	merges  map[[2]int32]mergeRule
}

// mergeRule is what two tokens become and when.
type mergeRule struct {
	rank int32 // the lower, the earlier
	id   int32
}

// NewBPE checks a vocabulary and prepares it. Errors match [ErrVocabulary] and
// name the token or the merge. A merge of texts that are no tokens can never
// be made and is ignored.
func NewBPE(cfg BPEConfig) (*BPE, error) {
	n := len(cfg.Pieces)
	if len(cfg.Types) != n {
		return nil, fmt.Errorf("%w: %d tokens and %d types", ErrVocabulary, n, len(cfg.Types))
	}
	t := &BPE{ids: make(map[string]int32, n), merges: make(map[[2]int32]mergeRule, len(cfg.Merges))}
	if err := t.init(n, cfg.BOS, cfg.EOS, cfg.UNK); err != nil {
		return nil, err
	}
	var known bool
	if t.preset, known = presetOf(cfg.Pre); !known {
		return nil, fmt.Errorf("%w: the pre-tokeniser %q is not supported", ErrVocabulary, cfg.Pre)
	}
	byText := make(map[string]int32, n)
	bytesOf := byteCharacters()
	for i := range cfg.Pieces {
		if err := t.add(int32(i), cfg.Pieces[i], cfg.Types[i], bytesOf, byText); err != nil {
			return nil, err
		}
	}
	t.sortLengths()
	for b := range t.byteIDs {
		t.byteIDs[b] = -1
		if id, found := t.ids[string([]byte{byte(b)})]; found {
			t.byteIDs[b] = id
		}
	}
	for rank, merge := range cfg.Merges {
		if err := t.addMerge(rank, merge, byText); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// add enters token id into the tables its type belongs to. Of two tokens with
// the same text the last wins.
func (t *BPE) add(id int32, text string, kind int32, bytesOf map[rune]byte, byText map[string]int32) error {
	switch {
	case kind < TypeNormal || kind > TypeByte:
		return fmt.Errorf("%w: token %d has type %d", ErrVocabulary, id, kind)
	case t.isControl(id, text, kind):
		t.control[id] = true
		t.addSpecial(text, id)
	case kind == TypeUserDefined:
		t.decoded[id] = []byte(text)
		t.addSpecial(text, id)
	default:
		t.decoded[id] = rawBytes(text, bytesOf)
		if kind == TypeNormal && text != "" {
			t.ids[string(t.decoded[id])] = id
			byText[text] = id
		}
	}
	return nil
}

// maxMerges keeps ranks exact in the float32 of a pair's score.
const maxMerges = 1 << 24

func (t *BPE) addMerge(rank int, merge string, byText map[string]int32) error {
	if rank >= maxMerges {
		return fmt.Errorf("%w: more than %d merges", ErrVocabulary, maxMerges)
	}
	// A space is never part of a piece, but the separator may stand at the
	// beginning of what looks like one.
	cut := strings.IndexByte(merge[min(1, len(merge)):], ' ') + 1
	if cut < 1 || cut == len(merge)-1 {
		return fmt.Errorf("%w: merge %d is %q, want two pieces and a space", ErrVocabulary, rank, merge)
	}
	left, right := merge[:cut], merge[cut+1:]
	l, haveLeft := byText[left]
	r, haveRight := byText[right]
	id, haveBoth := byText[left+right]
	if haveLeft && haveRight && haveBoth {
		if _, twice := t.merges[[2]int32{l, r}]; !twice {
			t.merges[[2]int32{l, r}] = mergeRule{int32(rank), id}
		}
	}
	return nil
}

// byteCharacters returns the byte that each character of a piece stands for:
// printable Latin-1 is itself, the others follow from U+0100 on.
func byteCharacters() map[rune]byte {
	m := make(map[rune]byte, 256)
	next := rune(0x100)
	for b := range 256 {
		if b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae {
			m[rune(b)] = byte(b)
		} else {
			m[next] = byte(b)
			next++
		}
	}
	return m
}

// rawBytes turns a piece into bytes; characters that stand for none are kept.
func rawBytes(piece string, bytesOf map[rune]byte) []byte {
	raw := make([]byte, 0, len(piece))
	for _, r := range piece {
		if b, found := bytesOf[r]; found {
			raw = append(raw, b)
		} else {
			raw = append(raw, string(r)...)
		}
	}
	return raw
}

// AddsBOS reports whether prompts begin with BOS where the model's file does
// not say.
func (t *BPE) AddsBOS() bool { return t.preset.addBOS }

// Encode appends the ids of text to dst. With parseSpecial, the texts of
// control tokens become those tokens. User-defined tokens are found in any
// text. No BOS is added.
func (t *BPE) Encode(dst []int32, text string, parseSpecial bool) []int32 {
	m := byteMerger{bpe: t, dst: dst}
	for len(text) > 0 {
		at, id, length := t.nextSpecial(text, parseSpecial)
		if at > 0 {
			t.preset.words.each(text[:at], m.word)
		}
		text = text[at+length:]
		if length > 0 {
			m.dst = append(m.dst, id)
		}
	}
	return m.dst
}

// byteMerger merges the bytes of words. Its memory serves one word after
// another.
type byteMerger struct {
	bpe     *BPE
	dst     []int32
	ids     []int32 // of a short word
	rules   []mergeRule
	symbols []symbol // of a long one
	queue   pairQueue
}

// shortWord is the length up to which looking through all pairs for the best
// one is cheaper than keeping them in order.
const shortWord = 32

func (m *byteMerger) word(word string) {
	if m.bpe.preset.ignoreMerges {
		if id, found := m.bpe.ids[word]; found {
			m.dst = append(m.dst, id)
			return
		}
	}
	for len(word) > longestMerge { // offsets have to fit in 32 bits
		m.long(word[:longestMerge])
		word = word[longestMerge:]
	}
	if len(word) <= shortWord {
		m.short(word)
	} else {
		m.long(word)
	}
}

const never = math.MaxInt32

func (m *byteMerger) rule(left, right int32) mergeRule {
	if r, found := m.bpe.merges[[2]int32{left, right}]; found {
		return r
	}
	return mergeRule{rank: never}
}

// short merges in O(n²).
func (m *byteMerger) short(word string) {
	ids, rules := m.ids[:0], m.rules[:0] // rules[i] is that of ids[i] and ids[i+1]
	for i := range len(word) {
		ids = append(ids, m.bpe.byteIDs[word[i]])
		if i > 0 {
			rules = append(rules, m.rule(ids[i-1], ids[i]))
		}
	}
	for len(rules) > 0 {
		best := 0
		for i, r := range rules {
			if r.rank < rules[best].rank {
				best = i
			}
		}
		if rules[best].rank == never {
			break
		}
		ids[best] = rules[best].id
		ids = append(ids[:best+1], ids[best+2:]...)
		rules = append(rules[:best], rules[best+1:]...)
		if best > 0 {
			rules[best-1] = m.rule(ids[best-1], ids[best])
		}
		if best < len(rules) {
			rules[best] = m.rule(ids[best], ids[best+1])
		}
	}
	for _, id := range ids {
		m.output(id)
	}
	m.ids, m.rules = ids, rules
}

// long merges in O(n log n).
func (m *byteMerger) long(word string) {
	m.symbols = m.symbols[:0]
	for i := range len(word) {
		m.symbols = append(m.symbols, symbol{int32(i), 1, int32(i) - 1, int32(i) + 1, m.bpe.byteIDs[word[i]]})
	}
	m.symbols[len(word)-1].next = -1
	for i := int32(1); int(i) < len(word); i++ {
		m.propose(i-1, i)
	}
	for len(m.queue) > 0 {
		m.join(m.queue.pop())
	}
	for i := int32(0); i >= 0; i = m.symbols[i].next {
		m.output(m.symbols[i].id)
	}
}

func (m *byteMerger) output(id int32) {
	if id >= 0 {
		m.dst = append(m.dst, id)
	}
}

func (m *byteMerger) propose(left, right int32) {
	if left < 0 || right < 0 {
		return
	}
	l, r := &m.symbols[left], &m.symbols[right]
	if rule := m.rule(l.id, r.id); rule.rank != never {
		m.queue.push(pair{left, right, l.bytes + r.bytes, rule.id, -float32(rule.rank)})
	}
}

// join merges a pair unless one of its sides has been merged since.
func (m *byteMerger) join(p pair) {
	l, r := &m.symbols[p.left], &m.symbols[p.right]
	if l.bytes == 0 || r.bytes == 0 || l.bytes+r.bytes != p.bytes {
		return
	}
	l.bytes, l.id, l.next = p.bytes, p.id, r.next
	r.bytes = 0
	if r.next >= 0 {
		m.symbols[r.next].prev = p.left
	}
	m.propose(l.prev, p.left)
	m.propose(p.left, l.next)
}
