package likeness

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// maxQuote is how far a quotation in single quotes may reach, in bytes. Beyond
// it the quote is an apostrophe.
const maxQuote = 256

// word is a piece of text between spaces, without the punctuation around it.
type word struct {
	raw     string // as written
	before  string // the punctuation cut off in front
	opens   bool   // it begins a sentence
	comma   bool   // punctuation follows that ends a clause
	literal bool   // raw is a piece of code between backticks
	quoted  bool   // raw is a quotation
}

var evener = strings.NewReplacer("’", "'", "‘", "'", "ʼ", "'", "“", `"`, "”", `"`, "„", `"`, "«", `"`, "»", `"`, "「", `"`, "」", `"`, "—", " - ", "–", "-", "−", "-")

// words cuts a text. What is not UTF-8 becomes replacement characters.
func words(text string) []word {
	if !ascii(text) {
		text = evener.Replace(norm.NFKC.String(strings.ToValidUTF8(text, "\uFFFD")))
	}
	s := scanner{opens: true, missing: map[string]bool{}}
	for text != "" {
		text = s.next(text)
	}
	return s.out
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

type scanner struct {
	out     []word
	opens   bool
	missing map[string]bool // closing marks that do not occur any more
}

// next takes one word, quotation or piece of code from the front of text.
func (s *scanner) next(text string) string {
	text = strings.TrimLeftFunc(text, unicode.IsSpace)
	for _, mark := range []string{"```", "`", `"`} {
		if body, rest, found := s.between(text, mark); found {
			s.add(word{raw: strings.Join(strings.Fields(body), " "), literal: mark != `"`, quoted: mark == `"`})
			return s.ended(rest)
		}
	}
	if body, rest, found := single1(text); found {
		s.add(word{raw: strings.Join(strings.Fields(body), " "), quoted: true})
		return s.ended(rest)
	}
	end := 0
	for end < len(text) {
		r, n := utf8.DecodeRuneInString(text[end:])
		if unicode.IsSpace(r) || end > 0 && (r == '`' || r == '"') {
			break
		}
		end += n
	}
	s.plain(text[:end])
	return text[end:]
}

// between cuts what stands between two marks at the front of text.
func (s *scanner) between(text, mark string) (body, rest string, found bool) {
	if s.missing[mark] || !strings.HasPrefix(text, mark) {
		return "", "", false
	}
	body, rest, found = strings.Cut(text[len(mark):], mark)
	s.missing[mark] = !found
	return body, rest, found
}

// single1 cuts a quotation in single quotes, which must not end inside a word.
func single1(text string) (body, rest string, found bool) {
	if len(text) < 3 || text[0] != '\'' {
		return "", "", false
	}
	for i := 1; i < min(len(text), maxQuote); i++ {
		if text[i] != '\'' {
			continue
		}
		if r, _ := utf8.DecodeRuneInString(text[i+1:]); i+1 == len(text) || !unicode.IsLetter(r) {
			return text[1:i], text[i+1:], true
		}
	}
	return "", "", false
}

// ended notes the punctuation right behind a quotation.
func (s *scanner) ended(rest string) string {
	if rest != "" && strings.IndexByte(",;:.!?", rest[0]) >= 0 {
		s.out[len(s.out)-1].comma = true
		s.opens = strings.IndexByte(".!?", rest[0]) >= 0
		return rest[1:]
	}
	return rest
}

func (s *scanner) add(w word) {
	w.opens = s.opens
	s.opens = false
	s.out = append(s.out, w)
}

// plain adds a word with its punctuation.
func (s *scanner) plain(raw string) {
	inner := strings.TrimLeftFunc(raw, func(r rune) bool { return !inside(r) && !strings.ContainsRune("-$€£¥./~", r) })
	before := raw[:len(raw)-len(inner)]
	body := strings.TrimRightFunc(inner, func(r rune) bool { return !inside(r) && !strings.ContainsRune("+#%$€£¥°/)", r) })
	if strings.HasSuffix(body, ")") && !strings.Contains(body, "(") {
		body = strings.TrimRightFunc(body, func(r rune) bool { return !inside(r) && !strings.ContainsRune("+#%", r) })
	}
	after := inner[len(body):]
	if body = strings.TrimLeft(body, "."); strings.Trim(body, "-/~.") != "" {
		s.add(word{raw: body, before: before})
	}
	if len(s.out) > 0 && strings.ContainsAny(after, ",;:.!?)") {
		s.out[len(s.out)-1].comma = true
	}
	if strings.ContainsAny(after, ".!?") {
		s.opens = true
	}
}

func inside(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) || r == '_' || unicode.IsSymbol(r) && r > unicode.MaxASCII
}
