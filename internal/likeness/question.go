package likeness

import (
	"slices"
	"strings"
)

// class is what kind of answer a text asks for.
type class uint8

const (
	what class = iota // what, which, or told to
	who
	when
	where
	why
	how
	howMany
	howMuch
	howLong
	howOften
	is // yes or no, by the verb in front
	do
	have
	can
	should
	will
	told // a statement about someone
)

var pronouns = set("i you he she it we they")

var quantities = map[string]class{"many": howMany, "much": howMuch, "long": howLong, "often": howOften}

var questions = map[string]class{"what": what, "which": what, "who": who, "whom": who, "whose": who, "when": when, "where": where, "why": why, "how": how}

var auxiliaries = map[string]class{
	"is": is, "are": is, "was": is, "were": is, "am": is, "isn't": is, "aren't": is, "wasn't": is,
	"do": do, "does": do, "did": do, "don't": do, "doesn't": do, "didn't": do,
	"have": have, "has": have, "had": have, "can": can, "could": can, "may": can, "can't": can,
	"should": should, "must": should, "shouldn't": should, "will": will, "would": will, "won't": will,
}

// classify returns the class of a text, and the text without the phrases that
// only ask politely.
func classify(all []word) (class, []word) {
	all = withoutCourtesy(all)
	for i := range all {
		if all[i].quoted || all[i].literal {
			continue
		}
		low := strings.ToLower(all[i].raw)
		low, _, _ = strings.Cut(low, "'s")
		c, ok := questions[low]
		// "When it rains" is no question, nor is "the man who": only what
		// comes first, or first in a clause, asks.
		if !ok || i > 0 && !all[i-1].comma && !all[i].opens && !slices.Contains([]string{"in", "at", "explain", "tell", "me", "know", "to", "for", "by"}, strings.ToLower(all[i-1].raw)) {
			continue
		}
		if i > 0 && strings.EqualFold(all[i-1].raw, "explain") {
			all = slices.Concat(all[:i-1], all[i:])
			i--
		}
		return refine(c, all, i)
	}
	if len(all) > 0 && !all[0].quoted && !all[0].literal {
		if c, ok := auxiliaries[strings.ToLower(all[0].raw)]; ok {
			return c, all
		}
		if pronouns[strings.ToLower(all[0].raw)] {
			return told, all
		}
	}
	return what, all
}

// refine looks at the word behind the question word: "how many", "what year".
func refine(c class, all []word, i int) (class, []word) {
	if i+1 == len(all) {
		return c, all
	}
	next := strings.ToLower(all[i+1].raw)
	if q, ok := quantities[next]; ok && c == how {
		return q, all
	}
	if c == what && next == "time" {
		return when, slices.Delete(slices.Clone(all), i+1, i+2)
	}
	return c, all
}

var courtesies = [][]string{{"please"}, {"kindly"}, {"can", "you"}, {"could", "you"}, {"would", "you"}, {"will", "you"}, {"tell", "me"}, {"i", "want", "to", "know"}, {"do", "you", "know"}}

// withoutCourtesy cuts phrases of politeness off the front.
func withoutCourtesy(all []word) []word {
	for again := true; again; {
		again = false
		for _, phrase := range courtesies {
			if len(all) > len(phrase) && begins(all, phrase) {
				all, again = all[len(phrase):], true
				all[0].opens = true
			}
		}
	}
	return all
}

func begins(all []word, phrase []string) bool {
	for i, p := range phrase {
		if !strings.EqualFold(all[i].raw, p) || all[i].quoted || all[i].literal {
			return false
		}
	}
	return true
}
