package likeness

import (
	"slices"
	"strings"
	"unicode"

	"github.com/intelliparadigm/haiku/internal/splitmix"
)

// reader collects the features of one text.
type reader struct {
	numbers, quotes, code, names, words, denied []uint32
	denials                                     int
	vague                                       bool // a denial whose object is not clear
	scope                                       bool // the next word of content is denied
	spoken                                      bool // a word that is no question word was read
	question                                    class
	past, future                                bool
	sides                                       sides
	arrangement
}

func (r *reader) read(text string) {
	all := fronted(words(text))
	r.question, all = classify(all)
	for i := 0; i < len(all); {
		i += r.take(all, i)
	}
	r.end()
}

// fronted moves a clause such as "In Python," from the front to the end, where
// it says the same.
func fronted(all []word) []word {
	if len(all) == 0 || !slices.Contains([]string{"in", "on", "for", "using", "with", "at", "during", "under"}, strings.ToLower(all[0].raw)) {
		return all
	}
	for i := range min(len(all)-1, 5) {
		if all[i].comma {
			if all[i+1].opens {
				return all
			}
			moved := slices.Concat(all[i+1:], all[:i+1])
			moved[0].opens = true
			return moved
		}
	}
	return all
}

// take reads what begins at all[i] and returns how many words that was.
func (r *reader) take(all []word, i int) int {
	w := all[i]
	n := 1
	switch {
	case w.quoted:
		r.quotes = append(r.quotes, hash(w.raw))
		r.put(hash("\"" + w.raw))
	case w.literal:
		r.addCode(w.raw)
	default:
		if n = r.number(all, i); n > 0 {
			break
		}
		n = 1
		if isCode(w.raw) {
			r.addCode(strings.TrimSuffix(w.raw, "/"))
		} else {
			r.phrase(w)
		}
	}
	if all[i+n-1].comma {
		r.end()
	}
	return n
}

func (r *reader) addCode(s string) {
	h := hash("`" + s)
	r.code = append(r.code, h)
	r.words = append(r.words, hash(strings.ToLower(s)))
	r.put(h)
}

// number reads a number in digits or words with its unit, or a date.
func (r *reader) number(all []word, i int) int {
	w := all[i].raw
	low := strings.ToLower(w)
	if values, u, ok := figure(w); ok {
		return r.figures(all, i, values, u)
	}
	if m, ok := months[low]; ok && i+1 < len(all) {
		if values, u, ok := figure(all[i+1].raw); ok && len(values) == 1 {
			return 1 + r.date(all, i+1, values[0], u, m)
		}
	}
	if v, ok := ordinals[low]; ok {
		r.ordinal(v)
		return 1
	}
	var s spoken
	n := 0
	for i+n < len(all) && s.take(strings.ToLower(all[i+n].raw)) {
		if n++; all[i+n-1].comma {
			break
		}
	}
	if n == 0 {
		return 0
	}
	if low == "one" && n == 1 && i > 0 && slices.Contains([]string{"which", "this", "that", "the", "any", "every", "another", "no"}, strings.ToLower(all[i-1].raw)) {
		return 0
	}
	return n + r.count(all, i+n, []string{s.value()}, "", all[i+n-1].comma)
}

// figures adds numbers in digits, with what belongs to them.
func (r *reader) figures(all []word, i int, values []string, u string) int {
	if slices.Contains([]string{"st", "nd", "rd", "th"}, u) {
		if next := i + 1; next < len(all) && months[strings.ToLower(all[next].raw)] != "" {
			u = ""
		} else {
			var v int64
			for _, d := range values[0] {
				v = (v*10 + int64(d-'0')) % 1e9
			}
			r.ordinal(v)
			return 1
		}
	}
	if next := i + 1; u == "" && len(values) == 1 && next < len(all) && !all[i].comma {
		if m, ok := months[strings.ToLower(all[next].raw)]; ok {
			date, n := values[0]+"-"+m, 2
			if year, taken := following(all, next); taken > 0 {
				date, n = date+"-"+year, n+taken
			}
			r.amount("date:" + date)
			return n
		}
	}
	return 1 + r.count(all, i+1, values, u, all[i].comma)
}

// date adds a month that comes first, all[i] being the number behind it.
func (r *reader) date(all []word, i int, value, u, month string) int {
	if len(value) == 4 && u == "" {
		r.amount("date:" + month + "-" + value)
		return 1
	}
	date, n := value+"-"+month, 1
	if year, taken := following(all, i); taken > 0 {
		date, n = date+"-"+year, 1+taken
	}
	r.amount("date:" + date)
	return n
}

// following returns the year behind all[i].
func following(all []word, i int) (year string, taken int) {
	if i+1 < len(all) && len(all[i+1].raw) == 4 && !strings.ContainsFunc(all[i+1].raw, func(r rune) bool { return r < '0' || r > '9' }) {
		return all[i+1].raw, 1
	}
	return "", 0
}

func (r *reader) ordinal(v int64) {
	if v == 1 {
		r.sides.add("first", "first")
	}
	h := hash("ordinal") ^ uint32(splitmix.Mix(uint64(v)))
	r.numbers = append(r.numbers, h)
	r.put(h)
}

// count adds numbers with the unit that may follow at all[next].
func (r *reader) count(all []word, next int, values []string, u string, ended bool) (taken int) {
	if u == "" && !ended && next < len(all) {
		if known, ok := unit(strings.ToLower(all[next].raw)); ok {
			u, taken = known, 1
		} else if low := strings.ToLower(all[next].raw); low == "am" || low == "pm" {
			u, taken = low, 1
		}
	}
	if known, ok := unit(u); ok {
		u = known
	}
	for i, v := range values {
		if i < len(values)-1 {
			r.amount(v)
		} else {
			r.amount(v + " " + u)
		}
	}
	return taken
}

func (r *reader) amount(s string) {
	h := hash("#" + strings.TrimSpace(s))
	r.numbers = append(r.numbers, h)
	r.put(h)
}

// phrase reads a word that may be made of several.
func (r *reader) phrase(w word) {
	for i, part := range strings.FieldsFunc(w.raw, func(c rune) bool { return c == '/' || c == '-' }) {
		p := w
		p.raw, p.opens = part, w.opens && i == 0
		if v, ok := small[strings.ToLower(part)]; ok {
			r.amount(plainInt(v))
			continue
		}
		r.one(p)
	}
}

// one reads a single word.
func (r *reader) one(w word) {
	low := strings.Trim(strings.ToLower(w.raw), "'")
	if low == "" {
		return
	}
	low, negated := contraction(low)
	if negated || negation[low] {
		r.denials++
		// "Why isn't it open" denies what comes later; "it isn't open" the
		// next word, as "not" does.
		inverted := negated && !r.spoken
		r.vague, r.scope = r.vague || inverted, !inverted
	}
	if _, asks := questions[low]; !asks {
		r.spoken = true
	}
	acronym := isAcronym(w.raw)
	if light[low] && !acronym {
		r.grammar(low)
		return
	}
	form := canonical(low)
	r.sides.add(low, form)
	h := hash(form)
	if acronym || isName(w, low) {
		r.names = append(r.names, h)
	}
	r.words = append(r.words, h)
	if r.scope {
		r.denied, r.scope = append(r.denied, h), false
	}
	r.put(h)
}

var negation = set("not no never without neither nor none nobody nothing nowhere cannot")

// contraction splits off n't, 's and their like.
func contraction(low string) (rest string, negated bool) {
	if rest, ok := strings.CutSuffix(low, "n't"); ok {
		switch rest {
		case "wo":
			rest = "will"
		case "ca":
			rest = "can"
		case "sha":
			rest = "shall"
		}
		return rest, true
	}
	if head, tail, ok := strings.Cut(low, "'"); ok && head != "" {
		switch tail {
		case "s", "re", "ve", "ll", "d", "m", "":
			return head, false
		}
	}
	return low, false
}

// grammar reads a word without content of its own.
func (r *reader) grammar(low string) {
	switch low {
	case "was", "were", "did", "had":
		r.past = true
	case "will", "shall":
		r.future = r.future || r.question != how && r.question != why
	case "by":
		// The passive turns around who does what to whom.
		r.put(hash("by"))
	case "who", "whom", "whose", "when", "where", "why":
		// Inside a sentence they begin a part of it: what is denied, or asked
		// for, may be before or behind them.
		if len(r.items) > 0 {
			r.put(hash("part "+low) + uint32(r.denials))
		}
	case "of":
		r.of()
	case "or":
		r.alternative()
	case "between":
		r.symmetric = true
	case "and":
		if r.symmetric {
			r.alternative()
			return
		}
		r.end()
	default:
		if !articles[low] || len(r.items) > r.run {
			r.end()
		}
	}
	r.sides.add(low, low)
}

// isAcronym reports whether a word is two or more capitals, with digits.
func isAcronym(w string) bool {
	w = strings.ReplaceAll(strings.TrimSuffix(w, "s"), ".", "")
	return len(w) > 1 && strings.ToUpper(w) == w && strings.ContainsFunc(w, unicode.IsUpper) && !strings.Contains(w, "'")
}

// isName reports whether a word is written as a name. At the front of a
// sentence any word is, unless it is common there.
func isName(w word, low string) bool {
	for _, c := range w.raw {
		return unicode.IsUpper(c) && !(w.opens && (common[low] || common[canonical(low)]))
	}
	return false
}
