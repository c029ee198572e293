package haikutest

import (
	"strconv"
	"strings"
	"time"
)

// Event is a server-sent event, a comment, or both where they share a block.
type Event struct {
	Name    string // the field "event"
	Data    string // the fields "data", with a newline between them
	ID      string // the field "id" of this event
	Retry   time.Duration
	Comment string    // as in a keepalive, with a newline between several
	At      time.Time // when it was flushed whole; zero outside a Recorder
}

// ParseEvents reads a stream of server-sent events as a browser does, by the
// rules of the HTML standard, but for two things: comments are returned too,
// and an Event's ID is its own. A last event that is not complete, as a cut
// connection leaves it, is not returned.
func ParseEvents(stream string) []Event {
	return parseEvents(stream, func(*Event, int) {})
}

// parseEvents calls each for every event with the number of bytes of stream up
// to its end.
func parseEvents(stream string, each func(e *Event, bytes int)) (events []Event) {
	var b block
	rest := strings.TrimPrefix(stream, "\uFEFF")
	for {
		line, after, whole := cutLine(rest)
		if !whole {
			return events
		}
		rest = after
		if line != "" {
			b.field(line)
			continue
		}
		if b.worth() {
			each(&b.event, len(stream)-len(rest))
			events = append(events, b.event)
		}
		b = block{}
	}
}

// cutLine returns the first line of s, which ends in CRLF, LF or CR, without
// its end, and what follows.
func cutLine(s string) (line, rest string, whole bool) {
	end := strings.IndexAny(s, "\r\n")
	if end < 0 {
		return "", s, false
	}
	width := 1
	if strings.HasPrefix(s[end:], "\r\n") {
		width = 2
	}
	return s[:end], s[end+width:], true
}

// block is an event while its lines come in.
type block struct {
	event             Event
	hasData, hasNotes bool
}

// worth reports whether a reader hears of the block.
func (b *block) worth() bool { return b.hasData || b.hasNotes }

func (b *block) field(line string) {
	name, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	e := &b.event
	switch name {
	case "":
		appendLine(&e.Comment, value, &b.hasNotes)
	case "data":
		appendLine(&e.Data, value, &b.hasData)
	case "event":
		e.Name = value
	case "id":
		if !strings.Contains(value, "\x00") {
			e.ID = value
		}
	case "retry":
		if ms, err := strconv.ParseUint(value, 10, 32); err == nil {
			e.Retry = time.Duration(ms) * time.Millisecond
		}
	}
}

// appendLine adds a line to text, after a newline unless it is the first.
func appendLine(text *string, line string, has *bool) {
	if *has {
		*text += "\n"
	}
	*text += line
	*has = true
}
