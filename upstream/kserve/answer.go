package kserve

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/upstream"
)

// answer turns responses into a stream.
type answer struct {
	w       *haiku.StreamWriter
	how     Answer
	request *inferRequest
	choices []choice
	open    int // choices that have not ended

	content bool // something has been handed on, or an answer has ended without
	texts   bool // the output with the text was seen
	flagged bool // the server tells which response is the last
	final   bool // and this was it
	stopped bool // the reader has no use for more

	prompt, counted, seen int // tokens: the prompt's, those the server told of, texts
}

func newAnswer(w *haiku.StreamWriter, how Answer, request *inferRequest, choices, promptTokens int) *answer {
	a := &answer{w: w, how: how, request: request, choices: make([]choice, choices), open: choices, prompt: promptTokens}
	if how.Echo && !how.Cumulative {
		for i := range a.choices {
			a.choices[i].echo = request.inference.Prompt
		}
	}
	return a
}

// usage is what is known of it.
func (a *answer) usage() haiku.Usage {
	completion := a.counted
	if completion == 0 {
		completion = a.seen
	}
	return haiku.Usage{PromptTokens: a.prompt, CompletionTokens: completion}
}

// take hands on what a response brings. It may wait for a slow reader.
func (a *answer) take(ctx context.Context, r *response) error {
	switch {
	case r.bad != nil:
		return r.bad
	case len(r.failure) > 0:
		return told(r.failure, a.content)
	case len(r.id) > 0 && string(r.id) != a.request.id:
		return fmt.Errorf("%w: a response to %.40q instead of %q", upstream.ErrMalformed, r.id, a.request.id)
	}
	a.flagged = a.flagged || r.flagged
	a.final = a.final || r.final
	if err := a.count(r); err != nil {
		return err
	}
	text := r.find(a.how.Text)
	switch {
	case text != nil:
		a.texts = true
		if err := a.say(ctx, r, text); err != nil {
			return err
		}
	case len(r.outputs) > 0:
		return fmt.Errorf("%w: no output %q but %.40q", upstream.ErrMalformed, a.how.Text, r.outputs[0].name)
	}
	if a.final {
		return a.end(ctx)
	}
	return nil
}

// count adds up what the response says of tokens.
func (a *answer) count(r *response) error {
	if o := r.find(a.how.PromptTokens); o != nil {
		n, err := o.sum()
		if err != nil {
			return err
		}
		if n > 0 {
			a.prompt = n
		}
	}
	if o := r.find(a.how.CompletionTokens); o != nil {
		n, err := o.sum()
		if err != nil {
			return err
		}
		a.counted += n
	}
	return nil
}

// say hands on the texts of a response.
func (a *answer) say(ctx context.Context, r *response, o *output) error {
	first, err := a.first(r)
	if err != nil {
		return err
	}
	var reasons texts
	if f := r.find(a.how.Finish); f != nil {
		reasons = f.texts()
	}
	all := o.texts()
	for i := first; all.next(); i++ {
		if i >= len(a.choices) {
			return fmt.Errorf("%w: a text for choice %d of %d", upstream.ErrMalformed, i, len(a.choices))
		}
		reason := ""
		if reasons.of != nil && reasons.next() {
			reason = word(reasons.value)
		}
		if err := a.push(ctx, i, all.value, reason); err != nil {
			return err
		}
	}
	if err := all.end(); err != nil {
		return err
	}
	return reasons.err
}

// first is the choice that the first text of a response belongs to.
func (a *answer) first(r *response) (int, error) {
	o := r.find(a.how.Choice)
	if o == nil {
		return 0, nil
	}
	return o.sum() // of one
}

// push hands on one text. reason is the server's word for the choice's end.
func (a *answer) push(ctx context.Context, i int, text []byte, reason string) error {
	c := &a.choices[i]
	if c.done {
		return nil
	}
	if reason == "abort" || reason == "error" {
		return fmt.Errorf("%w: it says that it has given up", upstream.ErrIncomplete)
	}
	if len(text) > 0 {
		c.tokens++
		a.seen++
	}
	text, err := c.fresh(text, &a.how, a.request.inference.Prompt)
	if err != nil {
		return err
	}
	if len(text) > 0 {
		a.content = true
		if err := a.write(ctx, i, text); err != nil {
			return err
		}
	}
	if reason != "" {
		return a.finish(ctx, i, finishReason(reason))
	}
	return nil
}

func (a *answer) write(ctx context.Context, i int, text []byte) error {
	// The stream copies the text, so that it need not be copied for it.
	piece := haiku.Piece{Choice: i, ID: haiku.NoToken, Text: unsafe.String(unsafe.SliceData(text), len(text))}
	result, err := a.w.Push(ctx, piece)
	if err == nil && result == haiku.Stopped { // by a stop string
		a.close(&a.choices[i])
		a.stopped = a.open == 0
	}
	return err
}

// finish ends a choice, with what was held of its text.
func (a *answer) finish(ctx context.Context, i int, reason haiku.FinishReason) error {
	c := &a.choices[i]
	if len(c.held) > 0 && !c.done {
		if err := a.write(ctx, i, c.held); err != nil {
			return err
		}
	}
	if c.done {
		return nil
	}
	a.content = true
	a.w.Finish(i, reason)
	a.close(c)
	return nil
}

func (a *answer) close(c *choice) {
	c.done = true
	a.open--
}

// end ends all choices that have not ended yet.
func (a *answer) end(ctx context.Context) error {
	if !a.texts {
		return fmt.Errorf("%w: it ended without a text", upstream.ErrIncomplete)
	}
	for i := range a.choices {
		tokens := a.choices[i].tokens
		if a.counted > 0 && len(a.choices) == 1 {
			tokens = a.counted
		}
		reason := haiku.FinishStop
		if tokens >= a.request.inference.MaxTokens {
			reason = haiku.FinishLength
		}
		if err := a.finish(ctx, i, reason); err != nil {
			return err
		}
	}
	return nil
}

// over is called when the server has closed the stream in good order, which it
// does when it has answered the only request. A server that marks the last
// response has to have done so; one that knows no such mark is believed.
func (a *answer) over(ctx context.Context) error {
	if a.open > 0 && a.flagged && !a.final {
		return fmt.Errorf("%w: the stream ended before the last response", upstream.ErrIncomplete)
	}
	return a.end(ctx)
}

func finishReason(word string) haiku.FinishReason {
	switch word {
	case "length":
		return haiku.FinishLength
	case "content_filter":
		return haiku.FinishContentFilter
	}
	return haiku.FinishStop
}
