package simd

// quad is the number of weight rows a kernel works on at once: enough
// independent accumulators to hide the latency of a fused multiply-add without
// splitting any row's own sum.
const quad = 4

// tileFloats bounds a decoded tile to what a second-level cache holds beside
// the activations.
const tileFloats = 40 << 10

// tokenBlock is how many tokens are multiplied with a tile before the next
// tokens are fetched, so that their activations stay in the second-level cache.
const tokenBlock = 48

// tileRows is the number of rows decoded at once.
func tileRows(cols int) int { return max(2*quad, tileFloats/cols/quad*quad) }

// TileLen is the length of the scratch tile [Level.Mul] needs for rows of cols
// weights.
func TileLen(cols int) int { return tileRows(cols) * cols }

// Mul multiplies rows [lo, hi) of m with tokens activation vectors:
//
//	dst[t*stride + r-lo] = Σ m[r][c] · x[t*m.Cols + c]
//
// x is [tokens][m.Cols], dst at least [tokens][stride] but for the last row's
// end, tile scratch of [TileLen](m.Cols) that no other goroutine uses.
func (l Level) Mul(dst []float32, stride int, m *Matrix, lo, hi int, x []float32, tokens int, tile []float32) {
	switch {
	case hi <= lo || tokens <= 0:
	case l.interleaves(m, lo, hi, tokens):
		mulInterleaved(dst, stride, m, lo, hi, x, tokens, tile)
	case m.Format == F32 && l != Portable:
		mulF32(dst, stride, m, lo, hi, x, tokens)
	case tokens == 1 && l.reads(m.Format, m.Cols):
		mulVector(dst[:hi-lo], m, lo, x, tile)
	default:
		l.mulTiled(dst, stride, m, lo, hi, x, tokens, tile)
	}
}

// mulTiled decodes a tile of rows once and multiplies it with all tokens.
func (l Level) mulTiled(dst []float32, stride int, m *Matrix, lo, hi int, x []float32, tokens int, tile []float32) {
	step := tileRows(m.Cols)
	for row := lo; row < hi; row += step {
		n := min(step, hi-row)
		l.decodeRows(tile, m, row, n)
		l.MulDense(dst[row-lo:], stride, tile, n, x, tokens, m.Cols)
	}
}

// decodeRows writes rows [row, row+n) of m to tile [n][m.Cols].
func (l Level) decodeRows(tile []float32, m *Matrix, row, n int) {
	rowBytes := m.Format.RowBytes(m.Cols)
	src := m.from(row)
	for i := range n {
		l.decode(m.Format, tile[i*m.Cols:(i+1)*m.Cols], src[i*rowBytes:(i+1)*rowBytes])
	}
}

// Row writes row i of m to dst [m.Cols] as float32.
func (l Level) Row(dst []float32, m *Matrix, i int) { l.decodeRows(dst[:m.Cols], m, i, 1) }

// mulDensePortable is MulDense in Go.
func mulDensePortable(dst []float32, stride int, w []float32, rows int, x []float32, tokens, cols int) {
	for first := 0; first < tokens; first += tokenBlock {
		for r := range rows {
			row := w[r*cols : (r+1)*cols]
			for t := first; t < min(tokens, first+tokenBlock); t++ {
				dst[t*stride+r] = dotPortable(row, x[t*cols:(t+1)*cols])
			}
		}
	}
}

// dotPortable sums in the lanes and the order of the package comment. The
// conversions keep a compiler from fusing a product into its sum in one place
// and not in another.
func dotPortable(a, b []float32) float32 {
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	for ; len(a) >= 8 && len(b) >= 8; a, b = a[8:], b[8:] {
		s0 += float32(a[0] * b[0])
		s1 += float32(a[1] * b[1])
		s2 += float32(a[2] * b[2])
		s3 += float32(a[3] * b[3])
		s4 += float32(a[4] * b[4])
		s5 += float32(a[5] * b[5])
		s6 += float32(a[6] * b[6])
		s7 += float32(a[7] * b[7])
	}
	lanes := [8]float32{s0, s1, s2, s3, s4, s5, s6, s7}
	for i := range a {
		lanes[i] += float32(a[i] * b[i])
	}
	return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]))
}
