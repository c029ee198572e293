package haikutest

import (
	"slices"
	"strings"

	"github.com/intelliparadigm/haiku/infer"
)

// The control tokens of a fake vocabulary. Byte b is token byteToken+b, and the
// pieces given follow.
const (
	bosToken    int32 = 0
	answerToken int32 = 1
	eosToken    int32 = 2
	byteToken   int32 = 3
	pieceToken  int32 = byteToken + 256
)

// AnswerMark is the text of the control token after which a fake executor
// answers. The fake chat template ends with it; a plain prompt that wants the
// scripted answer ends with it too.
const AnswerMark = "<|answer|>"

var controls = []string{"<s>", AnswerMark, "</s>"}

// vocabulary is a tokenizer over bytes and a few pieces: the longest piece that
// fits is taken, and otherwise a byte.
type vocabulary struct {
	pieces [][]byte // [vocab]
	ids    map[string]int32
	longer []string // the pieces, longest first
}

func newVocabulary(pieces []string) *vocabulary {
	v := &vocabulary{pieces: make([][]byte, pieceToken), ids: make(map[string]int32)}
	for b := range 256 {
		v.pieces[byteToken+int32(b)] = []byte{byte(b)}
	}
	for _, p := range pieces {
		if _, twice := v.ids[p]; twice || p == "" {
			continue
		}
		v.ids[p] = int32(len(v.pieces))
		v.pieces = append(v.pieces, []byte(p))
		v.longer = append(v.longer, p)
	}
	slices.SortStableFunc(v.longer, func(a, b string) int { return len(b) - len(a) })
	return v
}

// Pieces returns the bytes of each token.
func (v *vocabulary) Pieces() [][]byte { return v.pieces }

// Encode turns text into pieces and bytes.
func (v *vocabulary) Encode(dst []int32, text string, special bool) []int32 {
	for text != "" {
		id, n := v.first(text, special)
		dst = append(dst, id)
		text = text[n:]
	}
	return dst
}

func (v *vocabulary) first(text string, special bool) (id int32, bytes int) {
	if special {
		for id, c := range controls {
			if strings.HasPrefix(text, c) {
				return int32(id), len(c)
			}
		}
	}
	for _, p := range v.longer {
		if strings.HasPrefix(text, p) {
			return v.ids[p], len(p)
		}
	}
	return byteToken + int32(text[0]), 1
}

// text returns what a stretch of tokens reads as.
func (v *vocabulary) text(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		if id >= 0 && int(id) < len(v.pieces) {
			b.Write(v.pieces[id])
		}
	}
	return b.String()
}

// answer turns the strings of a scripted answer into tokens: a string that is
// a piece becomes that piece, any other is encoded.
func (v *vocabulary) answer(pieces []string) []int32 {
	var ids []int32
	for _, p := range pieces {
		if id, ok := v.ids[p]; ok {
			ids = append(ids, id)
		} else {
			ids = v.Encode(ids, p, false)
		}
	}
	return append(ids, eosToken)
}

// engineText is what an Engine over the fake needs.
func (v *vocabulary) engineText() infer.Text {
	return infer.Text{
		Tokenizer: v, BOS: []int32{bosToken}, EOS: []int32{eosToken}, Specials: controls,
		ChatTemplate: "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}" + AnswerMark,
		BOSText:      controls[bosToken], EOSText: controls[eosToken],
	}
}
