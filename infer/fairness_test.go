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

// TestRunningStreamsKeepTheirPaceUnderAFlowOfPrompts bounds the gap between
// two tokens by the budget of one step, however many prompts wait.
func TestRunningStreamsKeepTheirPaceUnderAFlowOfPrompts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const budget, streams = 128, 6
		exec := haikutest.New(haikutest.Config{
			Pieces: words(60), Answer: func(prompt string) []string {
				if strings.Contains(prompt, "flow") {
					return nil
				}
				return words(60)
			},
			Costs: haikutest.Costs{PrefillToken: time.Millisecond, DecodeSequence: time.Millisecond},
		})
		engine := haikutest.NewEngine(t, exec, infer.Options{MaxBatchTokens: budget, MaxSequences: 16})
		ctx, stopFlow := context.WithCancel(t.Context())
		var flow, running sync.WaitGroup
		for range 4 { // as soon as one prompt is done, the next comes
			flow.Go(func() {
				for ctx.Err() == nil {
					_, _ = text(ctx, engine, ask("flow "+strings.Repeat("x", 2000)))
				}
			})
		}
		for range streams {
			running.Go(func() {
				var last time.Time
				for tok, err := range haiku.NewStream(t.Context(), engine, ask("run")).Tokens() {
					require.NoError(t, err)
					if !last.IsZero() && tok.Text != "" {
						require.LessOrEqual(t, time.Since(last), budget*time.Millisecond)
					}
					last = time.Now()
				}
			})
		}
		running.Wait()
		stopFlow()
		flow.Wait()
	})
}
