package simd

import "math"

// Half converts an IEEE 754 binary16 value to float32, exactly.
func Half(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exponent := uint32(h>>10) & 0x1f
	fraction := uint32(h & 0x3ff)
	switch exponent {
	case 0: // zero and subnormals: fraction × 2⁻²⁴
		magnitude := float32(fraction) * (1.0 / (1 << 24))
		return math.Float32frombits(sign | math.Float32bits(magnitude))
	case 0x1f: // infinities and NaN
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}

// ToHalf rounds v to the nearest binary16 value, ties to even.
func ToHalf(v float32) uint16 {
	bits := math.Float32bits(v)
	sign := uint16(bits>>16) & 0x8000
	magnitude := bits & 0x7fffffff
	switch {
	case magnitude > 0x7f800000: // NaN, kept quiet
		return sign | 0x7e00
	case magnitude >= 0x477ff000: // 65520 and more round to infinity
		return sign | 0x7c00
	case magnitude < 0x38800000: // below 2⁻¹⁴: adding 0.5 rounds to steps of 2⁻²⁴
		rounded := math.Float32frombits(magnitude) + 0.5
		return sign | uint16(math.Float32bits(rounded)-math.Float32bits(0.5))
	}
	roundUp := magnitude>>13&1 + 0xfff
	return sign | uint16((magnitude-112<<23+roundUp)>>13)
}
