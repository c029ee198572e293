package simd

import (
	"encoding/binary"
	"math"
)

// superBlock is the number of weights in a block of a K format.
const superBlock = 256

// scaleAndLeast returns the j-th scale and least value of a Q4_K or Q5_K
// block, 6 bits each, from the 12 bytes they are packed in: the first four of
// each have a byte of their own, in whose upper two bits the later four have
// theirs.
func scaleAndLeast(packed []byte, j int) (scale, least byte) {
	if j < 4 {
		return packed[j] & 63, packed[j+4] & 63
	}
	return packed[j+4]&15 | packed[j-4]>>6<<4, packed[j+4]>>4 | packed[j]>>6<<4
}

// packScales is the inverse of scaleAndLeast.
func packScales(scales, leasts *[8]byte) (packed [12]byte) {
	for j := range 4 {
		packed[j] = scales[j] | scales[j+4]>>4<<6
		packed[j+4] = leasts[j] | leasts[j+4]>>4<<6
		packed[j+8] = scales[j+4]&15 | leasts[j+4]<<4
	}
	return packed
}

func decodeQ4K(dst []float32, src []byte) {
	for ; len(dst) >= superBlock; dst, src = dst[superBlock:], src[144:] {
		scale, least := half16(src), half16(src[2:])
		for j := range 8 {
			s, l := scaleAndLeast(src[4:16], j)
			a, b := scale*float32(s), least*float32(l)
			quants := src[16+j/2*32:]
			for i := range 32 {
				q := quants[i] >> (j % 2 * 4) & 15
				dst[32*j+i] = float32(a*float32(q)) - b
			}
		}
	}
}

func decodeQ5K(dst []float32, src []byte) {
	for ; len(dst) >= superBlock; dst, src = dst[superBlock:], src[176:] {
		scale, least := half16(src), half16(src[2:])
		for j := range 8 {
			s, l := scaleAndLeast(src[4:16], j)
			a, b := scale*float32(s), least*float32(l)
			high, quants := src[16:48], src[48+j/2*32:]
			for i := range 32 {
				q := quants[i]>>(j%2*4)&15 | high[i]>>j&1<<4
				dst[32*j+i] = float32(a*float32(q)) - b
			}
		}
	}
}

func decodeQ6K(dst []float32, src []byte) {
	for ; len(dst) >= superBlock; dst, src = dst[superBlock:], src[210:] {
		low, high, scales, scale := src[:128], src[128:192], src[192:208], half16(src[208:])
		for i := range superBlock {
			q := sixBits(low, high, i)
			dst[i] = scale * float32(int8(scales[i/16])) * float32(q-32)
		}
	}
}

// sixBits returns weight i: its lower four bits lie in low, the upper two in
// high. Each half of a block has 64 bytes of low, whose lower nibbles are the
// first 64 weights and whose upper ones the next, and 32 bytes of high, of two
// bits for each quarter.
func sixBits(low, high []byte, i int) int {
	half, quarter, l := i/128, i%128/32, i%32
	lower := low[64*half+quarter%2*32+l] >> (quarter / 2 * 4) & 15
	upper := high[32*half+l] >> (2 * quarter) & 3
	return int(lower | upper<<4)
}

// kSteps spreads steps 0 to last over each of eight groups of 32, as
// scale·(6 bits)·step - least·(6 bits). A least value above zero is taken as
// zero: it is subtracted.
func kSteps(block []float32, last int) (scale, least float32, scales, leasts [8]byte, steps [superBlock]byte) {
	var widths, lows [8]float32
	for j := range 8 {
		lo, hi := limits(block[32*j : 32*j+32])
		lo = min(lo, 0)
		widths[j], lows[j] = (hi-lo)/float32(last), -lo
	}
	_, widest := limits(widths[:])
	_, lowest := limits(lows[:])
	scale, least = Half(ToHalf(widest/63)), Half(ToHalf(lowest/63))
	for j := range 8 {
		scales[j] = step(float32(widths[j]*inverse(scale))+0.999, 63) // too wide rather than too narrow
		leasts[j] = step(float32(lows[j]*inverse(least))+0.5, 63)
		width, low := scale*float32(scales[j]), least*float32(leasts[j])
		for i, v := range block[32*j : 32*j+32] {
			steps[32*j+i] = step(float32((v+low)*inverse(width))+0.5, last)
		}
	}
	return scale, least, scales, leasts, steps
}

func appendKHeader(dst []byte, scale, least float32, scales, leasts *[8]byte) []byte {
	packed := packScales(scales, leasts)
	return append(appendHalf(appendHalf(dst, scale), least), packed[:]...)
}

// appendKNibbles appends the low four bits, those of two groups to 32 bytes.
func appendKNibbles(dst []byte, steps *[superBlock]byte) []byte {
	for pair := 0; pair < superBlock; pair += 64 {
		for i := range 32 {
			dst = append(dst, steps[pair+i]&15|steps[pair+32+i]<<4)
		}
	}
	return dst
}

func encodeQ4K(dst []byte, src []float32) []byte {
	for ; len(src) >= superBlock; src = src[superBlock:] {
		scale, least, scales, leasts, steps := kSteps(src[:superBlock], 15)
		dst = appendKNibbles(appendKHeader(dst, scale, least, &scales, &leasts), &steps)
	}
	return dst
}

func encodeQ5K(dst []byte, src []float32) []byte {
	for ; len(src) >= superBlock; src = src[superBlock:] {
		scale, least, scales, leasts, steps := kSteps(src[:superBlock], 31)
		dst = appendKHeader(dst, scale, least, &scales, &leasts)
		for i := range 32 {
			var high byte
			for j := range 8 {
				high |= steps[32*j+i] >> 4 & 1 << j
			}
			dst = append(dst, high)
		}
		dst = appendKNibbles(dst, &steps)
	}
	return dst
}

func encodeQ6K(dst []byte, src []float32) []byte {
	for ; len(src) >= superBlock; src = src[superBlock:] {
		dst = encodeQ6KBlock(dst, src[:superBlock])
	}
	return dst
}

func encodeQ6KBlock(dst []byte, block []float32) []byte {
	var widths [16]float32
	for g := range widths {
		widths[g] = largest(block[16*g:16*g+16]) / -32
	}
	scale := Half(ToHalf(largest(widths[:]) / -128))
	var scales [16]byte
	var low [128]byte
	var high [64]byte
	for g, width := range widths {
		s := float32(math.Round(float64(width * inverse(scale))))
		s = max(-128, min(127, s))
		scales[g] = byte(int8(s))
		inv := inverse(scale * s)
		for i := 16 * g; i < 16*g+16; i++ {
			q := step(float32(block[i]*inv)+32.5, 63)
			half, quarter, l := i/128, i%128/32, i%32
			low[64*half+quarter%2*32+l] |= q & 15 << (quarter / 2 * 4)
			high[32*half+l] |= q >> 4 << (2 * quarter)
		}
	}
	dst = append(append(append(dst, low[:]...), high[:]...), scales[:]...)
	return binary.LittleEndian.AppendUint16(dst, ToHalf(scale))
}
