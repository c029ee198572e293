package haiku

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// naiveStop says what a stopMatcher must answer, from the whole text.
func naiveStop(stops []string, text []byte) (hold, drop int, matched bool) {
	at := len(text)
	for _, s := range stops {
		if i := bytes.Index(text, []byte(s)); i >= 0 && i < at {
			at, matched = i, true
		}
		for n := 1; n < len(s); n++ {
			if bytes.HasSuffix(text, []byte(s[:n])) {
				hold = max(hold, n)
			}
		}
	}
	if matched {
		return 0, len(text) - at, true
	}
	return hold, 0, false
}

func TestStopMatcherAnswersAsASearchOfTheWholeTextDoes(t *testing.T) {
	// Few letters make partial matches that overlap each other.
	letters := rapid.StringMatching(`[ab]{1,6}`)
	rapid.Check(t, func(t *rapid.T) {
		stops := rapid.SliceOfN(letters, 0, 4).Draw(t, "stops")
		m := newStopMatcher(newStopRules(stops))
		var text []byte
		for _, piece := range rapid.SliceOf(rapid.StringMatching(`[abc]{0,5}`)).Draw(t, "pieces") {
			text = append(text, piece...)
			hold, drop, matched := m.add([]byte(piece))
			wantHold, wantDrop, wantMatched := naiveStop(stops, text)
			if hold != wantHold || drop != wantDrop || matched != wantMatched {
				t.Fatalf("text %q, stops %q: got hold %d, drop %d, %v; want %d, %d, %v",
					text, stops, hold, drop, matched, wantHold, wantDrop, wantMatched)
			}
			if matched {
				return
			}
		}
	})
}

// The cost of a stop string must not depend on its shape: one whose every
// prefix almost matches is as cheap as any other, for the loop that looks for
// it serves all requests.
func TestStopMatcherIsLinear(t *testing.T) {
	stop := strings.Repeat("a", maxStopBytes-1) + "b"
	text := []byte(strings.Repeat(strings.Repeat("a", maxStopBytes-2)+"c", 64))
	rules := newStopRules([]string{stop})
	steps, n := 0, uint16(0)
	for _, b := range text {
		for before := n; ; before = rules[0].border[before-1] {
			steps++
			if before == 0 || rules[0].text[before] == b {
				break
			}
		}
		n = rules[0].step(n, b)
	}
	require.LessOrEqual(t, steps, 2*len(text))
}

func TestStopMatcherDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	m := newStopMatcher(newStopRules([]string{"\n\nUser:", "ENDED"}))
	piece := []byte(" END of\n\nUse")
	require.Zero(t, testing.AllocsPerRun(100, func() { m.add(piece) }))
}

func BenchmarkStopMatcher(b *testing.B) {
	m := newStopMatcher(newStopRules([]string{"\n\nUser:", "</answer>", "ENDED", "###"}))
	piece := []byte(" token")
	b.SetBytes(int64(len(piece)))
	for b.Loop() {
		m.add(piece)
	}
}
