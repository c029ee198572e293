package cpu

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/internal/gguf"
	"github.com/intelliparadigm/haiku/internal/model"
	"github.com/intelliparadigm/haiku/internal/simd"
)

// requireReference compares the logits after each of the given numbers of
// tokens with float64 arithmetic.
func requireReference(t *testing.T, level simd.Level, file *gguf.File, lengths ...int) {
	t.Helper()
	m, err := model.Load(file)
	require.NoError(t, err)
	e := load(t, at(level, Options{Threads: 2, KV: KVF32}), file)
	tokens := text(1, lengths[len(lengths)-1], m.Vocab)
	table := blocks(e.Spec(), 0, len(tokens))
	logits := make([]float32, m.Vocab)
	for done := 0; done < len(tokens); {
		next := min(done+e.Spec().MaxBatchTokens, len(tokens))
		for _, n := range lengths {
			if n > done {
				next = min(next, n)
				break
			}
		}
		step(t, e, infer.Item{Start: done, Tokens: tokens[done:next], Blocks: table, Logits: logits})
		done = next
		for _, n := range lengths {
			if n != done {
				continue
			}
			for id, want := range (reference{m}).logits(tokens[:n]) {
				require.InDelta(t, want, logits[id], 1e-4, "%s, %d tokens: logit %d", level, n, id)
			}
		}
	}
}

func TestLogitsAgreeWithFloat64ForEveryFormat(t *testing.T) {
	for _, level := range levels() {
		for _, format := range []simd.Format{
			simd.F32, simd.F16, simd.BF16, simd.Q8_0, simd.Q4_0, simd.Q4_1, simd.Q5_0, simd.Q5_1, simd.Q4_K, simd.Q5_K, simd.Q6_K,
		} {
			cfg := smallConfig
			cfg.Format = format
			for block := 32; format.RowBytes(cfg.Dim) == 0; block *= 2 {
				cfg.Dim, cfg.FFN = 2*block, 3*block
				if format.RowBytes(cfg.FFN) == 0 {
					cfg.FFN = cfg.Dim
				}
			}
			requireReference(t, level, synthetic(t, cfg, nil), 1, 2, 33, 70)
		}
	}
}

// FP8 weights are what the encoder of internal/simd makes of them, and the
// logits those of a model with such weights.
func TestFP8WeightsAreRoundedAtLoad(t *testing.T) {
	cfg := smallConfig
	cfg.Dim, cfg.FFN = 160, 300 // blocks of 128, and what is left
	file := synthetic(t, cfg, nil)
	m, err := model.Load(file)
	require.NoError(t, err)
	require.NoError(t, m.Requantise(simd.F8E4M3, 1))
	tokens := text(1, 40, cfg.Vocab)
	want := reference{m}.logits(tokens)
	for _, level := range levels() {
		e := load(t, at(level, Options{Threads: 2, KV: KVF32, Weights: WeightsFP8E4M3}), file)
		require.InDeltaSlice(t, want, logitsOf(t, e, tokens), 1e-4)
		exact := logitsOf(t, load(t, at(level, Options{}), file), tokens)
		require.Greater(t, distance(exact, logitsOf(t, e, tokens)), 1e-3, "rounding shows")
	}
}

func TestRotaryVariantsAgreeWithFloat64AtLongRange(t *testing.T) {
	base := smallConfig
	base.Layers, base.Dim, base.Context = 1, 32, 8192
	factors := []float32{1, 1.5, 4, 8}
	oneFactor := func(w *gguf.Writer) {
		w.AddTensor("rope_freqs.weight", gguf.F32, []int{4}, simd.Encode(simd.F32, nil, factors))
	}
	linear := func(w *gguf.Writer) {
		w.SetString("llama.rope.scaling.type", "linear")
		w.SetFloat32("llama.rope.scaling.factor", 4)
	}
	partial := func(w *gguf.Writer) { w.SetUint32("llama.rope.dimension_count", 6) }
	wide := base
	wide.HeadDim = 20 // not Dim/Heads
	for name, file := range map[string]*gguf.File{
		"plain":     synthetic(t, base, nil),
		"factors":   synthetic(t, base, oneFactor),
		"linear":    synthetic(t, base, linear),
		"partial":   synthetic(t, base, partial),
		"wide head": synthetic(t, wide, nil),
	} {
		t.Run(name, func(t *testing.T) {
			if raceEnabled {
				t.Skip("float64 arithmetic over a long text, without concurrency of its own")
			}
			requireReference(t, simd.Best(), file, 1, 32, 4001, 8192)
		})
	}
}

func TestTiedOutputEqualsACopyAndAnOwnOneWins(t *testing.T) {
	tied := synthetic(t, smallConfig, nil)
	embedding, found := tied.Tensor("token_embd.weight")
	require.True(t, found)
	copied := synthetic(t, smallConfig, func(w *gguf.Writer) {
		w.AddTensor("output.weight", embedding.Type, embedding.Dims, embedding.Data)
	})
	untied := smallConfig
	untied.Untied = true
	tokens := text(3, 40, smallConfig.Vocab)
	want := logitsOf(t, load(t, New(), tied), tokens)
	require.Equal(t, want, logitsOf(t, load(t, New(), copied), tokens))
	require.NotEqual(t, want, logitsOf(t, load(t, New(), synthetic(t, untied, nil)), tokens))
}

func TestLoadNamesWhatIsNotSupported(t *testing.T) {
	file := synthetic(t, smallConfig, func(w *gguf.Writer) { w.SetString("llama.rope.scaling.type", "longrope") })
	_, err := New().Load(context.Background(), file)
	require.ErrorIs(t, err, infer.ErrUnsupportedModel)
	require.ErrorContains(t, err, `llama.rope.scaling.type is "longrope"`)
}

func TestLoadPlansMemory(t *testing.T) {
	file := synthetic(t, smallConfig, nil) // 2 layers × 2 × 24 floats: 192 bytes a token in F16
	const perBlock = 32 * 2 * 2 * 24 * 2   // of 32 tokens
	for _, c := range []struct {
		options         Options
		context, blocks int
		err             string
	}{
		{Options{}, 200, 16 * 7, ""},
		{Options{ContextTokens: 64}, 64, 16 * 2, ""},
		{Options{KV: KVF32, KVBytes: 6 * perBlock}, 96, 3, ""},
		{Options{KV: 9}, 0, 0, "option KV is 9"},
		{Options{KV: KVQ8_0}, 0, 0, "option KV is Q8_0, and the model's heads of 12 elements"},
		{Options{KVBytes: 3*perBlock + 1}, 96, 3, ""},
		{Options{KVBytes: 8 * perBlock}, 200, 8, ""},
		{Options{KVBytes: 2 * perBlock, ContextTokens: 65}, 0, 0, fmt.Sprintf("65 tokens need %d bytes, option KVBytes allows %d", 3*perBlock, 2*perBlock)},
		{Options{KVBytes: 1}, 0, 0, "option KVBytes allows 1"},
		{Options{ContextTokens: 201}, 0, 0, "option ContextTokens is 201, the model has 200"},
		{Options{Threads: -1}, 0, 0, "option Threads is -1"},
		{Options{BlockTokens: 1 << 30}, 0, 0, "option BlockTokens"},
		{Options{KVBytes: -1}, 0, 0, "option KVBytes is -1"},
		{Options{Weights: 7}, 0, 0, "option Weights is 7"},
	} {
		e, err := c.options.New().Load(context.Background(), file)
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, infer.Spec{
			Name: "cpu/" + simd.Best().String(), VocabSize: 301,
			ContextTokens: c.context, BlockTokens: 32, Blocks: c.blocks, MaxBatchTokens: 512, HiddenSize: 48,
		}, e.Spec())
		require.NoError(t, e.Close())
	}
	_, err := Options{KVBytes: 1}.New().Load(context.Background(), file)
	require.ErrorIs(t, err, infer.ErrOutOfMemory)
}

func TestBlocksLieOutsideTheHeap(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("blocks lie in the heap on this system")
	}
	cfg := smallConfig
	cfg.Context = 1 << 20
	file := synthetic(t, cfg, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	e := load(t, New(), file)
	runtime.ReadMemStats(&after)
	require.Greater(t, e.Spec().Blocks*e.Spec().BlockTokens*192, 900<<20, "a gigabyte of blocks")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
}
