package vectors

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNearVectorsShareABucket compares with the probability that the planes have:
// 1 - (1 - (1-θ/π)^bits)^tables.
func TestNearVectorsShareABucket(t *testing.T) {
	const pairs, dim = 2000, 96
	random := rand.New(rand.NewPCG(1, 2))
	for _, similarity := range []float64{1, 0.98, 0.95, 0.9, 0.5, 0} {
		shared := 0
		for range pairs {
			a, b := make([]float32, dim), make([]float32, dim)
			var dot, norm float64
			for i := range a {
				a[i], b[i] = float32(random.NormFloat64()), float32(random.NormFloat64())
				dot += float64(a[i]) * float64(b[i])
				norm += float64(a[i]) * float64(a[i])
			}
			var rest float64
			for i := range b { // what of b is at a right angle to a
				b[i] -= float32(dot / norm * float64(a[i]))
				rest += float64(b[i]) * float64(b[i])
			}
			for i := range b {
				b[i] = float32(similarity*float64(a[i])/math.Sqrt(norm) + math.Sqrt(1-similarity*similarity)*float64(b[i])/math.Sqrt(rest))
			}
			x, y := Buckets(a), Buckets(b)
			for i := range x {
				if x[i] == y[i] {
					shared++
					break
				}
			}
		}
		bit := 1 - math.Acos(similarity)/math.Pi
		want := 1 - math.Pow(1-math.Pow(bit, bucketBits), Tables)
		require.InDelta(t, want, float64(shared)/pairs, 0.03, "similarity %v", similarity)
	}
}

func TestBucketsAreTheSameInEveryProcess(t *testing.T) {
	require.Equal(t, [Tables]uint16{0xcc1, 0x25, 0xc89, 0x2de, 0x6ce, 0x975, 0xe1c, 0x35d, 0xfed, 0x18, 0x4db, 0x14e}, Buckets([]float32{1, -0.5, 0.25}),
		"what is written elsewhere is found by these numbers: a change needs other keys")
	require.Equal(t, [Tables]uint16{}, Buckets(nil))
}

func BenchmarkBuckets(b *testing.B) {
	v := make([]float32, 384)
	for i := range v {
		v[i] = float32(i%7) - 3
	}
	b.ReportAllocs()
	for b.Loop() {
		Buckets(v)
	}
}
