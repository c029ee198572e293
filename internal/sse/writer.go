package sse

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// ErrCannotFlush is returned by Open when nothing under the ResponseWriter can
// flush, as under http.TimeoutHandler: events would arrive in one lump.
var ErrCannotFlush = fmt.Errorf("sse: response writer cannot flush: %w", http.ErrNotSupported)

// DefaultWriteTimeout is how long a flush may take unless Options say otherwise.
const DefaultWriteTimeout = 30 * time.Second

// maxKeptBytes bounds the buffers that are kept for later flushes; lentBytes is
// what they begin with.
const (
	maxKeptBytes = 64 << 10
	lentBytes    = 4 << 10
)

// Options configure a Writer.
type Options struct {
	// WriteTimeout bounds each flush: a peer that takes nothing for so long
	// ends its own stream. 0 means DefaultWriteTimeout, negative no limit.
	WriteTimeout time.Duration
	// ContentType is the media type; empty means "text/event-stream".
	ContentType string
}

// Writer owns the response of one request: its headers, deadlines and flushes.
// One goroutine uses it at a time, and none after the handler has returned.
//
// The life of a stream is Claim, Open, then Buf and Flush again and again, then
// Restore. The life of a plain answer is Claim, Buf, Reply, Restore. Restore
// belongs into a defer.
type Writer struct {
	// Buf holds the bytes of the next Flush or Reply. The caller appends to
	// it, w.Buf = append(w.Buf, frame...), best after Acquire; a flush empties
	// it.
	Buf []byte

	loan *[]byte // from buffers, while Buf is its memory

	rw          http.ResponseWriter
	rc          http.ResponseController
	flush       errorFlusher // found by Open once and for all
	server      *http.Server // nil outside a server
	contentType string
	timeout     time.Duration // 0: no limit
	armed       atomic.Bool   // the write deadline is at least three quarters of timeout away
	armedAt     time.Time     // when the write deadline was set; zero: it is not
	aging       *time.Timer   // clears armed; from the second flush on
	values      [4]string     // of the headers set here
	err         error         // the first failure; later flushes return it

	claimed     bool // the server's deadlines are lifted
	opened      bool // the headers are written
	unsent      bool // the headers are written and not flushed
	whole       bool // Buf is all there will be
	noDeadlines bool // deadlines are not supported here
	multiplexed bool // HTTP/2: a deadline that passes resets even an idle stream
}

// NewWriter returns a Writer for the response to r. It changes nothing yet.
func NewWriter(rw http.ResponseWriter, r *http.Request, o Options) *Writer {
	w := &Writer{
		rw:          rw,
		rc:          *http.NewResponseController(rw),
		contentType: o.ContentType,
		timeout:     o.WriteTimeout,
		multiplexed: r.ProtoMajor >= 2,
	}
	if w.contentType == "" {
		w.contentType = "text/event-stream"
	}
	if w.timeout == 0 {
		w.timeout = DefaultWriteTimeout
	}
	w.timeout = max(w.timeout, 0)
	w.server, _ = r.Context().Value(http.ServerContextKey).(*http.Server)
	return w
}

// CanFlush reports whether a flush of w reaches the connection. It looks
// through wrappers with an Unwrap method, as http.ResponseController does.
func CanFlush(w http.ResponseWriter) bool { return flusher(w) != nil }

// errorFlusher is a writer that flushes and says how that went.
type errorFlusher interface{ FlushError() error }

// silentFlusher is one that does not say.
type silentFlusher struct{ http.Flusher }

func (f silentFlusher) FlushError() error {
	f.Flush()
	return nil
}

// flusher returns the outermost flusher among w and the writers it wraps, nil
// for none.
func flusher(w http.ResponseWriter) errorFlusher {
	for {
		switch t := w.(type) {
		case errorFlusher:
			return t
		case http.Flusher:
			return silentFlusher{t}
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return nil
		}
	}
}

// Claim lifts the server's read and write deadlines, which are made for whole
// requests and would cut a healthy stream, or one that waits for its turn.
// Call it once the request's body has been read. Open and Reply call it too.
func (w *Writer) Claim() {
	if w.claimed {
		return
	}
	w.claimed = true
	w.setDeadline(w.rc.SetReadDeadline, time.Time{})
	w.setDeadline(w.rc.SetWriteDeadline, time.Time{})
}

// Open starts a stream: it writes the headers, which the first Flush sends,
// with or without events. Later calls do nothing. It returns ErrCannotFlush,
// and has written nothing, if events could not be delivered one by one.
func (w *Writer) Open(status int) error {
	if w.opened {
		return w.err
	}
	if w.flush = flusher(w.rw); w.flush == nil {
		return ErrCannotFlush
	}
	w.Claim()
	h := w.header()
	if w.whole {
		w.set(h, 3, "Content-Length", strconv.Itoa(len(w.Buf)))
	} else {
		h.Del("Content-Length")
	}
	w.set(h, 1, "Cache-Control", "no-cache")
	w.set(h, 2, "X-Accel-Buffering", "no") // nginx and its kin pass events on at once
	w.opened, w.unsent = true, true
	w.rw.WriteHeader(status)
	return nil
}

// Whole says that Buf is the whole stream. If the headers are not written yet
// they tell its length, and it leaves without the frames of chunks, in fewer
// packets. Nothing may be added to Buf before the next Flush, nor after it.
func (w *Writer) Whole() { w.whole = true }

// Opened reports whether the headers are written: the status can no longer
// change.
func (w *Writer) Opened() bool { return w.opened }

// Flush sends Buf in one Write followed by one flush, and empties it. Without
// anything to send it does nothing. After an error, which is for a deadline
// os.ErrDeadlineExceeded where the transport tells, all calls return it: the
// peer may have got half a frame.
func (w *Writer) Flush() error {
	if w.err != nil || len(w.Buf) == 0 && !w.unsent {
		return w.err
	}
	w.unsent = false
	return w.send(w.flush.FlushError)
}

// Reply answers with Buf as the whole body. It must not follow Open.
func (w *Writer) Reply(status int) error {
	if w.opened {
		return errors.New("sse: reply after the response has begun")
	}
	w.Claim()
	w.header().Set("Content-Length", strconv.Itoa(len(w.Buf)))
	w.opened = true
	w.rw.WriteHeader(status)
	return w.send(func() error {
		if err := w.rc.Flush(); !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		return nil // the server sends it when the handler returns
	})
}

// Restore ends the Writer's hold on the connection: the server's deadlines
// apply again to the rest of the response, its closing chunk above all. A
// server without a WriteTimeout gets the Writer's own, so that this last write
// is bounded too; net/http lifts it before the next request.
func (w *Writer) Restore() {
	if !w.claimed {
		return
	}
	w.claimed = false
	w.armed.Store(false)
	if w.aging != nil {
		w.aging.Stop()
	}
	readLimit, writeLimit := time.Duration(0), w.timeout
	if s := w.server; s != nil {
		readLimit = s.ReadTimeout
		if s.WriteTimeout > 0 {
			writeLimit = s.WriteTimeout
		}
	}
	now := time.Now()
	w.setDeadline(w.rc.SetReadDeadline, deadline(now, readLimit))
	w.setDeadline(w.rc.SetWriteDeadline, deadline(now, writeLimit))
}

// deadline returns the end of a limit that starts now; no limit, no deadline.
func deadline(now time.Time, limit time.Duration) time.Time {
	if limit <= 0 {
		return time.Time{}
	}
	return now.Add(limit)
}

// header sets what streams and plain answers have in common. Headers that
// frame a body, left by others or copied from an upstream, are not true of
// this body and this hop.
func (w *Writer) header() http.Header {
	h := w.rw.Header()
	for _, name := range [...]string{"Content-Encoding", "Transfer-Encoding", "Connection", "Keep-Alive"} {
		h.Del(name)
	}
	w.set(h, 0, "Content-Type", w.contentType)
	return h
}

// set sets a header by its canonical name. Its value lies in w, at i.
func (w *Writer) set(h http.Header, i int, name, value string) {
	w.values[i] = value
	h[name] = w.values[i : i+1 : i+1]
}

// send writes Buf under a write deadline and then calls flush.
func (w *Writer) send(flush func() error) error {
	w.arm()
	if len(w.Buf) > 0 {
		_, w.err = w.rw.Write(w.Buf)
	}
	if w.err == nil {
		w.err = flush()
	}
	w.release()
	w.disarm()
	return w.err
}

// buffers lends memory to the streams that have something to say just now.
var buffers = sync.Pool{New: func() any {
	b := make([]byte, 0, lentBytes)
	return &b
}}

// Acquire gives Buf memory to append to until the next Flush or Reply takes it
// back: a stream that waits holds none.
func (w *Writer) Acquire() {
	if w.loan == nil && cap(w.Buf) == 0 {
		w.loan = buffers.Get().(*[]byte)
		w.Buf = *w.loan
	}
}

// release empties Buf and gives back what Acquire has lent.
func (w *Writer) release() {
	keep := cap(w.Buf) <= maxKeptBytes
	switch {
	case w.loan != nil && keep:
		*w.loan = w.Buf[:0]
		buffers.Put(w.loan)
		fallthrough
	case !keep:
		w.Buf, w.loan = nil, nil
	default:
		w.Buf = w.Buf[:0]
	}
}

// arm makes sure that the write deadline is at least three quarters of the
// timeout away. Setting it anew for each token would cost more than the write,
// and even looking at the clock can be felt, so a timer says when it is due. An
// answer that leaves in one flush needs none.
func (w *Writer) arm() {
	if w.timeout == 0 || w.noDeadlines || w.armed.Load() {
		return
	}
	now := time.Now()
	age := now.Sub(w.armedAt)
	if first := w.armedAt.IsZero(); first || age >= w.timeout/4 {
		w.setDeadline(w.rc.SetWriteDeadline, now.Add(w.timeout))
		w.armedAt, age = now, 0
		if first { // as each flush is on HTTP/2, where disarm lifts the deadline again
			return
		}
	}
	w.armed.Store(true)
	if w.aging == nil {
		w.aging = time.AfterFunc(w.timeout/4-age, func() { w.armed.Store(false) })
	} else {
		w.aging.Reset(w.timeout / 4)
	}
}

// disarm lifts the deadline between flushes on HTTP/2, whose server resets the
// stream when it passes. On HTTP/1 only a Write would notice it.
func (w *Writer) disarm() {
	if w.multiplexed && w.timeout > 0 {
		w.armedAt = time.Time{}
		w.setDeadline(w.rc.SetWriteDeadline, time.Time{})
	}
}

// setDeadline calls set unless deadlines turned out not to be supported. Other
// errors are those of a closed connection, which the next Write reports.
func (w *Writer) setDeadline(set func(time.Time) error, t time.Time) {
	if w.noDeadlines {
		return
	}
	if err := set(t); errors.Is(err, http.ErrNotSupported) {
		w.noDeadlines = true
	}
}
