package simd

import (
	"encoding/binary"
	"math"
)

// Encode appends src, one row of weights, to dst in format f. The row must be
// a whole number of blocks. It rounds as GGUF's own writers do: to the nearest
// step of a block scale that spans the block's largest magnitude.
func Encode(f Format, dst []byte, src []float32) []byte {
	switch f {
	case F32:
		for _, v := range src {
			dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(v))
		}
	case F16:
		for _, v := range src {
			dst = binary.LittleEndian.AppendUint16(dst, ToHalf(v))
		}
	case Q8_0:
		for ; len(src) >= BlockElements; src = src[BlockElements:] {
			dst = encodeQ8(dst, src[:BlockElements])
		}
	case Q4_0:
		for ; len(src) >= BlockElements; src = src[BlockElements:] {
			dst = encodeQ4(dst, src[:BlockElements])
		}
	}
	return dst
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

func inverse(scale float32) float32 {
	if scale == 0 {
		return 0
	}
	return 1 / scale
}

func encodeQ8(dst []byte, block []float32) []byte {
	scale := float32(math.Abs(float64(largest(block)))) / 127
	dst = binary.LittleEndian.AppendUint16(dst, ToHalf(scale))
	inv := inverse(scale)
	for _, v := range block {
		dst = append(dst, byte(int8(math.Round(float64(v*inv)))))
	}
	return dst
}

// encodeQ4 maps the block's extreme value to -8, the only step without a
// positive twin.
func encodeQ4(dst []byte, block []float32) []byte {
	scale := largest(block) / -8
	dst = binary.LittleEndian.AppendUint16(dst, ToHalf(scale))
	inv := inverse(scale)
	nibble := func(v float32) byte { return byte(min(15, int(v*inv+8.5))) }
	for i := range BlockElements / 2 {
		dst = append(dst, nibble(block[i])|nibble(block[i+BlockElements/2])<<4)
	}
	return dst
}
