package simd

// Level is an instruction set the kernels are written for. Its methods are
// safe for concurrent use on disjoint outputs.
type Level uint8

const (
	// Portable is Go alone.
	Portable Level = iota
	// AVX2 is 256-bit assembly for amd64 with AVX2, FMA and F16C.
	AVX2
)

// String returns the name used in an executor's Spec.
func (l Level) String() string {
	if l == AVX2 {
		return "avx2"
	}
	return "portable"
}

// Levels lists what this machine can run, the fastest first.
func Levels() []Level {
	if hasAVX2() {
		return []Level{AVX2, Portable}
	}
	return []Level{Portable}
}

// Best is the fastest level of this machine.
func Best() Level { return Levels()[0] }
