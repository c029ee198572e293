package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/internal/sse"
	"github.com/intelliparadigm/haiku/internal/sseread"
)

// maxHeld bounds what is held back of a stream until its first content: up to
// it nothing has been said, and the request may be sent again.
const maxHeld = 64 << 10

// relay passes events on to a client as they come. Two goroutines write: the
// handler's, and a timer's that breaks silence while the handler's waits for
// the engine.
type relay struct {
	*passage
	opts   haiku.StreamOptions
	cancel context.CancelCauseFunc // of the attempt that is under way

	mu    sync.Mutex
	out   *sse.Writer
	beat  *time.Timer
	begun bool  // beats come at the keepalive's pace
	spoke bool  // something has been flushed since the last beat
	over  bool  // the timer writes no more
	lost  error // the client cannot be written to

	p        parser
	watch    *watch
	held     []byte // what came before the first content
	view     bool   // out.Buf is the memory of what was read
	finished []bool // by choice
	left     int    // choices that have not finished
	content  bool   // the first content has come
	news     bool   // a chunk has come since the last look
	calm     bool
	done     bool
}

func newRelay(p *passage) *relay {
	r := &relay{passage: p, opts: haiku.StreamOptionsFrom(p.c.Context())}
	r.out = sse.NewWriter(p.c.Writer, p.c.Request, sse.Options{WriteTimeout: r.opts.WriteTimeout})
	r.out.Claim()
	r.mu.Lock() // a beat may come at once
	defer r.mu.Unlock()
	r.beatAfter(r.openAfter())
	return r
}

// keepalive and openAfter are those of the route, 0 for none.
func (r *relay) keepalive() time.Duration {
	if r.opts.Keepalive == 0 {
		return defaultKeepalive
	}
	return max(r.opts.Keepalive, 0)
}

func (r *relay) openAfter() time.Duration {
	if r.opts.OpenAfter == 0 {
		return r.keepalive()
	}
	return max(r.opts.OpenAfter, 0)
}

// defaultKeepalive is that of haiku.StreamOptions.
const defaultKeepalive = 15 * time.Second

// breakSilence runs at each beat: once when the status has waited long enough,
// then twice per keepalive interval.
func (r *relay) breakSilence() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || r.lost != nil {
		return
	}
	if !r.spoke {
		r.out.Buf = sse.AppendComment(r.out.Buf, "keepalive")
		if r.send(); r.lost != nil {
			if r.cancel != nil {
				r.cancel(r.lost)
			}
			return
		}
	}
	r.spoke = false
	r.beatAfter(r.keepalive() / 2)
}

// send flushes what is gathered. The caller holds mu.
func (r *relay) send() {
	if r.lost != nil {
		return
	}
	err := r.out.Open(http.StatusOK)
	if err == nil {
		err = r.out.Flush()
	}
	if err != nil {
		r.lost = r.writeFailed(err)
		return
	}
	r.spoke = true
	if !r.begun {
		r.begun = true
		r.beatAfter(r.keepalive() / 2)
	}
}

// beatAfter makes the next beat due once d has passed; 0 never.
func (r *relay) beatAfter(d time.Duration) {
	switch {
	case r.beat == nil && d > 0:
		r.beat = time.AfterFunc(d, r.breakSilence)
	case r.beat != nil:
		r.beat.Stop()
		if d > 0 {
			r.beat.Reset(d)
		}
	}
}

func (r *relay) writeFailed(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return haiku.ErrSlowReader.Because(err)
	}
	return fmt.Errorf("upstream: write the stream: %w", errors.Join(err, context.Cause(r.c.Context())))
}

// opened reports whether the client has got something of an answer.
func (r *relay) opened() bool { return r.content }

// close ends the timer and the hold on the connection.
func (r *relay) close() {
	r.mu.Lock()
	r.over = true
	if r.beat != nil {
		r.beat.Stop()
	}
	r.mu.Unlock()
	r.out.Restore()
}

// finish tells the client how it ended. An error is returned as it is as long as
// the response has not begun.
func (r *relay) finish(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.lost != nil:
		return r.lost
	case err == nil:
		r.out.Buf = append(r.out.Buf, r.held...)
		if !r.done {
			r.out.Buf = append(r.out.Buf, "data: [DONE]\n\n"...)
		}
	case !r.out.Opened():
		r.over = true
		r.out.Restore()
		return err
	default:
		r.out.Buf = append(r.out.Buf, "data: "...)
		r.out.Buf = haiku.AppendError(r.out.Buf, haiku.ErrorFrom(err))
		r.out.Buf = append(r.out.Buf, "\n\n"...)
	}
	if r.send(); err == nil {
		err = r.lost
	}
	return err
}

// attempt sends the request once and passes on what comes.
func (r *relay) attempt(ctx context.Context, call *call) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.reset(cancel)
	defer r.watch.stop()
	resp, err := r.e.send(ctx, call, r.watch)
	if err == nil {
		defer resp.Body.Close()
		defer r.e.observe(resp)()
		if err = r.pass(resp); err == nil {
			return nil
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	var status *StatusError
	if r.rid != "" && !errors.As(err, &status) && !errors.Is(err, ErrConnect) {
		r.e.abort(r.rid, call.header)
	}
	return err
}

func (r *relay) reset(cancel context.CancelCauseFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancel = cancel
	r.watch = newWatch(cancel)
	r.held = r.held[:0]
	r.finished, r.left = make([]bool, r.body.choices), r.body.choices
	r.calm, r.done = false, false
}

func (r *relay) pass(resp *http.Response) error {
	if resp.StatusCode != http.StatusOK {
		return statusError(resp)
	}
	if kind := resp.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		data, err := readBody(resp.Body, maxErrorBytes)
		if err != nil {
			return err
		}
		if failed, ok := parseError(data); ok {
			return failed
		}
		return fmt.Errorf("%w: a stream was asked for, and %q came", ErrMalformed, clean(kind, maxWordBytes))
	}
	events := sseread.NewReader(resp.Body, r.e.opts.MaxEventBytes)
	defer events.Release()
	for {
		if done, err := r.turn(events); done || err != nil {
			return err
		}
	}
}

// turn passes on all events that one read brings, in one flush.
func (r *relay) turn(events *sseread.Reader) (done bool, err error) {
	read := events.Fill()
	r.mu.Lock()
	defer r.mu.Unlock()
	err = r.scan(events, read == io.EOF)
	if r.news && r.content && !r.calm {
		r.watch.progress()
	}
	r.news = false
	if len(r.out.Buf) > 0 {
		was := r.watch.pause()
		r.send()
		r.watch.resume(was)
		if r.view {
			r.out.Buf, r.view = nil, false
		}
	}
	switch {
	case r.lost != nil:
		return false, r.lost
	case err != nil && r.calm:
		return true, nil
	case err != nil:
		return false, err
	case read != nil:
		return true, r.ended(read)
	}
	return false, nil
}

// scan looks at the events that have been read, and puts what of them is for the
// client into r.out.Buf: where that is all of them, not even a copy.
func (r *relay) scan(events *sseread.Reader, last bool) error {
	var ev sseread.Event
	events.Mark()
	for events.Scan(&ev) {
		begun := r.content
		keep, err := r.event(&ev)
		if keep && begun && err == nil {
			continue
		}
		if run := events.Marked(); begun { // otherwise blank lines are all that is in front
			r.keep(run[:len(run)-len(ev.Raw)])
		}
		if events.Mark(); err != nil {
			return err
		}
		if keep {
			r.gather(ev.Raw)
		}
	}
	switch run := events.Marked(); {
	case !r.content:
	case len(r.out.Buf) == 0 && len(run) > 0:
		r.out.Buf, r.view = run, true
	default:
		r.keep(run)
	}
	if last && events.Last(&ev) {
		keep, err := r.event(&ev)
		if err != nil || !keep {
			return err
		}
		r.copied()
		r.gather(ev.Raw)
		r.keep([]byte("\n\n")) // its end was cut off
	}
	return nil
}

// copied makes r.out.Buf memory that may be appended to.
func (r *relay) copied() {
	if run := r.out.Buf; r.view {
		r.out.Buf, r.view = nil, false
		r.keep(run)
	}
}

// keep copies bytes for the client.
func (r *relay) keep(run []byte) {
	if len(run) > 0 {
		r.out.Acquire()
		r.out.Buf = append(r.out.Buf, run...)
	}
}

// ended says what the end of the bytes means.
func (r *relay) ended(read error) error {
	switch {
	case r.calm:
		return nil
	case errors.Is(read, sseread.ErrTooLong):
		return fmt.Errorf("%w: %w", ErrMalformed, read)
	case read == io.EOF:
		return errNoReason
	default:
		return fmt.Errorf("%w: %w", ErrIncomplete, hide(read))
	}
}

// event looks at an event, and reports whether it is one for the client.
func (r *relay) event(ev *sseread.Event) (keep bool, err error) {
	switch {
	case r.done || !ev.HasData && ev.Type == nil && ev.Stray == nil: // keepalives are this side's own
		return false, nil
	case string(ev.Type) == "error":
		return false, failure(ev.Data)
	case ev.Stray != nil && !ev.HasData:
		return false, stray(ev.Stray)
	}
	keep = true
	for data := ev.Data; len(data) > 0 && !r.done; {
		if isDone(data) {
			if !r.calm {
				return false, errNoReason
			}
			r.done = true
			r.watch.phase(tailAfterDone, errEnough, time.Now())
			return keep, nil
		}
		rest, ok := r.p.parse(data)
		if !ok {
			return false, fmt.Errorf("%w: an event that is no chunk", ErrMalformed)
		}
		use, err := r.look(data)
		if err != nil {
			return false, err
		}
		keep = keep && use
		data = next(rest)
	}
	return keep, nil
}

// gather takes an event's bytes, which wait until the first content has come.
func (r *relay) gather(raw []byte) {
	if !r.content && len(r.held)+len(raw) <= maxHeld {
		r.held = append(r.held, raw...)
		return
	}
	r.content = true
	r.keep(r.held)
	r.held = r.held[:0]
	r.keep(raw)
}

// look takes note of what a chunk says, and reports whether it is one for the
// client.
func (r *relay) look(data []byte) (use bool, err error) {
	ch := &r.p.ch
	if ch.failure != nil {
		return false, failure(data)
	}
	if ch.odd {
		if failed, ok := parseError(data); ok {
			return false, failed
		}
		return true, nil
	}
	r.news = true
	if ch.usage.known {
		r.usage = ch.usage
	}
	for i := range ch.choices {
		if err := r.choice(&ch.choices[i]); err != nil {
			return false, err
		}
	}
	return len(ch.choices) > 0 || r.body.counts || !ch.usage.known, nil
}

func (r *relay) choice(d *delta) error {
	if d.choice >= len(r.finished) {
		return fmt.Errorf("%w: choice %d of %d", ErrMalformed, d.choice, len(r.finished))
	}
	if len(d.text)+len(d.more) > 0 {
		r.events++
		if !r.content {
			r.content = true
			r.first = time.Since(r.arrived)
			r.watch.phase(r.e.opts.Idle, ErrIdle, time.Now())
		}
	}
	if d.finish == nil || r.finished[d.choice] {
		return nil
	}
	if _, failed := finishOf(d.finish); failed {
		return fmt.Errorf("%w: the engine ended it with %q", ErrIncomplete, clean(string(d.finish), maxWordBytes))
	}
	r.finished[d.choice] = true
	if r.left--; r.left == 0 {
		r.calm = true
		r.watch.phase(tailAfterFinish, errEnough, time.Now())
	}
	return nil
}
