package model

import (
	"fmt"
	"strings"

	"github.com/intelliparadigm/haiku/internal/gguf"
	"github.com/intelliparadigm/haiku/internal/simd"
)

// Model is a checked Llama model. Matrices are views of the file and valid
// until it is closed; a Model is read only and safe for concurrent use.
type Model struct {
	Config
	Embedding  simd.Matrix // [Vocab][Dim]
	Layers     []Layer     // [LayerCount]
	OutputNorm []float32   // [Dim]
	Output     simd.Matrix // [Vocab][Dim]; the Embedding if the file has none of its own
}

// Layer is one transformer block. Matrices are [outputs][inputs].
type Layer struct {
	AttentionNorm []float32   // [Dim]
	Query         simd.Matrix // [Heads·HeadDim][Dim]
	Key, Value    simd.Matrix // [KVHeads·HeadDim][Dim]
	AttentionOut  simd.Matrix // [Dim][Heads·HeadDim]
	FFNNorm       []float32   // [Dim]
	Gate, Up      simd.Matrix // [FFN][Dim]
	Down          simd.Matrix // [Dim][FFN]
}

// Load checks file and returns its model. Errors match [ErrUnsupported] or
// [ErrInvalid] and name the key or the tensors; all missing tensors are named
// at once. Tensors that are not part of the architecture are ignored, save
// biases, which would change the result.
func Load(file *gguf.File) (*Model, error) {
	config, err := readConfig(file)
	if err != nil {
		return nil, err
	}
	m := &Model{Config: config, Layers: make([]Layer, config.LayerCount)}
	b := &binder{file: file}
	m.Vocab = b.vocab("token_embd.weight")
	m.Embedding = b.matrix("token_embd.weight", m.Vocab, m.Dim)
	m.OutputNorm = b.vector("output_norm.weight", m.Dim)
	m.Output = m.Embedding
	if _, untied := file.Tensor("output.weight"); untied {
		m.Output = b.matrix("output.weight", m.Vocab, m.Dim)
	}
	if _, scaled := file.Tensor("rope_freqs.weight"); scaled {
		m.RopeFactors = b.vector("rope_freqs.weight", m.RopeDims/2)
		b.positive("rope_freqs.weight", m.RopeFactors)
	}
	for i := range m.Layers {
		m.Layers[i] = b.layer(fmt.Sprintf("blk.%d.", i), &m.Config)
	}
	return m, b.result()
}

// binder looks tensors up by name, checks them and collects what is wrong.
type binder struct {
	file    *gguf.File
	missing []string
	err     error // the first fault other than a missing tensor
}

func (b *binder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf(format, args...)
	}
}

// result is the error of everything bound: all missing names, else the first
// fault.
func (b *binder) result() error {
	if len(b.missing) > 0 {
		return fmt.Errorf("%w: missing tensors: %s", ErrInvalid, strings.Join(b.missing, ", "))
	}
	return b.err
}

func (b *binder) layer(prefix string, c *Config) Layer {
	queries, keys := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	for _, name := range []string{"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"} {
		if _, found := b.file.Tensor(prefix + name + ".bias"); found {
			b.fail("%w: tensor %s%s.bias: biases are not supported", ErrUnsupported, prefix, name)
		}
	}
	return Layer{
		AttentionNorm: b.vector(prefix+"attn_norm.weight", c.Dim),
		Query:         b.matrix(prefix+"attn_q.weight", queries, c.Dim),
		Key:           b.matrix(prefix+"attn_k.weight", keys, c.Dim),
		Value:         b.matrix(prefix+"attn_v.weight", keys, c.Dim),
		AttentionOut:  b.matrix(prefix+"attn_output.weight", c.Dim, queries),
		FFNNorm:       b.vector(prefix+"ffn_norm.weight", c.Dim),
		Gate:          b.matrix(prefix+"ffn_gate.weight", c.FFN, c.Dim),
		Up:            b.matrix(prefix+"ffn_up.weight", c.FFN, c.Dim),
		Down:          b.matrix(prefix+"ffn_down.weight", c.Dim, c.FFN),
	}
}

// tensor returns the tensor of that name and shape, or nil after noting why
// not.
func (b *binder) tensor(name string, dims ...int) *gguf.Tensor {
	t, found := b.file.Tensor(name)
	if !found {
		b.missing = append(b.missing, name)
		return nil
	}
	shape := t.Dims
	for len(shape) > len(dims) && shape[len(shape)-1] == 1 {
		shape = shape[:len(shape)-1]
	}
	matches := len(shape) == len(dims)
	for i := 0; matches && i < len(dims); i++ {
		matches = shape[i] == dims[i]
	}
	if !matches {
		b.fail("%w: tensor %s is %v, the metadata asks for %v", ErrInvalid, name, t.Dims, dims)
		return nil
	}
	return t
}

// matrix binds a tensor [rows][cols].
func (b *binder) matrix(name string, rows, cols int) simd.Matrix {
	t := b.tensor(name, cols, rows)
	if t == nil {
		return simd.Matrix{}
	}
	format, known := formatOf(t.Type)
	if !known {
		b.fail("%w: tensor %s has type %s, implemented are F32, F16, Q8_0 and Q4_0", ErrUnsupported, name, t.Type)
		return simd.Matrix{}
	}
	m, err := simd.NewMatrix(format, rows, cols, t.Data)
	if err != nil {
		b.fail("%w: tensor %s: %w", ErrInvalid, name, err)
	}
	return m
}

// vector copies a tensor [n] to float32.
func (b *binder) vector(name string, n int) []float32 {
	t := b.tensor(name, n)
	if t == nil {
		return nil
	}
	if t.Type != gguf.F32 {
		b.fail("%w: tensor %s has type %s, implemented is F32", ErrUnsupported, name, t.Type)
		return nil
	}
	m, err := simd.NewMatrix(simd.F32, 1, n, t.Data)
	if err != nil {
		b.fail("%w: tensor %s: %w", ErrInvalid, name, err)
		return nil
	}
	v := make([]float32, n)
	simd.Portable.Row(v, &m, 0)
	return v
}

func (b *binder) positive(name string, v []float32) {
	for i, x := range v {
		if !(x > 0) {
			b.fail("%w: tensor %s: element %d is %g, want a positive number", ErrInvalid, name, i, x)
			return
		}
	}
}

// vocab is the number of rows of the embedding, checked against the metadata
// where it is given.
func (b *binder) vocab(name string) int {
	t, found := b.file.Tensor(name)
	if !found || len(t.Dims) < 2 {
		return 1 // matrix reports it
	}
	if n, err := b.file.Int("llama.vocab_size"); err == nil && n != t.Dims[1] {
		b.fail("%w: llama.vocab_size is %d but tensor %s has %d rows", ErrInvalid, n, name, t.Dims[1])
	}
	return t.Dims[1]
}

// formatOf maps a tensor's type to a format the kernels know.
func formatOf(t gguf.Type) (simd.Format, bool) {
	switch t {
	case gguf.F32:
		return simd.F32, true
	case gguf.F16:
		return simd.F16, true
	case gguf.Q8_0:
		return simd.Q8_0, true
	case gguf.Q4_0:
		return simd.Q4_0, true
	}
	return 0, false
}
