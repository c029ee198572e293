// Package tokenizer turns text into the tokens of a model and back.
//
// The one idea: a tokenizer is a pure function made once from a vocabulary.
// Text that comes from users can never yield a control token: those are found
// only where the caller says that the text is a template's own.
//
// There are three kinds: [SPM] merges characters by score, [BPE] merges bytes
// by rank within words that a [Pretokenizer] finds, [WordPiece] takes the
// longest piece again and again. All cost O(n log n) or less in the length of
// the text, whatever the text.
package tokenizer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
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

// Vocabulary is what all kinds have in common: what a token stands for and
// which tokens are found as a whole. It is immutable and safe for concurrent
// use.
type Vocabulary struct {
	control []bool   // [vocab] what text from users never becomes
	decoded [][]byte // [vocab]

	bos, eos, unk int32 // -1 for none

	// Control and user-defined tokens are found as a whole before anything is
	// merged: by their text, and their lengths by first byte, longest first.
	specials       map[string]int32
	specialLengths [256][]int
}

// init checks the numbers of tokens and makes room.
func (v *Vocabulary) init(n int, bos, eos, unk int32) error {
	if n == 0 {
		return fmt.Errorf("%w: it has no tokens", ErrVocabulary)
	}
	for name, id := range map[string]int32{"BOS": bos, "EOS": eos, "UNK": unk} {
		if id < -1 || int(id) >= n {
			return fmt.Errorf("%w: %s token %d of %d", ErrVocabulary, name, id, n)
		}
	}
	v.bos, v.eos, v.unk = bos, eos, unk
	v.control, v.decoded, v.specials = make([]bool, n), make([][]byte, n), make(map[string]int32)
	return nil
}

// sortLengths is called once all specials are there.
func (v *Vocabulary) sortLengths() {
	for i := range v.specialLengths {
		slices.SortFunc(v.specialLengths[i], func(a, b int) int { return b - a })
	}
}

// isControl reports whether a token steers the model. Files are known to call
// such tokens user-defined, which any text would become: so the tokens at the
// beginning and the end, and those written like a chat's marks, are control
// tokens whatever their type.
func (v *Vocabulary) isControl(id int32, text string, kind int32) bool {
	switch kind {
	case TypeControl, TypeUnknown:
		return true
	case TypeByte:
		return false
	}
	return text != "" && (id == v.bos || id == v.eos || id == v.unk) || kind == TypeUserDefined && isMark(text)
}

// isMark reports whether text is written like a mark of chat templates.
func isMark(text string) bool {
	for _, ends := range [][2]string{{"<|", "|>"}, {"<｜", "｜>"}} {
		if strings.HasPrefix(text, ends[0]) && strings.HasSuffix(text, ends[1]) {
			return true
		}
	}
	return strings.HasSuffix(text, "_of_turn>")
}

func (v *Vocabulary) addSpecial(text string, id int32) {
	if text == "" {
		return
	}
	if lengths := &v.specialLengths[text[0]]; !slices.Contains(*lengths, len(text)) {
		*lengths = append(*lengths, len(text))
	}
	v.specials[text] = id
}

// VocabSize is the number of tokens.
func (v *Vocabulary) VocabSize() int { return len(v.decoded) }

// BOS returns the begin-of-sequence token, -1 for none.
func (v *Vocabulary) BOS() int32 { return v.bos }

// EOS returns the end-of-sequence token, -1 for none.
func (v *Vocabulary) EOS() int32 { return v.eos }

// UNK returns the token for what is unknown, -1 for none.
func (v *Vocabulary) UNK() int32 { return v.unk }

// IsControl reports whether id is a token that user text never becomes.
func (v *Vocabulary) IsControl(id int32) bool {
	return id >= 0 && int(id) < len(v.control) && v.control[id]
}

// Specials returns the texts of the control tokens, longest first.
func (v *Vocabulary) Specials() []string {
	var list []string
	for text, id := range v.specials {
		if v.control[id] {
			list = append(list, text)
		}
	}
	slices.SortFunc(list, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return list
}

// Special returns the token that is written text and found as a whole.
func (v *Vocabulary) Special(text string) (int32, bool) {
	id, ok := v.specials[text]
	return id, ok
}

// Piece returns the bytes that id stands for, nil for control tokens and ids
// outside the vocabulary. The caller must not change them.
func (v *Vocabulary) Piece(id int32) []byte {
	if id < 0 || int(id) >= len(v.decoded) {
		return nil
	}
	return v.decoded[id]
}

// Pieces returns the bytes of all tokens, [vocab]. The caller must not change
// them.
func (v *Vocabulary) Pieces() [][]byte { return v.decoded }

// Decode returns the bytes of a sequence of tokens, spaces that Encode put in
// front included.
func (v *Vocabulary) Decode(ids []int32) []byte {
	var out []byte
	for _, id := range ids {
		out = append(out, v.Piece(id)...)
	}
	return out
}

// nextSpecial returns where the first special token begins, the longest of
// those that begin there, or the end of text and length 0.
func (v *Vocabulary) nextSpecial(text string, parseSpecial bool) (at int, id int32, length int) {
	for at := range len(text) {
		for _, n := range v.specialLengths[text[at]] {
			if n > len(text)-at {
				continue
			}
			if id, ok := v.specials[text[at:at+n]]; ok && (parseSpecial || !v.control[id]) {
				return at, id, n
			}
		}
	}
	return len(text), 0, 0
}
