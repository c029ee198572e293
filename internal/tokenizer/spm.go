// Package tokenizer turns text into the tokens of a model and back.
//
// The one idea: a tokenizer is a pure function made once from a vocabulary.
// Text that comes from users can never yield a control token: those are found
// only where the caller says that the text is a template's own.
package tokenizer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
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
	BOS, EOS, UNK int32
	// AddBOS says that a prompt begins with BOS, which is for the caller to add.
	AddBOS bool
	// AddSpacePrefix puts a space before text at the start and after a special
	// token, as Llama 2's tokenizer does.
	AddSpacePrefix bool
}

// SPM is a SentencePiece-style BPE tokenizer with byte fallback, as llama.cpp
// defines it for tokenizer.ggml.model "llama". It is immutable and safe for
// concurrent use.
type SPM struct {
	cfg      Config
	control  []bool           // [vocab] what text from users never becomes
	mergeIDs map[string]int32 // what plain text can become
	byWord   bool             // no token reaches from one word into the next
	byteIDs  [256]int32       // -1 where the vocabulary has no byte token
	decoded  [][]byte         // [vocab]

	// Control and user-defined tokens are found as a whole before anything is
	// merged: by their text, and their lengths by first byte, longest first.
	specials       map[string]int32
	specialLengths [256][]int
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
	t := &SPM{
		cfg: cfg, control: make([]bool, n), decoded: make([][]byte, n), byWord: true,
		mergeIDs: make(map[string]int32, n), specials: make(map[string]int32),
	}
	for b := range t.byteIDs {
		t.byteIDs[b] = -1
	}
	for i := range cfg.Pieces {
		if err := t.add(int32(i)); err != nil {
			return nil, err
		}
	}
	for i := range t.specialLengths {
		slices.SortFunc(t.specialLengths[i], func(a, b int) int { return b - a })
	}
	if missing := slices.Index(t.byteIDs[:], -1); missing >= 0 && cfg.UNK < 0 {
		return nil, fmt.Errorf("%w: neither a token for byte %#02x nor one for the unknown", ErrVocabulary, missing)
	}
	return t, nil
}

// add enters token id into the tables its type belongs to. Of two tokens with
// the same text the last wins, as in llama.cpp.
func (t *SPM) add(id int32) error {
	text := t.cfg.Pieces[id]
	kind := t.cfg.Types[id]
	if kind < TypeNormal || kind > TypeByte {
		return fmt.Errorf("%w: token %d has type %d", ErrVocabulary, id, kind)
	}
	switch {
	case t.isControl(id):
		t.control[id] = true
		t.addSpecial(text, id)
	case kind == TypeUserDefined:
		t.decoded[id] = []byte(text)
		t.addSpecial(text, id)
	case kind == TypeByte:
		b, err := byteOf(text)
		if err != nil {
			return fmt.Errorf("%w: byte token %d is called %q", ErrVocabulary, id, text)
		}
		t.byteIDs[b] = id
		t.decoded[id] = []byte{b}
	default:
		t.decoded[id] = []byte(strings.ReplaceAll(text, space, " "))
		if kind == TypeNormal && text != "" {
			t.mergeIDs[text] = id
			t.byWord = t.byWord && wordEnd(text) == len(text)
		}
	}
	return nil
}

// isControl reports whether a token steers the model. Files are known to call
// such tokens user-defined, which any text would become: so the tokens at the
// beginning and the end, and those written like a chat's marks, are control
// tokens whatever their type.
func (t *SPM) isControl(id int32) bool {
	switch t.cfg.Types[id] {
	case TypeControl, TypeUnknown:
		return true
	case TypeByte:
		return false
	}
	text := t.cfg.Pieces[id]
	return text != "" && (id == t.cfg.BOS || id == t.cfg.EOS || id == t.cfg.UNK) ||
		t.cfg.Types[id] == TypeUserDefined &&
			(strings.HasPrefix(text, "<|") && strings.HasSuffix(text, "|>") || strings.HasSuffix(text, "_of_turn>"))
}

func (t *SPM) addSpecial(text string, id int32) {
	if text == "" {
		return
	}
	if lengths := &t.specialLengths[text[0]]; !slices.Contains(*lengths, len(text)) {
		*lengths = append(*lengths, len(text))
	}
	t.specials[text] = id
}

// byteOf reads the name of a byte token, such as <0x0A>.
func byteOf(text string) (byte, error) {
	hex, ok := strings.CutPrefix(text, "<0x")
	if !ok || len(hex) != 3 || hex[2] != '>' {
		return 0, strconv.ErrSyntax
	}
	b, err := strconv.ParseUint(hex[:2], 16, 8)
	return byte(b), err
}

// VocabSize is the number of tokens.
func (t *SPM) VocabSize() int { return len(t.cfg.Pieces) }

// BOS returns the begin-of-sequence token, -1 for none.
func (t *SPM) BOS() int32 { return t.cfg.BOS }

// EOS returns the end-of-sequence token, -1 for none.
func (t *SPM) EOS() int32 { return t.cfg.EOS }

// IsControl reports whether id is a token that user text never becomes.
func (t *SPM) IsControl(id int32) bool {
	return id >= 0 && int(id) < len(t.control) && t.control[id]
}

// Specials returns the texts of the control tokens, longest first.
func (t *SPM) Specials() []string {
	var list []string
	for text, id := range t.specials {
		if t.control[id] {
			list = append(list, text)
		}
	}
	slices.SortFunc(list, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
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
// text. Bytes that are not UTF-8 become byte tokens. No BOS is added.
func (t *SPM) Encode(dst []int32, text string, parseSpecial bool) []int32 {
	m := merger{spm: t}
	afterSpecial := true
	for len(text) > 0 {
		at, id, length := t.nextSpecial(text, parseSpecial)
		if at > 0 {
			plain := text[:at]
			if t.cfg.AddSpacePrefix && afterSpecial {
				plain = " " + plain
			}
			dst = m.encode(dst, strings.ReplaceAll(plain, " ", space))
			afterSpecial = false
		}
		text = text[at+length:]
		if length > 0 {
			dst = append(dst, id)
			afterSpecial = true
		}
	}
	return dst
}

// nextSpecial returns where the first special token begins, the longest of
// those that begin there, or the end of text and length 0.
func (t *SPM) nextSpecial(text string, parseSpecial bool) (at int, id int32, length int) {
	for at := range len(text) {
		for _, n := range t.specialLengths[text[at]] {
			if n > len(text)-at {
				continue
			}
			if id, ok := t.specials[text[at:at+n]]; ok && (parseSpecial || !t.control[id]) {
				return at, id, n
			}
		}
	}
	return len(text), 0, 0
}
