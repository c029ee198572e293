package infer_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
)

// Each test here is a fault that was found once.

func TestSiblingsSampleFromTheSameLogits(t *testing.T) {
	engine := haikutest.NewEngine(t, counting(1, nil), infer.Options{NoPrefixCache: true})
	for _, n := range []int{1, 2, 4} {
		req := &haiku.Request{PromptTokens: []int32{5, 6, 7, 8, 9}, Choices: n, MaxTokens: 1}
		req.Sampling.LogitBias = map[int32]float32{100: 12} // not enough, added once
		for tok, err := range haiku.NewStream(t.Context(), engine, req).Tokens() {
			require.NoError(t, err)
			require.Equal(t, int32(107), tok.ID, "choice %d of %d", tok.Choice, n)
		}
	}
}

func TestAPreemptedEmbeddingIsTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(3, func(c *haikutest.Config) { c.Costs.Step = time.Second })
		engine := haikutest.NewEngine(t, exec, infer.Options{MaxBatchTokens: 16, MaxSequences: 1})
		long := strings.Repeat("long words ", 12)
		alone, err := engine.Embed(t.Context(), embedding(long))
		require.NoError(t, err)
		var all sync.WaitGroup
		all.Go(func() {
			got, err := engine.Embed(haiku.WithObjective(t.Context(), haiku.Objective{Priority: 5}), embedding(long))
			require.NoError(t, err)
			require.Equal(t, alone.Vectors, got.Vectors)
		})
		elapse(2500 * time.Millisecond)
		_, err = text(t.Context(), engine, ask("x"))
		require.NoError(t, err)
		all.Wait()
		require.Equal(t, 1, engine.Stats().Preempted)
	})
}

func TestAnEmbeddingOfManyInputsQueuesLikeOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(3, func(c *haikutest.Config) { c.Costs.Step = time.Second })
		engine := haikutest.NewEngine(t, exec, infer.Options{MaxBatchTokens: 40, MaxSequences: 4, QueueTimeout: time.Hour})
		var texts []string
		for i := range 50 {
			texts = append(texts, fmt.Sprint("text ", i))
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				_, err := engine.Embed(haiku.WithObjective(t.Context(), haiku.Objective{Priority: 100}), embedding(texts...))
				require.NoError(t, err)
			})
		}
		elapse(1500 * time.Millisecond)
		start := time.Now()
		_, err := text(haiku.WithObjective(t.Context(), haiku.Objective{Priority: -1}), engine, ask("x"))
		require.NoError(t, err)
		require.LessOrEqual(t, time.Since(start), 6*time.Second)
		all.Wait()
	})
}

func TestAdaptersWaitForRoomThatComesWithoutAUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := haikutest.NewEngine(t, loadingIn(10*time.Second, nil), infer.Options{AdapterBytes: 8192})
		offer(t, engine, "a", "b")
		var all sync.WaitGroup
		all.Go(func() { // leaves while its adapter loads
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := text(ctx, engine, with("a", "x"))
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
		elapse(time.Second)
		start := time.Now()
		got, err := text(t.Context(), engine, with("b", "x"))
		require.NoError(t, err)
		require.Equal(t, "I am b", got)
		require.LessOrEqual(t, time.Since(start), 20*time.Second)
		all.Wait()
	})
}

func TestStepsThatWereCutOffTeachNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(3, func(c *haikutest.Config) {
			c.Costs = haikutest.Costs{Step: 10 * time.Millisecond, PrefillToken: time.Millisecond}
		})
		engine := haikutest.NewEngine(t, exec, infer.Options{})
		for i := range 20 {
			_, err := text(t.Context(), engine, ask(fmt.Sprint(i, strings.Repeat("x", 200))))
			require.NoError(t, err)
		}
		for i := range 300 { // clients that leave 1 ms after they came
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_, err := text(ctx, engine, ask(fmt.Sprint("gone", i, strings.Repeat("x", 200))))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
		}
		ctx := haiku.WithObjective(t.Context(), haiku.Objective{TTFT: 30 * time.Millisecond})
		_, err := text(ctx, engine, ask("fresh"+strings.Repeat("y", 200)))
		require.ErrorIs(t, err, haiku.ErrTooBusy, "it takes 210 ms")
	})
}

func TestThoseWhoWaitForAnAdapterAreInNobodysWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := loadingIn(time.Hour, func(c *haikutest.Config) {
			c.Costs = haikutest.Costs{Step: time.Millisecond, PrefillToken: time.Millisecond}
		})
		engine := haikutest.NewEngine(t, exec, infer.Options{MaxQueued: 8})
		offer(t, engine, "a")
		_, err := text(t.Context(), engine, ask(strings.Repeat("w", 100)))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { _, _ = text(ctx, engine, with("a", strings.Repeat("y", 1000))) })
		}
		elapse(time.Second)
		_, err = text(haiku.WithObjective(t.Context(), haiku.Objective{TTFT: time.Second}), engine, ask("x"))
		require.NoError(t, err, "the device is idle")
		_, err = text(t.Context(), engine, with("a", "y"))
		require.ErrorIs(t, err, haiku.ErrTooBusy, "but they are bounded themselves")
		all.Wait()
	})
}

func TestAJobThatLeftItsAdapterLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := haikutest.NewEngine(t, loadingIn(100*time.Hour, nil), infer.Options{})
		offer(t, engine, "a")
		heap := func() int64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		var before int64
		for i := range 500 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := text(ctx, engine, with("a", strings.Repeat("y", 3000)))
			require.True(t, errors.Is(err, context.DeadlineExceeded))
			cancel()
			if i == 100 {
				before = heap()
			}
		}
		require.Less(t, heap()-before, int64(4<<20), "400 of them would be 17 MiB")
	})
}

func TestTheQueueTimeoutHoldsUntilTheFirstStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(1, func(c *haikutest.Config) { c.Costs.Step = time.Second })
		engine := haikutest.NewEngine(t, exec, infer.Options{MaxBatchTokens: 16, MaxSequences: 8, QueueTimeout: 5 * time.Second})
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				start := time.Now()
				if _, err := text(t.Context(), engine, ask(fmt.Sprint(i, strings.Repeat("x", 1000)))); err != nil {
					require.ErrorIs(t, err, haiku.ErrTooBusy)
					require.LessOrEqual(t, time.Since(start), 6*time.Second)
				}
			})
		}
		elapse(10 * time.Second)
		require.Zero(t, engine.Stats().Queued)
		all.Wait()
	})
}

func TestExtremeOptionsAreBounded(t *testing.T) {
	engine := haikutest.NewEngine(t, counting(3, nil), infer.Options{MaxBatchTokens: math.MaxInt})
	_, err := text(t.Context(), engine, ask("x"))
	require.NoError(t, err)
	_, err = engine.Embed(t.Context(), embedding("x"))
	require.NoError(t, err)
}
