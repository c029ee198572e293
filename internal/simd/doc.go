// Package simd holds the arithmetic of a forward pass: products of weight
// matrices with activations, and the few vector functions around them.
//
// The one idea: a weight has the same value wherever it is used. Rows of every
// format become float32 by one formula, whose products of small integers and
// 11-bit scales fit float32, so that it does not matter who rounds when; then
// they are multiplied with float32 activations. One token reads blocks where
// they lie, many tokens share a decoded tile; both add the same products in the
// same order: eight lanes, each sequential along the row, summed as
// ((0+1)+(2+3))+((4+5)+(6+7)). So an output depends on its row and its token
// alone, to the last bit, whatever the number of tokens in the call, the row
// range or the thread.
//
// A format is a line of the table in matrix.go, with a function that reads its
// blocks and one that writes them. Its assembly is one macro that decodes 32
// weights to registers, from which rows_amd64.h makes both the product for one
// token and the decoder of tiles, and a line of the table in readers_amd64.go.
// Tests hold every level to the values of the Go function, and that to
// llama.cpp's, bit for bit; a block whose scale is not a finite number has no
// finite weights at any level.
//
// A [Level] names the instruction set. [Portable] is Go alone and always
// there; it is as consistent with itself as the assembly, though not bit-equal
// to it. All functions work on memory the caller gives and allocate nothing.
package simd
