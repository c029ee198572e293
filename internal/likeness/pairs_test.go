package likeness_test

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/internal/likeness"
)

// pair is two prompts of testdata/pairs.txt and whether they ask for the same.
type pair struct {
	a, b, kind string
	same       bool
}

func pairs(t testing.TB) (all []pair) {
	file, err := os.Open("testdata/pairs.txt")
	require.NoError(t, err)
	defer file.Close()
	var a string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		mark, rest, _ := strings.Cut(lines.Text(), " ")
		switch mark {
		case "?":
			a = rest
		case "=":
			all = append(all, pair{a, rest, "same", true})
		case "!":
			kind, b, _ := strings.Cut(rest, ": ")
			all = append(all, pair{a, b, kind, false})
		}
	}
	require.Greater(t, len(all), 300)
	return all
}

// TestGatesOnLabelledPairs holds the gates to what they are for: no pair that
// asks for something else passes, and more than half of the others do.
func TestGatesOnLabelledPairs(t *testing.T) {
	same, passed := 0, 0
	for _, p := range pairs(t) {
		ok, why := likeness.Same(likeness.Of(p.a), likeness.Of(p.b))
		if !p.same {
			if ok {
				t.Errorf("%s: %q passes as %q", p.kind, p.b, p.a)
			}
			continue
		}
		same++
		if ok {
			passed++
		} else {
			t.Logf("refused by %v: %q for %q", why, p.b, p.a)
		}
	}
	t.Logf("%d of %d rewordings pass", passed, same)
	require.Greater(t, 2*passed, same)
}
