package simd

import "unsafe"

// reader is the assembly that reads rows of one format. Both functions take n
// or cols weights, a positive multiple of 8 and of the format's block.
type reader struct {
	// spread decodes n weights of the row at src and writes them in groups of
	// eight, step elements apart.
	spread func(dst *float32, step int, src *byte, n int)
	// dot4 multiplies four rows, rowBytes apart, with x [cols]. F32 has dense4
	// instead.
	dot4 func(dst *[quad]float32, w *byte, rowBytes int, x *float32, cols int)
}

// reads reports whether assembly reads rows of cols weights of format f.
func (l Level) reads(f Format, cols int) bool {
	return l != Portable && readers[f].spread != nil && cols%8 == 0 && cols > 0
}

// mulVector is Mul for one token: dst [rows] from rows lo onwards. The first
// quad floats of tile are scratch.
func mulVector(dst []float32, m *Matrix, lo int, x, tile []float32) {
	dot4, rowBytes := readers[m.Format].dot4, m.Format.RowBytes(m.Cols)
	w, x := m.from(lo)[:len(dst)*rowBytes], x[:m.Cols]
	if len(dst) < quad {
		for r := range dst {
			dot4((*[quad]float32)(tile), &w[r*rowBytes], 0, &x[0], m.Cols)
			dst[r] = tile[0]
		}
		return
	}
	for r := 0; r < len(dst); r += quad {
		r = min(r, len(dst)-quad) // the last rows may be computed twice, to the same bits
		dot4((*[quad]float32)(dst[r:]), &w[r*rowBytes], rowBytes, &x[0], m.Cols)
	}
}

// mulF32 is Mul for float32 rows where they lie.
func mulF32(dst []float32, stride int, m *Matrix, lo, hi int, x []float32, tokens int) {
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

// Dot4 multiplies four rows of len(x) floats, which may lie anywhere and be the
// same, with x: to the bits that [Level.MulDense] gives for them.
func (l Level) Dot4(dst *[4]float32, a, b, c, d, x []float32) {
	n := len(x)
	a, b, c, d = a[:n], b[:n], c[:n], d[:n]
	switch {
	case n == 0:
		*dst = [quad]float32{}
	case l == Portable:
		*dst = [quad]float32{dotPortable(a, x), dotPortable(b, x), dotPortable(c, x), dotPortable(d, x)}
	default:
		scattered4(dst, &a[0], &b[0], &c[0], &d[0], &x[0], n)
	}
}

// decode writes the len(dst) weights of the row at src to dst.
func (l Level) decode(f Format, dst []float32, src []byte) {
	if l.reads(f, len(dst)) {
		readers[f].spread(&dst[0], 8, &src[0], len(dst))
		return
	}
	decodePortable(f, dst, src)
}

// wide is the number of rows of the 512-bit kernel.
const wide = 8

// interleaves reports whether mulInterleaved suits rows [lo, hi) of m. For few
// tokens F32 is faster where it lies.
func (l Level) interleaves(m *Matrix, lo, hi, tokens int) bool {
	few := 1
	if m.Format == F32 {
		few = 12
	}
	return l == AVX512 && l.reads(m.Format, m.Cols) && hi-lo >= wide && tokens > few
}

// mulInterleaved is mulTiled with tiles in the order of dense8.
func mulInterleaved(dst []float32, stride int, m *Matrix, lo, hi int, x []float32, tokens int, tile []float32) {
	step := wide // few tokens use a tile once: let it stay in the first-level cache
	if tokens > tokenBlock {
		step = max(wide, tileRows(m.Cols)&^(wide-1))
	}
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
	spread, rowBytes := readers[m.Format].spread, m.Format.RowBytes(m.Cols)
	src := m.from(row)[:n*rowBytes]
	for r := range n {
		at := r/wide*wide*m.Cols + r%wide*8
		spread(&tile[at], 8*wide, &src[r*rowBytes], m.Cols)
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
