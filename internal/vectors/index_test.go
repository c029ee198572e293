package vectors

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// kinds are the indexes that the suite runs over, for vectors of dim elements.
var kinds = map[string]func(t require.TestingT, dim, capacity int) checked{
	"Flat": func(t require.TestingT, dim, capacity int) checked {
		f, err := NewFlat(dim, capacity)
		require.NoError(t, err)
		return f
	},
	"HNSW": func(t require.TestingT, dim, capacity int) checked {
		h, err := NewHNSW(dim, Options{Capacity: capacity, M: 4, EfConstruction: 40, Ef: 100})
		require.NoError(t, err)
		return h
	},
}

func eachKind(t *testing.T, test func(t *testing.T, open func(t require.TestingT, dim, capacity int) checked)) {
	for name, open := range kinds {
		t.Run(name, func(t *testing.T) { test(t, open) })
	}
}

func randomUnit(rng *rand.Rand, dim int) []float32 {
	v := make([]float32, dim)
	for i := range v {
		v[i] = float32(rng.NormFloat64())
	}
	v, err := unit(nil, v, dim)
	if err != nil {
		panic(err)
	}
	return v
}

func TestSearchReturnsTheNearestFirst(t *testing.T) {
	eachKind(t, func(t *testing.T, open func(require.TestingT, int, int) checked) {
		x := open(t, 2, 0)
		for id, v := range [][]float32{{1, 0}, {0, 5}, {-2, 0}, {3, 3}} {
			require.NoError(t, x.Add(uint64(id), v))
		}
		got, err := x.Search(nil, []float32{10, 0}, 3, nil)
		require.NoError(t, err)
		require.Equal(t, []uint64{0, 3, 1}, idsOf(got))
		require.InDeltaSlice(t, []float64{1, math.Sqrt2 / 2, 0}, simsOf(got), 1e-6)
		x.check(t)
	})
}

func idsOf(matches []Match) (ids []uint64) {
	for _, m := range matches {
		ids = append(ids, m.ID)
	}
	return ids
}

func simsOf(matches []Match) (sims []float64) {
	for _, m := range matches {
		sims = append(sims, float64(m.Similarity))
	}
	return sims
}

func TestEqualSimilaritiesComeByID(t *testing.T) {
	eachKind(t, func(t *testing.T, open func(require.TestingT, int, int) checked) {
		x := open(t, 3, 0)
		for _, id := range []uint64{9, 3, 7, 1, 5} {
			require.NoError(t, x.Add(id, []float32{1, 2, 3}))
		}
		got, err := x.Search(nil, []float32{1, 2, 3}, 4, nil)
		require.NoError(t, err)
		require.Equal(t, []uint64{1, 3, 5, 7}, idsOf(got))
	})
}

func TestAddReplacesTheVectorOfAnID(t *testing.T) {
	eachKind(t, func(t *testing.T, open func(require.TestingT, int, int) checked) {
		x := open(t, 2, 2)
		require.NoError(t, x.Add(1, []float32{1, 0}))
		require.NoError(t, x.Add(2, []float32{0, 1}))
		require.NoError(t, x.Add(1, []float32{-1, 0}), "also when the index is full")
		require.Equal(t, 2, x.Len())
		got, err := x.Search([]Match{{ID: 77}}, []float32{-1, 0}, 9, nil)
		require.NoError(t, err)
		require.Equal(t, []uint64{77, 1, 2}, idsOf(got), "matches are appended")
		x.check(t)
	})
}

func TestAFullIndexRefuses(t *testing.T) {
	eachKind(t, func(t *testing.T, open func(require.TestingT, int, int) checked) {
		x := open(t, 2, 1)
		require.NoError(t, x.Add(1, []float32{1, 0}))
		require.ErrorIs(t, x.Add(2, []float32{1, 0}), ErrFull)
		require.True(t, x.Remove(1))
		require.False(t, x.Remove(1))
		require.NoError(t, x.Add(2, []float32{1, 0}))
		x.check(t)
	})
}

func TestVectorsWithoutDirectionAreRefused(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	eachKind(t, func(t *testing.T, open func(require.TestingT, int, int) checked) {
		x := open(t, 2, 0)
		for _, tt := range []struct {
			vector []float32
			want   error
		}{
			{nil, ErrDimension}, {[]float32{1, 2, 3}, ErrDimension}, {[]float32{0, 0}, ErrZero},
			{[]float32{nan, 1}, ErrNotFinite}, {[]float32{1, inf}, ErrNotFinite}, {[]float32{-inf, 1}, ErrNotFinite},
		} {
			require.ErrorIs(t, x.Add(1, tt.vector), tt.want)
			_, err := x.Search(nil, tt.vector, 1, nil)
			require.ErrorIs(t, err, tt.want)
		}
		require.Zero(t, x.Len())
		require.NoError(t, x.Add(1, []float32{math.MaxFloat32, math.MaxFloat32}))
		require.NoError(t, x.Add(2, []float32{math.SmallestNonzeroFloat32, 0}))
		x.check(t)
	})
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	_, err := NewFlat(0, 0)
	require.ErrorIs(t, err, ErrOptions)
	_, err = NewFlat(3, -1)
	require.ErrorIs(t, err, ErrOptions)
	for _, o := range []Options{{M: 3}, {M: -4}, {EfConstruction: -1}, {Ef: -1}, {Capacity: -1}} {
		_, err = NewHNSW(3, o)
		require.ErrorIs(t, err, ErrOptions)
	}
}

func TestSearchOfNothingFindsNothing(t *testing.T) {
	eachKind(t, func(t *testing.T, open func(require.TestingT, int, int) checked) {
		x := open(t, 2, 0)
		got, err := x.Search(nil, []float32{1, 0}, 3, nil)
		require.NoError(t, err)
		require.Empty(t, got)
		require.NoError(t, x.Add(1, []float32{1, 0}))
		for _, k := range []int{0, -1} {
			got, err = x.Search(nil, []float32{1, 0}, k, nil)
			require.NoError(t, err)
			require.Empty(t, got)
		}
		got, err = x.Search(nil, []float32{1, 0}, 1, func(uint64) bool { return false })
		require.NoError(t, err)
		require.Empty(t, got)
	})
}

// bruteForce is what Search must return, in float64.
func bruteForce(all map[uint64][]float32, query []float32, accept func(uint64) bool) (found []Match) {
	for id, v := range all {
		if accept != nil && !accept(id) {
			continue
		}
		var dot, vv, qq float64
		for i := range v {
			dot += float64(v[i]) * float64(query[i])
			vv += float64(v[i]) * float64(v[i])
			qq += float64(query[i]) * float64(query[i])
		}
		found = append(found, Match{id, float32(dot / math.Sqrt(vv*qq))})
	}
	slices.SortFunc(found, compare)
	return found
}

// TestAnyHistoryLeavesTheLatestVectors adds, replaces and removes at random. A
// small graph is searched completely, so HNSW too must find all, save what the
// paper does not promise to reach; what it finds must be right.
func TestAnyHistoryLeavesTheLatestVectors(t *testing.T) {
	eachKind(t, func(t *testing.T, open func(require.TestingT, int, int) checked) {
		rapid.Check(t, func(t *rapid.T) {
			dim := rapid.IntRange(1, 20).Draw(t, "dim")
			x, all := open(t, dim, 0), map[uint64][]float32{}
			rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
			ids := rapid.Uint64Range(0, rapid.Uint64Range(0, 60).Draw(t, "largest id"))
			t.Repeat(map[string]func(*rapid.T){
				"add": func(t *rapid.T) {
					id, v := ids.Draw(t, "id"), randomUnit(rng, dim)
					require.NoError(t, x.Add(id, v))
					all[id] = v
				},
				"add alike": func(t *rapid.T) {
					id := ids.Draw(t, "id")
					v := make([]float32, dim)
					v[0] = float32(1 + id%2)
					require.NoError(t, x.Add(id, v))
					all[id] = v
				},
				"remove": func(t *rapid.T) {
					id := ids.Draw(t, "id")
					_, known := all[id]
					require.Equal(t, known, x.Remove(id))
					delete(all, id)
				},
				"": func(t *rapid.T) {
					x.check(t)
					checkSearch(t, x, all, randomUnit(rng, dim))
				},
			})
		})
	})
}

func checkSearch(t *rapid.T, x checked, all map[uint64][]float32, query []float32) {
	even := func(id uint64) bool { return id%2 == 0 }
	for _, accept := range []func(uint64) bool{nil, even} {
		want := bruteForce(all, query, accept)
		k := rapid.IntRange(1, 80).Draw(t, "k")
		got, err := x.Search(nil, query, k, accept)
		require.NoError(t, err)
		require.True(t, slices.IsSortedFunc(got, compare))
		if h, ok := x.(*HNSW); ok {
			if h.reachable() == 1 {
				require.Len(t, got, min(k, len(want)))
			}
		} else {
			require.Len(t, got, min(k, len(want)))
			require.InDeltaSlice(t, append(simsOf(want[:len(got)]), 0), append(simsOf(got), 0), 1e-5)
		}
		for _, m := range got {
			i := slices.IndexFunc(want, func(w Match) bool { return w.ID == m.ID })
			require.GreaterOrEqual(t, i, 0)
			require.InDelta(t, want[i].Similarity, m.Similarity, 1e-5)
		}
	}
}

// TestSearchesRunBesideWriters runs searches on several goroutines while two
// others add and remove.
func TestSearchesRunBesideWriters(t *testing.T) {
	const dim, ids, rounds = 16, 300, 600
	eachKind(t, func(t *testing.T, open func(require.TestingT, int, int) checked) {
		x := open(t, dim, 0)
		var wg sync.WaitGroup
		for g := range uint64(2) {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(g, 1))
				for range rounds {
					if id := rng.Uint64N(ids); rng.IntN(3) > 0 {
						_ = x.Add(id, randomUnit(rng, dim))
					} else {
						x.Remove(id)
					}
				}
			})
		}
		for g := range uint64(3) {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(g, 2))
				var found []Match
				for range rounds {
					found, _ = x.Search(found[:0], randomUnit(rng, dim), 5, func(id uint64) bool { return id%3 != 0 })
					if slices.ContainsFunc(found, func(m Match) bool { return m.ID%3 == 0 || m.ID >= ids }) || x.Len() > ids {
						t.Error("a search found what it must not")
					}
				}
			})
		}
		wg.Wait()
		x.check(t)
	})
}

func TestSearchesAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	eachKind(t, func(t *testing.T, open func(require.TestingT, int, int) checked) {
		rng := rand.New(rand.NewPCG(1, 1))
		x := open(t, 32, 0)
		for id := range uint64(1000) {
			require.NoError(t, x.Add(id, randomUnit(rng, 32)))
		}
		query, found := randomUnit(rng, 32), make([]Match, 0, 8)
		odd := func(id uint64) bool { return id%2 == 1 }
		require.Zero(t, testing.AllocsPerRun(50, func() {
			found, _ = x.Search(found[:0], query, 8, odd)
		}))
	})
}
