package haiku

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/intelliparadigm/haiku/internal/ring"
)

// A delta travels at the beginning of its slot's auxiliary bytes: its length
// (uint32, little-endian), then the bytes. moreFollows in the length says that
// the next slot goes on with it: so one of any length passes through a small
// arena, and only its reader holds it as a whole.
const (
	flagDelta           = ring.FlagUser
	moreFollows  uint32 = 1 << 31
	deltaHead           = 4
	maxDeltaSize        = 1 << 20
)

var (
	errDeltaSize    = errors.New("haiku: the model pushed a delta of more than 1 MiB")
	errDeltaMembers = errors.New("haiku: the model pushed a delta that is not JSON members of moderate depth")
	errDeltaName    = errors.New("haiku: the model pushed a delta with a member content or role")
)

// maxDelta is how long a delta may be beside a text and a log-probability of
// the greatest length.
func (w *StreamWriter) maxDelta() int { return w.ring.MaxPayload()/4 - 16 }

// pushDelta pushes all of p's Delta, which is longer than a slot takes, and
// leaves the rest of p. Where that is nothing, the delta has p's ID.
func (w *StreamWriter) pushDelta(ctx context.Context, p *Piece) (PushResult, error) {
	part := Piece{Choice: p.Choice, ID: NoToken}
	for rest := p.Delta; len(rest) > 0; {
		n := min(len(rest), w.maxText())
		part.Delta, rest = rest[:n], rest[n:]
		if len(rest) == 0 {
			p.Delta = nil
			if w.isEmpty(p) {
				part.ID = p.ID
			}
		}
		if r, err := w.pushOne(ctx, &part, len(rest) > 0); r != Pushed {
			return r, err
		}
	}
	return Pushed, nil
}

// isEmpty reports whether p says nothing.
func (w *StreamWriter) isEmpty(p *Piece) bool {
	return p.Text == "" && !w.inVocabulary(p) && len(p.Delta) == 0 && p.Logprob == nil && p.Finish == ""
}

func appendDelta(dst, delta []byte, more bool) []byte {
	n := uint32(len(delta))
	if more {
		n |= moreFollows
	}
	return append(binary.LittleEndian.AppendUint32(dst, n), delta...)
}

// cutDelta splits auxiliary bytes into a delta and what follows it.
func cutDelta(aux []byte) (delta, rest []byte, more bool) {
	n := binary.LittleEndian.Uint32(aux)
	end := deltaHead + int(n&^moreFollows)
	return aux[deltaHead:end], aux[end:], n&moreFollows != 0
}

// checkDelta makes p's Delta one that an encoder may put into a frame, in
// memory of the stream's, and ends the stream if it is none.
func (w *StreamWriter) checkDelta(p *Piece) bool {
	delta, err := w.cleanDelta(p.Delta)
	if err != nil {
		w.cancel(ErrInternal.Because(err))
		return false
	}
	p.Delta = delta
	return true
}

// cleanDelta is [memberReader.clean] with a reader that is made for the first
// delta.
func (w *StreamWriter) cleanDelta(delta []byte) ([]byte, error) {
	if w.members == nil {
		w.members = new(memberReader)
	}
	return w.members.clean(delta)
}

// memberReader checks deltas in memory that it keeps.
type memberReader struct {
	text bytes.Buffer // a delta in braces
	dec  jsontext.Decoder
}

// clean returns delta with what ends a line for readers of event streams, which
// in JSON can be written in other ways, written in those. The result is nil for
// no members, and valid until the next call.
func (m *memberReader) clean(delta []byte) ([]byte, error) {
	if len(delta) > maxDeltaSize {
		return nil, errDeltaSize
	}
	m.text.Reset()
	m.text.WriteByte('{')
	m.text.Write(delta)
	m.text.WriteByte('}')
	object := m.text.Bytes()
	if !utf8.Valid(delta) || jsonDepth(object) > maxJSONDepth {
		return nil, errDeltaMembers
	}
	members, err := m.read()
	if err != nil || members == 0 {
		return nil, err
	}
	own := object[1 : len(object)-1]
	for i, b := range own {
		if b == '\n' || b == '\r' { // between tokens: a string has none
			own[i] = ' '
		}
	}
	if bytes.Contains(own, lineSeparator) || bytes.Contains(own, paragraphSeparator) {
		own = bytes.ReplaceAll(own, lineSeparator, []byte(`\u2028`))
		own = bytes.ReplaceAll(own, paragraphSeparator, []byte(`\u2029`))
	}
	return own, nil
}

var lineSeparator, paragraphSeparator = []byte("\u2028"), []byte("\u2029")

// read counts the members of the object in text. A surrogate by itself, in
// escaped form, is let through: its other half may be in the next delta.
func (m *memberReader) read() (members int, err error) {
	m.dec.Reset(&m.text, jsontext.AllowInvalidUTF8(true))
	if _, err := m.dec.ReadToken(); err != nil {
		return 0, errDeltaMembers
	}
	for m.dec.PeekKind() == '"' {
		name, err := m.dec.ReadValue()
		if err != nil {
			return 0, errDeltaMembers
		}
		if isReserved(name) {
			return 0, errDeltaName
		}
		if err := m.dec.SkipValue(); err != nil {
			return 0, errDeltaMembers
		}
		members++
	}
	if _, err := m.dec.ReadToken(); err != nil || len(m.dec.UnreadBuffer()) > 0 {
		return 0, errDeltaMembers // the delta has closed the braces itself
	}
	return members, nil
}

// isReserved reports whether a name, as JSON, is one that encoders write
// themselves.
func isReserved(name jsontext.Value) bool {
	if bytes.IndexByte(name, '\\') < 0 {
		return string(name) == `"content"` || string(name) == `"role"`
	}
	plain, err := jsontext.AppendUnquote(nil, name)
	return err == nil && (string(plain) == "content" || string(plain) == "role")
}
