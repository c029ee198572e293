package upstream

import "strconv"

// numbered gives the tool calls of a whole message the indexes that those of a
// delta have: clients put calls together by them. What is no array of objects
// stays as it is.
func numbered(calls []byte) []byte {
	s := scanner{b: calls}
	out := make([]byte, 0, len(calls)+64)
	out = append(out, '[')
	s.expect('[')
	for n, first := 0, true; s.more(&first, ']'); n++ {
		if s.peek() != '{' {
			return calls
		}
		if n > 0 {
			out = append(out, ',')
		}
		out = appendNumbered(out, s.value(), n)
	}
	if s.bad {
		return calls
	}
	return append(out, ']')
}

// appendNumbered appends a call, with the index n if it has none.
func appendNumbered(dst, call []byte, n int) []byte {
	s := scanner{b: call}
	s.expect('{')
	empty := s.peek() == '}'
	for first := true; s.more(&first, '}'); {
		if string(s.key()) == "index" {
			return append(dst, call...)
		}
		s.value()
	}
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(n), 10)
	if !empty {
		dst = append(dst, ',')
	}
	return append(dst, call[1:]...)
}
