package haiku

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
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
// An error before the first token is a response with the error's status, and
// after it an event. The returned error is for the handler's own use, such as
// counting: the client has been told what there is to tell.
//
// The server's read and write timeouts do not apply to the stream; each flush
// has a deadline of its own instead. See [StreamOptions].
func (c *Context) Stream(s *StreamWriter) error {
	if c.aborted {
		return errAborted
	}
	a := &answer{c: c, s: s, enc: s.req.Encoder}
	if a.enc == nil {
		a.enc = textEncoder{}
	}
	events := strings.HasPrefix(a.enc.ContentType(), eventStream)
	if events && !sse.CanFlush(c.Writer) {
		LoggerFrom(c.Context()).Error("haiku: cannot stream", slog.String("error", ErrCannotFlush.Message))
		c.AbortWithError(ErrCannotFlush)
		return ErrCannotFlush
	}
	if err := s.start(); err != nil {
		c.AbortWithError(err)
		return err
	}
	defer s.stop()
	a.gone = c.Context().Done()
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
	gone  <-chan struct{}
	delta Delta

	tick    *time.Timer // fires when the stream may have been silent for too long; nil for never
	flushed time.Time
}

// run reads the stream to its end. A panic of the encoder becomes an error of
// this stream.
func (a *answer) run(events bool) (err error) {
	defer func() {
		if v := recover(); v != nil {
			p := &PanicError{Value: v, Stack: debug.Stack()}
			a.s.report(p)
			err = a.end(events, p)
		}
	}()
	r := newReader(a.s)
	if events {
		a.schedule(a.openAfter())
		defer a.unschedule()
	}
	for {
		a.drain(r)
		if done, err := a.s.ring.Done(); done {
			return a.end(events, r.end(err))
		}
		if events && len(a.out.Buf) > 0 {
			if err := a.flush(); err != nil {
				return err
			}
			continue
		}
		if a.await() {
			if err := a.breakSilence(); err != nil {
				return err
			}
		}
	}
}

// drain encodes what is ready, so that it leaves in one flush.
func (a *answer) drain(r *reader) {
	var t shown
	for len(a.out.Buf) < maxFlushBytes && r.take(&t) {
		if len(t.text) == 0 && len(t.logprobs) == 0 && t.finish == "" {
			continue // all of it has to wait
		}
		a.begin()
		a.delta = Delta{Choice: t.choice, Escaped: r.escaped(&t), Logprobs: t.logprobs, Finish: t.finish}
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
	if err := a.out.Open(200); err != nil {
		return a.writeFailed(err)
	}
	if err := a.out.Flush(); err != nil {
		return a.writeFailed(err)
	}
	if a.keepalive() > 0 {
		a.flushed = time.Now()
		if a.tick == nil {
			a.schedule(a.keepalive())
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
		a.c.AbortWithError(err)
		return err
	}
	e := ErrorFrom(err)
	if err == nil {
		a.begin()
	}
	a.out.Buf = a.enc.End(a.out.Buf, a.s.usage, e)
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
	if e != nil {
		status = e.Status
		setRetryAfter(a.c.Writer.Header(), e)
	}
	if err := a.out.Reply(status); err != nil {
		return a.writeFailed(err)
	}
	return nil
}

// await blocks until the ring has something, and reports true if it is the
// timer that fired. A client that leaves cancels the generation, which then
// closes the ring.
func (a *answer) await() (ticked bool) {
	if !a.s.ring.Park() {
		return false
	}
	defer a.s.ring.Unpark()
	var tick <-chan time.Time
	if a.tick != nil {
		tick = a.tick.C
	}
	select {
	case <-a.s.ring.Wake():
	case <-tick:
		return true
	case <-a.gone:
		a.gone = nil
		a.s.cancel(context.Cause(a.c.Context()))
	}
	return false
}

// breakSilence opens a stream that has waited long enough for its first token,
// and sends a comment on one that has been silent for the keepalive interval.
func (a *answer) breakSilence() error {
	if a.out.Opened() {
		if idle := time.Since(a.flushed); idle < a.keepalive() {
			a.schedule(a.keepalive() - idle)
			return nil
		}
	}
	a.out.Buf = sse.AppendComment(a.out.Buf, "keepalive")
	if err := a.flush(); err != nil {
		return err
	}
	a.unschedule()
	a.schedule(a.keepalive())
	return nil
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

func (a *answer) schedule(d time.Duration) {
	if d <= 0 {
		return
	}
	if a.tick == nil {
		a.tick = time.NewTimer(d)
	} else {
		a.tick.Reset(d)
	}
}

func (a *answer) unschedule() {
	if a.tick != nil {
		a.tick.Stop()
		a.tick = nil
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
