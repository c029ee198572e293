package haiku

import (
	"context"
	"fmt"
	"time"
	"unsafe"

	"github.com/intelliparadigm/haiku/internal/ring"
)

// TryPush adds p if there is room and never blocks. It is for producers that
// serve many streams from one loop. A piece with a text of its own over 512
// bytes, or a Delta over 240, must go through [StreamWriter.Push] instead; here
// it ends the stream. Only the Model may call it, from one goroutine at a time.
func (w *StreamWriter) TryPush(p Piece) PushResult {
	if len(p.Delta) > 0 {
		if !w.checkDelta(&p) {
			return Gone
		}
		if len(p.Delta) > w.maxDelta() {
			w.fail("haiku: the model tried to push a delta of %d bytes, longer than the stream's arena takes: use Push", len(p.Delta))
			return Gone
		}
	}
	return w.tryPush(&p, false)
}

// tryPush is TryPush for a piece whose Delta has been checked, and of which
// more follows or not.
func (w *StreamWriter) tryPush(p *Piece, more bool) PushResult {
	if w.ctx.Err() != nil {
		return Gone
	}
	c := w.choice(p.Choice)
	if c == nil {
		return Gone
	}
	if len(p.Text) > w.maxText() && !w.inVocabulary(p) {
		w.fail("haiku: the model tried to push a text of %d bytes, longer than the stream's arena takes: use Push", len(p.Text))
		return Gone
	}
	if w.branch != nil {
		return w.branch.push(p, more)
	}
	if c.finished {
		return Stopped
	}
	piece, text, aux := w.payload(p, more)
	if !w.room(len(text) + len(aux)) {
		return Full
	}
	slot := ring.Slot{Token: p.ID, Choice: uint16(p.Choice)}
	if p.Logprob != nil {
		slot.Logprob = p.Logprob.Logprob
	}
	if len(p.Delta) > 0 {
		slot.Flags = flagDelta
	}
	hold, drop, matched := c.stop.add(piece)
	slot.Hold, slot.Drop = uint16(hold), uint32(drop)
	finish := p.Finish
	if matched {
		finish = FinishStop
	}
	if finish != "" {
		w.end(c)
		slot.Flags |= ring.FlagFinish
		slot.Finish = finishCode(finish)
	}
	w.ring.TryPush(slot, text, aux)
	if matched {
		return Stopped
	}
	return Pushed
}

// Push adds p and waits while the reader is behind, so it never returns Full.
// A text of any length is delivered, a long one in several tokens of which the
// last has p's ID, and a long Delta in a token of its own before them. The
// error says why the piece can no longer be delivered and matches the error of
// the context that has ended. Only the Model may call it.
func (w *StreamWriter) Push(ctx context.Context, p Piece) (PushResult, error) {
	if w.inVocabulary(&p) {
		p.Text = ""
	}
	if len(p.Delta) > 0 {
		if !w.checkDelta(&p) {
			return Gone, w.gone()
		}
		if len(p.Delta) > w.maxDelta() {
			if r, err := w.pushDelta(ctx, &p); r != Pushed || w.isEmpty(&p) {
				return r, err
			}
		}
	}
	for len(p.Text) > w.maxText() {
		head := Piece{Choice: p.Choice, ID: NoToken, Text: p.Text[:w.maxText()]}
		if r, err := w.pushOne(ctx, &head, false); r != Pushed {
			return r, err
		}
		p.Text = p.Text[w.maxText():]
	}
	return w.pushOne(ctx, &p, false)
}

func (w *StreamWriter) pushOne(ctx context.Context, p *Piece, more bool) (PushResult, error) {
	for {
		switch r := w.tryPush(p, more); r {
		case Full:
		case Gone:
			return Gone, w.gone()
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

// gone is the error of a push after the reader has left or the stream was ended.
func (w *StreamWriter) gone() error {
	if w.branch != nil && w.branch.failure != nil {
		return w.branch.failure
	}
	return fmt.Errorf("haiku: reader gone: %w", w.ctx.Err())
}

// Finish ends a choice that has no further text, as when the model emits its
// end-of-sequence token. It never has to wait. Only the Model may call it.
func (w *StreamWriter) Finish(choice int, reason FinishReason) {
	if w.branch != nil {
		w.branch.finish(choice, reason)
		return
	}
	c := w.choice(choice)
	if c == nil || c.finished {
		return
	}
	w.end(c)
	w.ring.PushReserved(ring.Slot{Token: NoToken, Choice: uint16(choice), Flags: ring.FlagFinish, Finish: finishCode(reason)})
}

func (w *StreamWriter) end(c *choice) {
	c.finished = true
	w.toEnd.Add(-1)
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
func (w *StreamWriter) payload(p *Piece, more bool) (piece, text, aux []byte) {
	if w.inVocabulary(p) {
		piece = w.vocab.Piece(p.ID)
	} else {
		text = unsafe.Slice(unsafe.StringData(p.Text), len(p.Text)) // copied into the arena, never written
		piece = text
	}
	if p.Logprob == nil && len(p.Delta) == 0 {
		return piece, text, nil
	}
	w.aux = w.aux[:0]
	if len(p.Delta) > 0 {
		w.aux = appendDelta(w.aux, p.Delta, more)
	}
	if p.Logprob != nil {
		w.aux = appendLogprobs(w.aux, p.Logprob, w.ring.MaxPayload()-len(text))
	}
	return piece, text, w.aux
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
