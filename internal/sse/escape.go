package sse

import (
	"encoding/binary"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// AppendEscaped appends s as the inside of a JSON string, without the quotes.
//
// Quote, backslash and control characters are escaped, as are U+2028 and
// U+2029, which some readers of event streams take for line ends; <, > and &
// stay as they are. Each byte that is not part of valid UTF-8 becomes U+FFFD,
// as in encoding/json, so the result does not depend on how a text was cut into
// calls as long as no cut lies inside a character (see IncompleteTail).
func AppendEscaped(dst, s []byte) []byte {
	start := 0 // s[start:i] needs no escaping
	for i := 0; ; {
		i += plainPrefix(s[i:])
		if i == len(s) {
			return append(dst, s[start:]...)
		}
		c := s[i]
		if c < utf8.RuneSelf {
			dst = appendEscape(append(dst, s[start:i]...), c)
			i++
			start = i
			continue
		}
		r, n := utf8.DecodeRune(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			dst = append(append(dst, s[start:i]...), "\uFFFD"...)
			start = i + n
		case r == '\u2028' || r == '\u2029':
			dst = append(append(dst, s[start:i]...), `\u202`...)
			dst = append(dst, hexDigits[r&0xF])
			start = i + n
		}
		i += n
	}
}

// plainPrefix returns the length of the run of printable ASCII at the start of
// s, other than quote and backslash. It looks at eight bytes at a time.
func plainPrefix(s []byte) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(s); i += 8 {
		w := binary.LittleEndian.Uint64(s[i:])
		quote, slash := w^ones*'"', w^ones*'\\'
		// In each sum a byte's high bit is set where the byte, itself below
		// 0x80, is below 0x20, or is zero. A borrow can only set bits above a
		// byte that is already found.
		if (w|(w-ones*0x20)|(quote-ones)|(slash-ones))&highs != 0 {
			break
		}
	}
	for i < len(s) && isPlain(s[i]) {
		i++
	}
	return i
}

// isPlain reports whether c stands for itself in a JSON string and is ASCII.
func isPlain(c byte) bool {
	return c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\'
}

// appendEscape appends the escape of one ASCII byte that needs one.
func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xF])
}

// IncompleteTail returns how many bytes at the end of b, 0 to 3, begin a UTF-8
// character that bytes still to come could complete. Bytes that nothing can
// complete are not counted: holding them back would gain nothing.
func IncompleteTail(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		tail := b[len(b)-n:]
		if utf8.RuneStart(tail[0]) {
			// FullRune also knows the narrower second bytes after E0, ED, F0
			// and F4: it calls a sequence full once it is certain to be wrong.
			if !utf8.FullRune(tail) {
				return n
			}
			return 0
		}
	}
	return 0
}

// AppendComment appends text as a comment, which readers of event streams skip.
// Line ends in it become spaces, so that it stays one comment.
func AppendComment(dst []byte, text string) []byte {
	dst = append(dst, ": "...)
	for _, c := range []byte(text) {
		if c == '\n' || c == '\r' {
			c = ' '
		}
		dst = append(dst, c)
	}
	return append(dst, "\n\n"...)
}
