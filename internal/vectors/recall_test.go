package vectors

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// recallAt1 is the share of queries for which the graph finds a vector as near
// as the nearest there is.
func recallAt1(t testing.TB, h *HNSW, exact *Flat, queries [][]float32, ef int) float64 {
	t.Helper()
	hits := 0
	for _, q := range queries {
		want, err := exact.Search(nil, q, 1, nil)
		require.NoError(t, err)
		got, err := h.SearchEf(nil, q, 1, ef, nil)
		require.NoError(t, err)
		if len(got) == 1 && got[0].Similarity == want[0].Similarity {
			hits++
		}
	}
	return float64(hits) / float64(len(queries))
}

// both returns a graph and an exact index that hold the same vectors.
func both(t testing.TB, list [][]float32) (*HNSW, *Flat) {
	t.Helper()
	h, err := NewHNSW(len(list[0]), Options{})
	require.NoError(t, err)
	exact, err := NewFlat(len(list[0]), 0)
	require.NoError(t, err)
	for id, v := range list {
		require.NoError(t, h.Add(uint64(id), v))
		require.NoError(t, exact.Add(uint64(id), v))
	}
	return h, exact
}

func randomUnits(rng *rand.Rand, n, dim int) [][]float32 {
	list := make([][]float32, n)
	for i := range list {
		list[i] = randomUnit(rng, dim)
	}
	return list
}

// near returns v turned a little: the cosine between both is about 1/√(1+noise²).
func near(rng *rand.Rand, v []float32, noise float64) []float32 {
	turned := make([]float32, len(v))
	for i := range v {
		turned[i] = v[i] + float32(noise*rng.NormFloat64()/math.Sqrt(float64(len(v))))
	}
	return turned
}

func nearUnits(rng *rand.Rand, list [][]float32, n int) [][]float32 {
	queries := make([][]float32, n)
	for i := range queries {
		queries[i] = near(rng, list[rng.IntN(len(list))], 0.33)
	}
	return queries
}

// TestRecallOnRandomVectors shows what an ef is worth where there is no
// structure: queries near a vector, as the cache has them, need a small one;
// independent queries, whose nearest is hardly nearer than the rest, a large
// one, larger with more vectors.
func TestRecallOnRandomVectors(t *testing.T) {
	n := 3000
	if testing.Short() {
		n = 1000
	}
	rng := rand.New(rand.NewPCG(1, 1))
	list := randomUnits(rng, n, 384)
	h, exact := both(t, list)
	require.GreaterOrEqual(t, recallAt1(t, h, exact, nearUnits(rng, list, 200), 200), 0.99, "near one, default ef")
	require.GreaterOrEqual(t, recallAt1(t, h, exact, randomUnits(rng, 200, 384), 256), 0.95, "independent, ef 256")
	require.InDelta(t, 1, h.reachable(), 0.001)
	h.check(t)
}

// TestChurnDoesNotDegradeTheGraph replaces all vectors several times over and
// compares the graph with one that was built from the survivors alone.
func TestChurnDoesNotDegradeTheGraph(t *testing.T) {
	n, turns := 1000, 4
	if testing.Short() {
		n, turns = 400, 3
	}
	const dim = 64
	rng := rand.New(rand.NewPCG(2, 2))
	list := randomUnits(rng, n, dim)
	h, _ := both(t, list)
	for range turns * n {
		id := rng.IntN(n)
		list[id] = randomUnit(rng, dim)
		if rng.IntN(2) == 0 {
			require.True(t, h.Remove(uint64(id)))
		}
		require.NoError(t, h.Add(uint64(id), list[id]))
	}
	fresh, exact := both(t, list)
	queries := randomUnits(rng, 500, dim)
	for _, ef := range []int{20, 100} {
		require.GreaterOrEqual(t, recallAt1(t, h, exact, queries, ef), recallAt1(t, fresh, exact, queries, ef)-0.03, "ef %d", ef)
	}
	require.InDelta(t, 1, h.reachable(), 0.002)
	require.Less(t, len(h.nodes), n+n/8+64, "places are used again")
	h.check(t)
}

// TestRemovingARegionLeavesTheRestReachable removes all of several clusters at
// once, as dropping a tenant or a model's version does.
func TestRemovingARegionLeavesTheRestReachable(t *testing.T) {
	const dim, clusters, each = 32, 10, 120
	rng := rand.New(rand.NewPCG(3, 3))
	centres := randomUnits(rng, clusters, dim)
	var list [][]float32
	for i := range clusters * each {
		list = append(list, near(rng, centres[i%clusters], 0.3))
	}
	h, exact := both(t, list)
	for id := range list {
		if id%clusters >= 2 {
			require.True(t, h.Remove(uint64(id)))
			require.True(t, exact.Remove(uint64(id)))
		}
	}
	h.check(t)
	require.EqualValues(t, 1, h.reachable())
	require.GreaterOrEqual(t, recallAt1(t, h, exact, list, 100), 0.99)
	for id := range list {
		h.Remove(uint64(id))
	}
	h.check(t)
	require.Zero(t, h.Len())
}

// TestTheLastOfARegionAreLinkedAnew removes all but two vectors of each cluster:
// most have lost all that they were linked to.
func TestTheLastOfARegionAreLinkedAnew(t *testing.T) {
	const dim, clusters, each = 32, 12, 60
	rng := rand.New(rand.NewPCG(7, 7))
	centres := randomUnits(rng, clusters, dim)
	var list [][]float32
	for i := range clusters * each {
		list = append(list, near(rng, centres[i/each], 0.1))
	}
	h, _ := both(t, list)
	for id := range list {
		if id%each >= 2 {
			require.True(t, h.Remove(uint64(id)))
		}
	}
	h.check(t)
	require.EqualValues(t, 1, h.reachable())
	for slot := range h.nodes {
		if n := &h.nodes[slot]; n.state == live {
			links := 0
			for _, l := range n.base.out {
				if h.nodes[l.to].state == live {
					links++
				}
			}
			require.GreaterOrEqual(t, links, h.opts.M/2)
		}
	}
}

// TestASearchAlsoBeginsAtTheEntry walks down to a node from which no link leads
// on.
func TestASearchAlsoBeginsAtTheEntry(t *testing.T) {
	h, _ := both(t, [][]float32{{1, 0}, {0, 1}, {1, 1}})
	h.nodes = []node{
		{id: 0, state: live, base: layer{out: []link{{to: 2}}}, upper: []layer{{out: []link{{to: 1}}}}},
		{id: 1, state: live, upper: []layer{{}}},
		{id: 2, state: live},
	}
	h.entry, h.top = 0, 1
	got, err := h.Search(nil, []float32{0, 1}, 3, nil)
	require.NoError(t, err)
	require.Equal(t, []uint64{1, 2, 0}, idsOf(got))
}

// TestCopiesDoNotHideOthers fills an index mostly with copies of a few vectors,
// more of each than a node has links.
func TestCopiesDoNotHideOthers(t *testing.T) {
	const dim = 16
	rng := rand.New(rand.NewPCG(4, 4))
	few, others := randomUnits(rng, 4, dim), randomUnits(rng, 200, dim)
	var list [][]float32
	for i := range 1200 {
		list = append(list, few[i%len(few)])
		if i%6 == 0 {
			list = append(list, others[i/6])
		}
	}
	h, exact := both(t, list)
	require.EqualValues(t, 1, recallAt1(t, h, exact, few, 100))
	require.GreaterOrEqual(t, recallAt1(t, h, exact, others, 100), 0.99)
	h.check(t)
}

func TestTheSameCallsBuildTheSameGraph(t *testing.T) {
	open := func() *HNSW {
		rng := rand.New(rand.NewPCG(5, 5))
		h, err := NewHNSW(8, Options{Seed: 7, M: 4})
		require.NoError(t, err)
		for range 500 {
			if id := rng.Uint64N(100); rng.IntN(3) == 0 {
				h.Remove(id)
			} else {
				require.NoError(t, h.Add(id, randomUnit(rng, 8)))
			}
		}
		return h
	}
	a, b := open(), open()
	require.Equal(t, a.nodes, b.nodes)
	require.Equal(t, a.entry, b.entry)
}

// TestAFilterThatTakesFewStillFindsThem asks for vectors that are rare.
func TestAFilterThatTakesFewStillFindsThem(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	h, exact := both(t, randomUnits(rng, 1000, 24))
	rare := func(id uint64) bool { return id%100 == 17 }
	for range 20 {
		q := randomUnit(rng, 24)
		want, err := exact.Search(nil, q, 10, rare)
		require.NoError(t, err)
		got, err := h.Search(nil, q, 10, rare)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}
