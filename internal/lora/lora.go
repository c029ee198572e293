// Package lora reads low-rank adapters: small matrices whose product is added
// to a model's weights.
//
// The one idea: whatever a file is written in, what comes out are pairs of
// float32 matrices under the base model's own tensor names and in the base
// model's own row order, checked against its shapes. An executor needs to know
// nothing else.
package lora

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
