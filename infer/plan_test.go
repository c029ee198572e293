package infer

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPlanGivesDecodesOneTokenAndSharesTheRestEvenly(t *testing.T) {
	decode := demand{tokens: 1, decoding: true}
	prompt := func(tokens int) demand { return demand{tokens: tokens} }
	pause := demand{}
	for name, c := range map[string]struct {
		budget  int
		demands []demand
		want    []int
	}{
		"nothing to do":                      {10, nil, []int{}},
		"all decode":                         {10, []demand{decode, decode}, []int{1, 1}},
		"a paused sequence gets nothing":     {10, []demand{pause, decode}, []int{0, 1}},
		"one prompt takes the rest":          {10, []demand{decode, prompt(100)}, []int{1, 9}},
		"a short prompt is not held up":      {10, []demand{prompt(8000), prompt(3)}, []int{7, 3}},
		"an unused share goes to the others": {12, []demand{prompt(2), prompt(50), prompt(50)}, []int{2, 5, 5}},
		"more prompts than budget":           {2, []demand{prompt(5), prompt(5), prompt(5)}, []int{1, 1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, plan([]int{7, 7, 7}, c.demands, c.budget))
		})
	}
}

func TestPlanKeepsItsBudgetAndLeavesNobodyWaiting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		demands := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) demand {
			if rapid.Bool().Draw(t, "decoding") {
				return demand{tokens: rapid.IntRange(0, 1).Draw(t, "token"), decoding: true}
			}
			return demand{tokens: rapid.IntRange(0, 5000).Draw(t, "prompt")}
		}), 0, 40).Draw(t, "demands")
		budget := rapid.IntRange(2*len(demands), 2*len(demands)+600).Draw(t, "budget")

		shares := plan(nil, demands, budget)

		used, wanted := 0, 0
		for i, d := range demands {
			require.LessOrEqual(t, shares[i], d.tokens)
			if d.tokens > 0 {
				require.Positive(t, shares[i], "sequence %d starves", i)
			}
			used += shares[i]
			wanted += d.tokens
		}
		require.Equal(t, min(budget, wanted), used, "the budget is used as far as there is work")
	})
}

func TestBlockPoolNeverSharesABlock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newBlockPool(Spec{BlockTokens: 16, Blocks: rapid.IntRange(1, 64).Draw(t, "blocks")})
		var held [][]int32
		for range rapid.IntRange(1, 50).Draw(t, "ops") {
			if len(held) > 0 && rapid.Bool().Draw(t, "give") {
				p.give(held[0])
				held = held[1:]
			} else {
				n := rapid.IntRange(0, 20).Draw(t, "n")
				free := len(p.free)
				blocks, ok := p.take(n)
				require.Equal(t, n <= free, ok)
				held = append(held, blocks)
			}
			seen := make(map[int32]bool)
			for _, list := range append([][]int32{p.free}, held...) {
				for _, b := range list {
					require.False(t, seen[b], "block %d has two owners", b)
					seen[b] = true
				}
			}
			require.Len(t, seen, p.total, "a block is lost")
		}
	})
}

func TestBlockPoolCountsPartlyFilledBlocks(t *testing.T) {
	p := newBlockPool(Spec{BlockTokens: 16, Blocks: 4})
	require.Equal(t, []int{0, 1, 1, 2}, []int{p.need(0), p.need(1), p.need(16), p.need(17)})
}
