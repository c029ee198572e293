package tokenizer

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// WordPieceConfig is a WordPiece vocabulary (BERT).
type WordPieceConfig struct {
	// Pieces are the tokens' texts, [vocab]. Those that begin a word are marked
	// by U+2581 as in GGUF's tokenizer.ggml.model "bert", or the others by ##
	// as in a tokenizer.json: see Continuation.
	Pieces []string
	Types  []int32 // [vocab] Type…
	// Continuation is the prefix of pieces that go on with a word; empty says
	// that pieces which begin one have U+2581 instead.
	Continuation string
	// KeepCase and KeepAccents leave out two steps of normalisation.
	KeepCase, KeepAccents bool
	// MaxWordRunes is the length above which a word is unknown, 0 for no limit.
	MaxWordRunes int
	// BOS, EOS and UNK are token ids, -1 for none.
	BOS, EOS, UNK int32
}

// WordPiece is a tokenizer that cuts text into words and takes the longest
// piece from each again and again. It is immutable and safe for concurrent use.
type WordPiece struct {
	Vocabulary
	cfg         WordPieceConfig
	begin, rest map[string]int32 // pieces that begin a word, and that go on
	longest     int              // bytes of the longest piece
}

// NewWordPiece checks a vocabulary and prepares it. Errors match
// [ErrVocabulary].
func NewWordPiece(cfg WordPieceConfig) (*WordPiece, error) {
	n := len(cfg.Pieces)
	if len(cfg.Types) != n {
		return nil, fmt.Errorf("%w: %d tokens and %d types", ErrVocabulary, n, len(cfg.Types))
	}
	t := &WordPiece{cfg: cfg, begin: make(map[string]int32, n), rest: make(map[string]int32, n)}
	if err := t.init(n, cfg.BOS, cfg.EOS, cfg.UNK); err != nil {
		return nil, err
	}
	for i, text := range cfg.Pieces {
		id, kind := int32(i), cfg.Types[i]
		switch {
		case kind < TypeNormal || kind > TypeByte:
			return nil, fmt.Errorf("%w: token %d has type %d", ErrVocabulary, id, kind)
		case t.isControl(id, text, kind):
			t.control[id] = true
			t.addSpecial(text, id)
		case kind == TypeUserDefined:
			t.decoded[id] = []byte(text)
			t.addSpecial(text, id)
		default:
			t.add(id, text)
		}
	}
	t.sortLengths()
	return t, nil
}

// add enters a piece; as bytes, a word has a space before it.
func (t *WordPiece) add(id int32, text string) {
	var begins bool
	if t.cfg.Continuation == "" {
		text, begins = strings.CutPrefix(text, space)
	} else {
		var goesOn bool
		text, goesOn = strings.CutPrefix(text, t.cfg.Continuation)
		begins = !goesOn
	}
	t.longest = max(t.longest, len(text))
	if begins {
		t.begin[text], t.decoded[id] = id, []byte(" "+text)
	} else {
		t.rest[text], t.decoded[id] = id, []byte(text)
	}
}

// Texts are the tokens as the vocabulary writes them, [vocab]. The caller
// changes none.
func (t *WordPiece) Texts() []string { return t.cfg.Pieces }

// Encode appends the ids of text to dst. With parseSpecial, the texts of
// control tokens become those tokens; user-defined tokens are found in any
// text. No [CLS] and no [SEP] is added. Words that no pieces make up become the
// unknown token, or nothing if there is none.
func (t *WordPiece) Encode(dst []int32, text string, parseSpecial bool) []int32 {
	var word []byte
	for len(text) > 0 {
		at, id, length := t.nextSpecial(text, parseSpecial)
		plain := text[:at]
		if !t.cfg.KeepAccents {
			plain = norm.NFD.String(plain)
		}
		dst, word = t.words(dst, plain, word)
		text = text[at+length:]
		if length > 0 {
			dst = append(dst, id)
		}
	}
	return dst
}

// words cuts text at spaces and around punctuation and Chinese characters.
func (t *WordPiece) words(dst []int32, text string, word []byte) ([]int32, []byte) {
	word = word[:0]
	for _, r := range text {
		switch {
		case r == utf8.RuneError || unicode.Is(unicode.C, r) && r != '\t' && r != '\n' && r != '\r':
			// dropped, also those that Unicode counts as white space
		case unicode.IsSpace(r):
			dst, word = t.word(dst, word), word[:0]
		case !t.cfg.KeepAccents && unicode.Is(unicode.Mn, r):
		default:
			alone := unicode.IsPunct(r) || r < utf8.RuneSelf && unicode.IsSymbol(r) || isChinese(r)
			if alone {
				dst, word = t.word(dst, word), word[:0]
			}
			if !t.cfg.KeepCase {
				r = unicode.ToLower(r)
			}
			word = utf8.AppendRune(word, r)
			if alone {
				dst, word = t.word(dst, word), word[:0]
			}
		}
	}
	return t.word(dst, word), word
}

// word appends the pieces of one word.
func (t *WordPiece) word(dst []int32, word []byte) []int32 {
	if len(word) == 0 {
		return dst
	}
	before := len(dst)
	pieces := t.begin
	if limit := t.cfg.MaxWordRunes; limit > 0 && utf8.RuneCount(word) > limit {
		return t.unknown(dst)
	}
	for len(word) > 0 {
		id, n := longestIn(pieces, word[:min(len(word), t.longest)])
		if n == 0 {
			return t.unknown(dst[:before])
		}
		dst, word, pieces = append(dst, id), word[n:], t.rest
	}
	return dst
}

func (t *WordPiece) unknown(dst []int32) []int32 {
	if t.unk < 0 {
		return dst
	}
	return append(dst, t.unk)
}

// longestIn returns the longest piece that begins word, or length 0.
func longestIn(pieces map[string]int32, word []byte) (id int32, length int) {
	for n := len(word); n > 0; n-- {
		if id, found := pieces[string(word[:n])]; found {
			return id, n
		}
	}
	return 0, 0
}

// isChinese reports whether BERT takes a character for a word of its own.
func isChinese(r rune) bool {
	return r >= 0x4e00 && r <= 0x9fff || r >= 0x3400 && r <= 0x4dbf || r >= 0x20000 && r <= 0x2a6df ||
		r >= 0x2a700 && r <= 0x2b73f || r >= 0x2b740 && r <= 0x2b81f || r >= 0x2b920 && r <= 0x2ceaf ||
		r >= 0xf900 && r <= 0xfaff || r >= 0x2f800 && r <= 0x2fa1f
}
