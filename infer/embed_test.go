package infer_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/cpu"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/tinymodel"
)

func embedding(texts ...string) *haiku.EmbeddingRequest {
	req := &haiku.EmbeddingRequest{}
	for _, text := range texts {
		req.Inputs = append(req.Inputs, haiku.EmbeddingInput{Text: text})
	}
	return req
}

func TestEmbeddingsDoNotDependOnHowTheyAreComputed(t *testing.T) {
	texts := []string{"a", "two words", strings.Repeat("long ", 100), "a"}
	whole := haikutest.NewEngine(t, counting(1, nil), infer.Options{Name: "m", MaxBatchTokens: 4096})
	want, err := whole.Embed(t.Context(), embedding(texts...))
	require.NoError(t, err)
	require.Equal(t, "m", want.Model)
	require.Equal(t, want.Vectors[0], want.Vectors[3])
	require.NotEqual(t, want.Vectors[0], want.Vectors[1])
	tokens := 0
	for i, v := range want.Vectors {
		require.Len(t, v, haikutest.HiddenSize)
		length := 0.0
		for _, x := range v {
			length += float64(x) * float64(x)
		}
		require.InDelta(t, 1, length, 1e-6)
		tokens += len(texts[i]) + 1 // the fake has a token for each byte, and BOS
	}
	require.Equal(t, haiku.Usage{PromptTokens: tokens}, want.Usage)
	for _, options := range []infer.Options{{Name: "m", MaxBatchTokens: 3, MaxSequences: 1}, {Name: "m", MaxBatchTokens: 40}} {
		engine := haikutest.NewEngine(t, counting(1, nil), options)
		got, err := engine.Embed(t.Context(), embedding(texts...))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	ids := &haiku.EmbeddingRequest{Inputs: []haiku.EmbeddingInput{{Tokens: []int32{0, 3 + 'a'}}}}
	got, err := whole.Embed(t.Context(), ids)
	require.NoError(t, err)
	require.Equal(t, want.Vectors[:1], got.Vectors, "the same tokens")
}

func TestEmbeddingsAndGenerationsShareTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(40, func(c *haikutest.Config) { c.Costs.Step = time.Millisecond })
		engine := haikutest.NewEngine(t, exec, infer.Options{MaxBatchTokens: 32, MaxSequences: 8})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				got, err := text(t.Context(), engine, ask("x"))
				require.NoError(t, err)
				require.Equal(t, strings.Join(words(40), ""), got)
			})
		}
		want, err := engine.Embed(t.Context(), embedding(strings.Repeat("long ", 50)))
		require.NoError(t, err)
		wg.Wait()
		alone, err := engine.Embed(t.Context(), embedding(strings.Repeat("long ", 50)))
		require.NoError(t, err)
		require.Equal(t, alone, want)
		require.Greater(t, exec.Counts().LargestBatch, 4)
	})
}

func TestAnEmbeddingCanBeCancelledInEveryPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(1, func(c *haikutest.Config) { c.Costs.Step = time.Second })
		engine := haikutest.NewEngine(t, exec, infer.Options{MaxBatchTokens: 4, MaxSequences: 1})
		for _, after := range []time.Duration{0, 1500 * time.Millisecond, 3500 * time.Millisecond} {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			start := time.Now()
			_, err := engine.Embed(ctx, embedding("first of two", "second")) // one runs, one is queued
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(start), after+time.Second)
			cancel()
		}
		synctest.Wait()
		require.Zero(t, exec.Counts().OpenSequences)
	})
}

func TestBadEmbeddingRequestsAreNamed(t *testing.T) {
	engine := haikutest.NewEngine(t, counting(1, func(c *haikutest.Config) { c.ContextTokens = 20 }), infer.Options{})
	for param, req := range map[string]*haiku.EmbeddingRequest{
		"input":       {},
		"input[1]":    embedding("x", ""),
		"input[2]":    embedding("x", "y", strings.Repeat("z", 20)),
		"input[0]":    {Inputs: []haiku.EmbeddingInput{{Tokens: make([]int32, 21)}, {Text: "x"}}},
		"input[0][0]": {Inputs: []haiku.EmbeddingInput{{Tokens: []int32{1 << 30}}, {Text: "x"}}},
		"dimensions":  {Dimensions: 7, Inputs: []haiku.EmbeddingInput{{Text: "x"}}},
		"model":       {Model: "other", Inputs: []haiku.EmbeddingInput{{Text: "x"}}},
	} {
		_, err := engine.Embed(t.Context(), req)
		e := haiku.ErrorFrom(err)
		require.Contains(t, []int{400, 404}, e.Status, param)
		require.Equal(t, param, e.Param)
	}
	_, err := engine.Embed(t.Context(), embedding(strings.Repeat("z", 1<<20)))
	require.ErrorIs(t, err, haiku.ErrContextLength)
}

func TestAFaultFailsItsEmbeddingAlone(t *testing.T) {
	exec := counting(3, func(c *haikutest.Config) {
		c.Faults = []haikutest.Fault{{Kind: haikutest.Panic, Position: 1, Match: func(prompt string) bool { return strings.Contains(prompt, "guilty") }}}
	})
	engine := haikutest.NewEngine(t, exec, infer.Options{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			_, err := engine.Embed(t.Context(), embedding(fmt.Sprintf("innocent %d", i)))
			require.NoError(t, err)
		})
	}
	_, err := engine.Embed(t.Context(), embedding("innocent", "guilty"))
	require.Error(t, err)
	wg.Wait()
}

func TestCloseEndsEmbeddings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(1, func(c *haikutest.Config) { c.Costs.Step = time.Hour })
		engine := haikutest.NewEngine(t, exec, infer.Options{})
		failed := make(chan error)
		go func() { _, err := engine.Embed(t.Context(), embedding("x", "y")); failed <- err }()
		synctest.Wait()
		require.NoError(t, engine.Close())
		require.ErrorIs(t, <-failed, haiku.ErrClosed)
		_, err := engine.Embed(t.Context(), embedding("x"))
		require.ErrorIs(t, err, haiku.ErrClosed)
	})
}

func TestARegistryEmbedsByName(t *testing.T) {
	engine := haikutest.NewEngine(t, counting(1, nil), infer.Options{Name: "own"})
	add(t, engine, "A")
	var r infer.Registry
	r.Add("alias", engine)
	r.Add("mute", haiku.ModelFunc(func(context.Context, *haiku.StreamWriter, *haiku.Request) error { return nil }))
	vectors := map[string][]float32{}
	for _, name := range []string{"", "alias", "A"} {
		req := embedding("x")
		req.Model = name
		out, err := r.Embed(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, map[string]string{"": "own", "alias": "own", "A": "A"}[name], out.Model)
		vectors[name] = out.Vectors[0]
	}
	require.Equal(t, vectors[""], vectors["alias"])
	require.NotEqual(t, vectors["alias"], vectors["A"], "the adapter takes effect")
	for name, is := range map[string]error{"mute": haiku.ErrUnsupported, "none": haiku.ErrModelNotFound} {
		req := embedding("x")
		req.Model = name
		_, err := r.Embed(t.Context(), req)
		require.ErrorIs(t, err, is)
	}
}

// TestTheTinyModelsEmbeddingIsLlamaCpps compares the first elements with
// llama.cpp v0.5.0's mean pooling of the same tokens with an F32 KV cache, at
// length one.
func TestTheTinyModelsEmbeddingIsLlamaCpps(t *testing.T) {
	engine, err := infer.OpenBytes(tinymodel.GGUF(), cpu.New())
	require.NoError(t, err)
	defer engine.Close()
	out, err := engine.Embed(t.Context(), &haiku.EmbeddingRequest{Inputs: []haiku.EmbeddingInput{
		{Tokens: []int32{1, 3, 16, 397, 262, 294, 290, 454, 748, 16, 4, 16}},
	}})
	require.NoError(t, err)
	want := []float64{-0.01636, 0.07274, -0.15121, -0.10561, 0.04159, -0.01175, 0.07907, 0.09906, -0.02172, -0.03906, -0.05689, -0.05790, 0.04889, 0.02849, 0.10481, -0.08279}
	for d, x := range want {
		require.InDelta(t, x, out.Vectors[0][d], 3e-3, "element %d", d)
	}
	require.False(t, math.IsNaN(float64(out.Vectors[0][127])))
}

func TestAnAcceptedEmbeddingIsFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(1, func(cfg *haikutest.Config) { cfg.Costs.Step = time.Millisecond })
		engine := haikutest.NewEngine(t, exec, infer.Options{MaxSequences: 2, MaxQueued: 4})
		texts := strings.Split(strings.Repeat("x ", 50), " ")[:50]
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				out, err := engine.Embed(t.Context(), embedding(texts...))
				require.NoError(t, err, "neither the queue nor the shutdown refuses the rest of it")
				require.Len(t, out.Vectors, 50)
			})
		}
		elapse(5 * time.Millisecond)
		require.NoError(t, engine.Shutdown(t.Context()))
		wg.Wait()
		_, err := engine.Embed(t.Context(), embedding("x"))
		require.ErrorIs(t, err, haiku.ErrClosed)
	})
}
