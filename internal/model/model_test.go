package model

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/internal/gguf"
	"github.com/intelliparadigm/haiku/internal/simd"
)

// draft is a model file whose pairs and tensors a test can change before it is
// parsed.
type draft struct {
	pairs   map[string]any // uint32, int32, float32, string or []int32
	tensors map[string]tensor
}

type tensor struct {
	kind gguf.Type
	dims []int
}

// newDraft is a good model: 2 layers of 32, 4 heads, 2 key heads.
func newDraft() *draft {
	d := &draft{
		pairs: map[string]any{
			"general.architecture": "llama", "llama.block_count": uint32(2), "llama.embedding_length": uint32(32),
			"llama.feed_forward_length": uint32(40), "llama.context_length": uint32(64),
			"llama.attention.head_count": uint32(4), "llama.attention.head_count_kv": uint32(2),
			"llama.attention.layer_norm_rms_epsilon": float32(1e-6), "llama.rope.freq_base": float32(500000),
			"llama.rope.dimension_count": uint32(8), "llama.vocab_size": uint32(12),
		},
		tensors: map[string]tensor{
			"token_embd.weight": {gguf.Q8_0, []int{32, 12}}, "output_norm.weight": {gguf.F32, []int{32}},
		},
	}
	for i := range 2 {
		for name, shape := range map[string]tensor{
			"attn_norm": {gguf.F32, []int{32}}, "ffn_norm": {gguf.F32, []int{32}},
			"attn_q": {gguf.Q4_0, []int{32, 32}}, "attn_k": {gguf.F16, []int{32, 16}}, "attn_v": {gguf.F32, []int{32, 16}},
			"attn_output": {gguf.F32, []int{32, 32}}, "ffn_gate": {gguf.F32, []int{32, 40}},
			"ffn_up": {gguf.F32, []int{32, 40}}, "ffn_down": {gguf.F16, []int{40, 32}},
		} {
			d.tensors[fmt.Sprintf("blk.%d.%s.weight", i, name)] = shape
		}
	}
	return d
}

func (d *draft) load(t testing.TB) (*Model, error) {
	t.Helper()
	w := gguf.NewWriter()
	for key, v := range d.pairs {
		switch v := v.(type) {
		case string:
			w.SetString(key, v)
		case uint32:
			w.SetUint32(key, v)
		case float32:
			w.SetFloat32(key, v)
		case []int32:
			w.SetInts(key, v)
		default:
			t.Fatalf("pair %s has type %T", key, v)
		}
	}
	for name, shape := range d.tensors {
		size := (&gguf.Tensor{Type: shape.kind, Dims: shape.dims})
		w.AddTensor(name, shape.kind, shape.dims, make([]byte, size.Rows()*size.RowBytes()))
	}
	var out bytes.Buffer
	_, err := w.WriteTo(&out)
	require.NoError(t, err)
	file, err := gguf.Parse(out.Bytes())
	require.NoError(t, err)
	return Load(file)
}

func TestLoadReadsEveryHyperParameter(t *testing.T) {
	m, err := newDraft().load(t)
	require.NoError(t, err)
	require.Equal(t, Config{
		Architecture: "llama", LayerCount: 2, Dim: 32, Heads: 4, KVHeads: 2, HeadDim: 8, FFN: 40, Vocab: 12, Context: 64,
		NormEpsilon: 1e-6, EmbeddingScale: 1, RopeDims: 8, Rotations: []Rotation{rotation(8, 500000, ropeScaling{factor: 1, attention: 1})},
		AttentionScale: float32(1 / math.Sqrt(8)),
	}, m.Config)
	require.Len(t, m.Layers, 2)
	require.Equal(t, m.Embedding, m.Output, "no output.weight: tied")
	require.Equal(t, simd.Q4_0, m.Layers[1].Query.Format)
	require.Equal(t, [2]int{32, 40}, [2]int{m.Layers[0].Experts[0].Down.Rows, m.Layers[0].Experts[0].Down.Cols})
}

func TestDefaultsOfAbsentKeys(t *testing.T) {
	d := newDraft()
	for _, key := range []string{"rope.freq_base", "rope.dimension_count", "vocab_size", "attention.head_count_kv"} {
		delete(d.pairs, "llama."+key)
	}
	for i := range 2 {
		d.tensors[fmt.Sprintf("blk.%d.attn_k.weight", i)] = tensor{gguf.F32, []int{32, 32}}
		d.tensors[fmt.Sprintf("blk.%d.attn_v.weight", i)] = tensor{gguf.F32, []int{32, 32}}
	}
	m, err := d.load(t)
	require.NoError(t, err)
	require.Equal(t, 4, m.KVHeads)
	require.Equal(t, 8, m.RopeDims)
	require.InDelta(t, 1e-3, m.Rotations[0].Frequencies[3], 1e-9, "the base is 10000")
}

func TestEqualListsAreAccepted(t *testing.T) {
	d := newDraft()
	d.pairs["llama.attention.head_count_kv"] = []int32{2, 2}
	d.pairs["llama.attention.head_count"] = []int32{4, 4}
	d.pairs["llama.feed_forward_length"] = []int32{40, 40}
	m, err := d.load(t)
	require.NoError(t, err)
	require.Equal(t, 2, m.KVHeads)
}

func TestAnOwnOutputWins(t *testing.T) {
	d := newDraft()
	d.tensors["output.weight"] = tensor{gguf.F16, []int{32, 12}}
	d.tensors["blk.0.attn_rot_embd.weight"] = tensor{gguf.F32, []int{4}} // of old converters
	m, err := d.load(t)
	require.NoError(t, err)
	require.Equal(t, simd.F16, m.Output.Format)
}

func TestATensorThatNothingUsesIsRefused(t *testing.T) {
	for _, name := range []string{
		"blk.0.novelty.weight", "output.bias", "output_norm.bias", "token_embd_norm.weight", "blk.0.attn_norm.bias",
		"blk.0.post_attention_norm.weight", "blk.0.attn_q.scale", "blk.0.attn_q_norm.weight", "blk.0.ffn_gate.bias", "blk.7.attn_q.weight",
	} {
		d := newDraft()
		d.tensors[name] = tensor{gguf.F32, []int{4}}
		_, err := d.load(t)
		require.ErrorIs(t, err, ErrUnsupported)
		require.ErrorContains(t, err, name)
	}
}

// change is one edit of a good draft and what Load must say about it.
type change struct {
	key   string // of a pair, below "llama." unless it has a dot-free prefix of its own
	value any    // nil deletes
	is    error
	says  []string
}

func TestBadMetadataIsNamed(t *testing.T) {
	const kv = "llama.attention.head_count_kv"
	for _, c := range []change{
		{"general.architecture", "gpt9", ErrUnsupported, []string{`"gpt9"`}},
		{"general.architecture", nil, ErrUnsupported, []string{"general.architecture"}},
		{kv, float32(2), ErrInvalid, []string{kv}},
		{kv, "two", ErrInvalid, []string{kv}},
		{kv, []int32{2, 4}, ErrUnsupported, []string{kv, "differs between layers"}},
		{kv, []int32{2}, ErrInvalid, []string{kv, "1 values for 2 layers"}},
		{kv, []int32{0, 0}, ErrInvalid, []string{kv, "0"}},
		{kv, uint32(0), ErrInvalid, []string{kv, "0"}},
		{kv, uint32(8), ErrInvalid, []string{kv, "8"}},
		{kv, uint32(3), ErrInvalid, []string{kv, "does not divide"}},
		{"llama.context_length", uint32(0), ErrInvalid, []string{"llama.context_length is 0"}},
		{"llama.context_length", nil, ErrInvalid, []string{"llama.context_length"}},
		{"llama.block_count", uint32(0), ErrInvalid, []string{"llama.block_count is 0"}},
		{"llama.block_count", uint32(1 << 27), ErrInvalid, []string{"llama.block_count", "20 tensors"}},
		{"llama.block_count", uint32(1<<32 - 1), ErrInvalid, []string{"llama.block_count"}},
		{"llama.embedding_length", uint32(1<<32 - 1), ErrInvalid, []string{"llama.embedding_length"}},
		{"llama.embedding_length", uint32(33), ErrInvalid, []string{"llama.embedding_length 33"}},
		{"llama.embedding_length", uint32(64), ErrInvalid, []string{"tensor token_embd.weight is [32 12]"}},
		{"llama.feed_forward_length", nil, ErrInvalid, []string{"llama.feed_forward_length"}},
		{"llama.feed_forward_length", []int32{40, 44}, ErrUnsupported, []string{"llama.feed_forward_length"}},
		{"llama.attention.layer_norm_rms_epsilon", nil, ErrInvalid, []string{"layer_norm_rms_epsilon"}},
		{"llama.attention.layer_norm_rms_epsilon", uint32(1), ErrInvalid, []string{"layer_norm_rms_epsilon"}},
		{"llama.rope.freq_base", float32(-1), ErrInvalid, []string{"llama.rope.freq_base is -1"}},
		{"llama.rope.dimension_count", uint32(7), ErrInvalid, []string{"llama.rope.dimension_count is 7"}},
		{"llama.rope.dimension_count", uint32(10), ErrInvalid, []string{"llama.rope.dimension_count is 10"}},
		{"llama.rope.freq_base", float32(1e-30), ErrInvalid, []string{"not finite"}},
		{"llama.rope.scaling.type", "longrope", ErrUnsupported, []string{"llama.rope.scaling.type", `"longrope"`}},
		{"llama.rope.scaling.type", "yarn", ErrInvalid, []string{"llama.rope.scaling.factor"}},
		{"llama.rope.scaling.type", "linear", ErrInvalid, []string{"llama.rope.scaling.factor"}},
		{"llama.rope.scaling.type", uint32(1), ErrInvalid, []string{"llama.rope.scaling.type"}},
		{"llama.rope.scaling.factor", float32(0), ErrInvalid, []string{"llama.rope.scaling.factor is 0"}},
		{"llama.rope.scaling.attn_factor", float32(-2), ErrInvalid, []string{"attn_factor"}},
		{"llama.attention.value_length", uint32(4), ErrUnsupported, []string{"llama.attention.value_length 4"}},
		{"llama.attention.sliding_window", "long", ErrInvalid, []string{"sliding_window"}},
		{"llama.expert_count", uint32(4), ErrInvalid, []string{"llama.expert_used_count"}},
		{"llama.expert_count", "many", ErrInvalid, []string{"llama.expert_count"}},
		{"llama.pooling_type", uint32(3), ErrUnsupported, []string{"llama.pooling_type is 3"}},
		{"llama.logit_scale", float32(8), ErrUnsupported, []string{"llama.logit_scale is 8"}},
		{"llama.attention.clamp_kqv", uint32(8), ErrUnsupported, []string{"llama.attention.clamp_kqv is 8"}},
		{"llama.attn_logit_softcapping", float32(-1), ErrInvalid, []string{"attn_logit_softcapping is -1"}},
		{"llama.vocab_size", uint32(13), ErrInvalid, []string{"llama.vocab_size is 13", "12 rows"}},
	} {
		t.Run(fmt.Sprintf("%s=%v", c.key, c.value), func(t *testing.T) {
			d := newDraft()
			d.pairs[c.key] = c.value
			if c.value == nil {
				delete(d.pairs, c.key)
			}
			_, err := d.load(t)
			require.ErrorIs(t, err, c.is)
			for _, s := range c.says {
				require.ErrorContains(t, err, s)
			}
		})
	}
}

// TestHugeHeadsCostNothing holds a file of a few bytes to what it may cost before
// its tensors are looked at.
func TestHugeHeadsCostNothing(t *testing.T) {
	d := newDraft()
	delete(d.pairs, "llama.rope.dimension_count")
	d.pairs["llama.attention.key_length"], d.pairs["llama.attention.value_length"] = uint32(1<<26), uint32(1<<26)
	_, err := d.load(t)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "want an even number up to 16384")
}

func TestBadTensorsAreNamed(t *testing.T) {
	for _, c := range []struct {
		name   string
		tensor tensor
		is     error
		says   string
	}{
		{"blk.1.ffn_up.weight", tensor{gguf.F32, []int{40, 32}}, ErrInvalid, "tensor blk.1.ffn_up.weight is [40 32]"},
		{"blk.1.ffn_up.weight", tensor{gguf.Q6_K, []int{256, 5}}, ErrInvalid, "tensor blk.1.ffn_up.weight"},
		{"blk.0.attn_q.weight", tensor{gguf.IQ4_NL, []int{32, 32}}, ErrUnsupported, "tensor blk.0.attn_q.weight has type IQ4_NL"},
		{"blk.0.attn_q.weight", tensor{gguf.F32, []int{32, 4, 8}}, ErrInvalid, "tensor blk.0.attn_q.weight is [32 4 8]"},
		{"blk.0.attn_norm.weight", tensor{gguf.Q8_0, []int{32}}, ErrUnsupported, "tensor blk.0.attn_norm.weight has type Q8_0"},
		{"blk.0.attn_norm.weight", tensor{gguf.F32, []int{31}}, ErrInvalid, "tensor blk.0.attn_norm.weight is [31]"},
		{"token_embd.weight", tensor{gguf.F32, []int{32}}, ErrInvalid, "tensor token_embd.weight is [32]"},
		{"output.weight", tensor{gguf.F32, []int{32, 11}}, ErrInvalid, "tensor output.weight is [32 11]"},
		{"blk.0.attn_q.bias", tensor{gguf.F32, []int{31}}, ErrInvalid, "tensor blk.0.attn_q.bias is [31]"},
		{"blk.0.ffn_up.bias", tensor{gguf.F32, []int{40}}, ErrUnsupported, "tensor blk.0.ffn_up.bias"},
		{"blk.1.attn_q_norm.weight", tensor{gguf.F32, []int{8}}, ErrUnsupported, "tensor blk.1.attn_q_norm.weight"},
		{"rope_freqs.weight", tensor{gguf.F32, []int{3}}, ErrInvalid, "tensor rope_freqs.weight is [3]"},
		{"rope_freqs.weight", tensor{gguf.F32, []int{4}}, ErrInvalid, "rope_freqs.weight: element 0 is 0"},
	} {
		d := newDraft()
		d.tensors[c.name] = c.tensor
		_, err := d.load(t)
		require.ErrorIs(t, err, c.is, c.name)
		require.ErrorContains(t, err, c.says)
	}
}

func TestAllMissingTensorsAreListed(t *testing.T) {
	d := newDraft()
	for _, name := range []string{"blk.1.ffn_up.weight", "output_norm.weight", "blk.0.attn_v.weight"} {
		delete(d.tensors, name)
	}
	_, err := d.load(t)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "missing tensors: output_norm.weight, blk.0.attn_v.weight, blk.1.ffn_up.weight")

	d = &draft{pairs: newDraft().pairs, tensors: map[string]tensor{"a": {gguf.F32, []int{1}}, "b": {gguf.F32, []int{1}}}}
	_, err = d.load(t)
	require.Equal(t, 20, strings.Count(err.Error(), ".weight"))
}

func TestHostileNumbersCostNothing(t *testing.T) {
	d := newDraft()
	d.pairs["llama.context_length"] = uint32(1 << 28)
	d.pairs["llama.block_count"] = uint32(20)
	d.pairs["llama.attention.key_length"] = uint32(1 << 28)
	d.pairs["llama.feed_forward_length"] = uint32(1 << 28)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := d.load(t)
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, ErrInvalid)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20))
}

// FuzzConfig varies the numbers of a small model: Load returns an error or a
// model whose shapes hold together.
func FuzzConfig(f *testing.F) {
	f.Add(uint32(2), uint32(32), uint32(40), uint32(4), uint32(2), uint32(8), uint32(8))
	f.Add(uint32(1<<31), uint32(0), uint32(1<<31), uint32(1<<30), uint32(3), uint32(7), uint32(1<<28))
	f.Fuzz(func(t *testing.T, layers, dim, ffn, heads, kvHeads, rope, keyLength uint32) {
		d := newDraft()
		d.pairs["llama.block_count"], d.pairs["llama.embedding_length"] = layers, dim
		d.pairs["llama.feed_forward_length"], d.pairs["llama.attention.head_count"] = ffn, heads
		d.pairs["llama.attention.head_count_kv"], d.pairs["llama.rope.dimension_count"] = kvHeads, rope
		d.pairs["llama.attention.key_length"] = keyLength
		m, err := d.load(t)
		if err != nil {
			return
		}
		require.Zero(t, m.Heads%m.KVHeads)
		require.LessOrEqual(t, m.RopeDims, m.HeadDim)
		for _, l := range m.Layers {
			require.Equal(t, m.Heads*m.HeadDim, l.Query.Rows)
			require.Equal(t, m.KVHeads*m.HeadDim, l.Value.Rows)
			require.Equal(t, m.FFN, l.Experts[0].Down.Cols)
		}
	})
}
