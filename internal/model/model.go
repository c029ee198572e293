package model

import (
	"fmt"

	"github.com/intelliparadigm/haiku/internal/gguf"
	"github.com/intelliparadigm/haiku/internal/simd"
)

// Model is a checked model. Matrices are views of the file and valid until it
// is closed; a Model is read only and safe for concurrent use.
type Model struct {
	Config
	Embedding  simd.Matrix // [Vocab][Dim]
	Layers     []Layer     // [LayerCount]
	OutputNorm []float32   // [Dim]
	Output     simd.Matrix // [Vocab][Dim]; the Embedding if the file has none of its own
}

// Layer is one transformer block. What an architecture does without is nil.
type Layer struct {
	AttentionNorm []float32 // [Dim]
	Query         Linear    // [Heads·HeadDim][Dim]
	Key, Value    Linear    // [KVHeads·HeadDim][Dim]
	QueryNorm     []float32 // [HeadDim]
	KeyNorm       []float32 // [HeadDim]
	AttentionOut  Linear    // [Dim][Heads·HeadDim]
	// PostAttentionNorm is applied before the attention's output is added.
	PostAttentionNorm []float32 // [Dim]

	FFNNorm []float32   // [Dim]
	Router  simd.Matrix // [Experts][Dim]; no rows without experts
	Experts []Expert    // [Experts], or one that all tokens use
	// PostFFNNorm is applied before the feed-forward layer's output is added.
	PostFFNNorm []float32 // [Dim]

	Window   int // positions a query sees, its own included; 0: all before it
	Rotation int // index in Config.Rotations
}

// Linear is a matrix [outputs][inputs] and what is added to its product.
type Linear struct {
	simd.Matrix
	Bias []float32 // [outputs], or nil
}

// Expert is a gated feed-forward layer: Down·(act(Gate·x) ∘ Up·x).
type Expert struct {
	Gate, Up simd.Matrix // [FFN][Dim]
	Down     simd.Matrix // [Dim][FFN]
}

// Load checks file and returns its model. Errors match [ErrUnsupported] or
// [ErrInvalid] and name the key or the tensors; all missing tensors are named
// at once. A tensor that is no part of the architecture is refused: it would
// change the result, or belongs to a larger model.
func Load(file *gguf.File) (*Model, error) {
	config, windows, err := readConfig(file)
	if err != nil {
		return nil, err
	}
	m := &Model{Config: config, Layers: make([]Layer, config.LayerCount)}
	b := &binder{file: file, arch: architectures[config.Architecture], bound: make(map[string]bool)}
	m.Vocab = b.vocab(config.Architecture)
	m.Embedding = b.matrix("token_embd.weight", m.Vocab, m.Dim)
	m.OutputNorm = b.vector("output_norm.weight", m.Dim)
	m.Output = m.Embedding
	if b.has("output.weight") {
		m.Output = b.matrix("output.weight", m.Vocab, m.Dim)
	}
	if b.has("rope_freqs.weight") {
		factors := b.vector("rope_freqs.weight", m.RopeDims/2)
		b.positive("rope_freqs.weight", factors)
		m.Rotations[0].divide(factors)
		if !m.Rotations[0].finite() {
			b.fail("%w: tensor rope_freqs.weight gives frequencies that are not finite", ErrInvalid)
		}
	}
	for i := range m.Layers {
		layer := &m.Layers[i]
		*layer = b.layer(fmt.Sprintf("blk.%d.", i), &m.Config)
		if layer.Window = windows.of(i); layer.Window > 0 {
			layer.Rotation = len(m.Rotations) - 1
		}
	}
	b.refuseOthers()
	if err := b.result(); err != nil {
		return nil, err
	}
	return m, nil
}

func (b *binder) layer(prefix string, c *Config) Layer {
	queries, keys := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	l := Layer{
		AttentionNorm: b.vector(prefix+"attn_norm.weight", c.Dim),
		Query:         b.linear(prefix+"attn_q", queries, c.Dim),
		Key:           b.linear(prefix+"attn_k", keys, c.Dim),
		Value:         b.linear(prefix+"attn_v", keys, c.Dim),
		AttentionOut:  b.linear(prefix+"attn_output", c.Dim, queries),
		FFNNorm:       b.vector(prefix+"ffn_norm.weight", c.Dim),
	}
	if b.arch.normsHeads {
		l.QueryNorm = b.vector(prefix+"attn_q_norm.weight", c.HeadDim)
		l.KeyNorm = b.vector(prefix+"attn_k_norm.weight", c.HeadDim)
	}
	if b.arch.normsOutputs {
		l.PostAttentionNorm = b.vector(prefix+"post_attention_norm.weight", c.Dim)
		l.PostFFNNorm = b.vector(prefix+"post_ffw_norm.weight", c.Dim)
	}
	if c.Experts > 0 {
		l.Router = b.matrix(prefix+"ffn_gate_inp.weight", c.Experts, c.Dim)
		l.Experts = b.experts(prefix, c)
	} else {
		l.Experts = []Expert{{
			Gate: b.matrix(prefix+"ffn_gate.weight", c.FFN, c.Dim),
			Up:   b.matrix(prefix+"ffn_up.weight", c.FFN, c.Dim),
			Down: b.matrix(prefix+"ffn_down.weight", c.Dim, c.FFN),
		}}
	}
	return l
}

// experts binds the tensors in which those of all experts lie one after the
// other.
func (b *binder) experts(prefix string, c *Config) []Expert {
	gates := b.matrices(prefix+"ffn_gate_exps.weight", c.Experts, c.FFN, c.Dim)
	ups := b.matrices(prefix+"ffn_up_exps.weight", c.Experts, c.FFN, c.Dim)
	downs := b.matrices(prefix+"ffn_down_exps.weight", c.Experts, c.Dim, c.FFN)
	if gates == nil || ups == nil || downs == nil {
		return nil
	}
	experts := make([]Expert, c.Experts)
	for i := range experts {
		experts[i] = Expert{Gate: gates[i], Up: ups[i], Down: downs[i]}
	}
	return experts
}
