package infer_test

import (
	"context"
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

func TestAReaderThatStopsDoesNotSlowItsNeighbours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(400, func(cfg *haikutest.Config) { cfg.Costs.Step = time.Millisecond })
		engine := haikutest.NewEngine(t, exec, infer.Options{})
		ctx := haiku.WithStreamOptions(t.Context(), haiku.StreamOptions{Buffer: 8})
		var wg sync.WaitGroup
		release := make(chan struct{})
		wg.Go(func() { // reads one token and stops, then reads the rest
			got, first := "", true
			for tok, err := range haiku.NewStream(ctx, engine, ask("slow")).Tokens() {
				require.NoError(t, err)
				got += tok.Text
				if first {
					first = false
					<-release
				}
			}
			require.Equal(t, strings.Join(words(400), ""), got, "nothing is lost by pausing")
		})
		for range 5 {
			wg.Go(func() {
				start := time.Now()
				_, err := text(ctx, engine, ask("fast"))
				require.NoError(t, err)
				require.LessOrEqual(t, time.Since(start), 410*time.Millisecond, "one step per token, as alone")
			})
		}
		elapse(time.Second) // virtual: the fast ones are done, the slow one is paused
		steps := exec.Counts().Steps
		elapse(time.Second)
		require.Equal(t, steps, exec.Counts().Steps, "a paused sequence is not computed")
		close(release)
		wg.Wait()
	})
}

func TestASlowReaderIsEndedAfterItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(400, func(cfg *haikutest.Config) { cfg.Costs.Step = time.Millisecond })
		engine := haikutest.NewEngine(t, exec, infer.Options{})
		ctx := haiku.WithStreamOptions(t.Context(), haiku.StreamOptions{Buffer: 8, StallLimit: time.Second})
		var last error
		for _, err := range haiku.NewStream(ctx, engine, ask("slow")).Tokens() {
			if last = err; err != nil {
				break
			}
			if exec.Counts().OpenSequences == 1 && exec.Counts().DecodeTokens < 10 {
				elapse(time.Minute)
				require.Zero(t, exec.Counts().OpenSequences, "its slot is free long before it reads on")
			}
		}
		require.ErrorIs(t, last, haiku.ErrSlowReader)
	})
}

func TestShutdownFinishesWhatIsAcceptedAndRefusesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(20, func(cfg *haikutest.Config) { cfg.Costs.Step = time.Millisecond })
		engine := haikutest.NewEngine(t, exec, infer.Options{MaxSequences: 2})
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				got, err := text(t.Context(), engine, ask("x"))
				require.NoError(t, err)
				require.Equal(t, strings.Join(words(20), ""), got)
			})
		}
		synctest.Wait()
		wg.Go(func() {
			elapse(time.Millisecond) // virtual
			_, err := text(t.Context(), engine, ask("late"))
			require.ErrorIs(t, err, haiku.ErrClosed)
		})
		require.NoError(t, engine.Shutdown(t.Context()))
		wg.Wait()
		require.True(t, exec.Counts().Closed)
	})
}

func TestShutdownCutsOffAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(1000, func(cfg *haikutest.Config) { cfg.Costs.Step = 10 * time.Millisecond })
		engine := haikutest.NewEngine(t, exec, infer.Options{MaxSequences: 1})
		var wg sync.WaitGroup
		for range 3 { // one runs, two wait
			wg.Go(func() {
				_, err := text(t.Context(), engine, ask("x"))
				require.ErrorIs(t, err, haiku.ErrClosed)
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		require.ErrorIs(t, engine.Shutdown(ctx), context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(start), time.Second+10*time.Millisecond)
		wg.Wait()
	})
}

func TestCloseEndsEvenAStalledStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(3, func(cfg *haikutest.Config) { cfg.Faults = []haikutest.Fault{{Kind: haikutest.Stall, At: 1}} })
		engine := haikutest.NewEngine(t, exec, infer.Options{})
		ended := make(chan error, 1)
		go func() { _, err := text(t.Context(), engine, ask("x")); ended <- err }()
		synctest.Wait()
		require.NoError(t, engine.Close())
		require.NoError(t, engine.Close())
		require.ErrorIs(t, <-ended, haiku.ErrClosed)
	})
}
