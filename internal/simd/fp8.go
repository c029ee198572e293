package simd

import (
	"encoding/binary"
	"math"
)

// F8E4M3 is the format of tensor cores, and this file says what they must
// compute with. A row is cut into blocks of 128 weights, the last one shorter
// when cols is no multiple; a block is a little-endian float32 scale and one
// E4M3 code per weight. With all arithmetic in float32, rounded to nearest even:
//
//	weight = FP8(code) × scale
//	scale  = max |weight| / 448, and 0 in a block of zeros
//	code   = ToFP8(weight × (1/scale))
//
// A weight that is NaN keeps its code and takes no part in the scale; an
// infinite one becomes 448 steps of the largest scale that stays finite. Where
// 1/scale would be infinite it is the largest float32 instead.

// fp8Block is the number of weights that share a scale.
const fp8Block = 128

// FP8 converts an E4M3 number (OCP 8-bit floating point, version 1.0: sign, 4
// bits of exponent with bias 7, 3 of fraction, no infinities, NaN where all
// seven are set) to float32, exactly.
func FP8(b byte) float32 {
	sign := uint32(b&0x80) << 24
	exponent, fraction := uint32(b>>3&15), uint32(b&7)
	switch {
	case b&0x7f == 0x7f:
		return math.Float32frombits(sign | 0x7fc00000)
	case exponent == 0: // fraction × 2⁻⁹
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)/512))
	}
	return math.Float32frombits(sign | (exponent+120)<<23 | fraction<<20)
}

// maxFP8 is the largest finite E4M3 number.
const maxFP8 = 448

// ToFP8 rounds v to the nearest E4M3 number, ties to even; what is larger than
// 448 becomes 448, as in a saturating conversion on the device.
func ToFP8(v float32) byte {
	bits := math.Float32bits(v)
	sign := byte(bits >> 24 & 0x80)
	magnitude := bits & 0x7fffffff
	switch {
	case magnitude > 0x7f800000:
		return sign | 0x7f
	case magnitude >= 0x43e00000: // 448
		return sign | 0x7e
	case magnitude < 0x3c800000: // below 2⁻⁶: adding 2¹⁴ rounds to steps of 2⁻⁹
		rounded := math.Float32frombits(magnitude) + 1<<14
		return sign | byte(math.Float32bits(rounded)-math.Float32bits(1<<14))
	}
	roundUp := magnitude>>20&1 + 0x7ffff
	return sign | byte((magnitude-120<<23+roundUp)>>20)
}

// decodeFP8 multiplies each value with the scale of its block, in float32.
func decodeFP8(dst []float32, src []byte) {
	for len(dst) > 0 {
		n := min(fp8Block, len(dst))
		scale := math.Float32frombits(binary.LittleEndian.Uint32(src))
		for i, b := range src[4 : 4+n] {
			dst[i] = FP8(b) * scale
		}
		dst, src = dst[n:], src[4+n:]
	}
}

// encodeFP8 scales each block so that its largest magnitude is 448.
func encodeFP8(dst []byte, src []float32) []byte {
	for len(src) > 0 {
		block := src[:min(fp8Block, len(src))]
		src = src[len(block):]
		scale := float32(math.Abs(float64(largest(block)))) / maxFP8
		if math.IsInf(float64(scale), 0) {
			scale = math.MaxFloat32 / maxFP8
		}
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(scale))
		inv := inverse(scale)
		for _, v := range block {
			dst = append(dst, ToFP8(v*inv))
		}
	}
	return dst
}
