package simd

import "unsafe"

// dense4 multiplies four float32 rows, wStride elements apart, with tokens
// vectors of cols elements, xStride apart, and writes four results per token,
// stride apart.
//
//go:noescape
func dense4(dst *float32, stride int, w unsafe.Pointer, wStride int, x *float32, xStride, tokens, cols int)

// scattered4 multiplies four float32 rows of cols ≥ 1 elements with x.
//
//go:noescape
func scattered4(dst *[quad]float32, a, b, c, d, x *float32, cols int)

// dense8 multiplies eight float32 rows, interleaved as [cols/8][8 rows][8], with
// tokens vectors of cols elements, xStride apart, and writes eight results per
// token, stride apart. It needs AVX-512F; cols is a positive multiple of 8.
//
//go:noescape
func dense8(dst *float32, stride int, w *float32, x *float32, xStride, tokens, cols int)

// addWeighted adds n ≥ 1 rows of d floats, each times its p, to dst.
//
//go:noescape
func addWeighted(dst, rows, p *float32, n, d int)

// expSum is ExpSum for n ≥ 1 elements.
//
//go:noescape
func expSum(s *float32, n int, shift float32) float32

// maximum is Max for n ≥ 1 elements.
//
//go:noescape
func maximum(s *float32, n int) float32

// siluMul is SiluMul for n ≥ 1 elements.
//
//go:noescape
func siluMul(gate, up *float32, n int)

// Pause waits for a fraction of a microsecond without work, leaving the core
// to its other hardware thread: for loops that watch another goroutine.
func Pause()
