package likeness

import (
	"strconv"
	"strings"
	"unicode"
)

// small are number words and what they are worth.
var small = map[string]int64{
	"zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
	"eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16, "seventeen": 17, "eighteen": 18,
	"nineteen": 19, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90, "dozen": 12,
}

var scales = map[string]int64{"hundred": 100, "thousand": 1000, "million": 1e6, "billion": 1e9, "trillion": 1e12}

var ordinals = map[string]int64{
	"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9, "tenth": 10,
	"eleventh": 11, "twelfth": 12, "thirteenth": 13, "fifteenth": 15, "twentieth": 20, "hundredth": 100,
}

// spoken adds up number words: "two hundred five", "three million".
type spoken struct {
	total, last int64
	any         bool
}

// take adds one word and reports whether it belongs to the number.
func (s *spoken) take(w string) bool {
	if v, ok := small[w]; ok {
		// "five five" is two numbers.
		if s.any && (s.last%10 != 0 || s.last == 0 || s.last%100 != 0 && v >= 10) {
			return false
		}
		s.last, s.any = s.last+v, true
		return true
	}
	v, ok := scales[w]
	if !ok || s.total > 1e15 {
		return false
	}
	s.last, s.any = max(s.last, 1)*v, true
	if v >= 1000 {
		s.total, s.last = s.total+s.last, 0
	}
	return true
}

func (s *spoken) value() string { return strconv.FormatInt(s.total+s.last, 10) }

// figure reads a word that begins with a digit: its value in one form, and the
// unit or ending behind it. Separators of thousands and a v before a version
// are left out; dates as 2024-01-05 become day, month and year.
func figure(w string) (values []string, unit string, ok bool) {
	body := strings.TrimLeft(w, "$€£¥~.")
	currency := strings.Trim(w[:len(w)-len(body)], "~.")
	sign := ""
	if strings.HasPrefix(body, "-") {
		body, sign = body[1:], "-"
	}
	if len(body) > 1 && (body[0] == 'v' || body[0] == 'V') {
		body = body[1:]
	}
	end := strings.IndexFunc(body, func(r rune) bool { return !unicode.IsDigit(r) && !strings.ContainsRune(".,:/-", r) })
	if end < 0 {
		end = len(body)
	}
	digits := strings.TrimRight(body[:end], ".,:/-")
	if digits == "" || !strings.ContainsFunc(digits[:min(len(digits), 4)], unicode.IsDigit) {
		return nil, "", false
	}
	unit = strings.ToLower(strings.TrimLeft(body[len(digits):], "-"))
	if unit == "" {
		unit = currency
	}
	if parts := strings.Split(digits, "-"); len(parts) == 3 && len(parts[0]) == 4 {
		return []string{"date:" + day(parts[2]) + "-month" + day(parts[1]) + "-" + parts[0]}, unit, true
	}
	for _, part := range strings.Split(digits, "-") {
		values = append(values, plain(part))
	}
	values[0] = sign + values[0]
	return values, unit, true
}

func day(s string) string { return strings.TrimLeft(s, "0") }

// plain writes digits of any script in ASCII and leaves out the commas between
// thousands.
func plain(s string) string {
	groups := strings.Split(s, ",")
	for i, g := range groups {
		if whole, _, _ := strings.Cut(g, "."); i > 0 && len(whole) != 3 {
			return s
		}
	}
	return latin(strings.Join(groups, ""))
}

// latin replaces decimal digits of other scripts, which Unicode arranges in
// runs from zero to nine.
func latin(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= unicode.MaxASCII || !unicode.IsDigit(r) {
			return r
		}
		zero := r
		for zero > 0 && r-zero < 9 && unicode.IsDigit(zero-1) {
			zero--
		}
		return '0' + r - zero
	}, s)
}
