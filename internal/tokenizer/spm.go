package tokenizer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
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
	// AddSpacePrefix puts a space before text at the start and after a special
	// token, as Llama 2's tokenizer does.
	AddSpacePrefix bool
}

// SPM is a SentencePiece-style BPE tokenizer with byte fallback, as llama.cpp
// defines it for tokenizer.ggml.model "llama". It is immutable and safe for
// concurrent use.
type SPM struct {
	Vocabulary
	cfg      Config
	mergeIDs map[string]int32 // what plain text can become
	byWord   bool             // no token reaches from one word into the next
	byteIDs  [256]int32       // -1 where the vocabulary has no byte token
}

// NewSPM checks a vocabulary and prepares it. Errors match [ErrVocabulary].
func NewSPM(cfg Config) (*SPM, error) {
	n := len(cfg.Pieces)
	if n == 0 || len(cfg.Scores) != n || len(cfg.Types) != n {
		return nil, fmt.Errorf("%w: %d tokens, %d scores, %d types", ErrVocabulary, n, len(cfg.Scores), len(cfg.Types))
	}
	t := &SPM{cfg: cfg, byWord: true, mergeIDs: make(map[string]int32, n)}
	if err := t.init(n, cfg.BOS, cfg.EOS, cfg.UNK); err != nil {
		return nil, err
	}
	for b := range t.byteIDs {
		t.byteIDs[b] = -1
	}
	for i := range cfg.Pieces {
		if err := t.add(int32(i)); err != nil {
			return nil, err
		}
	}
	t.sortLengths()
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
	case t.isControl(id, text, kind):
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

// byteOf reads the name of a byte token, such as <0x0A>.
func byteOf(text string) (byte, error) {
	hex, ok := strings.CutPrefix(text, "<0x")
	if !ok || len(hex) != 3 || hex[2] != '>' {
		return 0, strconv.ErrSyntax
	}
	b, err := strconv.ParseUint(hex[:2], 16, 8)
	return byte(b), err
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
