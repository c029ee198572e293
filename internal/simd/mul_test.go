package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var formats = []Format{F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, F8E4M3}

// randomMatrix returns a matrix of the given shape and its weights in float64.
func randomMatrix(t testing.TB, rng *rand.Rand, f Format, rows, cols int) (Matrix, [][]float64) {
	t.Helper()
	var data []byte
	row := make([]float32, cols)
	for range rows {
		for c := range row {
			row[c] = float32(rng.NormFloat64())
		}
		data = Encode(f, data, row)
	}
	m, err := NewMatrix(f, rows, cols, data)
	require.NoError(t, err)
	exact := make([][]float64, rows)
	for r := range exact {
		exact[r] = make([]float64, cols)
		decodePortable(f, row, m.from(r)[:f.RowBytes(cols)])
		for c, v := range row {
			exact[r][c] = float64(v)
		}
	}
	return m, exact
}

func randomVector(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

func TestMulAgreesWithFloat64ForEveryShape(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, level := range Levels() {
		for _, format := range formats {
			for _, cols := range []int{1, 4, 7, 8, 9, 31, 32, 64, 96, 172, 256, 768, 2080} {
				if format.RowBytes(cols) == 0 {
					continue
				}
				for _, rows := range []int{1, 3, 4, 5, 8, 33} {
					m, exact := randomMatrix(t, rng, format, rows, cols)
					for _, tokens := range []int{1, 2, 3, 4, 50} {
						checkMul(t, level, &m, exact, randomVector(rng, tokens*cols), tokens)
					}
				}
			}
		}
	}
}

// checkMul compares a product with float64 arithmetic and looks for writes
// outside the result.
func checkMul(t *testing.T, level Level, m *Matrix, exact [][]float64, x []float32, tokens int) {
	t.Helper()
	const guard = float32(-12345)
	stride := m.Rows + 3
	dst := make([]float32, tokens*stride)
	for i := range dst {
		dst[i] = guard
	}
	level.Mul(dst, stride, m, 0, m.Rows, x, tokens, make([]float32, TileLen(m.Cols)))
	for token := range tokens {
		for r, row := range exact {
			var want, magnitude float64
			for c, w := range row {
				product := w * float64(x[token*m.Cols+c])
				want += product
				magnitude += math.Abs(product)
			}
			got := float64(dst[token*stride+r])
			if math.Abs(got-want) > 2e-6*magnitude+1e-12 {
				t.Fatalf("%s %s rows %d cols %d tokens %d: [%d][%d] = %g, want %g",
					level, m.Format, m.Rows, m.Cols, tokens, token, r, got, want)
			}
		}
		require.Equal(t, []float32{guard, guard, guard}, dst[token*stride+m.Rows:(token+1)*stride])
	}
}

func TestMulBitsDependOnRowAndTokenAlone(t *testing.T) {
	for _, level := range Levels() {
		rapid.Check(t, func(t *rapid.T) {
			format := rapid.SampledFrom(formats).Draw(t, "format")
			cols := rapid.IntRange(1, 400).Draw(t, "cols")
			if block := layouts[format].block; block > 1 {
				cols = rapid.IntRange(1, 400/block+1).Draw(t, "blocks") * block
			}
			rows := rapid.IntRange(1, 40).Draw(t, "rows")
			tokens := rapid.IntRange(1, 60).Draw(t, "tokens")
			rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
			var data []byte
			for range rows {
				data = Encode(format, data, randomVector(rng, cols))
			}
			m, err := NewMatrix(format, rows, cols, data)
			require.NoError(t, err)
			x := randomVector(rng, tokens*cols)
			tile := make([]float32, TileLen(cols))

			whole := make([]float32, tokens*rows)
			level.Mul(whole, rows, &m, 0, rows, x, tokens, tile)
			pieces := make([]float32, tokens*rows)
			for lo, hi := 0, 0; lo < rows; lo = hi {
				hi = rapid.IntRange(lo+1, rows).Draw(t, "hi")
				for first, end := 0, 0; first < tokens; first = end {
					end = rapid.IntRange(first+1, tokens).Draw(t, "end")
					level.Mul(pieces[first*rows+lo:], rows, &m, lo, hi, x[first*cols:], end-first, tile)
				}
			}
			require.Equal(t, whole, pieces)
		})
	}
}

func TestTheAssemblyLevelsAgreeToTheLastBit(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	var levels []Level
	for _, level := range Levels() {
		if level != Portable {
			levels = append(levels, level)
		}
	}
	for _, format := range formats {
		for _, rows := range []int{7, 8, 9, 23, 60} {
			for _, tokens := range []int{1, 2, 3, 4, 5, 6, 7, 8, 47, 48, 49, 50, 59} {
				m, _ := randomMatrix(t, rng, format, rows, 512)
				x, tile := randomVector(rng, tokens*512), make([]float32, TileLen(512))
				var first []float32
				for _, level := range levels {
					got := make([]float32, tokens*rows)
					level.Mul(got, rows, &m, 0, rows, x, tokens, tile)
					if first == nil {
						first = got
					}
					require.Equal(t, first, got)
				}
			}
		}
	}
}

func TestDecodedRowsAreTheSameAtEveryLevel(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, format := range formats {
		for _, cols := range []int{32, 64, 256, 352, 512, 5, 13} {
			if format.RowBytes(cols) == 0 {
				continue
			}
			m, exact := randomMatrix(t, rng, format, 3, cols)
			want := make([]float32, cols)
			for c, v := range exact[2] {
				want[c] = float32(v)
			}
			for _, level := range Levels() {
				got := make([]float32, cols)
				level.Row(got, &m, 2)
				require.Equal(t, want, got, "%s %s", level, format)
			}
		}
	}
}

func TestExtremeBlocksDecodeExactly(t *testing.T) {
	q8 := append([]byte{0xff, 0x7b}, make([]byte, 32)...) // scale 65504
	q4 := append([]byte{0x01, 0x00}, make([]byte, 16)...) // scale 2⁻²⁴
	for i := range 32 {
		q8[2+i] = byte(120 + i) // 120 … 127, -128 …
	}
	for i := range 16 {
		q4[2+i] = byte(i | (15-i)<<4)
	}
	for _, level := range Levels() {
		got := make([]float32, 32)
		level.decode(Q8_0, got, q8)
		for i, v := range got {
			require.Equal(t, float32(int8(120+i))*65504, v)
		}
		level.decode(Q4_0, got, q4)
		for i := range 16 {
			require.Equal(t, float32(i-8)/(1<<24), got[i])
			require.Equal(t, float32(7-i)/(1<<24), got[16+i])
		}
	}
}

func TestNewMatrixRefusesWrongSizes(t *testing.T) {
	for _, shape := range []struct {
		format     Format
		rows, cols int
		bytes      int
	}{
		{F32, 2, 3, 23}, {F32, 0, 3, 0}, {F32, 2, 0, 0}, {F32, -1, 3, 12},
		{Q8_0, 1, 33, 34}, {Q8_0, 2, 32, 34}, {Q4_0, 1, 31, 18}, {F16, 1 << 62, 4, 8},
	} {
		_, err := NewMatrix(shape.format, shape.rows, shape.cols, make([]byte, shape.bytes))
		require.Error(t, err, "%+v", shape)
	}
}

func TestMulAllocatesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, format := range formats {
		m, _ := randomMatrix(t, rng, format, 8, 256)
		x, dst, tile := randomVector(rng, 5*256), make([]float32, 5*8), make([]float32, TileLen(256))
		for _, tokens := range []int{1, 5} {
			require.Zero(t, testing.AllocsPerRun(10, func() { Best().Mul(dst, 8, &m, 0, 8, x, tokens, tile) }))
		}
	}
}

// BenchmarkMul reports the products a second and the weights' bytes a second,
// as they lie in the file.
func BenchmarkMul(b *testing.B) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, format := range formats {
		for _, shape := range [][3]int{{1, 768, 768}, {1, 2048, 2048}, {4, 768, 768}, {16, 768, 768}, {512, 768, 768}, {512, 256, 2048}} {
			tokens, rows, cols := shape[0], shape[1], shape[2]
			b.Run(fmt.Sprintf("%s/%dx%dx%d", format, tokens, rows, cols), func(b *testing.B) {
				m, _ := randomMatrix(b, rng, format, rows, cols)
				x, dst := randomVector(rng, tokens*cols), make([]float32, tokens*rows)
				tile := make([]float32, TileLen(cols))
				b.ReportAllocs()
				b.SetBytes(int64(len(m.Data)))
				for b.Loop() {
					Best().Mul(dst, rows, &m, 0, rows, x, tokens, tile)
				}
				perOp := float64(tokens) * float64(rows) * float64(cols)
				b.ReportMetric(perOp*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GMAC/s")
			})
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	row := randomVector(rand.New(rand.NewPCG(9, 10)), 4096)
	for _, format := range formats {
		b.Run(format.String(), func(b *testing.B) {
			data := make([]byte, 0, format.RowBytes(len(row)))
			b.ReportAllocs()
			b.SetBytes(int64(4 * len(row)))
			for b.Loop() {
				data = Encode(format, data[:0], row)
			}
		})
	}
}
