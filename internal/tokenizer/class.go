package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// prefix is the number of bytes of s before the first rune that is not one of
// the class. A byte that belongs to no rune counts as U+FFFD, a symbol.
func prefix(s string, is func(rune) bool) int {
	for i, r := range s {
		if !is(r) {
			return i
		}
	}
	return len(s)
}

// run is X+ for a class X.
func run(is func(rune) bool) matcher { return func(s string) int { return prefix(s, is) } }

// one is X.
func one(is func(rune) bool) matcher { return upTo(1, is) }

// upTo is X{1,n}.
func upTo(n int, is func(rune) bool) matcher {
	return func(s string) int {
		count := 0
		for i, r := range s {
			if count == n || !is(r) {
				return i
			}
			count++
		}
		return len(s)
	}
}

// repeated is X{n} for a class of ASCII characters.
func repeated(n int, is func(rune) bool) matcher {
	return func(s string) int {
		if len(s) >= n && prefix(s[:n], is) == n {
			return n
		}
		return 0
	}
}

// spaced is \s?X+.
func spaced(is func(rune) bool) matcher {
	return func(s string) int {
		if r, width := utf8.DecodeRuneInString(s); unicode.IsSpace(r) {
			if n := prefix(s[width:], is); n > 0 {
				return width + n
			}
		}
		return prefix(s, is)
	}
}

func isNewline(r rune) bool      { return r == '\r' || r == '\n' }
func isDigit(r rune) bool        { return r >= '0' && r <= '9' }
func isASCIILetter(r rune) bool  { return r|0x20 >= 'a' && r|0x20 <= 'z' }
func isLetterOrMark(r rune) bool { return unicode.IsLetter(r) || unicode.IsMark(r) }

// isSign is [\p{P}\p{S}].
func isSign(r rune) bool { return unicode.IsPunct(r) || unicode.IsSymbol(r) }

// isOther is [^\s\p{L}\p{N}].
func isOther(r rune) bool {
	return !unicode.IsSpace(r) && !unicode.IsLetter(r) && !unicode.IsNumber(r)
}

// oneOf is a class together with some characters.
func oneOf(is func(rune) bool, more string) func(rune) bool {
	return func(r rune) bool { return is(r) || strings.ContainsRune(more, r) }
}

// isWide is [一-龥ࠀ-一가-퟿], which holds more than Chinese and Korean.
func isWide(r rune) bool { return r >= 0x800 && r <= 0x9fa5 || r >= 0xac00 && r <= 0xd7ff }

// in is the class of a table.
func in(table *unicode.RangeTable) func(rune) bool {
	return func(r rune) bool { return unicode.Is(table, r) }
}

// marksAndSigns is [!-/:-~！-／：-～‘-‟　-。].
var marksAndSigns = &unicode.RangeTable{
	R16: []unicode.Range16{
		{'!', '/', 1}, {':', '~', 1}, {0x2018, 0x201f, 1}, {0x3000, 0x3002, 1}, {0xff01, 0xff0f, 1}, {0xff1a, 0xff5e, 1},
	},
	LatinOffset: 2,
}

// hanAndKana is [一-龥぀-ゟ゠-ヿ].
var hanAndKana = &unicode.RangeTable{R16: []unicode.Range16{{0x3040, 0x30ff, 1}, {0x4e00, 0x9fa5, 1}}}

// casedLetters are the letters that DeepSeek's first tokenizer keeps together.
var casedLetters = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x41, 0x5a, 1}, {0x61, 0x7a, 1}, {0xb5, 0xb5, 1}, {0xc0, 0xd6, 1}, {0xd8, 0xf6, 1}, {0xf8, 0x1ba, 1},
		{0x1bc, 0x1bf, 1}, {0x1c4, 0x293, 1}, {0x295, 0x2af, 1}, {0x370, 0x373, 1}, {0x376, 0x376, 1}, {0x377, 0x377, 1},
		{0x37b, 0x37d, 1}, {0x37f, 0x37f, 1}, {0x386, 0x386, 1}, {0x388, 0x38a, 1}, {0x38c, 0x38c, 1}, {0x38e, 0x3a1, 1},
		{0x3a3, 0x3f5, 1}, {0x3f7, 0x481, 1}, {0x48a, 0x52f, 1}, {0x531, 0x556, 1}, {0x10a0, 0x10c5, 1},
		{0x13a0, 0x13f5, 1}, {0x13f8, 0x13fd, 1}, {0x1c90, 0x1cba, 1}, {0x1cbd, 0x1cbf, 1}, {0x1d00, 0x1d2b, 1},
		{0x1d6b, 0x1d77, 1}, {0x1d79, 0x1d9a, 1}, {0x1e00, 0x1f15, 1}, {0x1f18, 0x1f1d, 1}, {0x1f20, 0x1f45, 1},
		{0x1f48, 0x1f4d, 1}, {0x1f50, 0x1f57, 1}, {0x1f59, 0x1f59, 1}, {0x1f5b, 0x1f5b, 1}, {0x1f5d, 0x1f5d, 1},
		{0x1f5f, 0x1f7d, 1}, {0x1f80, 0x1fb4, 1}, {0x1fb6, 0x1fbc, 1}, {0x1fbe, 0x1fbe, 1}, {0x1fc2, 0x1fc4, 1},
		{0x1fc6, 0x1fcc, 1}, {0x1fd0, 0x1fd3, 1}, {0x1fd6, 0x1fdb, 1}, {0x1fe0, 0x1fec, 1}, {0x1ff2, 0x1ff4, 1},
		{0x1ff6, 0x1ffc, 1}, {0x2102, 0x2102, 1}, {0x2107, 0x2107, 1}, {0x210a, 0x2113, 1}, {0x2115, 0x2115, 1},
		{0x2119, 0x211d, 1}, {0x2124, 0x2124, 1}, {0x2126, 0x2126, 1}, {0x2128, 0x2128, 1}, {0x212a, 0x212d, 1},
		{0x212f, 0x2134, 1}, {0x2139, 0x2139, 1}, {0x213c, 0x213f, 1}, {0x2145, 0x2149, 1}, {0x214e, 0x214e, 1},
		{0x2183, 0x2183, 1}, {0x2184, 0x2184, 1}, {0x2c00, 0x2c7b, 1}, {0x2c7e, 0x2ce4, 1}, {0x2ceb, 0x2cee, 1},
		{0x2cf2, 0x2cf2, 1}, {0x2cf3, 0x2cf3, 1}, {0xa640, 0xa66d, 1}, {0xa680, 0xa69b, 1}, {0xa722, 0xa76f, 1},
		{0xa771, 0xa787, 1}, {0xa78b, 0xa78e, 1}, {0xab70, 0xabbf, 1}, {0xfb00, 0xfb06, 1}, {0xfb13, 0xfb17, 1},
		{0xff21, 0xff3a, 1}, {0xff41, 0xff5a, 1},
	},
	R32: []unicode.Range32{
		{0x10400, 0x1044f, 1}, {0x104b0, 0x104d3, 1}, {0x104d8, 0x104fb, 1}, {0x10c80, 0x10cb2, 1}, {0x10cc0, 0x10cf2, 1},
		{0x118a0, 0x118df, 1}, {0x1e900, 0x1e943, 1},
	},
	LatinOffset: 5,
}
