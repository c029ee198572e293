package simd

// Level is an instruction set the kernels are written for. Its methods are
// safe for concurrent use on disjoint outputs.
type Level uint8

const (
	// Portable is Go alone.
	Portable Level = iota
	// AVX2 is 256-bit assembly for amd64 with AVX2, FMA and F16C.
	AVX2
	// AVX512 adds a 512-bit kernel for several tokens, with the same results as
	// AVX2 to the last bit; it needs no more than AVX-512F.
	AVX512
)

// String returns the name used in an executor's Spec.
func (l Level) String() string {
	switch l {
	case AVX2:
		return "avx2"
	case AVX512:
		return "avx512"
	}
	return "portable"
}

// Levels lists what this machine can run, the fastest first.
func Levels() []Level {
	switch {
	case hasAVX512():
		return []Level{AVX512, AVX2, Portable}
	case hasAVX2():
		return []Level{AVX2, Portable}
	}
	return []Level{Portable}
}

// Best is the fastest level of this machine.
func Best() Level { return Levels()[0] }
