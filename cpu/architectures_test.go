package cpu

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/internal/gguf"
	"github.com/intelliparadigm/haiku/internal/model"
	"github.com/intelliparadigm/haiku/internal/simd"
)

// architectureCase is a synthetic model and how far it may be from llama.cpp,
// whose GELU is a table of half-precision numbers.
type architectureCase struct {
	name      string
	config    model.SyntheticConfig
	edit      func(*gguf.Writer)
	tolerance float64
}

// architectureTokens is long enough to leave every window and context there is
// in architectureCases.
const architectureTokens = 150

func architectureCases() []architectureCase {
	base := model.SyntheticConfig{
		Layers: 2, Dim: 64, Heads: 4, KVHeads: 2, HeadDim: 16, FFN: 96, Vocab: 301, Context: 256, Format: simd.F32, Seed: 11,
	}
	of := func(architecture string, change func(*model.SyntheticConfig)) model.SyntheticConfig {
		c := base
		c.Architecture = architecture
		if change != nil {
			change(&c)
		}
		return c
	}
	biases := func(c *model.SyntheticConfig) { c.Biases, c.Untied = true, true }
	experts := func(c *model.SyntheticConfig) { c.Experts, c.ExpertsUsed = 5, 2 }
	wide := func(c *model.SyntheticConfig) { c.HeadDim = 32 }
	return []architectureCase{
		{"llama", of("llama", nil), nil, 1e-4},
		{"llama with linear scaling", of("llama", nil), func(w *gguf.Writer) {
			w.SetString("llama.rope.scaling.type", "linear")
			w.SetFloat32("llama.rope.scaling.factor", 4)
		}, 1e-4},
		{"llama with YaRN", of("llama", nil), func(w *gguf.Writer) {
			w.SetString("llama.rope.scaling.type", "yarn")
			w.SetFloat32("llama.rope.scaling.factor", 4)
			w.SetUint32("llama.rope.scaling.original_context_length", 64)
		}, 1e-4},
		{"llama with frequency factors", of("llama", nil), func(w *gguf.Writer) {
			w.AddTensor("rope_freqs.weight", gguf.F32, []int{8}, simd.Encode(simd.F32, nil, []float32{1, 1, 1.5, 2, 4, 8, 8, 8}))
		}, 1e-4},
		{"llama with biases", of("llama", biases), nil, 1e-4},
		{"llama with experts", of("llama", experts), nil, 1e-4},
		{"qwen2", of("qwen2", biases), nil, 1e-4},
		{"qwen3", of("qwen3", wide), nil, 1e-4},
		{"qwen3moe", of("qwen3moe", experts), nil, 1e-4},
		{"gemma", of("gemma", wide), nil, 5e-3},
		{"gemma2", of("gemma2", func(c *model.SyntheticConfig) { c.Layers = 4 }), func(w *gguf.Writer) {
			w.SetUint32("gemma2.attention.sliding_window", 20)
			w.SetFloat32("gemma2.attn_logit_softcapping", 1.5)
			w.SetFloat32("gemma2.final_logit_softcapping", 2)
		}, 5e-3},
		{"gemma3", of("gemma3", func(c *model.SyntheticConfig) { c.Layers, c.HeadDim = 7, 24 }), func(w *gguf.Writer) {
			w.SetUint32("gemma3.attention.sliding_window", 20)
			w.SetString("gemma3.rope.scaling.type", "linear")
			w.SetFloat32("gemma3.rope.scaling.factor", 8)
		}, 5e-3},
	}
}

// TestArchitecturesAgreeWithLlamaCpp compares the last logits of a long prompt
// with those of testdata/architectures.json: see testdata/README.md.
func TestArchitecturesAgreeWithLlamaCpp(t *testing.T) {
	data, err := os.ReadFile("testdata/architectures.json")
	require.NoError(t, err)
	var want map[string][]float64 // every tenth logit
	require.NoError(t, json.Unmarshal(data, &want))
	cases := architectureCases()
	require.Len(t, want, len(cases))
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			file := synthetic(t, c.config, c.edit)
			for _, level := range levels() {
				logits := logitsOf(t, load(t, at(level, Options{Threads: 2, KV: KVF32}), file), text(5, architectureTokens, c.config.Vocab))
				for i, l := range want[c.name] {
					require.InDelta(t, l, logits[10*i], c.tolerance, "%s: logit %d", level, 10*i)
				}
			}
		})
	}
}

// TestArchitecturesAgreeWithFloat64 adds what llama.cpp does not compute: it
// ignores the window of a Mistral file.
func TestArchitecturesAgreeWithFloat64(t *testing.T) {
	cases := append(architectureCases(), architectureCase{name: "mistral", config: smallConfig, edit: func(w *gguf.Writer) {
		w.SetUint32("llama.attention.sliding_window", 17)
	}})
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for _, level := range levels() {
				requireReference(t, level, synthetic(t, c.config, c.edit), 1, 16, 17, 18, 33, architectureTokens)
			}
		})
	}
}
