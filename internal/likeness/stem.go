package likeness

import "strings"

// canonical returns the form under which a word in lower case is compared: its
// synonym, or what is left without an English ending.
func canonical(word string) string {
	if s, ok := synonyms[word]; ok {
		return stem(s)
	}
	if u, ok := unit(word); ok {
		return u
	}
	s := stem(word)
	if c, ok := synonyms[s]; ok {
		return stem(c)
	}
	if c, ok := synonyms[s+"e"]; ok {
		return stem(c)
	}
	return s
}

// unit returns the one form of a unit of measure.
func unit(word string) (string, bool) {
	if u, ok := units[word]; ok {
		return u, true
	}
	u, ok := units[strings.TrimSuffix(word, "s")]
	return u, ok
}

// stem cuts plural and verb endings. It need not find the true root: it must
// only treat the forms of one word alike and keep different words apart.
func stem(w string) string {
	if len(w) < 4 || strings.ContainsFunc(w, func(r rune) bool { return r < 'a' || r > 'z' }) {
		return w
	}
	switch {
	case strings.HasSuffix(w, "ies") && len(w) > 4:
		return w[:len(w)-3] + "y"
	case strings.HasSuffix(w, "sses"), strings.HasSuffix(w, "shes"), strings.HasSuffix(w, "ches"), strings.HasSuffix(w, "xes"), strings.HasSuffix(w, "toes"):
		return bare(w[:len(w)-2])
	case strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") && !strings.HasSuffix(w, "us") && !strings.HasSuffix(w, "is") && w != "news":
		return bare(w[:len(w)-1])
	case strings.HasSuffix(w, "ing") && len(w) > 5 && vowel(w[:len(w)-3]):
		return single(w[:len(w)-3])
	case strings.HasSuffix(w, "ed") && len(w) > 4 && vowel(w[:len(w)-2]):
		return single(w[:len(w)-2])
	}
	return bare(w)
}

func vowel(s string) bool { return strings.ContainsAny(s, "aeiouy") }

// bare drops a silent e, which endings replace.
func bare(w string) string {
	if len(w) > 3 {
		return strings.TrimSuffix(w, "e")
	}
	return w
}

// single undoes the doubling of a consonant before an ending.
func single(w string) string {
	if n := len(w); n > 3 && w[n-1] == w[n-2] && !strings.ContainsRune("lsz", rune(w[n-1])) {
		return w[:n-1]
	}
	return bare(w)
}
