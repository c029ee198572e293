package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
	"unsafe"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/internal/sseread"
)

// How long the end of a response is waited for once the answer is complete, so
// that its connection can serve another request: after the end mark, and for
// the usage and the mark, which not all servers send.
const (
	tailAfterDone   = 100 * time.Millisecond
	tailAfterFinish = time.Second
)

// shortText and shortDelta are what a piece may hold that is pushed without
// waiting.
const (
	shortText  = 512
	shortDelta = 240
)

// reading is one attempt's answer as it comes.
type reading struct {
	*generation
	ctx   context.Context
	watch *watch
	news  bool // a chunk has come since the last look
	done  bool // the end mark has come
	calm  bool // all choices have finished: at most the usage is to come
}

var errEnough = errors.New("upstream: the answer is complete")

// stream reads events to the end of the answer.
func (r *reading) stream(body io.Reader) error {
	events := sseread.NewReader(body, r.e.opts.MaxEventBytes)
	defer events.Release()
	var ev sseread.Event
	for {
		for events.Scan(&ev) {
			if err := r.event(&ev); err != nil {
				return r.ended(err)
			}
		}
		r.progress()
		err := events.Fill()
		if err == io.EOF && events.Last(&ev) {
			if err := r.event(&ev); err != nil {
				return r.ended(err)
			}
		}
		if err != nil {
			return r.broken(err)
		}
	}
}

// progress tells the watch of chunks that have come between first content and
// end.
func (r *reading) progress() {
	if r.news && r.begun && !r.calm {
		r.watch.progress()
	}
	r.news = false
}

// ended is the error that an event has ended the reading with. What comes after
// the last finish reason changes nothing about the answer.
func (r *reading) ended(err error) error {
	if r.calm {
		return nil
	}
	return err
}

// broken says what the end of the bytes means.
func (r *reading) broken(err error) error {
	switch {
	case r.calm || r.done: // whatever has happened, nothing of the answer is missing
		return r.end()
	case err == io.EOF:
		return r.end()
	case errors.Is(err, sseread.ErrTooLong):
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	default:
		return fmt.Errorf("%w: %w", ErrIncomplete, hide(err))
	}
}

// end is the error of an answer that has come to its end.
func (r *reading) end() error {
	for i := range r.choices {
		if !r.choices[i].finished {
			return errNoReason
		}
	}
	return nil
}

// errNoReason: whatever else it says, an answer without is not complete.
var errNoReason = fmt.Errorf("%w: it ended without a finish reason", ErrIncomplete)

// event takes one event.
func (r *reading) event(ev *sseread.Event) error {
	switch {
	case r.done:
		return nil
	case string(ev.Type) == "error":
		return failure(ev.Data)
	case ev.Stray != nil && !ev.HasData:
		return stray(ev.Stray)
	}
	for data := ev.Data; len(data) > 0 && !r.done; {
		if isDone(data) {
			r.finishReading()
			return r.end()
		}
		rest, err := r.chunk1(data)
		if err != nil {
			return err
		}
		data = next(rest)
	}
	return nil
}

// stray reads what is no field of an event: engines and proxies have sent their
// errors in such lines.
func stray(line []byte) error {
	text, named := bytes.CutPrefix(line, []byte("error:"))
	if e, ok := parseError(bytes.TrimSpace(text)); ok {
		return e
	}
	if named {
		return failure(text)
	}
	return nil
}

// failure is the error that an event of type error stands for.
func failure(data []byte) error {
	if e, ok := parseError(data); ok {
		return e
	}
	return &StatusError{Message: clean(string(data), maxMessageBytes)}
}

func isDone(data []byte) bool { return string(bytes.TrimSpace(data)) == "[DONE]" }

// next is what follows a chunk in the same event. Where a blank line was lost,
// the name of the next field is in between.
func next(rest []byte) []byte {
	rest = bytes.TrimSpace(rest)
	return bytes.TrimSpace(bytes.TrimPrefix(rest, []byte("data:")))
}

// finishReading waits for the end of the response for a little while.
func (r *reading) finishReading() {
	r.done = true
	r.watch.phase(tailAfterDone, errEnough, time.Now())
}

// chunk takes a chunk and what may follow it.
func (r *reading) chunk(data []byte) error {
	for data = next(data); len(data) > 0; {
		rest, err := r.chunk1(data)
		if err != nil {
			return err
		}
		data = next(rest)
	}
	return nil
}

// chunk1 takes the chunk that data begins with.
func (r *reading) chunk1(data []byte) (rest []byte, err error) {
	rest, ok := r.p.parse(data)
	ch := &r.p.ch
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: an event that is no chunk", ErrMalformed)
	case ch.failure != nil:
		return nil, failure(data)
	case ch.odd:
		if e, ok := parseError(data); ok {
			return nil, e
		}
		return rest, nil
	}
	r.news = true
	if ch.usage.known {
		r.usage = ch.usage
	}
	r.name(ch.model)
	for i := range ch.choices {
		if err := r.delta(&ch.choices[i]); err != nil {
			return nil, err
		}
	}
	r.calmDown()
	return rest, nil
}

// name sets the model's name once it is known.
func (r *reading) name(model []byte) {
	if r.named {
		return
	}
	if name := r.e.shownName(r.req.Model, string(model)); name != "" {
		r.w.SetModel(name)
		r.named = true
	}
}

// calmDown waits for the usage, and no longer than it takes, once all choices
// have finished.
func (r *reading) calmDown() {
	if r.calm {
		return
	}
	for i := range r.choices {
		if !r.choices[i].finished {
			return
		}
	}
	r.calm = true
	r.watch.phase(tailAfterFinish, errEnough, time.Now())
}

// delta takes what a chunk adds to one choice.
func (r *reading) delta(d *delta) error {
	if d.choice >= len(r.choices) {
		return fmt.Errorf("%w: choice %d of %d", ErrMalformed, d.choice, len(r.choices))
	}
	if !r.p.sound(d) {
		return fmt.Errorf("%w: a delta that is not JSON", ErrMalformed)
	}
	c := &r.choices[d.choice]
	if c.finished {
		if r.calm && c.stopped && len(d.text)+len(d.more) > 0 {
			return errEnough // a stop string was found here, and the engine goes on
		}
		return nil
	}
	finish, failed := finishOf(d.finish)
	if failed {
		return fmt.Errorf("%w: the engine ended it with %q", ErrIncomplete, clean(string(d.finish), maxWordBytes))
	}
	if d.whole {
		c.withoutRepeats(d)
	}
	c.called = c.called || d.calls
	if finish == haiku.FinishStop && c.called {
		finish = haiku.FinishToolCalls // there are engines that say stop
	}
	if d.logprobs != nil && r.req.Logprobs {
		return r.logprobs(c, d, finish)
	}
	return r.push(c, haiku.Piece{Choice: d.choice, ID: haiku.NoToken, Text: text(d.text), Delta: d.more, Finish: finish})
}

// withoutRepeats leaves out of a whole answer what has come in pieces.
func (c *choice) withoutRepeats(d *delta) {
	if c.texts {
		d.text, d.logprobs = nil, nil
	}
	if c.members && (c.called || !d.calls) {
		d.more = nil
	}
}

// text is b as a string for as long as b is not written to: pushing copies it.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// push gives a piece to the stream.
func (r *reading) push(c *choice, p haiku.Piece) error {
	content := p.Text != "" || len(p.Delta) > 0
	if !content && p.Logprob == nil {
		if p.Finish != "" {
			c.finished = true
			r.w.Finish(p.Choice, p.Finish)
		}
		return nil
	}
	result := haiku.Full
	if len(p.Text) <= shortText && len(p.Delta) <= shortDelta {
		result = r.w.TryPush(p)
	}
	if result == haiku.Full {
		r.progress()
		was := r.watch.pause() // the reader is behind, or the piece is long
		var err error
		result, err = r.w.Push(r.ctx, p)
		r.watch.resume(was)
		if err != nil {
			return r.gone(err)
		}
	}
	if result == haiku.Gone {
		return r.gone(context.Canceled)
	}
	c.texts, c.members = c.texts || p.Text != "", c.members || len(p.Delta) > 0
	if content {
		r.pieces++
		r.begin()
	}
	c.finished = p.Finish != "" || result == haiku.Stopped
	c.stopped = result == haiku.Stopped && p.Finish == ""
	return nil
}

// begin notes that content has been passed on.
func (r *reading) begin() {
	if !r.begun {
		r.begun = true
		r.watch.phase(r.e.opts.Idle, ErrIdle, time.Now())
	}
}

// gone is the error of a piece that could not be pushed.
func (r *reading) gone(err error) error {
	if ended := r.ctx.Err(); ended != nil {
		return ended
	}
	return err
}

// finishOf translates a finish reason, and reports whether it is none because
// the engine has given up.
func finishOf(word []byte) (f haiku.FinishReason, failed bool) {
	switch string(word) {
	case "":
		return "", false
	case "stop":
		return haiku.FinishStop, false
	case "length", "max_tokens", "model_length":
		return haiku.FinishLength, false
	case "tool_calls", "function_call", "tool_use":
		return haiku.FinishToolCalls, false
	case "content_filter", "safety":
		return haiku.FinishContentFilter, false
	case "abort", "aborted", "error", "cancel", "cancelled", "network_error", "insufficient_system_resource":
		return "", true
	default: // eos_token, stop_sequence, end_turn, …
		return haiku.FinishStop, false
	}
}
