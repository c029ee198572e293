package vectors

import (
	"math"

	"github.com/intelliparadigm/haiku/internal/splitmix"
)

// Tables and bits of [Buckets].
const (
	Tables     = 12
	bucketBits = 12
)

// Buckets returns one number below 4096 for each of 12 tables: two vectors that
// are near each other have one in common, at least in one table. It is what a
// store can be asked for that knows equality only.
//
// The bits say on which side of random planes the vector lies (Charikar, "Similarity
// Estimation Techniques from Rounding Algorithms", 2002): at an angle of θ two
// vectors agree in a bit with probability 1-θ/π. So a neighbour of cosine
// similarity 0.95 shares a table with probability 0.98, one of 0.9 with 0.87, one of
// 0.5 with 0.09, and one at a right angle with 0.003. The planes are the same in every
// process, for vectors of any length.
func Buckets(v []float32) [Tables]uint16 {
	var side [Tables * bucketBits]float32
	for i, x := range v {
		bits := math.Float32bits(x)
		for word := range len(side) / 48 { // of 64 random bits, 48 are used
			signs := splitmix.Mix(uint64(i)*8 + uint64(word) + 1)
			for b := range 48 {
				side[48*word+b] += math.Float32frombits(bits ^ ^uint32(signs>>b)<<31)
			}
		}
	}
	var buckets [Tables]uint16
	for i, s := range side {
		if s > 0 {
			buckets[i/bucketBits] |= 1 << (i % bucketBits)
		}
	}
	return buckets
}
