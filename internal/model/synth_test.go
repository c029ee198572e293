package model

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/internal/gguf"
	"github.com/intelliparadigm/haiku/internal/simd"
)

func smallSynthetic() SyntheticConfig {
	return SyntheticConfig{Layers: 2, Dim: 64, Heads: 4, KVHeads: 2, FFN: 96, Vocab: 1200, Context: 128, Format: simd.Q8_0, Seed: 5}
}

func parsed(t *testing.T, w *gguf.Writer) *Model {
	t.Helper()
	var out bytes.Buffer
	_, err := w.WriteTo(&out)
	require.NoError(t, err)
	file, err := gguf.Parse(out.Bytes())
	require.NoError(t, err)
	m, err := Load(file)
	require.NoError(t, err)
	return m
}

func write(t *testing.T, cfg SyntheticConfig) []byte {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, WriteSynthetic(&out, cfg))
	return out.Bytes()
}

func TestSyntheticModelsLoadInEveryFormat(t *testing.T) {
	for _, f := range formats {
		format := f.format
		cfg := smallSynthetic()
		cfg.Format = format
		cfg.Dim, cfg.FFN = 256, 512
		file, err := gguf.Parse(write(t, cfg))
		require.NoError(t, err)
		m, err := Load(file)
		require.NoError(t, err)
		require.Equal(t, format, m.Layers[1].Experts[0].Up.Format)
		require.Equal(t, Config{
			Architecture: "llama", LayerCount: 2, Dim: 256, Heads: 4, KVHeads: 2, HeadDim: 64, FFN: 512, Vocab: 1200, Context: 128,
			NormEpsilon: 1e-5, EmbeddingScale: 1, RopeDims: 64, Rotations: []Rotation{rotation(64, 10000, ropeScaling{factor: 1, attention: 1})},
			AttentionScale: 0.125,
		}, m.Config)
	}
}

func TestSyntheticModelsDependOnTheirConfigAlone(t *testing.T) {
	first := write(t, smallSynthetic())
	require.True(t, bytes.Equal(first, write(t, smallSynthetic())))
	other := smallSynthetic()
	other.Seed++
	require.False(t, bytes.Equal(first, write(t, other)))
}

func TestSyntheticVocabularyCanSpellEverything(t *testing.T) {
	file, err := gguf.Parse(write(t, smallSynthetic()))
	require.NoError(t, err)
	pieces, err := file.Strings("tokenizer.ggml.tokens")
	require.NoError(t, err)
	require.Len(t, pieces, 1200)
	require.Equal(t, []string{"<unk>", "<s>", "</s>", "<0x00>", "<0x01>"}, pieces[:5])
	require.Equal(t, []string{"<0xFF>", "▁", "e", "t"}, pieces[258:262])
	seen := map[string]bool{}
	for i, p := range pieces {
		require.False(t, seen[p], "piece %q is there twice", p)
		if runes := []rune(p); i >= firstPiece && len(runes) > 1 {
			require.True(t, seen[string(runes[:len(runes)-1])], "%q has no shorter piece", p)
		}
		seen[p] = true
	}
	types, err := file.Ints("tokenizer.ggml.token_type")
	require.NoError(t, err)
	require.Equal(t, []int32{typeUnknown, typeControl, typeControl, typeByte}, types[:4])
	scores, err := file.Floats("tokenizer.ggml.scores")
	require.NoError(t, err)
	require.True(t, slices.IsSortedFunc(scores[firstPiece:], func(a, b float32) int { return int(b - a) }), "longer pieces score less")
}

func TestImpossibleSyntheticModelsAreRefused(t *testing.T) {
	for _, edit := range []func(*SyntheticConfig){
		func(c *SyntheticConfig) { c.Layers = 0 },
		func(c *SyntheticConfig) { c.Vocab = 258 },
		func(c *SyntheticConfig) { c.FFN = 97 },
		func(c *SyntheticConfig) { c.Heads = 0 },
	} {
		cfg := smallSynthetic()
		edit(&cfg)
		require.ErrorIs(t, WriteSynthetic(&bytes.Buffer{}, cfg), ErrInvalid)
	}
}
