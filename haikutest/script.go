package haikutest

import (
	"math"
	"strings"

	"github.com/intelliparadigm/haiku/infer"
)

// sequence is what an Executor remembers of one. The token after each position
// follows from the tokens up to there, and from nothing else.
type sequence struct {
	tokens  []int32 // [positions computed]
	blocks  []int32 // its table in the last step
	mark    int     // where in tokens the last answer token is, or -1
	answer  []int32 // what the script says after mark, once it has been asked
	sampled bool    // it has yielded logits
	step    int     // the number of its last step

	adapterID infer.AdapterID
	scale     float32
	adapter   *fakeAdapter // nil where it has no effect
}

// seed begins the hash of a sequence's tokens.
func (s *sequence) seed() uint64 {
	hash := uint64(14695981039346656037)
	if s.adapter != nil {
		hash ^= s.adapter.print ^ uint64(math.Float32bits(s.scale))
	}
	return hash
}

// mixed adds a token to a hash.
func mixed(hash uint64, id int32) uint64 { return (hash ^ uint64(id)) * 1099511628211 }

// write puts tokens at the positions from start on and drops what came after.
func (s *sequence) write(start int, tokens []int32) {
	from := start
	if start < len(s.tokens) {
		from, s.mark, s.answer = 0, -1, nil
	}
	s.tokens = append(s.tokens[:start], tokens...)
	for i, id := range s.tokens[from:] {
		if id == answerToken {
			s.mark, s.answer = from+i, nil
		}
	}
}

// made is the number of tokens after the mark, -1 without one.
func (s *sequence) made() int {
	if s.mark < 0 {
		return -1
	}
	return len(s.tokens) - 1 - s.mark
}

// prompt is the text before the mark.
func (s *sequence) prompt(v *vocabulary) string {
	if s.mark < 0 {
		return v.text(s.tokens)
	}
	return strings.TrimSuffix(v.text(s.tokens[:s.mark]), "\n")
}

// logits makes the next token of the answer the best by far. Without a mark
// the next token is a hash of all that came before, never the last.
func (e *Executor) logits(dst []float32, s *sequence) {
	clear(dst)
	made := s.made()
	if made < 0 {
		hash := s.seed()
		for _, id := range s.tokens {
			hash = mixed(hash, id)
		}
		dst[uint64(byteToken)+hash>>20%256] = 20
		dst[uint64(byteToken)+hash>>40%256] += 10
		return
	}
	if s.answer == nil {
		s.answer = e.script(s)
	}
	next := eosToken
	if made < len(s.answer) {
		next = s.answer[made]
	}
	dst[next] = 20
}

// script is the whole answer of a sequence, with the token that ends it.
func (e *Executor) script(s *sequence) []int32 {
	if s.adapter != nil {
		return e.vocab.answer([]string{s.adapter.name})
	}
	if e.cfg.Answer == nil {
		return []int32{eosToken}
	}
	return e.vocab.answer(e.cfg.Answer(s.prompt(e.vocab)))
}
