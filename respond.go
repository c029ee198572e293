package haiku

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/intelliparadigm/haiku/internal/sse"
)

const (
	eventStream      = "text/event-stream"
	defaultKeepalive = 15 * time.Second
	// maxFlushBytes bounds what is gathered before a flush when tokens come
	// faster than the socket takes them.
	maxFlushBytes = 16 << 10
)

// Stream answers the request with s, in the form that the stream's [Encoder]
// asks for, and returns when the last byte has been written and nothing of the
// generation is left running.
//
// An answer that a [Recaller] had at hand, and that fits into one flush, tells
// its length.
//
// An error before the first token is a response with the error's status, and
// after it an event. The returned error is for the handler's own use, such as
// counting: the client has been told what there is to tell.
//
// The server's read and write timeouts do not apply to the stream; each flush
// has a deadline of its own instead. See [StreamOptions].
func (c *Context) Stream(s *StreamWriter) error {
	if err := c.answered(); err != nil {
		return err
	}
	a := &answer{c: c, s: s, enc: s.req.Encoder}
	if a.enc == nil {
		a.enc = textEncoder{}
	}
	events := strings.HasPrefix(a.enc.ContentType(), eventStream)
	if events && !sse.CanFlush(c.Writer) {
		LoggerFrom(c.Context()).Error("haiku: cannot stream", slog.String("error", ErrCannotFlush.Message))
		c.abort(ErrCannotFlush)
		return ErrCannotFlush
	}
	if err := s.start(); err != nil {
		c.AbortWithError(err)
		return err
	}
	defer s.stop()
	defer s.follow(c.Context())()
	a.out = sse.NewWriter(c.Writer, c.Request, sse.Options{WriteTimeout: s.opts.WriteTimeout, ContentType: a.enc.ContentType()})
	a.out.Claim()
	defer a.out.Restore()
	return a.run(events)
}

// answer is the reader's end of a stream that is an HTTP response.
type answer struct {
	c     *Context
	s     *StreamWriter
	enc   Encoder
	out   *sse.Writer
	begun bool // enc.Begin has been called
	delta Delta
	beat  beat
	spoke bool // something has been flushed since the last beat
}

// run reads the stream to its end. A panic of the encoder becomes an error of
// this stream: a response with its status as long as nothing has been sent.
func (a *answer) run(events bool) (err error) {
	defer func() {
		if v := recover(); v != nil {
			p := &PanicError{Value: v, Stack: debug.Stack()}
			a.s.report(p)
			a.s.halt(p) // usage is the model's until then
			if !a.out.Opened() {
				a.out.Buf = a.out.Buf[:0]
			}
			err = a.end(events, p)
		}
	}()
	r := newReader(a.s)
	defer a.beat.stop()
	for {
		a.drain(r, events)
		if done, err := a.s.over(); done {
			return a.end(events, err)
		}
		if events && len(a.out.Buf) > 0 {
			if err := a.flush(); err != nil {
				return err
			}
			continue
		}
		if a.beat.due.Swap(false) {
			if err := a.breakSilence(); err != nil {
				return err
			}
			continue
		}
		a.await(events)
	}
}

// await waits for the model, and for the beat that breaks its silence.
func (a *answer) await(events bool) {
	if events && a.beat.timer == nil {
		next := a.openAfter()
		if a.out.Opened() {
			next = a.keepalive() / 2
		}
		a.beat.after(next, a.s.ring.Poke)
	}
	a.s.await()
}

// drain encodes what is ready, so that it leaves in one flush. An answer that
// leaves as a whole is gathered without a bound but the request's MaxTokens.
func (a *answer) drain(r *reader, events bool) {
	var t shown
	for (!events || len(a.out.Buf) < maxFlushBytes) && r.take(&t) {
		if !t.says() {
			continue // all of it has to wait
		}
		a.out.Acquire()
		a.begin()
		a.delta = Delta{Choice: t.choice, Escaped: r.escaped(&t), Logprobs: t.logprobs, Members: t.delta, Finish: t.finish}
		a.out.Buf = a.enc.Token(a.out.Buf, &a.delta)
	}
}

func (a *answer) begin() {
	if !a.begun {
		a.begun = true
		a.out.Buf = a.enc.Begin(a.out.Buf, Head{ID: a.s.req.ID, Model: a.s.Model()})
	}
}

// flush sends what has been gathered, after the headers if it is the first.
func (a *answer) flush() error {
	if !a.out.Opened() {
		a.s.copyHeaders(a.c.Writer.Header())
	}
	if err := a.out.Open(200); err != nil {
		return a.writeFailed(err)
	}
	if err := a.out.Flush(); err != nil {
		return a.writeFailed(err)
	}
	if !a.spoke {
		a.spoke = true
		if a.beat.timer != nil {
			a.beat.after(a.keepalive()/2, a.s.ring.Poke)
		}
	}
	return nil
}

func (a *answer) writeFailed(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ErrSlowReader.Because(err)
	}
	return fmt.Errorf("haiku: write the stream: %w", errors.Join(err, context.Cause(a.c.Context())))
}

// end writes what is left to say.
func (a *answer) end(events bool, err error) error {
	if events && err != nil && !a.out.Opened() && len(a.out.Buf) == 0 {
		a.out.Restore()
		a.c.abort(ErrorFrom(err))
		if a.s.ended { // the model may keep the handler for a while
			_ = http.NewResponseController(a.c.Writer).Flush()
		}
		return err
	}
	e := ErrorFrom(err)
	if err == nil {
		a.begin()
	} else {
		a.c.aborted = true
		if !events {
			a.out.Buf = a.out.Buf[:0] // the error is all there is to say
		}
	}
	a.out.Buf = a.enc.End(a.out.Buf, a.s.usage, e)
	if a.s.ring == nil && err == nil {
		a.out.Whole()
	}
	var failed error
	if events {
		failed = a.flush()
	} else {
		failed = a.reply(e)
	}
	if err == nil {
		err = failed
	}
	return err
}

func (a *answer) reply(e *Error) error {
	status := 200
	a.s.copyHeaders(a.c.Writer.Header())
	if e != nil {
		status = e.wireStatus()
		setRetryAfter(a.c.Writer.Header(), e)
	}
	if err := a.out.Reply(status); err != nil {
		return a.writeFailed(err)
	}
	return nil
}

// breakSilence runs at each beat. Before the first token that is when the
// stream has waited long enough and opens; from then on twice per keepalive
// interval: a stream that has said nothing since the beat before sends a
// comment, so it is never silent for longer than the interval, and a token
// need not look at the clock.
func (a *answer) breakSilence() error {
	if a.spoke {
		a.spoke = false
		a.beat.after(a.keepalive()/2, a.s.ring.Poke)
		return nil
	}
	a.out.Buf = sse.AppendComment(a.out.Buf, "keepalive")
	return a.flush()
}

// keepalive is the interval, or 0 for none.
func (a *answer) keepalive() time.Duration {
	if a.s.opts.Keepalive == 0 {
		return defaultKeepalive
	}
	return max(a.s.opts.Keepalive, 0)
}

// openAfter is the longest wait for the first token, or 0 for any.
func (a *answer) openAfter() time.Duration {
	if a.s.opts.OpenAfter == 0 {
		return a.keepalive()
	}
	return max(a.s.opts.OpenAfter, 0)
}

// beat is a timer whose reader does not wait for it: it leaves a mark and ends
// the reader's sleep.
type beat struct {
	due   atomic.Bool
	timer *time.Timer
	mu    sync.Mutex // held while wake runs, so that stop waits for it
	over  bool
}

// after makes the beat due once d has passed; 0 never.
func (b *beat) after(d time.Duration, wake func()) {
	if d <= 0 {
		return
	}
	if b.timer != nil {
		b.timer.Reset(d)
		return
	}
	b.timer = time.AfterFunc(d, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !b.over {
			b.due.Store(true)
			wake()
		}
	})
}

// stop ends the beat: wake is not running afterwards and never runs again.
func (b *beat) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	if b.timer != nil {
		b.timer.Stop()
	}
}

// textEncoder sends the text of the first choice as JSON strings.
type textEncoder struct{}

func (textEncoder) ContentType() string { return eventStream }

func (textEncoder) Begin(dst []byte, _ Head) []byte { return dst }

func (textEncoder) Token(dst []byte, d *Delta) []byte {
	if d.Choice != 0 || len(d.Escaped) == 0 {
		return dst
	}
	dst = append(dst, `data: "`...)
	dst = append(dst, d.Escaped...)
	return append(dst, "\"\n\n"...)
}

func (textEncoder) End(dst []byte, _ Usage, err *Error) []byte {
	dst = append(dst, "data: "...)
	if err != nil {
		dst = AppendError(dst, err)
	} else {
		dst = append(dst, "[DONE]"...)
	}
	return append(dst, "\n\n"...)
}
