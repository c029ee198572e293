package sse

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestEscapeKnownStrings(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		"plain text, longer than 8":    "plain text, longer than 8",
		`say "hi" \ bye`:               `say \"hi\" \\ bye`,
		"a\n\r\t\x00\x1f\x7fb":         `a\n\r\t\u0000\u001f` + "\x7fb",
		"<b>&amp;</b>":                 "<b>&amp;</b>",
		"x\u2028y\u2029z\u2027\u202a":  `x\u2028y\u2029z` + "\u2027\u202a",
		"héllo 你好 😀!":                  "héllo 你好 😀!",
		"\xff\xfe":                     "\uFFFD\uFFFD",
		"ok\xe4\xbd":                   "ok\uFFFD\uFFFD",
		"\xed\xa0\x80":                 "\uFFFD\uFFFD\uFFFD",
		"\uFFFD itself":                "\uFFFD itself",
		"12345678\"12345678\\12345678": `12345678\"12345678\\12345678`,
	} {
		require.Equal(t, "dst"+want, string(AppendEscaped([]byte("dst"), []byte(in))), "%q", in)
	}
}

// TestEveryByteAtEveryPlaceInAWord finds faults of the eight-at-a-time path.
func TestEveryByteAtEveryPlaceInAWord(t *testing.T) {
	for c := range 256 {
		for at := range 17 {
			s := []byte("abcdefghijklmnopq")
			s[at] = byte(c)
			requireDecodesBack(t, s)
			want := 17
			if !isPlain(byte(c)) {
				want = at
			}
			require.Equal(t, want, plainPrefix(s), "byte %#x at %d", c, at)
		}
	}
}

// requireDecodesBack checks AppendEscaped against encoding/json as the reader.
func requireDecodesBack(t *testing.T, s []byte) {
	t.Helper()
	out := AppendEscaped([]byte{'"'}, s)
	require.True(t, utf8.Valid(out), "%q", out)
	for _, c := range out {
		require.GreaterOrEqual(t, c, byte(' '), "%q", out)
	}
	var got string
	require.NoError(t, json.Unmarshal(append(out, '"'), &got), "%q", out)
	require.Equal(t, string([]rune(string(s))), got, "each invalid byte becomes one U+FFFD")
}

func FuzzAppendEscaped(f *testing.F) {
	for _, s := range []string{"", "hello", "\"\\\n", "😀\u2028", "\xff\xf0\x9f", strings.Repeat("a", 15) + "\""} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, s []byte, cut uint8) {
		requireDecodesBack(t, s)
		if utf8.Valid(s) {
			var got string
			require.NoError(t, json.Unmarshal([]byte(`"`+string(AppendEscaped(nil, s))+`"`), &got))
			require.Equal(t, string(s), got)
		}
		// Cut anywhere, the part that must wait held back, the result is the same.
		at := min(int(cut), len(s))
		at -= IncompleteTail(s[:at])
		parts := AppendEscaped(AppendEscaped(nil, s[:at]), s[at:])
		require.Equal(t, string(AppendEscaped(nil, s)), string(parts))
	})
}

// properPrefixes returns every proper prefix of every encoded character.
func properPrefixes() map[string]bool {
	prefixes := map[string]bool{}
	for r := rune(0x80); r <= utf8.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		enc := string(r)
		for n := 1; n < len(enc); n++ {
			prefixes[enc[:n]] = true
		}
	}
	return prefixes
}

// TestIncompleteTailIsExact compares with the list of all prefixes of all
// characters: exhaustively up to three bytes, and for four bytes over all
// values at which the encoding's rules change.
func TestIncompleteTailIsExact(t *testing.T) {
	prefixes := properPrefixes()
	mistakes := 0
	compare := func(b []byte) {
		want := 0
		for n := 1; n <= 3 && n <= len(b); n++ {
			if prefixes[string(b[len(b)-n:])] {
				want = n
			}
		}
		if got := IncompleteTail(b); got != want && mistakes < 10 {
			mistakes++
			t.Errorf("% x: got %d, want %d", b, got, want)
		}
	}
	compare(nil)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	edges := []byte("\x00\x41\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc2\xdf\xe0\xe1\xec\xed\xee\xef\xf0\xf1\xf3\xf4\xf5\xff")
	third := all
	if raceEnabled || testing.Short() {
		third = edges
	}
	for _, a := range all {
		compare([]byte{a})
		for _, b := range all {
			compare([]byte{a, b})
			for _, c := range third {
				compare([]byte{a, b, c})
			}
		}
	}
	for _, a := range edges {
		for _, b := range edges {
			for _, c := range edges {
				for _, d := range edges {
					compare([]byte{a, b, c, d})
				}
			}
		}
	}
}

// TestPiecesOfCharactersJoinWhole cuts a text at every place, as byte-level
// tokens do, and holds back what is incomplete.
func TestPiecesOfCharactersJoinWhole(t *testing.T) {
	text := []byte("😀 你e\u0301 \u2028é")
	for step := 1; step < len(text); step++ {
		var held, sent []byte
		for at := 0; at < len(text); at += step {
			held = append(held, text[at:min(at+step, len(text))]...)
			whole := len(held) - IncompleteTail(held)
			require.True(t, utf8.Valid(held[:whole]))
			sent = append(sent, held[:whole]...)
			held = held[whole:]
		}
		require.Empty(t, held)
		require.Equal(t, string(text), string(sent))
	}
}

func TestCommentStaysOneComment(t *testing.T) {
	require.Equal(t, "x: queued\n\n", string(AppendComment([]byte("x"), "queued")))
	require.Equal(t, ": a  data: b\n\n", string(AppendComment(nil, "a\r\ndata: b")))
	require.Equal(t, ": \n\n", string(AppendComment(nil, "")))
}

func BenchmarkAppendEscaped(b *testing.B) {
	for _, text := range []string{" token", "a line of plain ASCII text that needs no escape", "你好，世界：一行中文", "if (a[\"b\"]) {\n\treturn\n}"} {
		b.Run(fmt.Sprint(len(text)), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			dst, src := make([]byte, 0, 256), []byte(text)
			for b.Loop() {
				dst = AppendEscaped(dst[:0], src)
			}
		})
	}
}
