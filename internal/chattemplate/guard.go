package chattemplate

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// The noncharacters a Guard uses between marking and splitting. Unicode
// reserves them for such inner use; content that holds them all the same comes
// out as it went in.
const (
	mark       = '\uFDD0' // nothing: keeps its neighbours from being a special token
	escape     = '\uFDD1' // followed by one of the next two
	escapeMark = '\uFDD2' // a mark that the content itself holds
	escapeSelf = '\uFDD3' // an escape that the content itself holds
	standIn    = '\uFDD4' // and up: special tokens of one character
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
// are not special, see the content as it is. What a template cuts out of the
// middle of a content is not looked at anew.
//
// A Guard is immutable and safe for concurrent use.
type Guard struct {
	specials []string // longest first
	starts   [256]bool
	single   map[rune]rune // special tokens of one character → their stand-ins
}

// Segment is a stretch of a rendered conversation.
type Segment struct {
	Text    string
	Special bool // a special token that the template wrote
}

// NewGuard returns a Guard for the texts of a model's special tokens.
func NewGuard(specials []string) *Guard {
	g := &Guard{single: make(map[rune]rune)}
	for _, s := range specials {
		if s == "" || slices.Contains(g.specials, s) {
			continue
		}
		g.specials = append(g.specials, s)
		g.starts[s[0]] = true
		if r, n := utf8.DecodeRuneInString(s); n == len(s) {
			g.single[r] = min(standIn+rune(len(g.single)), 0xFDEF)
		}
	}
	slices.SortStableFunc(g.specials, func(a, b string) int { return len(b) - len(a) })
	return g
}

// Mark returns content with marks.
func (g *Guard) Mark(content string) string {
	at := g.breaks(content)
	if len(at) == 0 && !strings.ContainsFunc(content, g.replaced) {
		return content
	}
	var b strings.Builder
	for i, r := range content {
		for len(at) > 0 && at[0] <= i {
			b.WriteRune(mark)
			at = at[1:]
		}
		switch stand, ok := g.single[r]; {
		case ok:
			b.WriteRune(stand)
		case r == mark:
			b.WriteString(string(escape) + string(escapeMark))
		case r == escape:
			b.WriteString(string(escape) + string(escapeSelf))
		case r == utf8.RuneError:
			_, n := utf8.DecodeRuneInString(content[i:])
			b.WriteString(content[i : i+n]) // may be a byte that is not UTF-8
		default:
			b.WriteRune(r)
		}
	}
	if len(at) > 0 {
		b.WriteRune(mark)
	}
	return b.String()
}

func (g *Guard) replaced(r rune) bool {
	_, single := g.single[r]
	return single || r == mark || r == escape
}

// breaks returns where marks go, as ascending byte offsets of content.
func (g *Guard) breaks(content string) []int {
	var at []int
	for i := range len(content) {
		if !g.starts[content[i]] {
			continue
		}
		for _, s := range g.specials {
			if strings.HasPrefix(content[i:], s) {
				at = append(at, i+firstRune(s))
			}
		}
	}
	at = g.edges(at, content, 0)
	// A template that trims makes edges of what lies inside.
	trimmed := strings.TrimLeft(content, " \t\r\n")
	start := len(content) - len(trimmed)
	if trimmed = strings.TrimRight(trimmed, " \t\r\n"); trimmed != content {
		at = g.edges(at, trimmed, start)
	}
	slices.Sort(at)
	return slices.Compact(at)
}

// edges appends the offsets of marks against special tokens that begin before
// content or end after it. start is content's own offset.
func (g *Guard) edges(at []int, content string, start int) []int {
	if content == "" {
		return at
	}
	for _, s := range g.specials {
		for k := range s {
			if k == 0 {
				continue
			}
			if tail := s[k:]; strings.HasPrefix(content, tail) {
				if n := firstRune(tail); n < len(tail) {
					at = append(at, start+n)
				} else {
					at = append(at, start)
				}
			}
			if head := s[:k]; strings.HasSuffix(content, head) {
				at = append(at, start+len(content)-k+firstRune(head))
			}
		}
		if len(content) < len(s) && strings.Contains(s, content) {
			at = append(at, start+firstRune(content))
		}
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

// specialAt returns the longest special token that text begins with.
func (g *Guard) specialAt(text string) string {
	if g.starts[text[0]] {
		for _, s := range g.specials {
			if strings.HasPrefix(text, s) {
				return s
			}
		}
	}
	return ""
}

func (g *Guard) appendPlain(segments []Segment, text string) []Segment {
	if text = g.unmark(text); text != "" {
		segments = append(segments, Segment{Text: text})
	}
	return segments
}

// unmark undoes Mark.
func (g *Guard) unmark(text string) string {
	if !strings.ContainsFunc(text, isReserved) {
		return text
	}
	originals := []string{
		string(escape) + string(escapeMark), string(mark),
		string(escape) + string(escapeSelf), string(escape),
		string(mark), "",
	}
	for r, stand := range g.single {
		originals = append(originals, string(stand), string(r))
	}
	return strings.NewReplacer(originals...).Replace(text)
}
