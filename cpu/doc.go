// Package cpu executes Llama models on the processor, in Go and Go assembly
// and without cgo.
//
// The one idea: a step is one matrix. The tokens of all items, prompts' chunks
// and single tokens alike, are gathered into one matrix [tokens][dim], so that
// every weight is read once per step, from where the file is mapped. Sequences
// meet their own past only in the attention, through the block table.
//
// A token's logits depend on its own sequence alone, to the last bit: products
// are summed in one order (see internal/simd) and attention walks the keys in
// tiles of one KV block, whatever the chunk, the batch and the threads.
//
// How a step runs (forward.go): the caller of Step works through the layers and
// shares each large operation with the executor's own goroutines (pool.go),
// which live until Close.
package cpu
