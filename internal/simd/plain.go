package simd

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// littleEndian reports whether float32 lies in memory as in a file.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

func decodeF32(dst []float32, src []byte) {
	if littleEndian && len(dst) > 0 {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&dst[0])), 4*len(dst)), src[:4*len(dst)])
		return
	}
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func encodeF32(dst []byte, src []float32) []byte {
	for _, v := range src {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(v))
	}
	return dst
}

func decodeHalf(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = Half(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func encodeHalf(dst []byte, src []float32) []byte {
	for _, v := range src {
		dst = binary.LittleEndian.AppendUint16(dst, ToHalf(v))
	}
	return dst
}

func decodeBF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

// encodeBF16 rounds to nearest, ties to even, and keeps NaN quiet.
func encodeBF16(dst []byte, src []float32) []byte {
	for _, v := range src {
		bits := math.Float32bits(v)
		if v != v {
			bits |= 0x400000
		} else {
			bits += 0x7fff + bits>>16&1
		}
		dst = binary.LittleEndian.AppendUint16(dst, uint16(bits>>16))
	}
	return dst
}
