package infer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
)

// wanted answers a prompt that is no other's within an objective and returns
// when the first token came.
func wanted(ctx context.Context, m haiku.Model, number int, o haiku.Objective) (time.Duration, error) {
	start, first := time.Now(), time.Duration(0)
	req := ask(fmt.Sprintf("%08d %s", number, strings.Repeat("x", 80)))
	req.Objective = o
	for _, err := range haiku.NewStream(ctx, m, req).Tokens() {
		if err != nil {
			return 0, err
		}
		if first == 0 {
			first = time.Since(start)
		}
	}
	return first, nil
}

// slowly is an executor on which a request takes about 100 ms alone.
func slowly() *haikutest.Executor {
	return counting(20, func(cfg *haikutest.Config) {
		cfg.Costs = haikutest.Costs{Step: 4 * time.Millisecond, PrefillToken: 100 * time.Microsecond, DecodeSequence: 500 * time.Microsecond}
	})
}

func TestARequestThatWouldBeLateIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := haikutest.NewEngine(t, slowly(), infer.Options{MaxSequences: 4})
		for i := range 8 {
			_, err := wanted(t.Context(), engine, i, haiku.Objective{})
			require.NoError(t, err)
		}
		var backlog sync.WaitGroup
		for i := range 40 {
			backlog.Go(func() {
				_, err := wanted(t.Context(), engine, 100+i, haiku.Objective{Priority: -1})
				require.NoError(t, err)
			})
		}
		elapse(10 * time.Millisecond)
		start := time.Now()
		_, err := wanted(t.Context(), engine, 200, haiku.Objective{TTFT: 200 * time.Millisecond})
		require.ErrorIs(t, err, haiku.ErrTooBusy)
		require.Zero(t, time.Since(start))
		retry := haiku.ErrorFrom(err).RetryAfter
		require.Greater(t, retry, 200*time.Millisecond)
		require.Less(t, retry, 5*time.Second)

		got, err := wanted(t.Context(), engine, 201, haiku.Objective{TTFT: time.Minute})
		require.NoError(t, err, "an easier objective is met")
		require.Less(t, got, time.Minute)
		elapse(retry - time.Since(start))
		got, err = wanted(t.Context(), engine, 202, haiku.Objective{TTFT: 200 * time.Millisecond})
		require.NoError(t, err, "the time to come back was right")
		require.LessOrEqual(t, got, 200*time.Millisecond)
		backlog.Wait()

		_, err = wanted(t.Context(), engine, 203, haiku.Objective{TTFT: time.Millisecond})
		require.ErrorIs(t, err, haiku.ErrTooBusy, "not even an idle engine can")
	})
}

// TestOverloadDoesNotCostWhatCanBeDone offers twice what the engine can do, with
// and without admission, and counts the requests answered within the objective.
func TestOverloadDoesNotCostWhatCanBeDone(t *testing.T) {
	const objective, span = 500 * time.Millisecond, 60 * time.Second
	// within counts the good answers per second at a rate of requests, where 0 is
	// as many as eight clients can ask for without a pause.
	within := func(t *testing.T, rate float64, asked time.Duration) (good float64) {
		synctest.Test(t, func(t *testing.T) {
			engine := haikutest.NewEngine(t, slowly(), infer.Options{MaxSequences: 8, MaxQueued: 1 << 20})
			random := rand.New(rand.NewPCG(5, 6))
			var number, served atomic.Int64
			one := func() {
				got, err := wanted(t.Context(), engine, int(number.Add(1)), haiku.Objective{TTFT: asked})
				if err != nil {
					require.ErrorIs(t, err, haiku.ErrTooBusy)
				} else if got <= objective {
					served.Add(1)
				}
			}
			var all sync.WaitGroup
			end := time.Now().Add(span)
			if rate == 0 {
				for range 8 {
					all.Go(func() {
						for time.Now().Before(end) {
							one()
						}
					})
				}
			} else {
				for time.Now().Before(end) {
					elapse(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
					all.Go(one)
				}
			}
			all.Wait()
			good = float64(served.Load()) / span.Seconds()
		})
		return good
	}
	capacity := within(t, 0, 0)
	with := within(t, 2*capacity, objective)
	without := within(t, 2*capacity, 0)
	t.Logf("capacity %.1f requests a second; at twice that %.1f with admission, %.1f without", capacity, with, without)
	require.GreaterOrEqual(t, with, 0.9*capacity)
	require.Less(t, without, 0.2*capacity)
}

func TestARequestWaitsNoLongerThanTheQueueAllows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(20, func(cfg *haikutest.Config) { cfg.Costs.Step = time.Second })
		engine := haikutest.NewEngine(t, exec, infer.Options{MaxSequences: 1, QueueTimeout: 2500 * time.Millisecond})
		var first sync.WaitGroup
		first.Go(func() {
			_, err := text(t.Context(), engine, ask("x"))
			require.NoError(t, err, "what runs is not cut off")
		})
		synctest.Wait()
		start := time.Now()
		_, err := text(t.Context(), engine, ask("y"))
		require.ErrorIs(t, err, haiku.ErrTooBusy)
		require.Positive(t, haiku.ErrorFrom(err).RetryAfter)
		require.InDelta(t, 2.5, time.Since(start).Seconds(), 0.51, "at the first step after its time")
		first.Wait()
	})
}

func TestQueuedTokensAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(3, func(cfg *haikutest.Config) { cfg.Costs.Step = time.Second })
		engine := haikutest.NewEngine(t, exec, infer.Options{MaxSequences: 1, MaxQueuedTokens: 250})
		var all sync.WaitGroup
		var refused atomic.Int64
		for i := range 6 {
			all.Go(func() {
				if _, err := wanted(t.Context(), engine, i, haiku.Objective{}); err != nil {
					require.ErrorIs(t, err, haiku.ErrTooBusy)
					refused.Add(1)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		require.Equal(t, int64(3), refused.Load(), "one runs, two of a hundred tokens wait")
	})
}

func TestAnUrgentRequestTakesThePlaceOfOneThatCanWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(20, func(cfg *haikutest.Config) { cfg.Costs.Step = 10 * time.Millisecond })
		engine := haikutest.NewEngine(t, exec, infer.Options{MaxSequences: 1})
		var patient sync.WaitGroup
		patient.Go(func() {
			req := ask("patient")
			req.Objective.Priority = 5
			got, err := text(t.Context(), engine, req)
			require.NoError(t, err)
			require.Equal(t, strings.Join(words(20), ""), got)
		})
		elapse(55 * time.Millisecond)
		start := time.Now()
		_, err := text(t.Context(), engine, ask("urgent"))
		require.NoError(t, err)
		require.LessOrEqual(t, time.Since(start), 220*time.Millisecond)
		patient.Wait()
		require.Equal(t, 1, engine.Stats().Preempted)
	})
}
