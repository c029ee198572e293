//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/batch"
)

// replay sends the arrivals to a real batcher in virtual time.
func replay(t *testing.T, arrivals []time.Duration, cost line, w batch.Window) (batches []started) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		first := 0
		b, err := batch.New(func(_ context.Context, reqs []int) ([]batch.Result[int], error) {
			batches = append(batches, started{time.Since(began), first, len(reqs)})
			first += len(reqs)
			elapse(cost.of(len(reqs)))
			return make([]batch.Result[int], len(reqs)), nil
		}, batch.Options{MaxDelay: w.MaxDelay, MaxBatchSize: w.MaxBatchSize, Fixed: w.Fixed})
		require.NoError(t, err)
		var callers sync.WaitGroup
		for i, at := range arrivals {
			elapse(at - time.Since(began))
			callers.Go(func() { _, _ = b.Do(t.Context(), i) })
		}
		callers.Wait()
		require.NoError(t, b.Close())
	})
	return batches
}

// TestTheSimulationIsTheBatcher shows that the table is about the real thing.
func TestTheSimulationIsTheBatcher(t *testing.T) {
	cost := windowCosts[0]
	for _, src := range sources("")[:3] {
		for _, load := range []float64{0.2, 0.7} {
			arrivals, err := src.make(rand.New(rand.NewPCG(1, 1)), 2000, load*cost.capacity(windowSize))
			require.NoError(t, err)
			for _, w := range windows[:3] {
				require.Equal(t, simulate(arrivals, cost, w.rule), replay(t, arrivals, cost, w.rule), "%s, %s", src.name, w.name)
			}
		}
	}
}

// exhaustive tries every schedule.
func exhaustive(arrivals []time.Duration, cost line, most int, free time.Duration) time.Duration {
	if len(arrivals) == 0 {
		return 0
	}
	least := time.Duration(math.MaxInt64)
	for size := 1; size <= min(most, len(arrivals)); size++ {
		end := max(free, arrivals[size-1]) + cost.of(size)
		sum := exhaustive(arrivals[size:], cost, most, end)
		for _, at := range arrivals[:size] {
			sum += end - at
		}
		least = min(least, sum)
	}
	return least
}

func TestTheOracleFindsTheBestSchedule(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 200 {
		cost := line{time.Duration(r.IntN(100)), time.Duration(r.IntN(1000))}
		arrivals, err := poisson(r, 1+r.IntN(12), 1e9/float64(1+r.IntN(1000)))
		require.NoError(t, err)
		want := exhaustive(arrivals, cost, 4, 0) / time.Duration(len(arrivals))
		require.Equal(t, want, oracle(arrivals, cost, 4))
	}
}

func TestChartsAreWellFormed(t *testing.T) {
	for _, c := range []chart{
		{},
		{title: "a < b & c", logY: true, series: []series{{"one", []float64{1, 2, 3}, []float64{0.1, math.NaN(), 1000}}}},
		{maxY: 2, series: []series{{"flat", []float64{1, 2}, []float64{1, 1}}, {"high", []float64{1, 2}, []float64{1, 1e9}}}},
	} {
		dec := xml.NewDecoder(bytes.NewReader(c.draw()))
		for {
			_, err := dec.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
		}
		require.NotContains(t, string(c.draw()), "NaN")
	}
}

// elapse lets virtual time pass.
func elapse(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}
