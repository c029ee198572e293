package haiku

import "bytes"

// stopMatcher looks for the earliest stop string in the text of one choice as
// it grows. It runs on the producer's side, so that generation ends at the
// very step whose text completes a match, and tells the reader how many bytes
// must wait because they could still become one.
type stopMatcher struct {
	stops   [][]byte
	longest int
	tail    []byte // the last longest-1 bytes of the text so far
}

func newStopMatcher(stops [][]byte) stopMatcher {
	m := stopMatcher{stops: stops}
	for _, s := range stops {
		m.longest = max(m.longest, len(s))
	}
	if m.longest > 0 {
		m.tail = make([]byte, 0, 2*m.longest+64)
	}
	return m
}

// add appends the text of the next piece. On a match, drop is the number of
// bytes to cut from the end of the text; otherwise hold is the number of bytes
// at its end that are a proper prefix of a stop string.
func (m *stopMatcher) add(piece []byte) (hold, drop int, matched bool) {
	if m.longest == 0 {
		return 0, 0, false
	}
	m.tail = append(m.tail, piece...)
	if at := m.firstMatch(); at >= 0 {
		return 0, len(m.tail) - at, true
	}
	for _, s := range m.stops {
		hold = max(hold, suffixOfTextPrefixOfStop(m.tail, s))
	}
	if keep := m.longest - 1; len(m.tail) > keep {
		m.tail = append(m.tail[:0], m.tail[len(m.tail)-keep:]...)
	}
	return hold, 0, false
}

// firstMatch returns where in tail the earliest match begins, or -1.
func (m *stopMatcher) firstMatch() int {
	at := -1
	for _, s := range m.stops {
		if i := bytes.Index(m.tail, s); i >= 0 && (at < 0 || i < at) {
			at = i
		}
	}
	return at
}

// suffixOfTextPrefixOfStop returns the length of the longest proper prefix of
// stop that text ends with.
func suffixOfTextPrefixOfStop(text, stop []byte) int {
	for n := min(len(text), len(stop)-1); n > 0; n-- {
		if bytes.Equal(text[len(text)-n:], stop[:n]) {
			return n
		}
	}
	return 0
}
