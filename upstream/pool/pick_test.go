package pool

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func servers(n int) []candidate {
	all := make([]candidate, n)
	for i := range all {
		all[i] = candidate{name: fmt.Sprintf("server-%d", i), weight: 1}
	}
	return all
}

func TestTheLeastLoadedServerComesFirst(t *testing.T) {
	all := servers(4)
	all[0].inFlight, all[1].inFlight, all[2].inFlight, all[3].inFlight = 3, 1, 2, 4
	require.Equal(t, []int{1, 2, 0, 3}, pick(all, 0, ""))
	// What a server told counts with what was sent there since, not twice.
	all[1].fresh, all[1].load, all[1].mine = true, Load{Running: 2, Queued: 1}, 1
	require.Equal(t, []int{2, 0, 1, 3}, pick(all, 0, ""), "three of others and of this process")
	all[1].inFlight = 3
	require.Equal(t, []int{2, 0, 3, 1}, pick(all, 0, ""), "and two more since")
	all[1].fresh = false
	require.Equal(t, []int{2, 0, 1, 3}, pick(all, 0, ""), "what is old is not believed")
}

func TestASaturatedServerIsPassedBy(t *testing.T) {
	all := servers(3)
	all[0].fresh, all[0].load = true, Load{KV: 0.85}
	all[1].fresh, all[1].load = true, Load{Queued: 5}
	all[2].inFlight = 50
	require.Equal(t, []int{2, 0, 1}, pick(all, 0, ""))
	for affinity := range uint64(100) {
		require.Equal(t, 2, pick(all, affinity+1, "")[0])
	}
}

func TestAServerThatHasTheAdapterComesFirst(t *testing.T) {
	all := servers(5)
	for i := range all {
		all[i].fresh = true
	}
	all[0].load = Load{Adapters: map[string]Adapter{"law": Waiting}}
	all[1].load = Load{Adapters: map[string]Adapter{"law": Active}, Running: 9}
	all[2].load = Load{Adapters: map[string]Adapter{"cooking": Active}, AdapterRoom: true}
	all[3].load = Load{Adapters: map[string]Adapter{"cooking": Active}}
	require.Equal(t, []int{1, 2, 4, 0, 3}, pick(all, 0, "law"), "active, has room or does not tell, waiting, full")
	require.Equal(t, 0, pick(all, 0, "")[0])
}

func TestAServerThatStartsSlowlyGetsLess(t *testing.T) {
	all := servers(2)
	all[0].weight = 0.1
	all[1].inFlight = 5
	require.Equal(t, 0, pick(all, 0, "")[0], "none yet")
	all[0].inFlight = 1
	require.Equal(t, 1, pick(all, 0, "")[0], "one of a tenth is ten")
}

// TestAffinityMovesOnlyWhatBelongsToAServerThatGoes takes each of the servers out
// in turn.
func TestAffinityMovesOnlyWhatBelongsToAServerThatGoes(t *testing.T) {
	all := servers(8)
	owner := func(all []candidate, affinity uint64) string { return all[pick(all, affinity, "")[0]].name }
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
			order := pick(all, uint64(random.IntN(kinds))*77+1, "")
			sorted := slices.Sorted(slices.Values(order))
			require.Equal(t, len(all), len(slices.Compact(sorted)), "each once")
			c := &all[order[0]]
			c.inFlight++
			bound := math.Ceil(boundFactor*float64(n+1)*c.weight/power + 1e-9)
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
	first := pick(all, 99, "")[0]
	for range 2 {
		require.Equal(t, first, pick(all, 99, "")[0])
		all[first].inFlight++
	}
	all[first].inFlight = 40
	require.NotEqual(t, first, pick(all, 99, "")[0])
}

func BenchmarkPick(b *testing.B) {
	all := servers(16)
	for i := range all {
		all[i].inFlight, all[i].fresh = i%5, true
	}
	b.ReportAllocs()
	for b.Loop() {
		pick(all, 12345, "")
	}
}
