// Package cpu executes GGUF models of the Llama, Mistral, Mixtral, Qwen and
// Gemma families on the processor, in Go and Go assembly and without cgo.
//
// The one idea: a step is one matrix. The tokens of all items, prompts' chunks
// and single tokens alike, are gathered into one matrix [tokens][dim], so that
// every weight is read once per step, from where the file is mapped. Sequences
// meet their own past only in the attention, through the block table.
//
// A token's logits depend on its own sequence alone, to the last bit: products
// are summed in one order (see internal/simd), attention walks the keys in tiles
// and segments that begin at fixed positions (attention.go), and a token's
// experts are summed in their own order (mixture.go), whatever the chunk, the
// batch, the blocks and the threads.
//
// How a step runs (forward.go): the caller of Step works through the layers and
// shares each large operation with the executor's own goroutines (pool.go),
// which live until Close. Low-rank adapters (adapter.go) are added to the
// products of the rows that ask for them.
package cpu
