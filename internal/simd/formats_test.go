package simd

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestDequantisedValuesAreLlamaCpps compares with testdata/dequantised.json,
// bit for bit, wherever a weight is read.
func TestDequantisedValuesAreLlamaCpps(t *testing.T) {
	data, err := os.ReadFile("testdata/dequantised.json")
	require.NoError(t, err)
	var golden map[string][]struct{ Bytes, Floats []byte }
	require.NoError(t, json.Unmarshal(data, &golden))
	require.Len(t, golden, len(formats)-2, "all but F32 and the one no file has")
	for _, format := range formats {
		rows := golden[format.String()]
		require.True(t, len(rows) >= 6 || format == F32 || format == F8E4M3, "%s", format)
		for i, row := range rows {
			want := make([]float32, len(row.Floats)/4)
			decodeF32(want, row.Floats)
			m, err := NewMatrix(format, 1, len(want), row.Bytes)
			require.NoError(t, err)
			for _, level := range Levels() {
				got := make([]float32, len(want))
				level.Row(got, &m, 0)
				requireBits(t, want, got, "%s %s row %d", level, format, i)
				for _, tokens := range []int{1, 3} {
					requireBits(t, want, throughMul(level, &m, tokens), "%s %s row %d in a product for %d tokens", level, format, i, tokens)
				}
			}
		}
	}
}

// throughMul reads the weights of a row by multiplying it with unit vectors,
// the first of so many tokens each time.
func throughMul(level Level, m *Matrix, tokens int) []float32 {
	weights := make([]float32, m.Cols)
	x, dst, tile := make([]float32, tokens*m.Cols), make([]float32, tokens), make([]float32, TileLen(m.Cols))
	for c := range weights {
		x[c] = 1
		level.Mul(dst, 1, m, 0, 1, x, tokens, tile)
		weights[c] = dst[0]
		x[c] = 0
	}
	return weights
}

func requireBits(t *testing.T, want, got []float32, format string, args ...any) {
	t.Helper()
	for i := range want {
		if want[i] == 0 && got[i] == 0 { // a sum that is zero has lost the sign
			continue
		}
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
			require.Failf(t, "different bits", "weight %d is %v, want %v: "+format, append([]any{i, got[i], want[i]}, args...)...)
		}
	}
}

// Every weight comes back within half a step of its block, with some slack for
// the rounding of scales to 6, 8 or 16 bits, and half of F16's smallest step.
func TestEncodeKeepsWeightsWithinAStep(t *testing.T) {
	// The step as a share of the block's range, from least to largest with
	// zero in it.
	steps := map[Format]float64{
		F32: 0, F16: 1. / 1024, BF16: 1. / 128, Q8_0: 1. / 127, F8E4M3: 1. / 14,
		Q4_0: 1. / 8, Q5_0: 1. / 16, Q4_1: 1. / 15, Q5_1: 1. / 31,
		// Groups of 32 share a block's scale and least in 6 bits, of 16 in 8.
		Q4_K: 1./15 + 2./63, Q5_K: 1./31 + 2./63, Q6_K: 1./32 + 1./64,
	}
	rapid.Check(t, func(r *rapid.T) {
		format := rapid.SampledFrom(formats).Draw(r, "format")
		block := layouts[format].block
		n := block * rapid.IntRange(1, max(2, 300/block)).Draw(r, "blocks")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 0))
		scale := math.Exp2(float64(rapid.IntRange(-4, 6).Draw(r, "scale")))
		offset := rapid.Float64Range(-2, 2).Draw(r, "offset")
		row := make([]float32, n)
		for i := range row {
			row[i] = float32(scale * (rng.NormFloat64() + offset))
		}
		data := Encode(format, nil, row)
		require.Len(r, data, format.RowBytes(n))
		got := make([]float32, n)
		decodePortable(format, got, data)
		unit := max(block, 1)
		if format == F8E4M3 {
			unit = fp8Block
		}
		for i := range row {
			from := i / unit * unit
			least, most := limits(row[from:min(n, from+unit)])
			width := float64(max(most, 0) - min(least, 0))
			require.InDelta(r, row[i], got[i], steps[format]*width/2*1.1+1e-7*scale+0x1p-25, "%s: weight %d", format, i)
		}
	})
}

func TestBlocksOfZerosStayZero(t *testing.T) {
	for _, format := range formats {
		row, got := make([]float32, 256), make([]float32, 256)
		decodePortable(format, got, Encode(format, nil, row))
		require.Equal(t, row, got, "%s", format)
	}
}

// randomCols draws a number of weights that rows of format can have, one or
// more blocks.
func randomCols(r *rapid.T, format Format) int {
	if block := layouts[format].block; block > 1 {
		return block * rapid.IntRange(1, max(1, 600/block)).Draw(r, "blocks")
	}
	if rapid.Bool().Draw(r, "eights") { // what assembly reads
		return 8 * rapid.IntRange(1, 75).Draw(r, "cols/8")
	}
	return rapid.IntRange(1, 600).Draw(r, "cols")
}

// Whatever the bytes, every level reads the same numbers; weights that are not
// finite are so at every level, though infinite here and NaN there.
func TestAnyBytesAreTheSameWeightsAtEveryLevel(t *testing.T) {
	for _, format := range formats {
		rapid.Check(t, func(r *rapid.T) { checkAnyBytes(r, format) })
	}
}

func checkAnyBytes(r *rapid.T, format Format) {
	cols := randomCols(r, format)
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 0))
	data := make([]byte, format.RowBytes(cols))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	for range rapid.IntRange(0, 3).Draw(r, "extremes") { // scales that are not finite among them
		at := rng.IntN(len(data))
		copy(data[at&^1:], rapid.SampledFrom([]string{"\x00\x7c", "\xff\xff", "\x00\x80", "\x01\x00", "\xff\x7b", "\x7f\x7f"}).Draw(r, "extreme"))
	}
	m, err := NewMatrix(format, 1, cols, data)
	require.NoError(r, err)
	want := make([]float32, cols)
	decodePortable(format, want, data)
	for _, level := range Levels() {
		got := make([]float32, cols)
		level.Row(got, &m, 0)
		for i := range want {
			require.True(r, sameWeight(want[i], got[i]), "%s %s: weight %d of %d is %v, want %v", level, format, i, cols, got[i], want[i])
		}
	}
}

func sameWeight(a, b float32) bool {
	finite := func(v float32) bool { return math.Abs(float64(v)) <= math.MaxFloat32 }
	return a == b || !finite(a) && !finite(b)
}

func TestAnyNumbersCanBeEncoded(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		format := rapid.SampledFrom(formats).Draw(r, "format")
		cols := randomCols(r, format)
		numbers := rapid.SliceOfN(rapid.SampledFrom([]float32{
			0, 1, -1, math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32,
			float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 1e-39,
		}), cols, cols).Draw(r, "numbers")
		require.Len(r, Encode(format, nil, numbers), format.RowBytes(cols))
	})
}

// TestFP8IsE4M3 computes all codes from the definition in the OCP 8-bit
// floating point specification.
func TestFP8IsE4M3(t *testing.T) {
	for code := range 256 {
		got := float64(FP8(byte(code)))
		exponent, fraction := code>>3&15, float64(code&7)
		want := math.Ldexp(1+fraction/8, exponent-7)
		if exponent == 0 {
			want = math.Ldexp(fraction/8, -6)
		}
		if code&0x80 != 0 {
			want = -want
		}
		if code&0x7f == 0x7f {
			require.True(t, math.IsNaN(got))
			continue
		}
		require.Equal(t, math.Float64bits(want), math.Float64bits(got), "code %#x", code)
		require.Equal(t, byte(code), ToFP8(float32(got)))
	}
	require.Equal(t, float32(maxFP8), FP8(0x7e))
}

func TestFP8BlocksKeepWhatIsNotANumberAndBoundTheInfinite(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	row := make([]float32, fp8Block+3)
	copy(row, []float32{nan, 1, -448, 0.5, -0x1p-9, 0x1p-10})
	copy(row[fp8Block:], []float32{inf, -inf, 1})
	data := Encode(F8E4M3, nil, row)
	require.Len(t, data, len(row)+2*4, "a scale for the short block")
	got := make([]float32, len(row))
	decodePortable(F8E4M3, got, data)
	require.True(t, math.IsNaN(float64(got[0])))
	require.Equal(t, []float32{1, -448, 0.5, -0x1p-9, 0}, got[1:6], "at a scale of one")
	require.Equal(t, make([]float32, fp8Block-6), got[6:fp8Block])
	largest := float32(math.MaxFloat32) / 448 * 448
	require.Equal(t, []float32{largest, -largest, 0}, got[fp8Block:])
	require.Less(t, largest, inf)
}

func TestToFP8RoundsToNearestEvenAndSaturates(t *testing.T) {
	for code := range byte(0x7e) {
		low, high := FP8(code), FP8(code+1)
		middle := (low + high) / 2 // exact
		even := code + code&1
		require.Equal(t, even, ToFP8(middle), "between %v and %v", low, high)
		require.Equal(t, code, ToFP8(math.Nextafter32(middle, 0)))
		require.Equal(t, code+1, ToFP8(math.Nextafter32(middle, 1e9)))
		require.Equal(t, 0x80|even, ToFP8(-middle))
	}
	for _, v := range []float32{448, 449, 1e30, float32(math.Inf(1))} {
		require.Equal(t, byte(0x7e), ToFP8(v))
		require.Equal(t, byte(0xfe), ToFP8(-v))
	}
	require.Equal(t, byte(0x7f), ToFP8(float32(math.NaN())))
}
