package cpu

import (
	"bytes"
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku/internal/gguf"
	"github.com/intelliparadigm/haiku/internal/model"
	"github.com/intelliparadigm/haiku/internal/simd"
)

var ctx = context.Background()

var mixtureConfig = model.SyntheticConfig{
	Layers: 2, Dim: 48, Heads: 4, KVHeads: 2, FFN: 52, Vocab: 301, Context: 200, Format: simd.F32, Seed: 8,
	Experts: 5, ExpertsUsed: 2,
}

// rewritten copies the tensors of a model in F32; those for which replace
// returns true it has written itself.
func rewritten(t testing.TB, file *gguf.File, replace func(*gguf.Writer, *gguf.Tensor) bool) *gguf.File {
	t.Helper()
	m, err := model.Load(file)
	require.NoError(t, err)
	w := gguf.NewWriter()
	w.SetString("general.architecture", m.Architecture)
	for key, n := range map[string]int{
		"block_count": m.LayerCount, "embedding_length": m.Dim, "feed_forward_length": m.FFN, "context_length": m.Context,
		"attention.head_count": m.Heads, "attention.head_count_kv": m.KVHeads,
	} {
		w.SetUint32(m.Architecture+"."+key, uint32(n))
	}
	w.SetFloat32(m.Architecture+".attention.layer_norm_rms_epsilon", m.NormEpsilon)
	for _, tensor := range file.Tensors() {
		if !replace(w, tensor) {
			w.AddTensor(tensor.Name, tensor.Type, tensor.Dims, tensor.Data)
		}
	}
	var out bytes.Buffer
	_, err = w.WriteTo(&out)
	require.NoError(t, err)
	copied, err := gguf.Parse(out.Bytes())
	require.NoError(t, err)
	return copied
}

func TestIdenticalExpertsEqualADenseLayer(t *testing.T) {
	dense := synthetic(t, smallConfig, nil)
	const experts = 3
	mixture := rewritten(t, dense, func(w *gguf.Writer, tensor *gguf.Tensor) bool {
		layer, name, found := strings.Cut(tensor.Name, ".ffn_")
		kind := strings.TrimSuffix(name, ".weight")
		if !found || kind == "norm" {
			return false
		}
		if kind == "gate" {
			scores := make([]float32, experts*smallConfig.Dim)
			for i := range scores {
				scores[i] = float32(math.Sin(float64(i)))
			}
			w.AddTensor(layer+".ffn_gate_inp.weight", gguf.F32, []int{smallConfig.Dim, experts}, simd.Encode(simd.F32, nil, scores))
		}
		if tensor.Name == "blk.0.ffn_gate.weight" {
			w.SetUint32("llama.expert_count", experts)
			w.SetUint32("llama.expert_used_count", 2)
		}
		w.AddTensor(layer+".ffn_"+kind+"_exps.weight", tensor.Type, append(slices.Clone(tensor.Dims), experts), bytes.Repeat(tensor.Data, experts))
		return true
	})
	tokens := text(1, 70, smallConfig.Vocab)
	for _, level := range levels() {
		want := logitsOf(t, load(t, at(level, Options{}), dense), tokens)
		require.InDeltaSlice(t, want, logitsOf(t, load(t, at(level, Options{Threads: 2}), mixture), tokens), 1e-4)
	}
}

func TestTheBestScoresAreChosen(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		scores []float32
		want   []int32
	}{
		{[]float32{1}, []int32{0}},
		{[]float32{3, 1, 2}, []int32{0, 2}},
		{[]float32{1, 1, 1}, []int32{0, 1}},
		{[]float32{0, 1, 1, 1}, []int32{1, 2}},
		{[]float32{nan, 1, nan, 2}, []int32{1, 3}},
		{[]float32{nan, nan, nan}, []int32{0, 1}},
		{[]float32{float32(math.Inf(-1)), nan}, []int32{0, 1}},
	} {
		got := make([]int32, len(c.want))
		best(got, c.scores)
		require.Equal(t, c.want, got, "%v", c.scores)
	}
}

// Every token's routes lie where its experts' rows are, each row is used once,
// and rows of one expert keep the order of the tokens.
func TestRoutesAreSortedByExpert(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := &model.Config{Dim: 1, Experts: rapid.IntRange(1, 9).Draw(r, "experts")}
		c.ExpertsUsed = rapid.IntRange(1, c.Experts).Draw(r, "used")
		tokens := rapid.IntRange(1, 20).Draw(r, "tokens")
		routing := newRouting(c, tokens)
		for i := range routing.scores {
			routing.scores[i] = rapid.Float32().Draw(r, "score")
		}
		routing.choose(c, tokens)
		routing.sort(c, tokens)
		owner := make(map[int32]int32) // row → expert
		last := make(map[int32]int32)  // expert → last row
		for i, row := range routing.routes {
			expert := routing.experts[i]
			_, taken := owner[row]
			require.False(r, taken)
			owner[row] = expert
			if before, found := last[expert]; found {
				require.Greater(r, row, before)
			}
			last[expert] = row
		}
		rows := 0
		routing.each(func(expert, from, to int) {
			for row := from; row < to; row++ {
				require.Equal(r, int32(expert), owner[int32(row)])
				rows++
			}
		})
		require.Equal(r, tokens*c.ExpertsUsed, rows)
	})
}
