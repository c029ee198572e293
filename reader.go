package haiku

import (
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/intelliparadigm/haiku/internal/ring"
	"github.com/intelliparadigm/haiku/internal/sse"
)

// reader takes slots out of a stream's ring and turns them into text that may
// be shown: bytes that could still become part of a stop string, and the first
// bytes of an unfinished UTF-8 character, wait in a small buffer per choice.
type reader struct {
	w       *StreamWriter
	choices []unreleased
	wire    []byte
	delta   []byte // of the slots read last
	partial bool   // more of delta follows
}

// unreleased is the text of one choice that has been generated and not shown.
type unreleased struct {
	text     []byte
	shown    int // bytes of text handed out by the last take, cut off by the next
	logprobs []heldLogprob
	lastLogs int // entries of logprobs handed out by the last take
}

// heldLogprob waits until the text of its token, which ends end bytes after
// the start of unreleased.text, has been shown.
type heldLogprob struct {
	TokenLogprob
	end int
}

// shown is the result of one take. Its slices are valid until the next.
type shown struct {
	choice   int
	id       int32
	text     []byte // whole UTF-8 characters
	wire     []byte // text escaped for a JSON string, nil if not yet done
	logprobs []TokenLogprob
	delta    []byte // JSON members
	finish   FinishReason
}

// says reports whether there is anything to show.
func (s *shown) says() bool {
	return len(s.text) > 0 || len(s.logprobs) > 0 || len(s.delta) > 0 || s.finish != ""
}

func newReader(w *StreamWriter) *reader {
	r := &reader{w: w}
	if w.ring != nil {
		r.choices = make([]unreleased, len(w.choices))
	}
	return r
}

// take consumes one slot, or those of one delta, and reports whether there was
// one.
func (r *reader) take(out *shown) bool {
	if r.w.ring == nil {
		return r.w.takeRecalled(out)
	}
	slot, text, aux, ok := r.w.ring.Peek()
	for ok && slot.Flags&flagDelta != 0 {
		if aux = r.collect(aux); !r.partial {
			break
		}
		r.w.ring.Advance()
		slot, text, aux, ok = r.w.ring.Peek()
	}
	if !ok {
		return false
	}
	c := &r.choices[slot.Choice]
	*out = shown{choice: int(slot.Choice), id: slot.Token, finish: finishReasons[slot.Finish]}
	if c.shown == len(c.text) && slot.Hold == 0 && slot.Drop == 0 && slot.Flags&ring.FlagAux == 0 {
		if wire, whole := r.w.vocab.wire(slot.Token); whole {
			out.text, out.wire = r.w.vocab.Piece(slot.Token), wire
			r.w.ring.Advance()
			return true
		}
	}
	if slot.Token >= 0 && len(text) == 0 {
		text = r.w.vocab.Piece(slot.Token)
	}
	if slot.Flags&flagDelta != 0 {
		out.delta = r.delta
	}
	c.append(text)
	if len(aux) > 0 {
		c.logprobs = append(c.logprobs, heldLogprob{decodeLogprobs(aux, r.w.vocab), len(c.text)})
	}
	r.w.ring.Advance()
	c.release(out, slot)
	return true
}

// collect adds a slot's part to the delta and returns the rest of its auxiliary
// bytes.
func (r *reader) collect(aux []byte) []byte {
	if !r.partial {
		r.delta = r.delta[:0]
	}
	part, rest, more := cutDelta(aux)
	r.delta, r.partial = append(r.delta, part...), more
	return rest
}

// escaped returns the text of out for the inside of a JSON string.
func (r *reader) escaped(out *shown) []byte {
	if out.wire == nil {
		r.wire = sse.AppendEscaped(r.wire[:0], out.text)
		out.wire = r.wire
	}
	return out.wire
}

// append adds text after dropping what the last take has shown.
func (c *unreleased) append(text []byte) {
	if c.shown > 0 {
		c.text = append(c.text[:0], c.text[c.shown:]...)
		c.logprobs = append(c.logprobs[:0], c.logprobs[c.lastLogs:]...)
		for i := range c.logprobs {
			c.logprobs[i].end -= c.shown
		}
		c.shown, c.lastLogs = 0, 0
	}
	c.text = append(c.text, text...)
}

// release decides how much of the text may be shown now.
func (c *unreleased) release(out *shown, slot ring.Slot) {
	n := max(len(c.text)-int(slot.Hold)-int(slot.Drop), 0)
	if out.finish == "" {
		n -= sse.IncompleteTail(c.text[:n])
	}
	c.shown = n
	out.text = c.text[:n]
	if !utf8.Valid(out.text) {
		out.text = []byte(replaceInvalid(out.text))
	}
	for c.lastLogs < len(c.logprobs) && c.mayShow(c.logprobs[c.lastLogs], n, out.finish) {
		out.logprobs = append(out.logprobs, c.logprobs[c.lastLogs].TokenLogprob)
		c.lastLogs++
	}
	if out.finish != "" {
		c.shown, c.lastLogs = len(c.text), len(c.logprobs)
	}
}

// mayShow reports whether a token's log-probability leaves with the first n
// bytes of the text. At the end of a choice the token that a stop string cuts
// in two still counts.
func (c *unreleased) mayShow(lp heldLogprob, n int, finish FinishReason) bool {
	if finish != "" {
		return lp.end-len(lp.Bytes) < n || lp.end <= n
	}
	return lp.end <= n
}

// replaceInvalid puts U+FFFD in place of each byte that is not part of a
// character, as encoding/json does.
func replaceInvalid(text []byte) string {
	var b strings.Builder
	for _, r := range string(text) {
		b.WriteRune(r)
	}
	return b.String()
}

// over reports whether the stream has been read to its end, and then by which
// error it ended.
func (w *StreamWriter) over() (bool, error) {
	if w.ring == nil {
		return w.recalled.over, w.recalled.err
	}
	return w.ring.Done()
}

// await blocks until the ring has something or is closed.
func (w *StreamWriter) await() {
	if w.ring.Park() {
		<-w.ring.Wake()
	}
	w.ring.Unpark()
}

// Tokens reads the stream: it yields each token as it comes and, if the
// generation fails, a last pair with the error. Leaving the loop early cancels
// the generation, frees what it held and waits until it has ended.
func (w *StreamWriter) Tokens() iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		if err := w.start(); err != nil {
			yield(Token{}, err)
			return
		}
		defer w.stop()
		r := newReader(w)
		var t shown
		for {
			for r.take(&t) {
				if !yield(t.token(), nil) {
					return
				}
			}
			if done, err := w.over(); done {
				if err != nil {
					yield(Token{}, err)
				}
				return
			}
			w.await()
		}
	}
}

func (s *shown) token() Token {
	return Token{Choice: s.choice, ID: s.id, Text: string(s.text), Logprobs: s.logprobs, Delta: string(s.delta), Finish: s.finish}
}

// Text reads the stream to its end and returns the text of its first choice,
// which on an error is what came before it.
func (w *StreamWriter) Text() (string, error) {
	var b strings.Builder
	for t, err := range w.Tokens() {
		if err != nil {
			return b.String(), err
		}
		if t.Choice == 0 {
			b.WriteString(t.Text)
		}
	}
	return b.String(), nil
}
