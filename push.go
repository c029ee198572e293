package haiku

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"time"
	"unsafe"

	"github.com/intelliparadigm/haiku/internal/ring"
)

// TryPush adds p if there is room and never blocks. It is for producers that
// serve many streams from one loop. A piece with a text of its own over 512
// bytes must go through [StreamWriter.Push] instead; here it ends the stream.
// Only the Model may call it, from one goroutine at a time.
func (w *StreamWriter) TryPush(p Piece) PushResult {
	if w.ctx.Err() != nil {
		return Gone
	}
	c := w.choice(p.Choice)
	if c == nil {
		return Gone
	}
	if c.finished {
		return Stopped
	}
	piece, text, aux := w.payload(&p)
	if len(text) > w.maxText() {
		w.fail("haiku: the model tried to push a text of %d bytes, longer than the stream's arena takes: use Push", len(text))
		return Gone
	}
	if !w.room(len(text) + len(aux)) {
		return Full
	}
	slot := ring.Slot{Token: p.ID, Choice: uint16(p.Choice)}
	if p.Logprob != nil {
		slot.Logprob = p.Logprob.Logprob
	}
	hold, drop, matched := c.stop.add(piece)
	slot.Hold, slot.Drop = uint16(hold), uint32(drop)
	if matched {
		p.Finish = FinishStop
	}
	if p.Finish != "" {
		c.finished = true
		slot.Flags, slot.Finish = ring.FlagFinish, finishCode(p.Finish)
	}
	w.ring.TryPush(slot, text, aux)
	if matched {
		return Stopped
	}
	return Pushed
}

// Push adds p and waits while the reader is behind, so it never returns Full.
// A text of any length is delivered, a long one in several tokens of which the
// last has p's ID. The error says why the piece can no longer be delivered and
// matches the error of the context that has ended. Only the Model may call it.
func (w *StreamWriter) Push(ctx context.Context, p Piece) (PushResult, error) {
	if w.inVocabulary(&p) {
		p.Text = ""
	}
	for len(p.Text) > w.maxText() {
		head := Piece{Choice: p.Choice, ID: NoToken, Text: p.Text[:w.maxText()]}
		if r, err := w.pushOne(ctx, head); r != Pushed {
			return r, err
		}
		p.Text = p.Text[w.maxText():]
	}
	return w.pushOne(ctx, p)
}

func (w *StreamWriter) pushOne(ctx context.Context, p Piece) (PushResult, error) {
	for {
		switch r := w.TryPush(p); r {
		case Full:
		case Gone:
			return Gone, fmt.Errorf("haiku: reader gone: %w", w.ctx.Err())
		default:
			return r, nil
		}
		select {
		case <-w.space:
		case <-ctx.Done():
			return Gone, ctx.Err()
		case <-w.ctx.Done():
		}
	}
}

// Finish ends a choice that has no further text, as when the model emits its
// end-of-sequence token. It never has to wait. Only the Model may call it.
func (w *StreamWriter) Finish(choice int, reason FinishReason) {
	c := w.choice(choice)
	if c == nil || c.finished {
		return
	}
	c.finished = true
	w.ring.PushReserved(ring.Slot{Token: NoToken, Choice: uint16(choice), Flags: ring.FlagFinish, Finish: finishCode(reason)})
}

func (w *StreamWriter) choice(i int) *choice {
	if i < 0 || i >= len(w.choices) {
		w.fail("haiku: the model pushed choice %d of %d", i, len(w.choices))
		return nil
	}
	return &w.choices[i]
}

// fail ends the stream because its Model breaks a rule.
func (w *StreamWriter) fail(format string, args ...any) {
	w.cancel(ErrInternal.Because(fmt.Errorf(format, args...)))
}

// maxText leaves half of the arena to log-probabilities.
func (w *StreamWriter) maxText() int { return w.ring.MaxPayload() / 2 }

// inVocabulary reports whether p's ID stands for its text.
func (w *StreamWriter) inVocabulary(p *Piece) bool { return p.ID >= 0 && w.vocab != nil }

// payload splits p into the bytes that count as its text and what of it must
// travel in the ring's arena.
func (w *StreamWriter) payload(p *Piece) (piece, text, aux []byte) {
	if w.inVocabulary(p) {
		piece = w.vocab.Piece(p.ID)
	} else {
		text = unsafe.Slice(unsafe.StringData(p.Text), len(p.Text)) // copied into the arena, never written
		piece = text
	}
	if p.Logprob != nil {
		w.aux = appendLogprobs(w.aux[:0], p.Logprob, w.ring.MaxPayload()-len(text))
		aux = w.aux
	}
	return piece, text, aux
}

// room reports whether a piece with that many arena bytes fits, and otherwise
// arranges that spaceFreed is called.
func (w *StreamWriter) room(payloadBytes int) bool {
	if !w.ring.Room(payloadBytes) {
		w.startStallTimer() // first, as spaceFreed may be called while the ring is being armed
		if w.ring.ArmSpace() {
			return false
		}
	}
	w.stopStallTimer()
	return true
}

// spaceFreed runs on the reader's goroutine.
func (w *StreamWriter) spaceFreed() {
	w.stalled.Store(false)
	select {
	case w.space <- struct{}{}:
	default:
	}
	if w.onSpace != nil {
		w.onSpace()
	}
}

// startStallTimer and stopStallTimer belong to the producer. The timer's own
// goroutine looks at stalled, which the reader clears, so that a stream is
// never ended after its reader has caught up.
func (w *StreamWriter) startStallTimer() {
	if w.opts.StallLimit <= 0 || w.stalled.Load() {
		return
	}
	w.stopStallTimer()
	w.stalled.Store(true)
	w.stall = time.AfterFunc(w.opts.StallLimit, func() {
		if w.stalled.Load() {
			w.cancel(ErrSlowReader)
		}
	})
}

func (w *StreamWriter) stopStallTimer() {
	if w.stall != nil {
		w.stall.Stop()
		w.stall = nil
		w.stalled.Store(false)
	}
}

var finishReasons = [...]FinishReason{"", FinishStop, FinishLength, FinishToolCalls, FinishContentFilter}

func finishCode(r FinishReason) uint8 {
	for i, known := range finishReasons[1:] {
		if r == known {
			return uint8(i + 1)
		}
	}
	return 1 // no word, or an unknown one, is still an end
}

// The auxiliary bytes of a slot are the log-probabilities of the token and its
// alternatives: for each the id (int32), the log-probability (float32), the
// number of bytes (uint16) and the bytes, all little-endian. vocabularyBytes
// in place of the number says that the vocabulary has them.
const vocabularyBytes = math.MaxUint16

func appendLogprobs(dst []byte, lp *TokenLogprob, limit int) []byte {
	dst = appendLogprob(dst, lp)
	for i := range lp.Top {
		longer := appendLogprob(dst, &lp.Top[i])
		if len(longer) > limit {
			break
		}
		dst = longer
	}
	return dst
}

func appendLogprob(dst []byte, lp *TokenLogprob) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(lp.ID))
	dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(lp.Logprob))
	if lp.Bytes == nil {
		return binary.LittleEndian.AppendUint16(dst, vocabularyBytes)
	}
	b := lp.Bytes[:min(len(lp.Bytes), 256)]
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(b)))
	return append(dst, b...)
}

func decodeLogprobs(aux []byte, v *Vocabulary) TokenLogprob {
	var own TokenLogprob
	for first := true; len(aux) >= 10; first = false {
		lp := TokenLogprob{
			ID:      int32(binary.LittleEndian.Uint32(aux)),
			Logprob: math.Float32frombits(binary.LittleEndian.Uint32(aux[4:])),
		}
		n := int(binary.LittleEndian.Uint16(aux[8:]))
		aux = aux[10:]
		if n == vocabularyBytes {
			lp.Bytes = v.Piece(lp.ID)
		} else {
			lp.Bytes = append([]byte{}, aux[:n]...)
			aux = aux[n:]
		}
		if first {
			own = lp
		} else {
			own.Top = append(own.Top, lp)
		}
	}
	return own
}
