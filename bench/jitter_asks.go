//go:build unix

package main

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// newAsk draws all of a request but its time and group. Every request has its
// draws, whether it computes anything or not: so all policies meet the same.
func newAsk(r *rand.Rand, groups []phrasings, group int, at time.Duration) ask {
	a := ask{at: at, group: group, phrase: r.IntN(len(groups[group].similarity))}
	for i := range a.draws {
		a.draws[i] = 2*r.Float64() - 1
	}
	return a
}

// popularity is each group's share of the requests: Zipf's law, exponent 1.
func popularity(groups int) []float64 {
	shares, sum := make([]float64, groups), 0.0
	for i := range shares {
		shares[i] = 1 / float64(i+1)
		sum += shares[i]
	}
	for i := range shares {
		shares[i] /= sum
	}
	return shares
}

// steadyAsks come independently of each other: so many a second, some groups
// more often than others.
func steadyAsks(groups []phrasings, perSecond float64, during time.Duration) (asks []ask) {
	r := rand.New(rand.NewPCG(5, 5))
	for group, share := range popularity(len(groups)) {
		gap := float64(time.Second) / (perSecond * share)
		for at := r.ExpFloat64() * gap; at < float64(during); at += r.ExpFloat64() * gap {
			asks = append(asks, newAsk(r, groups, group, time.Duration(at)))
		}
	}
	return inOrder(asks)
}

// waves is what is asked by a timetable: each group so often on average, within
// width of the beginning of each period.
type waves struct {
	asks          float64
	period, width time.Duration
}

func (w waves) make(groups []phrasings, during time.Duration) (asks []ask) {
	r := rand.New(rand.NewPCG(6, 6))
	gap := float64(w.width) / w.asks
	for group := range groups {
		for begin := time.Duration(0); begin < during; begin += w.period {
			for at := r.ExpFloat64() * gap; at < float64(w.width); at += r.ExpFloat64() * gap {
				asks = append(asks, newAsk(r, groups, group, begin+time.Duration(at)))
			}
		}
	}
	return inOrder(asks)
}

func inOrder(asks []ask) []ask {
	slices.SortStableFunc(asks, func(a, b ask) int { return cmp.Compare(a.at, b.at) })
	return asks
}

// asKeys are the same requests where each group is one key, asked in one way.
func asKeys(asks []ask) []ask {
	keys := slices.Clone(asks)
	for i := range keys {
		keys[i].phrase = 0
	}
	return keys
}
