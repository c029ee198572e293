package sseread

import (
	"errors"
	"io"
	"sync"
)

// ErrTooLong is the end of a stream whose event is longer than it may be.
var ErrTooLong = errors.New("sseread: event longer than the limit")

// DefaultMaxEventBytes is the bound of an event unless NewReader is told
// another one.
const DefaultMaxEventBytes = 16 << 20

// Sizes of the buffer: what it begins with, and up to where it is kept for
// another stream.
const (
	firstBytes = 16 << 10
	keptBytes  = 64 << 10
)

// Event is one event, or a group of lines that is none because nothing in it
// says anything: comments, or fields that are not known. Its slices are views
// of the reader's memory, valid until the next Fill, Next or Release.
type Event struct {
	Type []byte // of the last event line, nil for none
	Data []byte // the data lines, joined by LF
	ID   []byte // of the last id line, nil for none
	// Retry is the value of the last retry line in milliseconds, -1 for none.
	Retry int
	// HasData tells an event with empty data from one without data lines.
	HasData bool
	// Stray is the first line that is neither field nor comment, whole: engines
	// exist that put an error there.
	Stray []byte
	// Raw is all of it as it came, with the blank line at its end, but without
	// the byte order mark.
	Raw []byte
}

// Reader finds events in what it reads. One goroutine uses it at a time.
type Reader struct {
	src   io.Reader
	limit int
	loan  *[]byte // from buffers, while buf is its memory
	buf   []byte  // buf[start:end] is read and not yet given out
	start int     // of the event that is being found
	pos   int     // of the line that is being looked for
	mark  int     // where Marked begins
	end   int
	feeds feeds
	noCR  int  // no CR lies between pos and here
	skip  bool // the last line ended in a CR at the end of what was read: an LF belongs to it
	begun bool // the first line has been seen
	read  error

	parts  parts
	joined []byte // data of several lines
}

// NewReader returns a reader of src. maxEventBytes bounds one event and with it
// each of its lines; 0 means DefaultMaxEventBytes.
func NewReader(src io.Reader, maxEventBytes int) *Reader {
	if maxEventBytes <= 0 {
		maxEventBytes = DefaultMaxEventBytes
	}
	r := &Reader{src: src, limit: maxEventBytes, loan: buffers.Get().(*[]byte)}
	r.buf = *r.loan
	r.parts.clear()
	return r
}

var buffers = sync.Pool{New: func() any {
	b := make([]byte, firstBytes)
	return &b
}}

// Release gives the reader's memory back. Nothing of it may be used afterwards.
func (r *Reader) Release() {
	if r.loan != nil && len(r.buf) <= keptBytes {
		*r.loan = r.buf
		buffers.Put(r.loan)
	}
	r.buf, r.loan, r.joined = nil, nil, nil
	r.start, r.pos, r.mark, r.end, r.noCR = 0, 0, 0, 0, 0
	r.read = io.ErrClosedPipe
}

// Next returns the next event, reading as often as it takes. At the end of the
// stream it returns io.EOF, after an unfinished event if there is one.
func (r *Reader) Next(ev *Event) error {
	for !r.Scan(ev) {
		if err := r.Fill(); err != nil {
			if err == io.EOF && r.Last(ev) {
				return nil
			}
			return r.read // also of a last event that is too long
		}
	}
	return nil
}

// Fill reads once. Its error is the source's: io.EOF where the stream ends, or
// ErrTooLong. Scan comes first until it finds nothing more.
func (r *Reader) Fill() error {
	if r.read != nil {
		return r.read
	}
	if r.end-r.start > r.limit {
		r.read = ErrTooLong
		return r.read
	}
	r.makeRoom()
	for range 100 {
		n, err := r.src.Read(r.buf[r.end:])
		r.end += max(n, 0)
		r.read = err
		if n > 0 {
			return nil // an error that came with bytes is for the next Fill
		}
		if err != nil {
			return err
		}
	}
	r.read = io.ErrNoProgress
	return r.read
}

// makeRoom makes sure that there is space behind end.
func (r *Reader) makeRoom() {
	if r.start == r.end {
		r.moveTo(r.buf)
		return
	}
	switch free := len(r.buf) - r.end; {
	case free >= len(r.buf)/4:
	case r.end-r.start <= len(r.buf)/2:
		r.moveTo(r.buf)
	default:
		r.moveTo(make([]byte, 2*len(r.buf)))
	}
}

// moveTo moves what is unread to the start of buf.
func (r *Reader) moveTo(buf []byte) {
	copy(buf, r.buf[r.start:r.end])
	r.feeds.move(r.start)
	r.noCR = max(r.noCR-r.start, 0)
	r.pos -= r.start
	r.end -= r.start
	r.start, r.mark, r.buf = 0, 0, buf
}
