package sseread

import (
	"bytes"
	"math"
)

// parts are the offsets of an event's fields from its start: the buffer may
// move before the event is whole.
type parts struct {
	kind, data, id, stray span
	retry                 int
	lines                 int // data lines
	any                   bool
}

// span is a part of an event; from is -1 for none.
type span struct{ from, to int }

func (p *parts) clear() {
	none := span{-1, -1}
	*p = parts{kind: none, data: none, id: none, stray: none, retry: -1}
}

// feeds remembers where the next line feed is, so that none is looked for twice
// in the same bytes: a stream may have very long lines, or only CRs.
type feeds struct {
	upTo  int  // no LF lies in front of this offset
	found bool // and one lies there
}

func (f *feeds) move(by int) { f.upTo = max(f.upTo-by, 0) }

// next returns the offset of the first LF in buf[from:end], or end.
func (f *feeds) next(buf []byte, from, end int) int {
	if f.upTo < from {
		f.upTo, f.found = from, false
	}
	if f.found {
		return f.upTo
	}
	i := bytes.IndexByte(buf[f.upTo:end], '\n')
	if i < 0 {
		f.upTo = end
		return end
	}
	f.upTo += i
	f.found = true
	return f.upTo
}

// Scan finds the next event in what has been read, and reports false when it
// takes another Fill.
func (r *Reader) Scan(ev *Event) bool {
	for r.read != ErrTooLong {
		line, next, ok := r.line()
		if !ok {
			return false
		}
		r.pos = next
		if line.from < line.to {
			r.field(line)
		} else if r.give(ev) {
			return true
		}
	}
	return false
}

// Mark begins a run of events for Marked.
func (r *Reader) Mark() { r.mark = r.start }

// Marked returns the bytes of all events that Scan has found since Mark, as they
// came, with what was between them. They are valid until the next Fill.
func (r *Reader) Marked() []byte { return r.buf[r.mark:r.start:r.start] }

// Last returns the unfinished event that a stream has ended with. It is called
// once Fill has returned io.EOF.
func (r *Reader) Last(ev *Event) bool {
	r.skipFeed()
	line := r.withoutMark(span{r.pos, r.end})
	r.pos = r.end
	if line.from < line.to {
		r.field(line)
	}
	return r.give(ev)
}

// line returns the line that begins at pos, without its end, and where the next
// one begins.
func (r *Reader) line() (line span, next int, ok bool) {
	r.skipFeed()
	to := r.feeds.next(r.buf, r.pos, r.end)
	next = to + 1
	from := max(r.pos, r.noCR)
	if cr := bytes.IndexByte(r.buf[from:to], '\r'); cr >= 0 {
		to = from + cr
		next = to + 1
		switch {
		case next == r.end:
			r.skip = true
		case r.buf[next] == '\n':
			next++
		}
	} else if to == r.end {
		r.noCR = to
		return span{}, 0, false
	}
	return r.withoutMark(span{r.pos, to}), next, true
}

// skipFeed steps over the LF of a CRLF whose CR was the last byte of a read.
func (r *Reader) skipFeed() {
	if !r.skip || r.pos == r.end {
		return
	}
	r.skip = false
	if r.buf[r.pos] != '\n' {
		return
	}
	if r.pos == r.start { // it ended the event before
		r.start++
	}
	r.pos++
}

// withoutMark drops the byte order mark that a stream may begin with.
func (r *Reader) withoutMark(line span) span {
	if !r.begun && bytes.HasPrefix(r.buf[line.from:line.to], []byte("\xEF\xBB\xBF")) {
		line.from += 3
		r.start, r.mark = line.from, line.from
	}
	r.begun = true
	return line
}

// give makes an event of the parts, unless there are none.
func (r *Reader) give(ev *Event) bool {
	p, raw := &r.parts, r.buf[r.start:r.pos:r.pos]
	if p.any && len(raw) > r.limit {
		r.read = ErrTooLong
		return false
	}
	r.start = r.pos
	if !p.any { // blank lines between events
		return false
	}
	*ev = Event{
		Type: p.kind.of(raw), Data: p.data.of(raw), ID: p.id.of(raw), Stray: p.stray.of(raw),
		Retry: p.retry, HasData: p.lines > 0, Raw: raw,
	}
	if p.lines > 1 {
		ev.Data = r.joined
	}
	p.clear()
	return true
}

func (s span) of(raw []byte) []byte {
	if s.from < 0 {
		return nil
	}
	return raw[s.from:s.to:s.to]
}

// field takes note of one line that is not empty.
func (r *Reader) field(line span) {
	p := &r.parts
	p.any = true
	name := r.buf[line.from:line.to]
	value := span{line.to, line.to}
	if colon := bytes.IndexByte(name, ':'); colon == 0 {
		return // a comment
	} else if colon > 0 {
		value.from = line.from + colon + 1
		if value.from < line.to && r.buf[value.from] == ' ' {
			value.from++
		}
		name = name[:colon]
	}
	text := r.buf[value.from:value.to]
	value = span{value.from - r.start, value.to - r.start}
	switch string(name) {
	case "data":
		r.data(value, text)
	case "event":
		p.kind = value
	case "id":
		if bytes.IndexByte(text, 0) < 0 {
			p.id = value
		}
	case "retry":
		if ms, ok := number(text); ok {
			p.retry = ms
		}
	default:
		if p.stray.from < 0 {
			p.stray = span{line.from - r.start, line.to - r.start}
		}
	}
}

// data adds a data line. The first stays where it is, and only an event with
// several is put together elsewhere.
func (r *Reader) data(value span, text []byte) {
	p := &r.parts
	p.lines++
	switch p.lines {
	case 1:
		p.data = value
		return
	case 2:
		r.joined = append(r.joined[:0], r.buf[r.start+p.data.from:r.start+p.data.to]...)
	}
	r.joined = append(append(r.joined, '\n'), text...)
}

// number reads a decimal number of ASCII digits.
func number(digits []byte) (n int, ok bool) {
	for _, d := range digits {
		if d < '0' || d > '9' || n > math.MaxInt32 {
			return 0, false
		}
		n = 10*n + int(d-'0')
	}
	return n, len(digits) > 0
}
