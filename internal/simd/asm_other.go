//go:build !amd64

package simd

import "unsafe"

// Without assembly Levels offers Portable alone, so none of these is reached.

// readers are the assembly for each format.
var readers [len(layouts)]reader

const noAssembly = "simd: no assembly on this architecture"

func hasAVX2() bool   { return false }
func hasAVX512() bool { return false }

func dense8(dst *float32, stride int, w *float32, x *float32, xStride, tokens, cols int) {
	panic(noAssembly)
}

func dense4(dst *float32, stride int, w unsafe.Pointer, wStride int, x *float32, xStride, tokens, cols int) {
	panic(noAssembly)
}

func scattered4(dst *[quad]float32, a, b, c, d, x *float32, cols int) { panic(noAssembly) }

func addWeighted(dst, rows, p *float32, n, d int)     { panic(noAssembly) }
func expSum(s *float32, n int, shift float32) float32 { panic(noAssembly) }
func maximum(s *float32, n int) float32               { panic(noAssembly) }
func siluMul(gate, up *float32, n int)                { panic(noAssembly) }

// Pause does nothing here; on amd64 it leaves the core to its other hardware
// thread for a fraction of a microsecond.
func Pause() {}
