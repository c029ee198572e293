package infer_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
)

func TestStatsSayWhereTheTimeWent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(10, func(cfg *haikutest.Config) {
			cfg.Costs = haikutest.Costs{Step: time.Millisecond, PrefillToken: time.Millisecond, DecodeSequence: 2 * time.Millisecond}
			cfg.Blocks = 64
		})
		engine := haikutest.NewEngine(t, exec, infer.Options{MaxBatchTokens: 64})
		elapse(time.Second)
		prompt := strings.Repeat("x", 50)
		_, usage := as(t, "a", engine, ask(prompt))
		elapse(time.Second)
		want := infer.Stats{
			Blocks: 64, IdleBlocks: 64, CachedBlocks: 4, PromptTokens: usage.PromptTokens,
			Use: infer.Use{
				Steps: 11, Items: 11, LargestBatch: 1, PrefillTokens: usage.PromptTokens, DecodeTokens: 10,
				Prefill: time.Duration(usage.PromptTokens+1) * time.Millisecond, Decode: 30 * time.Millisecond,
				Idle: 2 * time.Second,
			},
		}
		require.Equal(t, want, engine.Stats())

		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { as(t, "b", engine, ask(prompt)) })
			elapse(70 * time.Millisecond) // the second comes while the first decodes
		}
		stats := engine.Stats()
		require.Positive(t, stats.Mixed)
		require.Equal(t, 2, stats.LargestBatch)
		require.Equal(t, 48, stats.ReusedTokens, "what one of the two had computed")
		wg.Wait()
	})
}

func TestStatsCountTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(10, func(cfg *haikutest.Config) { cfg.Costs.Step = time.Second })
		engine := haikutest.NewEngine(t, exec, infer.Options{MaxSequences: 1})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, err := text(t.Context(), engine, ask("x"))
				require.NoError(t, err)
			})
		}
		elapse(1500 * time.Millisecond)
		stats := engine.Stats()
		require.Equal(t, []int{2, 2 * (len("user: x\n") + 2), 1}, []int{stats.Queued, stats.QueuedTokens, stats.Running})
		wg.Wait()
	})
}
