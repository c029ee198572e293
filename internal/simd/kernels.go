package simd

import "unsafe"

// direct reports whether a single token can be multiplied with m's rows where
// they lie.
func (l Level) direct(m *Matrix) bool {
	return l != Portable && (m.Format == F32 || m.Format.assembled() && (m.Format != F16 || m.Cols%8 == 0))
}

// assembled reports whether assembly reads blocks of f.
func (f Format) assembled() bool { return f == F16 || f == Q8_0 || f == Q4_0 }

// mulVector is Mul for one token: dst [rows] from rows lo onwards.
func (l Level) mulVector(dst []float32, m *Matrix, lo int, x []float32) {
	rowBytes := m.Format.RowBytes(m.Cols)
	w := m.from(lo)[:len(dst)*rowBytes]
	if len(dst) < quad {
		var four [quad]float32
		for r := range dst {
			dotQuad(&four, m.Format, unsafe.Pointer(&w[r*rowBytes]), 0, x, m.Cols)
			dst[r] = four[0]
		}
		return
	}
	for r := 0; r < len(dst); r += quad {
		r = min(r, len(dst)-quad) // the last rows may be computed twice, to the same bits
		dotQuad((*[quad]float32)(dst[r:]), m.Format, unsafe.Pointer(&w[r*rowBytes]), rowBytes, x, m.Cols)
	}
}

// dotQuad multiplies four rows that are rowBytes apart with x.
func dotQuad(dst *[quad]float32, f Format, w unsafe.Pointer, rowBytes int, x []float32, cols int) {
	switch f {
	case F32:
		dense4(&dst[0], quad, w, rowBytes/4, &x[0], cols, 1, cols)
	case F16:
		dot4F16(dst, w, rowBytes, &x[0], cols)
	case Q8_0:
		dot4Q8(dst, w, rowBytes, &x[0], cols/BlockElements)
	case Q4_0:
		dot4Q4(dst, w, rowBytes, &x[0], cols/BlockElements)
	}
}

// mulF32 is Mul for float32 rows, which need no decoding.
func (l Level) mulF32(dst []float32, stride int, m *Matrix, lo, hi int, x []float32, tokens int) {
	step := tileRows(m.Cols)
	for row := lo; row < hi; row += step {
		w := unsafe.Pointer(&m.from(row)[0])
		mulDense(dst[row-lo:], stride, w, min(step, hi-row), x, tokens, m.Cols)
	}
}

// MulDense multiplies w [rows][cols] with x [tokens][cols]:
//
//	dst[t*stride + r] = Σ w[r][c] · x[t][c]
func (l Level) MulDense(dst []float32, stride int, w []float32, rows int, x []float32, tokens, cols int) {
	switch {
	case rows <= 0 || tokens <= 0:
	case l == Portable:
		mulDensePortable(dst, stride, w, rows, x, tokens, cols)
	default:
		w = w[:rows*cols]
		mulDense(dst, stride, unsafe.Pointer(&w[0]), rows, x, tokens, cols)
	}
}

func mulDense(dst []float32, stride int, w unsafe.Pointer, rows int, x []float32, tokens, cols int) {
	dst, x = dst[:(tokens-1)*stride+rows], x[:tokens*cols] // what the assembly will touch
	for t := 0; t < tokens; t += tokenBlock {
		n := min(tokenBlock, tokens-t)
		mulDenseBlock(dst[t*stride:], stride, w, rows, x[t*cols:], n, cols)
	}
}

func mulDenseBlock(dst []float32, stride int, w unsafe.Pointer, rows int, x []float32, tokens, cols int) {
	if rows < quad {
		var four [quad]float32
		for r := range rows {
			for t := range tokens {
				dense4(&four[0], quad, unsafe.Add(w, 4*r*cols), 0, &x[t*cols], cols, 1, cols)
				dst[t*stride+r] = four[0]
			}
		}
		return
	}
	for r := 0; r < rows; r += quad {
		r = min(r, rows-quad)
		dense4(&dst[r], stride, unsafe.Add(w, 4*r*cols), cols, &x[0], cols, tokens, cols)
	}
}

// decode writes the len(dst) weights of the row at src to dst.
func (l Level) decode(f Format, dst []float32, src []byte) {
	whole := len(dst) &^ 7
	if l == Portable || !f.assembled() || whole == 0 {
		decodePortable(f, dst, src)
		return
	}
	decodeGroups(f, &dst[0], 8, src, whole)
	if whole < len(dst) { // of F16; blocks have no rest
		decodePortable(f, dst[whole:], src[2*whole:])
	}
}

// decodeGroups writes n weights, a multiple of 8 and of the format's block,
// eight at a time, step elements apart.
func decodeGroups(f Format, dst *float32, step int, src []byte, n int) {
	switch f {
	case F16:
		decodeF16(dst, step, &src[0], n)
	case Q8_0:
		decodeQ8(dst, step, &src[0], n/BlockElements)
	case Q4_0:
		decodeQ4(dst, step, &src[0], n/BlockElements)
	}
}

// wide is the number of rows of the 512-bit kernel.
const wide = 8

// interleaves reports whether rows [lo, hi) of m suit mulInterleaved.
func (l Level) interleaves(m *Matrix, lo, hi int) bool {
	return l == AVX512 && m.Format.assembled() && m.Cols%8 == 0 && hi-lo >= wide
}

// mulInterleaved is mulTiled with tiles in the order of dense8.
func mulInterleaved(dst []float32, stride int, m *Matrix, lo, hi int, x []float32, tokens int, tile []float32) {
	step := max(wide, tileRows(m.Cols)&^(wide-1))
	dst, x = dst[:(tokens-1)*stride+hi-lo], x[:tokens*m.Cols]
	for row, n := lo, 0; row < hi; row += n {
		if n = min(step, (hi-row)&^(wide-1)); n == 0 {
			row, n = hi-wide, wide // some rows twice, to the same bits
		}
		decodeInterleaved(tile, m, row, n)
		for t := 0; t < tokens; t += tokenBlock {
			for r := 0; r < n; r += wide {
				dense8(&dst[t*stride+row+r-lo], stride, &tile[r*m.Cols], &x[t*m.Cols], m.Cols, min(tokenBlock, tokens-t), m.Cols)
			}
		}
	}
}

// decodeInterleaved writes rows [row, row+n) of m to tile as
// [n/8][cols/8][8 rows][8].
func decodeInterleaved(tile []float32, m *Matrix, row, n int) {
	rowBytes := m.Format.RowBytes(m.Cols)
	src := m.from(row)
	for r := range n {
		at := r/wide*wide*m.Cols + r%wide*8
		decodeGroups(m.Format, &tile[at], 8*wide, src[r*rowBytes:(r+1)*rowBytes], m.Cols)
	}
}

// AddWeighted adds p[i] times row i of rows [len(p)][len(dst)] to dst, for
// each i in turn.
func (l Level) AddWeighted(dst, rows, p []float32) {
	switch {
	case len(p) == 0 || len(dst) == 0:
	case l == Portable:
		addWeightedPortable(dst, rows, p)
	default:
		rows = rows[:len(p)*len(dst)]
		addWeighted(&dst[0], &rows[0], &p[0], len(p), len(dst))
	}
}

// Max returns the largest element of s, which is not empty. Where some are not
// numbers it may return any element.
func (l Level) Max(s []float32) float32 {
	if l == Portable {
		return maximumPortable(s)
	}
	return maximum(&s[0], len(s))
}

// ExpSum replaces every element of s by exp(element - shift) and returns their
// sum. Results below the smallest normal float32 are that number.
func (l Level) ExpSum(s []float32, shift float32) float32 {
	switch {
	case len(s) == 0:
		return 0
	case l == Portable:
		return expSumPortable(s, shift)
	}
	return expSum(&s[0], len(s), shift)
}

// SiluMul replaces gate by gate · σ(gate) · up, element by element.
func (l Level) SiluMul(gate, up []float32) {
	up = up[:len(gate)]
	switch {
	case len(gate) == 0:
	case l == Portable:
		siluMulPortable(gate, up)
	default:
		siluMul(&gate[0], &up[0], len(gate))
	}
}
