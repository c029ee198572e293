package simd

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHalfRoundTripsEveryValue(t *testing.T) {
	for h := range 1 << 16 {
		v := Half(uint16(h))
		if math.IsNaN(float64(v)) {
			require.True(t, math.IsNaN(float64(Half(ToHalf(v)))))
			continue
		}
		require.Equal(t, uint16(h), ToHalf(v))
	}
}

func TestToHalfRoundsToNearestEven(t *testing.T) {
	for _, c := range []struct {
		v    float64
		want uint16
	}{
		{1, 0x3c00}, {1 + 1.0/2048, 0x3c00}, {1 + 3.0/2048, 0x3c02}, {1 + 1.0/2048 + 1e-6, 0x3c01},
		{65504, 0x7bff}, {65519, 0x7bff}, {65520, 0x7c00}, {1e9, 0x7c00}, {-1e9, 0xfc00},
		{math.Ldexp(1, -24), 1}, {math.Ldexp(1, -25), 0}, {math.Ldexp(3, -25), 2}, {math.Ldexp(-1, -14), 0x8400},
	} {
		require.Equal(t, c.want, ToHalf(float32(c.v)), "%g", c.v)
	}
}

func TestExpSumAgreesWithFloat64(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, level := range Levels() {
		for n := 1; n <= 40; n++ {
			s := make([]float32, n+1)
			for i := range s {
				s[i] = float32(-rng.ExpFloat64() * 8)
			}
			s[n] = 99
			want := make([]float64, n)
			var sum float64
			for i := range want {
				want[i] = math.Exp(float64(s[i] - 0.25))
				sum += want[i]
			}
			require.InEpsilon(t, sum, level.ExpSum(s[:n], 0.25), 1e-6)
			for i, e := range want {
				require.InEpsilon(t, e, s[i], 3e-7, "%s %d of %d", level, i, n)
			}
			require.Equal(t, float32(99), s[n], "written beyond the end")
		}
	}
}

func TestExpSumKeepsExtremesFinite(t *testing.T) {
	for _, level := range Levels() {
		s := []float32{0, -1e4, float32(math.Inf(-1)), -87, -1e38}
		sum := level.ExpSum(s, 0)
		require.InDelta(t, 1, sum, 1e-6)
		for _, v := range s[1:] {
			require.InDelta(t, 0, v, 1e-37)
		}
		nan := []float32{0, float32(math.NaN())}
		require.True(t, math.IsNaN(float64(level.ExpSum(nan, 0))), "%s hides a NaN", level)
	}
}

func TestSiluMulAgreesWithFloat64(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 1))
	for _, level := range Levels() {
		for n := 1; n <= 40; n++ {
			gate, up := randomVector(rng, n+1), randomVector(rng, n+1)
			gate[0] *= 60
			before := append([]float32(nil), gate...)
			level.SiluMul(gate[:n], up[:n])
			for i := range n {
				g := float64(before[i])
				require.InDelta(t, g/(1+math.Exp(-g))*float64(up[i]), gate[i], 1e-6*(1+math.Abs(g*float64(up[i]))))
			}
			require.Equal(t, before[n], gate[n])
		}
	}
}

func TestAddWeightedAgreesWithFloat64(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	for _, level := range Levels() {
		for _, d := range []int{1, 7, 8, 12, 16, 64, 72, 75, 128, 200} {
			for _, n := range []int{0, 1, 2, 31} {
				dst, rows, p := randomVector(rng, d+1), randomVector(rng, n*d), randomVector(rng, n)
				want := make([]float64, d+1)
				for c, v := range dst {
					want[c] = float64(v)
				}
				for i, weight := range p {
					for c := range d {
						want[c] += float64(weight) * float64(rows[i*d+c])
					}
				}
				level.AddWeighted(dst[:d], rows, p)
				for c, v := range dst {
					require.InDelta(t, want[c], v, 2e-5)
				}
			}
		}
	}
}

func TestRMSNormAgreesWithFloat64(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 1))
	for _, n := range []int{1, 3, 4, 64, 127} {
		x, weight := randomVector(rng, n), randomVector(rng, n)
		var squares float64
		for _, v := range x {
			squares += float64(v) * float64(v)
		}
		scale := 1 / math.Sqrt(squares/float64(n)+1e-5)
		got := make([]float32, n)
		RMSNorm(got, x, weight, 1e-5)
		for i, v := range got {
			require.InDelta(t, float64(x[i])*scale*float64(weight[i]), v, 1e-5)
		}
	}
}

func TestRotateTurnsNeighbours(t *testing.T) {
	x := []float32{1, 0, 0, 2, 5, 6}
	Rotate(x, []float32{0, 1}, []float32{1, 0})
	require.Equal(t, []float32{0, 1, 0, 2, 5, 6}, x)
}

func TestMaxFindsEveryPlace(t *testing.T) {
	for _, level := range Levels() {
		for n := 1; n <= 40; n++ {
			for at := range n {
				s := make([]float32, n+1)
				for i := range s {
					s[i] = -5 - float32(i)
				}
				s[at], s[n] = -1, 7
				require.Equal(t, float32(-1), level.Max(s[:n]), "%s: %d of %d", level, at, n)
			}
		}
	}
}

func TestAddAddsTheFirstElements(t *testing.T) {
	dst := []float32{1, 2}
	Add(dst, []float32{10, 20, 30})
	require.Equal(t, []float32{11, 22}, dst)
}
