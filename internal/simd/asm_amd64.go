package simd

import "unsafe"

// dense4 multiplies four float32 rows, wStride elements apart, with tokens
// vectors of cols elements, xStride apart, and writes four results per token,
// stride apart.
//
//go:noescape
func dense4(dst *float32, stride int, w unsafe.Pointer, wStride int, x *float32, xStride, tokens, cols int)

// dot4F16 multiplies four binary16 rows with x; cols is a multiple of 8.
//
//go:noescape
func dot4F16(dst *[quad]float32, w unsafe.Pointer, rowBytes int, x *float32, cols int)

// dot4Q8 multiplies four Q8_0 rows with x.
//
//go:noescape
func dot4Q8(dst *[quad]float32, w unsafe.Pointer, rowBytes int, x *float32, blocks int)

// dot4Q4 multiplies four Q4_0 rows with x.
//
//go:noescape
func dot4Q4(dst *[quad]float32, w unsafe.Pointer, rowBytes int, x *float32, blocks int)

// dense8 multiplies eight float32 rows, interleaved as [cols/8][8 rows][8], with
// tokens vectors of cols elements, xStride apart, and writes eight results per
// token, stride apart. It needs AVX-512F; cols is a positive multiple of 8.
//
//go:noescape
func dense8(dst *float32, stride int, w *float32, x *float32, xStride, tokens, cols int)

// decodeF16 converts n numbers, a positive multiple of 8, and writes groups of
// eight step elements apart.
//
//go:noescape
func decodeF16(dst *float32, step int, src *byte, n int)

// decodeQ8 converts a positive number of blocks and writes groups of eight step
// elements apart.
//
//go:noescape
func decodeQ8(dst *float32, step int, src *byte, blocks int)

// decodeQ4 is decodeQ8 for Q4_0.
//
//go:noescape
func decodeQ4(dst *float32, step int, src *byte, blocks int)

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
