package chattemplate

import (
	"regexp"
	"strings"
)

// prepared returns source as the engine needs it to mean what Jinja means.
//
// Conditional expressions inside brackets, which the engine only knows outside,
// become what it knows:
//
//	(a if test else b)    ((test) and [a] or [b])[0]
//
// And lstrip_blocks is done here, since the engine takes what follows a tag for
// the beginning of a line: the white space before a block or a comment goes
// only where nothing but it is on the line. Comments and raw blocks stay.
func prepared(source string) string {
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	var out strings.Builder
	for first := true; ; first = false {
		text, tag := nextTag(source)
		source = source[len(text)+len(tag):]
		if tag == "" {
			out.WriteString(text)
			return out.String()
		}
		out.WriteString(stripLine(text, tag, first))
		if strings.HasPrefix(tag, "{#") || isRaw(tag) {
			out.WriteString(tag)
			continue
		}
		r := scanner{text: tag[2 : len(tag)-2]}
		out.WriteString(tag[:2] + r.group(0) + tag[len(tag)-2:])
	}
}

// nextTag returns the text before the first tag, comment or raw block, and
// that, which is empty if there is none.
func nextTag(source string) (text, tag string) {
	for at := 0; ; at++ {
		brace := strings.IndexByte(source[at:], '{')
		if brace < 0 || at+brace+1 >= len(source) {
			return source, ""
		}
		at += brace
		switch end := tagEnd(source[at:]); {
		case end < 0:
			return source, ""
		case end > 1:
			return source[:at], source[at : at+end]
		}
	}
}

// stripLine returns text without the white space that lstrip_blocks takes from
// before tag.
func stripLine(text, tag string, first bool) string {
	if strings.HasPrefix(tag, "{{") || tag[2] == '+' || tag[2] == '-' {
		return text
	}
	line := strings.LastIndexByte(text, '\n') + 1
	if strings.TrimSpace(text[line:]) != "" || (line == 0 && !first) {
		return text
	}
	return text[:line]
}

// tagEnd returns the length of the tag, comment or raw block that text begins
// with: 1 for a brace that begins none, and -1 for a tag without an end.
func tagEnd(text string) int {
	ends := map[byte]string{'{': "}}", '%': "%}", '#': "#}"}
	end, ok := ends[text[1]]
	if !ok {
		return 1
	}
	i := endOutsideStrings(text, end)
	if i < 0 || !isRaw(text[:i]) {
		return i
	}
	shut := strings.Index(text[i:], "endraw")
	if shut < 0 {
		return -1
	}
	if rest := strings.Index(text[i+shut:], "%}"); rest >= 0 {
		return i + shut + rest + 2
	}
	return -1
}

var rawTag = regexp.MustCompile(`^\{%[-+]?\s*raw\b`)

func isRaw(tag string) bool { return rawTag.MatchString(tag) }

// endOutsideStrings returns the offset just after the first end that is not in
// a string literal.
func endOutsideStrings(text, end string) int {
	for i := 2; i < len(text); i++ {
		if strings.HasPrefix(text[i:], end) {
			return i + len(end)
		}
		if c := text[i]; (c == '\'' || c == '"') && end != "#}" {
			i += literal(text[i:]) - 1
		}
	}
	return -1
}

// literal returns the length of the string literal that text begins with.
func literal(text string) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case text[0]:
			return i + 1
		}
	}
	return len(text)
}

// scanner walks over the inside of one tag.
type scanner struct {
	text string
	at   int
}

// word is an "if" or "else" that belongs to an element of a group.
type word struct {
	is         string
	start, end int // in the element's text
}

// group returns the rewritten text up to the closing bracket, or to the end
// for closer 0, where conditionals are left to the engine.
func (r *scanner) group(closer byte) string {
	var out, element strings.Builder
	var words []word
	flush := func() {
		out.WriteString(rewriteElement(element.String(), words))
		element.Reset()
		words = nil
	}
	for r.at < len(r.text) && (closer == 0 || r.text[r.at] != closer) {
		switch c := r.text[r.at]; {
		case c == '\'' || c == '"':
			element.WriteString(r.take(literal(r.text[r.at:])))
		case c == '(' || c == '[' || c == '{':
			r.at++
			shut := map[byte]byte{'(': ')', '[': ']', '{': '}'}[c]
			inner := r.group(shut)
			element.WriteByte(c)
			element.WriteString(inner)
			if r.at < len(r.text) {
				r.at++
				element.WriteByte(shut)
			}
		case c == ',':
			r.at++
			flush()
			out.WriteByte(',')
		case isWordByte(c):
			start := element.Len()
			name := r.take(wordLength(r.text[r.at:]))
			element.WriteString(name)
			if (name == "if" || name == "else") && (closer == ')' || closer == ']') {
				words = append(words, word{name, start, element.Len()})
			}
		default:
			element.WriteString(r.take(1))
		}
	}
	flush()
	return out.String()
}

func (r *scanner) take(n int) string {
	s := r.text[r.at : r.at+n]
	r.at += n
	return s
}

func isWordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func wordLength(text string) int {
	n := 0
	for n < len(text) && isWordByte(text[n]) {
		n++
	}
	return n
}

var keywordArgument = regexp.MustCompile(`^\s*[A-Za-z_]\w*\s*=[^=]`)

// rewriteElement rewrites "a if test else b", which takes up the whole of an
// element, b being possibly another conditional. A chain that no tree may be
// as deep as is left for the engine to refuse: the work grows with its square.
func rewriteElement(text string, words []word) string {
	if len(words) == 0 || words[0].is != "if" || len(words) > maxTreeDepth {
		return text
	}
	prefix := ""
	if m := keywordArgument.FindString(text); m != "" {
		prefix = m[:len(m)-1]
	}
	value, test, other := text[len(prefix):words[0].start], text[words[0].end:], "''"
	if len(words) > 1 && words[1].is == "else" {
		test = text[words[0].end:words[1].start]
		other = text[words[1].end:]
		rest := make([]word, 0, len(words))
		for _, w := range words[2:] {
			rest = append(rest, word{w.is, w.start - words[1].end, w.end - words[1].end})
		}
		other = rewriteElement(other, rest)
	}
	return prefix + "((" + test + ") and [" + value + "] or [" + other + "])[0]"
}
