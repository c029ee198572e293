package likeness

import (
	"strings"
	"unicode"
)

// isCode reports whether a word is compared as it is written: an identifier, a
// file name or path, an address.
func isCode(w string) bool {
	switch {
	case strings.Contains(w, "://"), strings.Contains(w, "::"), strings.Contains(w, "->"), strings.ContainsAny(w, "_(){}[]=<>\\|&*^"):
		return true
	case strings.HasPrefix(w, "www."), strings.HasPrefix(w, "/"), strings.HasPrefix(w, "./"), strings.HasPrefix(w, "~/"), strings.HasPrefix(w, "--"):
		return true
	case strings.Count(w, "/") > 1 && strings.ContainsFunc(w, unicode.IsLetter):
		return true
	case strings.HasPrefix(w, "$") && len(w) > 1 && unicode.IsLetter(rune(w[1])):
		return true
	}
	return strings.Contains(w, "@") || dotted(w) || camel(w)
}

// dotted reports whether letters stand around a dot, and not only single ones
// as in "e.g." and "U.S.".
func dotted(w string) bool {
	parts := strings.Split(w, ".")
	if len(parts) < 2 {
		return false
	}
	long := false
	for _, p := range parts {
		if p == "" || !strings.ContainsFunc(p, unicode.IsLetter) && !long {
			return false
		}
		long = long || len(p) > 1
	}
	return long
}

// camel reports whether an upper case letter follows a lower case one.
func camel(w string) bool {
	lower := false
	for _, r := range w {
		if lower && unicode.IsUpper(r) {
			return true
		}
		lower = unicode.IsLower(r)
	}
	return false
}
