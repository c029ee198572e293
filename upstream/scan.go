package upstream

import (
	"bytes"
	"math"
)

// scanner walks over one JSON value without decoding it. It is strict about
// what it hands out and lenient about what it skips: on anything unusual it
// turns bad, and the caller decodes the text in the usual way instead.
type scanner struct {
	b   []byte
	i   int
	bad bool
}

// fail makes the scanner bad; it stays where it is.
func (s *scanner) fail() { s.bad = true }

// peek returns the next byte that is no white space, 0 at the end.
func (s *scanner) peek() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return c
		}
	}
	return 0
}

// accept consumes c if it comes next.
func (s *scanner) accept(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.i++
	return true
}

// expect consumes c, which has to come next.
func (s *scanner) expect(c byte) {
	if !s.accept(c) {
		s.fail()
	}
}

// literal consumes word if it comes next.
func (s *scanner) literal(word string) bool {
	s.peek()
	if !bytes.HasPrefix(s.b[s.i:], []byte(word)) {
		return false
	}
	s.i += len(word)
	return true
}

// null consumes a null.
func (s *scanner) null() bool { return s.peek() == 'n' && s.literal("null") }

// text consumes a string and returns what is between its quotes, and whether
// there are escapes in it.
func (s *scanner) text() (inside []byte, escaped bool) {
	s.expect('"')
	from, quote := s.i, -1
	for !s.bad {
		if quote < s.i { // otherwise it is still the next one: no byte is looked at again
			n := bytes.IndexByte(s.b[s.i:], '"')
			if n < 0 {
				break
			}
			quote = s.i + n
		}
		slash := bytes.IndexByte(s.b[s.i:quote], '\\')
		if slash < 0 {
			s.i = quote + 1
			return s.b[from:quote], escaped
		}
		escaped = true
		if s.i += slash + 2; s.i > len(s.b) {
			break
		}
	}
	s.fail()
	return nil, false
}

// key consumes a member's name and its colon. Names with escapes are left to
// the decoder.
func (s *scanner) key() []byte {
	name, escaped := s.text()
	s.expect(':')
	if escaped {
		s.fail()
	}
	return name
}

// more reports whether an object or array, which close ends, has another
// element, and consumes what stands before it. first is true once.
func (s *scanner) more(first *bool, close byte) bool {
	if s.bad || s.accept(close) {
		return false
	}
	if !*first {
		s.expect(',')
	}
	*first = false
	return !s.bad
}

// integer consumes a number that fits an int and is not negative. A fraction
// does not count: there are engines for which all numbers are floating ones.
func (s *scanner) integer() (n int) {
	s.peek()
	from := s.i
	for ; s.digit(); s.i++ {
		if n > math.MaxInt/10-10 {
			s.fail()
			return 0
		}
		n = 10*n + int(s.b[s.i]-'0')
	}
	if s.i == from {
		s.fail()
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		for s.i++; s.digit(); s.i++ {
		}
	}
	if s.i < len(s.b) && s.b[s.i]|0x20 == 'e' {
		s.fail()
	}
	return n
}

func (s *scanner) digit() bool { return s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' }

// value consumes any value and returns it.
func (s *scanner) value() []byte {
	c := s.peek()
	from := s.i
	switch c {
	case '"':
		s.text()
	case '{', '[':
		s.nested()
	case 0, ',', ':', '}', ']':
		s.fail()
	default:
		s.word()
	}
	return s.b[from:s.i]
}

// word consumes a number, true, false or null, or what stands in their place.
func (s *scanner) word() {
	for ; s.i < len(s.b); s.i++ {
		switch s.b[s.i] {
		case ',', '}', ']', ' ', '\t', '\n', '\r':
			return
		}
	}
}

// maxDepth bounds how deeply a value nests: less than a stream takes.
const maxDepth = 120

// nested consumes an object or array. It counts brackets and does not recurse.
func (s *scanner) nested() {
	depth := 0
	for s.i < len(s.b) && !s.bad {
		switch s.b[s.i] {
		case '"':
			s.text()
			continue
		case '{', '[':
			if depth++; depth > maxDepth {
				s.fail()
			}
		case '}', ']':
			if depth--; depth == 0 {
				s.i++
				return
			}
		}
		s.i++
	}
	s.fail()
}

// end fails unless nothing but white space follows.
func (s *scanner) end() {
	if s.peek() != 0 || s.i < len(s.b) {
		s.fail()
	}
}
