// Package lora reads low-rank adapters: small matrices whose product is added
// to a model's weights.
//
// The one idea: whatever a file is written in, what comes out are pairs of
// float32 matrices under the base model's own tensor names and in the base
// model's own row order, checked against its shapes. An executor needs to know
// nothing else.
package lora

import (
	"errors"
	"fmt"
	"slices"
)

// Pair is the update of one weight matrix: W + scale·B·A.
type Pair struct {
	// Tensor is the base tensor's name in GGUF, such as "blk.0.attn_q.weight".
	Tensor        string
	Rank, In, Out int
	A             []float32 // [Rank][In]
	B             []float32 // [Out][Rank]
	// Scale is alpha/rank, or 1 where the file gives no alpha.
	Scale float32
}

// File is a parsed adapter. It is immutable.
type File struct {
	// Name is what the file calls itself, empty if it does not.
	Name string
	// Architecture is the base model's, as GGUF spells it, empty if the file
	// does not say.
	Architecture string
	// HalvesRotated says that rows of queries and keys are in the order of
	// Hugging Face, where a rotation pairs element i of a head with i+HeadDim/2.
	HalvesRotated bool
	// Pairs are the updates, in the order of their tensors' names.
	Pairs []Pair
}

// Base is what an adapter has to fit.
type Base struct {
	// Architecture is the model's, as GGUF spells it.
	Architecture string
	// Shape returns the shape of a matrix that can be adapted, by its name in
	// GGUF.
	Shape          func(tensor string) (rows, cols int, ok bool)
	Heads, KVHeads int
	// Interleaved says that a rotation pairs elements 2i and 2i+1 of a head.
	Interleaved bool
}

// ErrMismatch is matched when an adapter does not fit a model.
var ErrMismatch = errors.New("lora: adapter does not fit the model")

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
	}
	return pairs, nil
}
