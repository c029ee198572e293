package pool

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku/internal/splitmix"
)

func servers(n int) []candidate {
	all := make([]candidate, n)
	for i := range all {
		name := fmt.Sprintf("server-%d", i)
		all[i] = candidate{name: name, hash: hashOf(name), weight: 1}
	}
	return all
}

func TestTheLeastLoadedServerComesFirst(t *testing.T) {
	for chance := range uint64(50) {
		all := servers(4)
		all[0].inFlight, all[1].inFlight, all[2].inFlight, all[3].inFlight = 3, 1, 2, 4
		require.Equal(t, []int{1, 2, 0, 3}, ordered(all, "", chance))
	}
	all := servers(4)
	require.Len(t, firsts(all, 0, ""), 4, "equals take turns")
	for i := range all {
		all[i].fresh, all[i].others = true, 2*i
	}
	require.Len(t, firsts(all, 0, ""), 3, "where others choose too it is the better of two: never the worst")
}

// ordered are the servers in the order in which they are chosen, each time without
// those before.
func ordered(all []candidate, adapter string, chance uint64) (order []int) {
	left := slices.Clone(all)
	for len(left) > 0 {
		i := pick(left, 0, adapter, chance)
		order = append(order, slices.IndexFunc(all, func(c candidate) bool { return c.name == left[i].name }))
		left = slices.Delete(left, i, i+1)
	}
	return order
}

// firsts are the servers that come first by one chance or another.
func firsts(all []candidate, affinity uint64, adapter string) map[int]bool {
	found := map[int]bool{}
	for chance := range uint64(200) {
		found[pick(all, affinity, adapter, chance)] = true
	}
	return found
}

func TestASaturatedServerIsPassedBy(t *testing.T) {
	all := servers(3)
	all[0].fresh, all[0].load = true, Load{KV: 0.85}
	all[1].fresh, all[1].load = true, Load{Queued: 5}
	all[2].inFlight = 50
	for affinity := range uint64(100) {
		require.Equal(t, 2, pick(all, affinity, "", affinity))
	}
}

func TestAServerThatHasTheAdapterComesFirst(t *testing.T) {
	all := servers(5)
	for i := range all {
		all[i].fresh, all[i].inFlight = true, i
	}
	all[0].load = Load{Adapters: map[string]Adapter{"law": Waiting}}
	all[1].load = Load{Adapters: map[string]Adapter{"law": Active}, Running: 9}
	all[2].load = Load{Adapters: map[string]Adapter{"cooking": Active}, AdapterRoom: true}
	all[3].load = Load{Adapters: map[string]Adapter{"cooking": Active}}
	require.Equal(t, []int{1, 2, 4, 0, 3}, ordered(all, "law", 1), "active, has room or does not tell, waiting, full")
	require.Equal(t, 0, pick(all, 0, "", 1))
}

func TestAServerThatStartsSlowlyGetsLess(t *testing.T) {
	all := servers(2)
	all[0].weight, all[1].inFlight = 0.1, 5
	times := 0
	for chance := range uint64(1000) {
		times += 1 - pick(all, 0, "", chance)
	}
	require.InDelta(t, 550, times, 60, "it is half of a request behind on average, which is five of a tenth")
	all[0].inFlight = 1
	require.Equal(t, map[int]bool{1: true}, firsts(all, 0, ""), "one of a tenth is ten")
}

// TestAffinityMovesOnlyWhatBelongsToAServerThatGoes takes each of the servers out
// in turn.
func TestAffinityMovesOnlyWhatBelongsToAServerThatGoes(t *testing.T) {
	all := servers(8)
	owner := func(all []candidate, affinity uint64) string { return all[pick(all, affinity, "", 0)].name }
	counts := map[string]int{}
	for gone := range all {
		rest := slices.Delete(slices.Clone(all), gone, gone+1)
		for affinity := range uint64(2000) {
			affinity = affinity*0x9e3779b97f4a7c15 | 1
			before := owner(all, affinity)
			if before != all[gone].name {
				require.Equal(t, before, owner(rest, affinity))
			}
			counts[before]++
		}
	}
	for name, n := range counts {
		require.InDelta(t, 2000, n, 300, name)
	}
}

// TestNobodyIsFarAboveItsShare places requests of few kinds, which would all lie on
// few servers, and has some end at random.
func TestNobodyIsFarAboveItsShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := servers(rapid.IntRange(1, 8).Draw(t, "servers"))
		for i := range all {
			all[i].weight = rapid.SampledFrom([]float64{0.1, 0.5, 1}).Draw(t, "weight")
		}
		kinds := rapid.IntRange(1, 4).Draw(t, "kinds")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		var power float64
		for i := range all {
			power += all[i].weight
		}
		for n := range 300 {
			c := &all[pick(all, uint64(random.IntN(kinds))*77+1, "", random.Uint64())]
			c.inFlight++
			bound := math.Ceil(1.25*float64(n+1)*c.weight/power + 1e-9)
			require.LessOrEqual(t, float64(c.inFlight), max(bound, 1))
		}
	})
}

// TestOneKindStaysOnOneServerWhileThatHasRoom is what affinity is for.
func TestOneKindStaysOnOneServerWhileThatHasRoom(t *testing.T) {
	all := servers(4)
	for i := range all {
		all[i].inFlight = 10
	}
	first := pick(all, 99, "", 7)
	for range 2 {
		require.Equal(t, first, pick(all, 99, "", 7))
		all[first].inFlight++
	}
	all[first].inFlight = 40
	require.NotEqual(t, first, pick(all, 99, "", 7))
}

// TestAServerThatComesTakesItsShareAndNoMore adds one of any weight: what moves
// moves to it, and is its share.
func TestAServerThatComesTakesItsShareAndNoMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "servers")
		weight := rapid.SampledFrom([]float64{0.1, 0.5, 1}).Draw(t, "weight")
		seed := rapid.Uint64().Draw(t, "seed")
		all := servers(n + 1)
		all[n].weight = weight
		heavier := slices.Clone(all)
		heavier[n].weight = min(1, 2*weight)
		const keys = 2000
		moved := 0
		for key := range uint64(keys) {
			affinity := splitmix.Mix(seed+key) | 1
			before, after := pick(all[:n], affinity, "", 0), pick(all, affinity, "", 0)
			if before != after {
				require.Equal(t, n, after)
				moved++
				require.Equal(t, n, pick(heavier, affinity, "", 0), "as it grows it keeps what it has")
			}
		}
		share := weight / (float64(n) + weight)
		require.InDelta(t, share, float64(moved)/keys, 6*math.Sqrt(share/keys))
	})
}

// TestProcessesThatSeeTheSameFiguresDoNotAllChooseTheSame lets 20 processes place
// requests by figures that are taken every 100 ms.
func TestProcessesThatSeeTheSameFiguresDoNotAllChooseTheSame(t *testing.T) {
	const processes, count, lasts = 20, 8, 4 // lasts in rounds
	own := make([][count]int, processes)
	var ends [lasts][processes][count]int
	random := rand.New(rand.NewPCG(1, 2))
	worst := 0
	for round := range 200 {
		var total [count]int
		for p := range own {
			for s := range count {
				own[p][s] -= ends[round%lasts][p][s]
				ends[round%lasts][p][s] = 0
				total[s] += own[p][s]
			}
		}
		for p := range own {
			all := servers(count)
			for s := range all {
				all[s].fresh, all[s].inFlight, all[s].others = true, own[p][s], total[s]-own[p][s]
			}
			for range 2 {
				s := pick(all, 0, "", random.Uint64())
				all[s].inFlight++
				own[p][s]++
				ends[round%lasts][p][s]++
			}
		}
		for s := range count {
			sum := 0
			for p := range own {
				sum += own[p][s]
			}
			worst = max(worst, sum)
		}
	}
	mean := processes * 2 * lasts / count
	require.LessOrEqual(t, worst, mean*3/2, "it is 29 where 20 is the mean, and 37 if each takes the one with the least load")
}

func BenchmarkPick(b *testing.B) {
	all := servers(16)
	for i := range all {
		all[i].inFlight, all[i].fresh = i%5, true
	}
	b.ReportAllocs()
	for b.Loop() {
		pick(all, 12345, "", 7)
	}
}
