package batch

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drawn is a random rule with a random past, at a random moment.
type drawn struct {
	window Window
	state  State
	now    time.Duration
}

func draw(t *rapid.T) drawn {
	d := drawn{now: time.Duration(rapid.Int64Range(1, 1e10).Draw(t, "start"))}
	d.window = Window{
		MaxDelay:     time.Duration(rapid.Int64Range(-1, 2e7).Draw(t, "max delay")),
		MaxBatchSize: rapid.IntRange(1, 40).Draw(t, "max size"),
		Fixed:        rapid.Bool().Draw(t, "fixed"),
	}
	d.window.PreferredSizes = rapid.SliceOfN(rapid.IntRange(1, d.window.MaxBatchSize), 0, 3).Draw(t, "preferred")
	slices.Sort(d.window.PreferredSizes)
	d.state.Arrivals, d.state.Cost = &Arrivals{}, &Cost{}
	scale := rapid.SampledFrom([]int64{1e3, 1e5, 1e7, 1e10}).Draw(t, "scale")
	oldest := d.now
	for range rapid.IntRange(0, 60).Draw(t, "arrivals") {
		oldest = d.now
		d.now += time.Duration(rapid.Int64Range(0, scale).Draw(t, "gap"))
		d.state.Arrivals.Observe(d.now)
	}
	d.now += time.Duration(rapid.Int64Range(0, 1e6).Draw(t, "age"))
	for range rapid.IntRange(0, 20).Draw(t, "calls") {
		d.state.Cost.Observe(rapid.IntRange(1, 40).Draw(t, "size"), time.Duration(rapid.Int64Range(0, 1e8).Draw(t, "took")))
	}
	d.state.Waiting = rapid.IntRange(0, 60).Draw(t, "waiting")
	d.state.IdleWorkers = rapid.IntRange(0, 3).Draw(t, "idle")
	d.state.Oldest = oldest
	if rapid.Bool().Draw(t, "has deadline") {
		d.state.Deadline = d.now + time.Duration(rapid.Int64Range(-1e6, 1e8).Draw(t, "deadline"))
	}
	if rapid.Bool().Draw(t, "has timeout") {
		d.state.Expiry = d.now + time.Duration(rapid.Int64Range(-1e6, 1e8).Draw(t, "timeout"))
	}
	return d
}

func TestWindowKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		arrivals, cost := *d.state.Arrivals, *d.state.Cost
		got := d.window.Decide(d.now, d.state)
		require.Equal(t, arrivals, *d.state.Arrivals, "a decision changes nothing")
		require.Equal(t, cost, *d.state.Cost)
		require.Equal(t, got, d.window.Decide(d.now, d.state))
		if d.state.Waiting == 0 || d.state.IdleWorkers == 0 {
			require.Zero(t, got)
			return
		}
		if got.Size > 0 {
			require.LessOrEqual(t, got.Size, min(d.state.Waiting, d.window.MaxBatchSize))
			return
		}
		require.Less(t, d.state.Waiting, d.window.MaxBatchSize, "a full batch starts")
		require.Greater(t, got.Until, d.now)
		require.LessOrEqual(t, got.Until, d.state.Oldest+d.window.MaxDelay)
		if d.state.Expiry > 0 {
			require.LessOrEqual(t, got.Until, d.state.Expiry)
		}
		if d.state.Deadline > 0 {
			require.LessOrEqual(t, got.Until+d.state.Cost.Predict(d.state.Waiting), d.state.Deadline)
		}
		for _, size := range d.window.PreferredSizes {
			require.Less(t, d.state.Waiting, size, "a preferred size starts")
		}
	})
}

func TestWindowDoesNotReopenWhenItEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		if got := d.window.Decide(d.now, d.state); got.Until > 0 {
			require.Positive(t, d.window.Decide(got.Until, d.state).Size)
		}
	})
}

func TestAdaptiveWindowIsNeverWiderThanTheFixedOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		d.window.Fixed = true
		fixed := d.window.Decide(d.now, d.state)
		d.window.Fixed = false
		adaptive := d.window.Decide(d.now, d.state)
		if fixed.Size > 0 {
			require.Equal(t, fixed, adaptive)
		} else {
			require.LessOrEqual(t, adaptive.Until, fixed.Until)
		}
	})
}

// past returns arrivals with the given gaps and calls of 0.5 ms per request and
// 4 ms each, after which waiting requests and one idle worker are left.
func past(gap func() time.Duration, waiting int) (time.Duration, State) {
	s := State{Waiting: waiting, IdleWorkers: 1, Arrivals: &Arrivals{}, Cost: &Cost{}}
	now := time.Second
	for i := range 200 {
		now += gap()
		s.Arrivals.Observe(now)
		s.Cost.Observe(1+i%8, 4*time.Millisecond+time.Duration(1+i%8)*time.Millisecond/2)
	}
	s.Oldest = now
	return now, s
}

func TestWindowOpensOnlyWhereItPays(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	poisson := func(mean time.Duration) func() time.Duration {
		return func() time.Duration { return time.Duration(float64(mean) * r.ExpFloat64()) }
	}
	i := 0
	volleys := func() time.Duration { // of five, 20 µs apart, one per second
		i++
		if i%5 == 0 {
			return time.Second
		}
		return 20 * time.Microsecond
	}
	w := Window{MaxDelay: 5 * time.Millisecond, MaxBatchSize: 8}
	for _, tt := range []struct {
		name    string
		gap     func() time.Duration
		waiting int
		opens   bool
	}{
		{"idle", poisson(time.Second), 1, false},
		{"rare", poisson(20 * time.Millisecond), 1, false},
		{"dense", poisson(500 * time.Microsecond), 1, true},
		{"dense, and enough wait", poisson(2 * time.Millisecond), 7, false},
		{"volleys", volleys, 1, true},
	} {
		now, s := past(tt.gap, tt.waiting)
		got := w.Decide(now, s)
		require.Equal(t, tt.opens, got.Size == 0, "%s: %+v", tt.name, got)
		if tt.name == "volleys" {
			require.Less(t, got.Until-now, 100*time.Microsecond, "no longer than the volley needs")
		}
		s.IdleWorkers = 2
		require.Positive(t, w.Decide(now, s).Size, "%s: another worker is idle for the next request", tt.name)
	}
}

func TestCostFindsTheLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		perItem := rapid.Float64Range(0, 1e6).Draw(t, "a")
		perBatch := rapid.Float64Range(0, 1e7).Draw(t, "b")
		var c Cost
		for range 100 {
			n := rapid.IntRange(1, 32).Draw(t, "n")
			c.Observe(n, time.Duration(perItem*float64(n)+perBatch))
			require.GreaterOrEqual(t, c.PerItem(), time.Duration(0))
			require.GreaterOrEqual(t, c.PerBatch(), time.Duration(0))
		}
		for n := range 32 {
			if c.known {
				require.InDelta(t, perItem*float64(n+1)+perBatch, float64(c.Predict(n+1)), 1e-3*(perItem*float64(n+1)+perBatch)+100)
			}
		}
	})
}

func TestCostOfUnknownCallsPromisesNoSaving(t *testing.T) {
	var c Cost
	for range 10 {
		c.Observe(4, 8*time.Millisecond)
	}
	require.Equal(t, 2*time.Millisecond, c.PerItem())
	require.Zero(t, c.PerBatch())
}

func TestCostShrugsOffAPause(t *testing.T) {
	var c Cost
	for i := range 100 {
		c.Observe(1+i%4, 5*time.Millisecond)
	}
	c.Observe(1, 10*time.Second)
	require.Less(t, c.Predict(2), 8*time.Millisecond)
	require.GreaterOrEqual(t, c.AtMost(2), c.Predict(2))
}

func TestRateFollowsTheArrivals(t *testing.T) {
	var a Arrivals
	require.Zero(t, a.Rate(0))
	now := time.Second
	for range 200 {
		now += 10 * time.Millisecond
		a.Observe(now)
	}
	require.InDelta(t, 100, a.Rate(now), 1)
	require.Less(t, a.Rate(now+10*time.Second), 2.0, "silence counts")
	now += time.Hour
	a.Observe(now)
	require.Greater(t, a.Rate(now), 50.0, "and one idle hour is one gap")
}

func BenchmarkDecide(b *testing.B) {
	now, s := past(func() time.Duration { return 500 * time.Microsecond }, 2)
	w := Window{MaxDelay: 5 * time.Millisecond, MaxBatchSize: 8}
	b.ReportAllocs()
	for b.Loop() {
		w.Decide(now, s)
	}
}

func TestTimesBeyondAllTimeDoNotWrapAround(t *testing.T) {
	w := Window{MaxDelay: math.MaxInt64, MaxBatchSize: 8, Fixed: true}
	require.Equal(t, Verdict{Until: math.MaxInt64}, w.Decide(2*time.Second, State{Waiting: 1, IdleWorkers: 1, Oldest: time.Second}))
	_, err := New(func(context.Context, []int) ([]Result[int], error) { return nil, nil }, Options{MaxBatchSize: math.MaxInt})
	require.Error(t, err)
	synctest.Test(t, func(t *testing.T) {
		b, err := New(func(_ context.Context, r []int) ([]Result[int], error) { return make([]Result[int], len(r)), nil }, Options{Fixed: true, MaxDelay: 100 * time.Millisecond})
		require.NoError(t, err)
		defer b.Close()
		for _, deadline := range []time.Time{time.Now().Add(time.Hour), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)} {
			ctx, cancel := context.WithDeadline(t.Context(), deadline)
			start := time.Now()
			_, err := b.Do(ctx, 1)
			require.NoError(t, err)
			require.Equal(t, 100*time.Millisecond, time.Since(start), deadline)
			cancel()
		}
	})
}
