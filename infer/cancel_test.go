package infer_test

import (
	"context"
	"math/rand/v2"
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

// TestClientsThatLeaveAtAnyMomentLeaveNothingBehind lets 200 requests be
// cancelled at a random moment of their lives: queued behind others, in prefill
// of a long prompt, or in decode. Whatever the moment, the request has ended
// one step later, and at the end nothing is left (goleak in TestMain).
func TestClientsThatLeaveAtAnyMomentLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const step = 10 * time.Millisecond
		exec := counting(40, func(cfg *haikutest.Config) { cfg.Costs.Step = step })
		engine := haikutest.NewEngine(t, exec, infer.Options{MaxSequences: 3, MaxBatchTokens: 16, NoPrefixCache: true})
		random := rand.New(rand.NewPCG(1, 2))
		var wg sync.WaitGroup
		var mu sync.Mutex
		phases := make(map[string]int)
		for range 200 {
			prompt := strings.Repeat("x", random.IntN(200))
			life := time.Duration(random.IntN(1000)) * time.Millisecond
			pause := time.Duration(random.IntN(60)) * time.Millisecond
			wg.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var cancelled time.Time
				timer := time.AfterFunc(life, func() {
					cancelled = time.Now()
					cancel()
				})
				defer timer.Stop()
				stream := haiku.NewStream(ctx, engine, ask(prompt))
				tokens := 0
				var last error
				for _, err := range stream.Tokens() {
					if last = err; err == nil {
						tokens++
					}
				}
				phase := "whole"
				switch {
				case last == nil:
				case tokens > 0:
					phase = "decode"
				case stream.Usage().PromptTokens > 0:
					phase = "prefill"
				default:
					phase = "queued"
				}
				if last != nil {
					require.ErrorIs(t, last, context.Canceled)
					require.LessOrEqual(t, time.Since(cancelled), step)
				}
				mu.Lock()
				defer mu.Unlock()
				phases[phase]++
			})
			<-time.After(pause)
		}
		wg.Wait()
		for _, phase := range []string{"queued", "prefill", "decode"} {
			require.GreaterOrEqual(t, phases[phase], 20, "%v", phases)
		}
		require.Zero(t, exec.Counts().OpenSequences)
	})
}
