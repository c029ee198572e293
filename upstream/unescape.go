package upstream

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// unescape appends what the inside of a JSON string means. Bytes that are not
// UTF-8 stay: where an engine has cut a character in two, the next piece
// completes it. ok is false for what is no JSON string.
func unescape(dst, inside []byte) (_ []byte, ok bool) {
	for len(inside) > 0 {
		n := bytes.IndexByte(inside, '\\')
		if n < 0 {
			return append(dst, inside...), true
		}
		dst = append(dst, inside[:n]...)
		if inside = inside[n+1:]; len(inside) == 0 {
			return dst, false
		}
		c := inside[0]
		inside = inside[1:]
		if c == 'u' {
			r, used := escapedRune(inside)
			if used == 0 {
				return dst, false
			}
			dst = utf8.AppendRune(dst, r)
			inside = inside[used:]
			continue
		}
		plain := escapes[c]
		if plain == 0 {
			return dst, false
		}
		dst = append(dst, plain)
	}
	return dst, true
}

// escapes are the characters that stand for another one after a backslash.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escapedRune reads the digits after \u, and those of the second half of a
// pair. Half a pair is U+FFFD. used is 0 if there are no four digits.
func escapedRune(digits []byte) (r rune, used int) {
	r, ok := hex4(digits)
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 4
	}
	if len(digits) >= 10 && digits[4] == '\\' && digits[5] == 'u' {
		if low, ok := hex4(digits[6:]); ok {
			if whole := utf16.DecodeRune(r, low); whole != utf8.RuneError {
				return whole, 10
			}
		}
	}
	return utf8.RuneError, 4
}

func hex4(digits []byte) (r rune, ok bool) {
	if len(digits) < 4 {
		return 0, false
	}
	for _, d := range digits[:4] {
		switch {
		case d >= '0' && d <= '9':
			r = r<<4 | rune(d-'0')
		case d|0x20 >= 'a' && d|0x20 <= 'f':
			r = r<<4 | rune(d|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}
