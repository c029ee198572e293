package simd

import (
	"encoding/binary"
	"math"
)

const (
	q8BlockBytes = 2 + smallBlock
	q4BlockBytes = 2 + smallBlock/2
)

// half16 reads the binary16 number at the beginning of src.
func half16(src []byte) float32 { return Half(binary.LittleEndian.Uint16(src)) }

func appendHalf(dst []byte, v float32) []byte {
	return binary.LittleEndian.AppendUint16(dst, ToHalf(v))
}

func decodeQ80(dst []float32, src []byte) {
	for ; len(dst) >= smallBlock; dst, src = dst[smallBlock:], src[q8BlockBytes:] {
		scale := half16(src)
		for i, q := range src[2:q8BlockBytes] {
			dst[i] = float32(int8(q)) * scale
		}
	}
}

func decodeQ40(dst []float32, src []byte) {
	for ; len(dst) >= smallBlock; dst, src = dst[smallBlock:], src[q4BlockBytes:] {
		scale := half16(src)
		for i, q := range src[2:q4BlockBytes] {
			dst[i] = float32(int(q&15)-8) * scale
			dst[i+smallBlock/2] = float32(int(q>>4)-8) * scale
		}
	}
}

func decodeQ41(dst []float32, src []byte) {
	for ; len(dst) >= smallBlock; dst, src = dst[smallBlock:], src[20:] {
		scale, least := half16(src), half16(src[2:])
		for i, q := range src[4:20] {
			dst[i] = float32(float32(q&15)*scale) + least
			dst[i+16] = float32(float32(q>>4)*scale) + least
		}
	}
}

// fifth returns bit i of the fifth bits of a block as 16 or 0.
func fifth(bits uint32, i int) int { return int(bits>>i&1) << 4 }

func decodeQ50(dst []float32, src []byte) {
	for ; len(dst) >= smallBlock; dst, src = dst[smallBlock:], src[22:] {
		scale, bits := half16(src), binary.LittleEndian.Uint32(src[2:])
		for i, q := range src[6:22] {
			dst[i] = float32((int(q&15)|fifth(bits, i))-16) * scale
			dst[i+16] = float32((int(q>>4)|fifth(bits, i+16))-16) * scale
		}
	}
}

func decodeQ51(dst []float32, src []byte) {
	for ; len(dst) >= smallBlock; dst, src = dst[smallBlock:], src[24:] {
		scale, least, bits := half16(src), half16(src[2:]), binary.LittleEndian.Uint32(src[4:])
		for i, q := range src[8:24] {
			dst[i] = float32(float32(int(q&15)|fifth(bits, i))*scale) + least
			dst[i+16] = float32(float32(int(q>>4)|fifth(bits, i+16))*scale) + least
		}
	}
}

// largest returns the value of the greatest magnitude in block.
func largest(block []float32) float32 {
	var extreme float32
	for _, v := range block {
		if math.Abs(float64(v)) > math.Abs(float64(extreme)) {
			extreme = v
		}
	}
	return extreme
}

// limits returns the smallest and the largest value in block.
func limits(block []float32) (least, most float32) {
	least, most = block[0], block[0]
	for _, v := range block[1:] {
		least, most = min(least, v), max(most, v)
	}
	return least, most
}

// inverse is 1/scale, finite, or 0 for a scale of 0.
func inverse(scale float32) float32 {
	if scale == 0 {
		return 0
	}
	return max(-math.MaxFloat32, min(math.MaxFloat32, 1/scale))
}

// step rounds x down to one of the steps 0 to last; what is no number is 0.
func step(x float32, last int) byte {
	if !(x > 0) {
		return 0
	}
	return byte(min(float32(last), x))
}

func encodeQ80(dst []byte, src []float32) []byte {
	for ; len(src) >= smallBlock; src = src[smallBlock:] {
		block := src[:smallBlock]
		scale := float32(math.Abs(float64(largest(block)))) / 127
		dst = appendHalf(dst, scale)
		inv := inverse(scale)
		for _, v := range block {
			dst = append(dst, byte(int8(math.Round(float64(v*inv)))))
		}
	}
	return dst
}

// appendNibbles appends the low four bits of 32 steps, two to a byte.
func appendNibbles(dst []byte, steps *[smallBlock]byte) []byte {
	for i := range smallBlock / 2 {
		dst = append(dst, steps[i]&15|steps[i+smallBlock/2]<<4)
	}
	return dst
}

// appendFifths appends the fifth bits of 32 steps.
func appendFifths(dst []byte, steps *[smallBlock]byte) []byte {
	var bits uint32
	for i, s := range steps {
		bits |= uint32(s>>4&1) << i
	}
	return binary.LittleEndian.AppendUint32(dst, bits)
}

// The conversions in the encoders keep a compiler from fusing a product into a
// sum, so that every machine writes the same bytes.

// signedSteps spreads 2·half steps so that the block's extreme value is the
// step -half, the only one without a positive twin.
func signedSteps(block []float32, half int) (scale float32, steps [smallBlock]byte) {
	scale = largest(block) / float32(-half)
	inv := inverse(scale)
	for i, v := range block {
		steps[i] = step(float32(v*inv)+float32(half)+0.5, 2*half-1)
	}
	return scale, steps
}

// rangeSteps spreads steps 0 to last from the least to the largest value.
func rangeSteps(block []float32, last int) (scale, least float32, steps [smallBlock]byte) {
	least, most := limits(block)
	scale = (most - least) / float32(last)
	inv := inverse(scale)
	for i, v := range block {
		steps[i] = step(float32((v-least)*inv)+0.5, last)
	}
	return scale, least, steps
}

func encodeQ40(dst []byte, src []float32) []byte {
	for ; len(src) >= smallBlock; src = src[smallBlock:] {
		scale, steps := signedSteps(src[:smallBlock], 8)
		dst = appendNibbles(appendHalf(dst, scale), &steps)
	}
	return dst
}

func encodeQ41(dst []byte, src []float32) []byte {
	for ; len(src) >= smallBlock; src = src[smallBlock:] {
		scale, least, steps := rangeSteps(src[:smallBlock], 15)
		dst = appendNibbles(appendHalf(appendHalf(dst, scale), least), &steps)
	}
	return dst
}

func encodeQ50(dst []byte, src []float32) []byte {
	for ; len(src) >= smallBlock; src = src[smallBlock:] {
		scale, steps := signedSteps(src[:smallBlock], 16)
		dst = appendNibbles(appendFifths(appendHalf(dst, scale), &steps), &steps)
	}
	return dst
}

func encodeQ51(dst []byte, src []float32) []byte {
	for ; len(src) >= smallBlock; src = src[smallBlock:] {
		scale, least, steps := rangeSteps(src[:smallBlock], 31)
		dst = appendNibbles(appendFifths(appendHalf(appendHalf(dst, scale), least), &steps), &steps)
	}
	return dst
}
