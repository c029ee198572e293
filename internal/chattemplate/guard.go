package chattemplate

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The noncharacters a Guard uses between marking and splitting. Unicode
// reserves them for such inner use.
const (
	mark   = '\uFDD0' // nothing: keeps its neighbours from being a special token
	escape = '\uFDD1' // followed by a hidden character, written in digits
	digit0 = '\uFDE0' // to U+FDEF: the digits 0 to 15

	hiddenDigits = 6 // of a character, the highest first
)

// isReserved reports whether r is one of the noncharacters U+FDD0 to U+FDEF.
func isReserved(r rune) bool { return r >= 0xFDD0 && r <= 0xFDEF }

// Guard keeps the texts of special tokens that users write apart from those
// that a template writes. Content is marked before the template sees it:
// inside each text that is, or together with the template's text around it
// could become, a special token, there is then a character that makes it
// another text. After rendering, what is still a special token is the
// template's own, and the marks are taken out of the rest.
//
// A mark stands after the first character of what it breaks, or, where only
// the last character of a special token begins the content, before it; so a
// template's trim and strip, startswith on other texts, and split on texts that
// are not special, see the content as it is. Special tokens of one character,
// and noncharacters that the content itself holds, are hidden: written with
// other noncharacters until Split.
//
// Two things stay a template's own business. What it cuts out of the middle of
// a content is not looked at anew, so its ends could complete what the template
// writes beside it; and if it changes the characters of a content, by lower or
// replace, it may write a special token. Lengths and slices of a content that
// has marks count them.
//
// A Guard is immutable and safe for concurrent use.
type Guard struct {
	specials map[string]bool
	lengths  [256][]int // of the special tokens by first byte, longest first

	// What a content's edge is looked up in, as some models have thousands of
	// special tokens and a request thousands of messages.
	heads, tails map[string]bool // proper prefixes and suffixes of special tokens
	longest      int             // bytes of a special token
	all          string          // their texts, with a mark after each
}

// Segment is a stretch of a rendered conversation.
type Segment struct {
	Text    string
	Special bool // a special token that the template wrote
}

// NewGuard returns a Guard for the texts of a model's special tokens.
func NewGuard(specials []string) *Guard {
	g := &Guard{specials: make(map[string]bool), heads: make(map[string]bool), tails: make(map[string]bool)}
	var all strings.Builder
	for _, s := range specials {
		if s == "" || g.specials[s] {
			continue
		}
		g.specials[s] = true
		if n := &g.lengths[s[0]]; !slices.Contains(*n, len(s)) {
			*n = append(*n, len(s))
		}
		for k := range s {
			if k > 0 {
				g.heads[s[:k]], g.tails[s[k:]] = true, true
			}
		}
		g.longest = max(g.longest, len(s))
		all.WriteString(s + string(mark))
	}
	g.all = all.String()
	for i := range g.lengths {
		slices.SortFunc(g.lengths[i], func(a, b int) int { return b - a })
	}
	return g
}

// specialAt returns the longest special token that text begins with.
func (g *Guard) specialAt(text string) string {
	for _, n := range g.lengths[text[0]] {
		if n <= len(text) && g.specials[text[:n]] {
			return text[:n]
		}
	}
	return ""
}

// Mark returns content with marks.
func (g *Guard) Mark(content string) string {
	at := g.breaks(content)
	if len(at) == 0 && !strings.ContainsFunc(content, g.hidden) {
		return content
	}
	var b strings.Builder
	for i := 0; i < len(content); {
		for len(at) > 0 && at[0] <= i {
			b.WriteRune(mark)
			at = at[1:]
		}
		r, n := utf8.DecodeRuneInString(content[i:])
		if g.hidden(r) {
			b.WriteRune(escape)
			for shift := 4 * (hiddenDigits - 1); shift >= 0; shift -= 4 {
				b.WriteRune(digit0 + r>>shift&15)
			}
		} else {
			b.WriteString(content[i : i+n]) // may be a byte that is not UTF-8
		}
		i += n
	}
	if len(at) > 0 {
		b.WriteRune(mark)
	}
	return b.String()
}

// hidden reports whether r must not stand in marked content.
func (g *Guard) hidden(r rune) bool {
	return isReserved(r) || (r != utf8.RuneError && g.specials[string(r)])
}

// breaks returns where marks go, as ascending byte offsets of content.
func (g *Guard) breaks(content string) []int {
	var at []int
	for i := range len(content) {
		if s := g.specialAt(content[i:]); s != "" {
			at = append(at, i+firstRune(s))
		}
	}
	// A template that trims makes edges of what lies inside.
	left := strings.TrimLeftFunc(content, unicode.IsSpace)
	start := len(content) - len(left)
	at = g.edges(at, content, 0)
	at = g.edges(at, left, start)
	at = g.edges(at, strings.TrimRightFunc(content, unicode.IsSpace), 0)
	at = g.edges(at, strings.TrimRightFunc(left, unicode.IsSpace), start)
	slices.Sort(at)
	return slices.Compact(at)
}

// edges appends the offsets of marks against special tokens that begin before
// content or end after it. start is content's own offset.
func (g *Guard) edges(at []int, content string, start int) []int {
	if content == "" {
		return at
	}
	// Bytes that are not UTF-8 could be so together with their neighbours.
	if r, n := utf8.DecodeRuneInString(content); r == utf8.RuneError && n == 1 {
		at = append(at, start)
	}
	if r, n := utf8.DecodeLastRuneInString(content); r == utf8.RuneError && n == 1 {
		at = append(at, start+len(content))
	}
	first := firstRune(content)
	for n := 1; n <= min(g.longest-1, len(content)); n++ {
		if g.tails[content[:n]] {
			if first < n {
				at = append(at, start+first)
			} else {
				at = append(at, start)
			}
		}
		if head := content[len(content)-n:]; g.heads[head] {
			at = append(at, start+len(content)-n+firstRune(head))
		}
	}
	if len(content) < g.longest && strings.Contains(g.all, content) {
		at = append(at, start+first)
	}
	return at
}

func firstRune(s string) int {
	_, n := utf8.DecodeRuneInString(s)
	return n
}

// Split takes rendered text apart: the template's special tokens, and the text
// between them with all marks taken out. The texts of the segments together
// are what would have been rendered without marks.
func (g *Guard) Split(rendered string) []Segment {
	var segments []Segment
	plain := 0
	for i := 0; i < len(rendered); {
		s := g.specialAt(rendered[i:])
		if s == "" {
			i++
			continue
		}
		segments = g.appendPlain(segments, rendered[plain:i])
		segments = append(segments, Segment{s, true})
		i += len(s)
		plain = i
	}
	return g.appendPlain(segments, rendered[plain:])
}

func (g *Guard) appendPlain(segments []Segment, text string) []Segment {
	if text = g.unmark(text); text != "" {
		segments = append(segments, Segment{Text: text})
	}
	return segments
}

// unmark undoes Mark. What a template left of a hidden character that it cut
// in two is dropped.
func (g *Guard) unmark(text string) string {
	if !strings.ContainsFunc(text, isReserved) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == escape:
			if hidden, size := unhide(text[i+n:]); size > 0 {
				b.WriteRune(hidden)
				n += size
			}
		case !isReserved(r):
			b.WriteString(text[i : i+n])
		}
		i += n
	}
	return b.String()
}

// unhide reads the digits of a hidden character, size 0 if they are not there.
func unhide(text string) (hidden rune, size int) {
	for range hiddenDigits {
		r, n := utf8.DecodeRuneInString(text[size:])
		if r < digit0 || !isReserved(r) {
			return 0, 0
		}
		hidden = hidden<<4 | (r - digit0)
		size += n
	}
	return hidden, size
}
