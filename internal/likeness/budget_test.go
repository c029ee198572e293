package likeness_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/internal/likeness"
)

// world is a ground truth: each entry has its own boundary, and some answer
// wrongly now and then however near a prompt is.
type world struct {
	entries  []likeness.Entry
	boundary []float64 // distance at which half of the answers are wrong
	lapse    []float64
	rng      *rand.Rand
}

func newWorld(entries int, lapse float64, seed uint64) *world {
	w := &world{entries: make([]likeness.Entry, entries), rng: rand.New(rand.NewPCG(seed, 1))}
	for range entries {
		w.boundary = append(w.boundary, 0.3+0.4*w.rng.Float64())
		w.lapse = append(w.lapse, lapse*2*w.rng.Float64())
	}
	return w
}

// tally counts the decisions of a stretch of time.
type tally struct{ asked, hits, wrong int }

func (c tally) wrongRate() float64 { return float64(c.wrong) / float64(c.asked) }
func (c tally) hitRate() float64   { return float64(c.hits) / float64(c.asked) }

// upper is the upper end of a 95% confidence interval of the wrong rate
// (Wilson 1927).
func (c tally) upper() float64 {
	const z = 1.96
	n, p := float64(c.asked), c.wrongRate()
	return (p + z*z/(2*n) + z*math.Sqrt(p*(1-p)/n+z*z/(4*n*n))) / (1 + z*z/n)
}

func (w *world) run(b *likeness.Budget, asks int) (c tally) {
	for range asks {
		i := w.rng.IntN(len(w.entries))
		similarity := 1 - 0.3*w.rng.Float64()*w.rng.Float64()
		distance := math.Sqrt(2 - 2*similarity)
		right := w.rng.Float64() < (1-w.lapse[i])/(1+math.Exp(40*(distance-w.boundary[i])))
		c.asked++
		if b.Decide(&w.entries[i], uint64(i), similarity) == likeness.Hit {
			c.hits++
			if !right {
				c.wrong++
			}
			continue
		}
		b.Observe(&w.entries[i], similarity, right)
	}
	return c
}

// TestWrongHitsStayBelowDelta runs worlds with known truth: the upper end of
// the 95% confidence interval of the rate of wrong hits stays below Delta, while hits grow.
func TestWrongHitsStayBelowDelta(t *testing.T) {
	const delta = 0.01
	asks := 8_000
	if testing.Short() {
		asks = 6_000
	}
	for _, tt := range []struct {
		name    string
		entries int
		lapse   float64
		perHit  bool
		least   float64 // share of hits in the end
	}{{"few entries", 4, 0, false, 0.2}, {"many entries", 1000, 0, false, 0.1}, {"many that lapse", 1000, 0.02, false, 0.05}, {"many, bound per hit", 1000, 0, true, 0.001}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, b := newWorld(tt.entries, tt.lapse, 7), likeness.NewBudget(likeness.BudgetOptions{Delta: delta, PerHit: tt.perHit, Seed: 3})
			early := w.run(b, asks/10)
			late := w.run(b, asks)
			for _, c := range []tally{early, late} {
				t.Logf("asked %d, hits %.1f%%, wrong %.3f%% (up to %.3f%%), of hits %.3f%%", c.asked, 100*c.hitRate(), 100*c.wrongRate(), 100*c.upper(), 100*float64(c.wrong)/float64(max(c.hits, 1)))
				require.LessOrEqual(t, c.wrongRate(), delta)
			}
			require.LessOrEqual(t, late.upper(), delta)
			require.Greater(t, late.hitRate(), early.hitRate())
			require.Greater(t, late.hitRate(), tt.least)
		})
	}
}

func TestColdBudgetExplores(t *testing.T) {
	b := likeness.NewBudget(likeness.BudgetOptions{})
	var e likeness.Entry
	for range 1000 {
		require.Equal(t, likeness.Explore, b.Decide(&e, 1, 1))
	}
	require.Equal(t, likeness.Explore, b.Decide(&e, 1, math.NaN()))
}

// TestErrorsSilenceAnEntry checks that an entry that was wrong does not lean on
// the others any more.
func TestErrorsSilenceAnEntry(t *testing.T) {
	b := likeness.NewBudget(likeness.BudgetOptions{Shadow: -1})
	var good, bad likeness.Entry
	for range 3000 {
		b.Observe(&good, 0.99, true)
	}
	require.Equal(t, likeness.Hit, b.Decide(&good, 1, 0.99))
	require.Equal(t, likeness.Hit, b.Decide(&bad, 2, 0.99), "a new entry leans on what is known of all")
	b.Observe(&bad, 0.99, false)
	for range 100 {
		require.Equal(t, likeness.Explore, b.Decide(&bad, 2, 0.99))
	}
}

func TestDecisionsFollowTheSeed(t *testing.T) {
	run := func(seed uint64) tally {
		return newWorld(10, 0, 5).run(likeness.NewBudget(likeness.BudgetOptions{Delta: 0.05, Seed: seed}), 2000)
	}
	require.Equal(t, run(1), run(1))
	require.NotEqual(t, run(1), run(2))
}

// TestEntryForgets checks that counts do not overflow and that new errors
// outweigh an old record.
func TestEntryForgets(t *testing.T) {
	if testing.Short() {
		t.Skip("many observations")
	}
	b := likeness.NewBudget(likeness.BudgetOptions{Shadow: -1})
	var e likeness.Entry
	for range 40_000 {
		b.Observe(&e, 0.99, true)
	}
	require.Equal(t, likeness.Hit, b.Decide(&e, 1, 0.99))
	for range 2000 {
		b.Observe(&e, 0.99, false)
	}
	hits := 0
	for range 100 {
		if b.Decide(&e, 1, 0.99) == likeness.Hit {
			hits++
		}
	}
	require.Less(t, hits, 50)
}

func BenchmarkBudget(b *testing.B) {
	budget := likeness.NewBudget(likeness.BudgetOptions{})
	w := newWorld(100, 0.01, 1)
	w.run(budget, 2000)
	b.Run("decide", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			budget.Decide(&w.entries[0], 0, 0.97)
		}
	})
	b.Run("observe", func(b *testing.B) {
		i := 0
		for b.Loop() {
			i++
			budget.Observe(&w.entries[i%100], 0.97, i%50 != 0)
		}
	})
}
