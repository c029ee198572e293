package vectors

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDotsAreThoseOfTheIndex shows that a partition that grows into an index finds
// what it found before.
func TestDotsAreThoseOfTheIndex(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, dim := range []int{1, 3, 64, 100, 384} {
		for n := range 10 {
			flat, err := NewFlat(dim, 16)
			require.NoError(t, err)
			rows := make([][]float32, n)
			vector := func() []float32 {
				v := make([]float32, dim)
				for i := range v {
					v[i] = float32(random.NormFloat64())
				}
				one, err := unit(nil, v, dim)
				require.NoError(t, err)
				return one
			}
			for i := range rows {
				rows[i] = vector()
				require.NoError(t, flat.Add(uint64(i), rows[i]))
			}
			query := vector()
			got := make([]float32, n)
			Dots(got, rows, query)
			matches, err := flat.Search(nil, query, n, nil)
			require.NoError(t, err)
			for _, m := range matches {
				require.InDelta(t, m.Similarity, got[m.ID], 1e-6)
			}
			require.Len(t, matches, n)
		}
	}
}
