package infer_test

import (
	"context"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
)

// quitting is an executor whose Release ends the goroutine that calls it, as a
// failed assertion of package testing does.
type quitting struct{ *haikutest.Executor }

func (q quitting) Release(seq infer.SeqID) {
	q.Executor.Release(seq)
	runtime.Goexit()
}

func TestAReleaseThatEndsItsGoroutineEndsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(3, func(cfg *haikutest.Config) { cfg.Costs.Step = time.Millisecond })
		engine, err := infer.New(quitting{exec}, exec.Text(), infer.Options{})
		require.NoError(t, err)
		defer func() { require.NoError(t, engine.Close()) }()
		req := ask("x")
		req.Choices = 2
		for range 3 {
			got, err := text(t.Context(), engine, req)
			require.NoError(t, err)
			require.Equal(t, strings.Join(words(3), ""), got)
			require.Zero(t, exec.Counts().OpenSequences)
		}
		require.Empty(t, exec.Violations())
	})
}

func TestAnExecutorThatTakesOneTokenAtATimeGetsNoMore(t *testing.T) {
	exec := counting(3, func(cfg *haikutest.Config) { cfg.MaxBatchTokens = 1 })
	engine := haikutest.NewEngine(t, exec, infer.Options{})
	got, err := text(t.Context(), engine, ask("x"))
	require.NoError(t, err)
	require.Equal(t, strings.Join(words(3), ""), got)
}

func TestAnIdleEngineForgetsItsRequests(t *testing.T) {
	engine := haikutest.NewEngine(t, counting(3, nil), infer.Options{})
	prompts := make([]weak.Pointer[int32], 8)
	for i := range prompts {
		ids := []int32{'x', 'y', 'z'}
		prompts[i] = weak.Make(&ids[0])
		for _, err := range haiku.NewStream(t.Context(), engine, &haiku.Request{PromptTokens: ids, MaxTokens: 400}).Tokens() {
			require.NoError(t, err)
			if i%2 == 0 {
				break
			}
		}
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		for _, p := range prompts {
			if p.Value() != nil {
				return false
			}
		}
		return true
	}, 2*time.Second, time.Millisecond)
}

func TestShutdownOfAnIdleEngineCutsNothingOff(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 {
		exec := counting(1, nil)
		engine, err := infer.New(exec, exec.Text(), infer.Options{})
		require.NoError(t, err)
		require.NoError(t, engine.Shutdown(ctx))
	}
}

func TestNoSamplingOptionMakesAnInternalError(t *testing.T) {
	engine := openConstant(t)
	for _, s := range []haiku.Sampling{
		{RepetitionPenalty: 1e-300}, {RepetitionPenalty: math.SmallestNonzeroFloat64}, {RepetitionPenalty: 0.001}, {RepetitionPenalty: 100},
		{Temperature: 1e-300}, {Temperature: 100, TopP: 1e-300}, {Temperature: 1, MinP: 1}, {Temperature: 1, TopK: math.MaxInt32},
		{PresencePenalty: 100, FrequencyPenalty: -100}, {LogitBias: map[int32]float32{259: math.MaxFloat32, 260: -math.MaxFloat32}},
	} {
		req := ask("x")
		req.Sampling = s
		req.MaxTokens = 8
		if _, err := text(t.Context(), engine, req); err != nil {
			require.Less(t, haiku.ErrorFrom(err).Status, 500, "%+v: %v", s, err)
		}
	}
}

func TestAnErrorNamesTheParameterThatTheRequestHas(t *testing.T) {
	engine := haikutest.NewEngine(t, counting(1, func(c *haikutest.Config) { c.ContextTokens = 64 }), infer.Options{})
	for param, req := range map[string]*haiku.Request{
		"messages": ask(strings.Repeat("x", 70)),
		"prompt":   {Prompt: strings.Repeat("x", 70)},
	} {
		_, err := text(t.Context(), engine, req)
		require.ErrorIs(t, err, haiku.ErrContextLength)
		require.Equal(t, param, haiku.ErrorFrom(err).Param)
		if req.Prompt != "" {
			req.Prompt = strings.Repeat("x", 1<<20) // found without tokenising it
		} else {
			req.Messages[0].Content = strings.Repeat("x", 1<<20)
		}
		_, err = text(t.Context(), engine, req)
		require.Equal(t, param, haiku.ErrorFrom(err).Param)
	}
	_, err := text(t.Context(), engine, &haiku.Request{PromptTokens: make([]int32, 70)})
	require.Equal(t, "prompt", haiku.ErrorFrom(err).Param)
}
