package lora

import (
	"fmt"
	"slices"
	"strings"
)

// Base is what an adapter has to fit.
type Base struct {
	// Architecture is the model's, as GGUF spells it.
	Architecture string
	// Shape returns the shape of a matrix that can be adapted, by its name in
	// GGUF.
	Shape func(tensor string) (rows, cols int, ok bool)
	// Heads and KVHeads share the rows of queries, and of keys, HeadDim each.
	Heads, KVHeads, HeadDim int
	// Interleaved says that a rotation pairs elements 2i and 2i+1 of a head, so
	// that rows of queries and keys are in another order than Hugging Face's.
	Interleaved bool
}

// Bind returns the pairs for a model, in its row order. Errors match
// [ErrMismatch] and name the tensor.
func (f *File) Bind(base Base) ([]Pair, error) {
	if f.Architecture != "" && f.Architecture != base.Architecture {
		return nil, fmt.Errorf("%w: it is for %q, the model is %q", ErrMismatch, f.Architecture, base.Architecture)
	}
	pairs := slices.Clone(f.Pairs)
	for i := range pairs {
		p := &pairs[i]
		rows, cols, ok := base.Shape(p.Tensor)
		if !ok {
			return nil, fmt.Errorf("%w: the model has no matrix %s that could be adapted", ErrMismatch, p.Tensor)
		}
		if p.Out != rows || p.In != cols {
			return nil, fmt.Errorf("%w: the update of %s is [%d %d], the tensor [%d %d]", ErrMismatch, p.Tensor, p.Out, p.In, rows, cols)
		}
		if f.HalvesRotated && base.Interleaved {
			switch {
			case base.HeadDim%2 != 0:
				return nil, fmt.Errorf("%w: heads of %d rows cannot be put in another order", ErrMismatch, base.HeadDim)
			case strings.HasSuffix(p.Tensor, ".attn_q.weight"):
				p.B = interleave(p.B, base.Heads, base.HeadDim, p.Rank)
			case strings.HasSuffix(p.Tensor, ".attn_k.weight"):
				p.B = interleave(p.B, base.KVHeads, base.HeadDim, p.Rank)
			}
		}
	}
	return pairs, nil
}

// interleave returns rows [heads·headDim][cols] in an order in which element i
// of the first half of a head is followed by element i of the second.
func interleave(rows []float32, heads, headDim, cols int) []float32 {
	out := make([]float32, 0, len(rows))
	row := func(i int) []float32 { return rows[i*cols : (i+1)*cols] }
	for first := 0; first < heads*headDim; first += headDim {
		for i := range headDim / 2 {
			out = append(append(out, row(first+i)...), row(first+headDim/2+i)...)
		}
	}
	return out
}
