package simd

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDot4HasTheBitsOfMulDense(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, level := range Levels() {
		for _, cols := range []int{1, 7, 8, 9, 31, 64, 100, 384} {
			rows, x := randomVector(rng, 4*cols), randomVector(rng, cols)
			row := func(i int) []float32 { return rows[i*cols : (i+1)*cols] }
			var want, got [4]float32
			level.MulDense(want[:], 4, rows, 4, x, 1, cols)
			level.Dot4(&got, row(0), row(1), row(2), row(3), x)
			require.Equal(t, want, got, "%s, %d columns", level, cols)
			level.Dot4(&got, row(2), row(2), row(0), row(2), x)
			require.Equal(t, [4]float32{want[2], want[2], want[0], want[2]}, got)
		}
	}
}

func TestDot4OfNothingIsZero(t *testing.T) {
	dst := [4]float32{1, 2, 3, 4}
	Best().Dot4(&dst, nil, nil, nil, nil, nil)
	require.Zero(t, dst)
}

func TestDot4RefusesShortRows(t *testing.T) {
	var dst [4]float32
	long, short := make([]float32, 9), make([]float32, 8)
	require.Panics(t, func() { Best().Dot4(&dst, long, long, short[:8:8], long, long) })
}

func BenchmarkDot4(b *testing.B) {
	rng := rand.New(rand.NewPCG(3, 4))
	rows, x := randomVector(rng, 4*384), randomVector(rng, 384)
	for _, level := range Levels() {
		b.Run(level.String(), func(b *testing.B) {
			b.ReportAllocs()
			var dst [4]float32
			for b.Loop() {
				level.Dot4(&dst, rows[:384], rows[384:768], rows[768:1152], rows[1152:], x)
			}
		})
	}
}
