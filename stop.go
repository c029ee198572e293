package haiku

import "bytes"

// stopRule is one stop string, ready to be looked for in a growing text.
type stopRule struct {
	text []byte
	// border[i] is the length of the longest proper prefix of text that
	// text[:i+1] ends with: where matching goes on after a mismatch, so that
	// no byte of an answer is looked at again, whatever the stop string is.
	border []uint16
}

func newStopRules(stops []string) []stopRule {
	rules := make([]stopRule, len(stops))
	for i, s := range stops {
		rules[i] = stopRule{[]byte(s), make([]uint16, len(s))}
		for at, n := 1, uint16(0); at < len(s); at++ {
			n = rules[i].step(n, s[at])
			rules[i].border[at] = n
		}
	}
	return rules
}

// step returns how much of the rule's text is matched after b when n bytes of
// it, less than all, were matched before.
func (r *stopRule) step(n uint16, b byte) uint16 {
	for n > 0 && r.text[n] != b {
		n = r.border[n-1]
	}
	if r.text[n] == b {
		n++
	}
	return n
}

// find goes on matching through piece from a partial match of n bytes. It
// returns the match's end in piece, or -1 and the partial match at piece's end.
func (r *stopRule) find(n uint16, piece []byte) (end int, partial uint16) {
	for i := 0; i < len(piece); i++ {
		if n == 0 {
			skip := bytes.IndexByte(piece[i:], r.text[0])
			if skip < 0 {
				return -1, 0
			}
			i += skip
		}
		if n = r.step(n, piece[i]); int(n) == len(r.text) {
			return i + 1, 0
		}
	}
	return -1, n
}

// stopMatcher looks for the earliest stop string in the text of one choice as
// it grows. It runs on the producer's side, so that generation ends at the
// very step whose text completes a match, and tells the reader how many bytes
// must wait because they could still become one.
type stopMatcher struct {
	rules   []stopRule
	partial []uint16 // [rule] bytes of it that the text so far ends with
}

func newStopMatcher(rules []stopRule) stopMatcher {
	return stopMatcher{rules: rules, partial: make([]uint16, len(rules))}
}

// add appends the text of the next piece. On a match, drop is the number of
// bytes to cut from the end of the text; otherwise hold is the number of bytes
// at its end that are a proper prefix of a stop string. Of several matches
// that one piece completes, the one that begins first counts.
func (m *stopMatcher) add(piece []byte) (hold, drop int, matched bool) {
	for i := range m.rules {
		r := &m.rules[i]
		end, partial := r.find(m.partial[i], piece)
		m.partial[i] = partial
		if end >= 0 {
			drop, matched = max(drop, len(piece)-end+len(r.text)), true
		}
		hold = max(hold, int(partial))
	}
	if matched {
		hold = 0
	}
	return hold, drop, matched
}
