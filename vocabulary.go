package haiku

import (
	"unicode/utf8"

	"github.com/intelliparadigm/haiku/internal/sse"
)

// Vocabulary holds the bytes of each token of a model, twice: as they are, and
// escaped for the inside of a JSON string. It is built once per model, so that
// a stream's token needs only its number to become bytes on the wire.
// A Vocabulary is immutable and safe for concurrent use.
type Vocabulary struct {
	pieces  [][]byte // [vocab] the token's bytes
	escaped [][]byte // [vocab] nil where the piece is not whole UTF-8 by itself
}

// NewVocabulary copies pieces, the bytes of each token in order of its id.
// Control tokens, which are never shown, have empty pieces.
func NewVocabulary(pieces [][]byte) *Vocabulary {
	total := 0
	for _, p := range pieces {
		total += len(p)
	}
	v := &Vocabulary{pieces: make([][]byte, len(pieces)), escaped: make([][]byte, len(pieces))}
	raw := make([]byte, 0, total)
	wire := make([]byte, 0, total+total/8)
	for id, p := range pieces {
		start := len(raw)
		raw = append(raw, p...)
		v.pieces[id] = raw[start:len(raw):len(raw)]
		if !utf8.Valid(p) {
			continue
		}
		start = len(wire)
		wire = sse.AppendEscaped(wire, p)
		v.escaped[id] = wire[start:len(wire):len(wire)]
	}
	return v
}

// Len is the number of tokens.
func (v *Vocabulary) Len() int {
	if v == nil {
		return 0
	}
	return len(v.pieces)
}

// Piece returns the bytes of token id, or nil for an id that is not in the
// vocabulary. The caller must not change them.
func (v *Vocabulary) Piece(id int32) []byte {
	if id < 0 || int(id) >= v.Len() {
		return nil
	}
	return v.pieces[id]
}

// wire returns the escaped form of token id, and false where the piece needs
// its neighbours to become whole characters.
func (v *Vocabulary) wire(id int32) ([]byte, bool) {
	if id < 0 || int(id) >= v.Len() {
		return nil, false
	}
	e := v.escaped[id]
	return e, e != nil
}
