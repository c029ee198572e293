package haiku

import (
	"context"
	"fmt"
	"runtime/debug"
	"unicode/utf8"
	"unsafe"
)

// Recaller is what a [Model] implements beside Generate that has some answers
// at hand, such as a cache. The stream then needs no goroutine and no ring: its
// reader takes the tokens from where they lie.
//
// Recall is asked before Generate, once and on the reader's goroutine, and does
// not wait for anything. If it reports true, tokens are the whole answer, as a
// reader of a stream sees them: texts of whole characters, cut before a stop
// string, and one finish reason for each choice. They are not changed as long
// as the stream is read. What else there is to say of the answer has been told
// to w by SetModel, SetHeader and SetUsage; nothing may be pushed. If it reports
// false, Generate is called as if it had not been asked.
//
// Only the outermost Model of a stream is asked, so that a Model around a
// Recaller sees every request. One that has nothing to do with an answer at
// hand passes Recall on.
type Recaller interface {
	Recall(ctx context.Context, w *StreamWriter, req *Request) (tokens []Token, ok bool)
}

// recalled is the reader's way through an answer that was at hand. It belongs
// to the reader's goroutine.
type recalled struct {
	tokens []Token
	next   int
	reader context.Context // of the response, nil outside one
	over   bool
	err    error
}

// recall reports whether the model has the answer at hand. A panic in it ends
// the stream as one in Generate does.
func (w *StreamWriter) recall() (ok bool) {
	m, able := w.model.(Recaller)
	if !able || w.ctx.Err() != nil {
		return false
	}
	defer func() {
		if v := recover(); v != nil {
			w.endRecalled(&PanicError{Value: v, Stack: debug.Stack()})
			ok = true
		}
	}()
	w.recalled.tokens, ok = m.Recall(w.ctx, w, w.req)
	if ok {
		w.choices = make([]choice, max(w.req.Choices, 1))
	}
	return ok
}

// recalledAtOnce is after how many tokens a reader of a recalled answer looks
// whether its context has ended: about as many as a ring holds.
const recalledAtOnce = 64

// takeRecalled takes the next token, and reports whether there was one.
func (w *StreamWriter) takeRecalled(out *shown) bool {
	var err error
	for a := &w.recalled; !a.over; {
		if a.next == len(a.tokens) {
			w.endRecalled(w.incomplete())
			break
		}
		if a.next%recalledAtOnce == 0 {
			if err := w.left(); err != nil {
				w.endRecalled(err)
				break
			}
		}
		tok := &a.tokens[a.next]
		a.next++
		if tok.Choice < 0 || tok.Choice >= len(w.choices) {
			w.endRecalled(fmt.Errorf("haiku: the model recalled choice %d of %d", tok.Choice, len(w.choices)))
			break
		}
		if w.choices[tok.Choice].finished {
			continue
		}
		w.choices[tok.Choice].finished = tok.Finish != ""
		out.recall(tok)
		if out.delta, err = w.recalledDelta(tok); err != nil {
			w.endRecalled(err)
			break
		}
		return true
	}
	return false
}

// recalledDelta is a token's delta. It is checked here too: who has an answer at
// hand may have it from elsewhere.
func (w *StreamWriter) recalledDelta(tok *Token) ([]byte, error) {
	if tok.Delta == "" {
		return nil, nil
	}
	return w.cleanDelta([]byte(tok.Delta))
}

func (w *StreamWriter) endRecalled(err error) {
	w.report(err)
	w.recalled.over, w.recalled.err = true, err
}

// left returns why the reader of a recalled answer wants no more of it.
func (w *StreamWriter) left() error {
	if err := w.ctx.Err(); err != nil {
		return w.cause(err)
	}
	if r := w.recalled.reader; r != nil && r.Err() != nil {
		return context.Cause(r)
	}
	return nil
}

// recall shows a token that was at hand.
func (s *shown) recall(tok *Token) {
	text := unsafe.Slice(unsafe.StringData(tok.Text), len(tok.Text)) // never written
	if !utf8.Valid(text) {
		text = []byte(replaceInvalid(text))
	}
	*s = shown{choice: tok.Choice, id: tok.ID, text: text, logprobs: tok.Logprobs}
	if tok.Finish != "" {
		s.finish = finishReasons[finishCode(tok.Finish)]
	}
}
