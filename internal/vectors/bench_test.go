package vectors

import (
	"math/rand/v2"
	"testing"
)

func BenchmarkSearch(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	list := randomUnits(rng, 3000, 384)
	h, exact := both(b, list)
	queries := nearUnits(rng, list, 64)
	for name, x := range map[string]Index{"Flat": exact, "HNSW": h} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			found, i := make([]Match, 0, 1), 0
			for b.Loop() {
				found, _ = x.Search(found[:0], queries[i%len(queries)], 1, nil)
				i++
			}
		})
	}
}

// BenchmarkReplace takes the place of a vector: in a graph a removal, with all
// that it mends, and an insertion.
func BenchmarkReplace(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	list := randomUnits(rng, 3000, 384)
	h, exact := both(b, list)
	for name, x := range map[string]Index{"Flat": exact, "HNSW": h} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if err := x.Add(uint64(i%len(list)), list[(i*7+1)%len(list)]); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}
