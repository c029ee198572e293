package schedule

import (
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestASequenceRunsFromItsPromptToItsLimit(t *testing.T) {
	w := newWorld(t, small)
	q := sequence("t", 40, 45)
	w.add(q)
	var steps []int
	for len(w.live) > 0 {
		steps = append(steps, w.turn())
	}
	require.Equal(t, []int{32, 8, 1, 1, 1, 1}, steps)
	require.Zero(t, w.turn())
	require.Equal(t, Counts{IdleBlocks: 64, CachedBlocks: 11, PromptTokens: 40}, w.s.Counts())
}

func TestAPromptSeenBeforeIsFoundButForItsLastToken(t *testing.T) {
	w := newWorld(t, small)
	for _, c := range []struct {
		root         string
		prompt, want int
	}{{"a", 40, 0}, {"a", 40, 36}, {"a", 41, 40}, {"a", 20, 16}, {"b", 40, 0}, {"b", 43, 40}} {
		q := sequence(c.root, c.prompt, c.prompt+2)
		w.add(q)
		for len(w.live) > 0 {
			w.turn()
		}
		require.Equal(t, c.want, q.Reused, "%v", c)
	}
}

func TestTheAnswerIsFoundByTheNextTurnOfAConversation(t *testing.T) {
	w := newWorld(t, small)
	q := sequence("a", 10, 30)
	w.add(q)
	for len(w.live) > 0 {
		w.turn()
	}
	next := &Seq{Tenant: "a", Root: q.Root, Limit: 60, Tokens: append(slices.Clone(q.Tokens), 1, 2, 3)}
	w.add(next)
	w.turn()
	require.Equal(t, 28, next.Reused, "the last token was never computed")
}

func TestWithoutReuseEverythingIsComputed(t *testing.T) {
	cfg := small
	cfg.NoReuse = true
	w := newWorld(t, cfg)
	alone := newWorld(t, small)
	for range 2 {
		q := sequence("a", 40, 41)
		w.add(q)
		r := sequence("a", 40, 41)
		r.Alone = true
		alone.add(r)
		for len(w.live)+len(alone.live) > 0 {
			w.turn()
			alone.turn()
		}
		require.Zero(t, q.Reused+r.Reused)
	}
}

func TestSiblingsShareTheirPromptAndPart(t *testing.T) {
	w := newWorld(t, small)
	q := sequence("a", 10, 30)
	q.Owner = 0
	for i := range 3 {
		q.Siblings = append(q.Siblings, &Seq{Owner: i + 1})
	}
	w.add(q)
	require.Equal(t, 10, w.turn())
	require.Equal(t, 64-3, w.s.Counts().IdleBlocks)
	step := w.s.Next(w.now)
	var copies []int32
	for _, it := range step.Items {
		copies = append(copies, it.CopyFrom)
	}
	third := q.Blocks
	require.Len(t, third, 3)
	require.Len(t, copies, 4)
	require.Equal(t, int32(none), copies[3], "the last to part keeps the block")
	require.Equal(t, 64-6, w.s.Counts().IdleBlocks)
	w.d.compute(t, step)
	for _, it := range slices.Clone(step.Items) {
		w.s.Done(it.Seq, it.N)
		w.sample(it.Seq)
	}
	for len(w.live) > 0 {
		w.turn()
	}
}

func TestDecodesComeFirstAndLongPromptsGiveWayToShortOnes(t *testing.T) {
	for name, c := range map[string]struct {
		budget int
		wants  []int
		want   []int
	}{
		"one prompt takes all":               {9, []int{100}, []int{9}},
		"half for the first":                 {10, []int{8000, 3}, []int{7, 3}},
		"the first half is the first's":      {9, []int{100, 100, 100}, []int{5, 4, 0}},
		"the first leaves some":              {12, []int{2, 50, 60}, []int{2, 10, 0}},
		"least work first":                   {12, []int{50, 2, 3, 60}, []int{6, 2, 3, 1}},
		"all of them fit":                    {100, []int{5, 5, 5}, []int{5, 5, 5}},
		"no budget":                          {0, []int{5, 5}, []int{0, 0}},
		"a budget of one is the first one's": {1, []int{5, 5}, []int{1, 0}},
	} {
		require.Equal(t, c.want, shares(slices.Clone(c.wants), c.budget), name)
	}
	cfg := small
	cfg.Blocks = 200
	w := newWorld(t, cfg)
	w.add(sequence("a", 2, 50))
	w.turn()
	w.add(sequence("b", 200, 210))
	w.turn()
	short := sequence("c", 8, 20)
	w.add(short)
	require.Equal(t, 32, w.turn())
	require.Len(t, short.Tokens, 9, "it has its first token after one step")
}

func TestHigherLevelsComeFirstUntilLowerOnesHaveWaitedLong(t *testing.T) {
	cfg := small
	cfg.MaxSequences = 1
	w := newWorld(t, cfg)
	order := func(list ...*Seq) (got []int) {
		for len(list) > 0 {
			q := w.s.pick(w.now)
			i := slices.Index(list, q)
			require.GreaterOrEqual(t, i, 0)
			got = append(got, q.Owner.(int))
			w.s.Remove(q)
			list = slices.Delete(list, i, i+1)
		}
		return got
	}
	at := func(owner, priority int, tenant string, deadline time.Duration) *Seq {
		q := sequence(tenant, 5, 9)
		q.Owner, q.Priority = owner, priority
		if deadline > 0 {
			q.Deadline = epoch.Add(deadline)
		}
		w.s.Add(q, w.now)
		return q
	}
	require.Equal(t, []int{2, 1, 3, 0}, order(at(0, 1, "a", 0), at(1, 0, "a", 0), at(2, -1, "b", 0), at(3, 0, "a", 0)))
	require.Equal(t, []int{3, 1, 0, 2}, order(at(0, 0, "a", 9*time.Second), at(1, 0, "b", 5*time.Second), at(2, 0, "c", 0), at(3, 0, "d", time.Second)))
	old := at(0, 3, "a", 0)
	w.now = w.now.Add(31 * time.Second)
	require.Equal(t, []int{0, 1}, order(old, at(1, 0, "b", 0)))
}

func TestTenantsTakeTurnsByTokens(t *testing.T) {
	cfg := small
	cfg.MaxSequences, cfg.TenantTokens = 1, 500
	w := newWorld(t, cfg)
	var finished []string
	for range 8 {
		w.add(sequence("greedy", 40, 60))
	}
	for range 4 {
		w.add(sequence("modest", 10, 20))
	}
	w.eos = func(q *Seq) bool {
		if len(q.Tokens) == q.Limit-1 {
			finished = append(finished, q.Tenant[:1])
			return true
		}
		return false
	}
	for len(w.live) > 0 {
		w.turn()
	}
	require.Equal(t, "gmmmmggggggg", concat(finished))

	// A deadline goes before fairness, up to a bound.
	finished = nil
	for range 30 {
		q := sequence("greedy", 40, 60)
		q.Tokens[0], q.Deadline = int32(len(w.live)+100), w.now.Add(time.Second)
		w.add(q)
	}
	w.add(sequence("modest", 10, 20))
	for len(w.live) > 0 {
		w.turn()
	}
	at := slices.Index(finished, "m")
	require.Greater(t, at, 5)
	require.Less(t, at, 14)
}

func concat(list []string) (s string) {
	for _, x := range list {
		s += x
	}
	return s
}

func TestWhatIsHeldIsPassed(t *testing.T) {
	w := newWorld(t, small)
	held := sequence("a", 5, 7)
	held.Held = true
	w.add(held)
	w.add(sequence("b", 5, 7))
	require.Equal(t, 5, w.turn())
	require.True(t, held.Waiting())
	w.s.Free(held)
	for len(w.live) > 0 {
		w.turn()
	}
}

func TestWhatHasWaitedTooLongExpires(t *testing.T) {
	cfg := small
	cfg.MaxSequences = 1
	w := newWorld(t, cfg)
	w.add(sequence("a", 5, 100))
	w.turn()
	late := sequence("a", 5, 7)
	late.Expiry = w.now.Add(3 * time.Millisecond)
	w.add(late)
	require.Equal(t, late.Expiry, w.s.NextExpiry())
	for range 2 {
		w.turn()
		require.True(t, late.Waiting())
	}
	w.turn()
	require.False(t, late.Waiting())
	require.NotContains(t, w.live, late)
	require.Zero(t, w.s.NextExpiry())
	w.s.Remove(late) // again
}

func TestTheLowestRankGivesUpItsBlocksAndComesBack(t *testing.T) {
	cfg := Config{BlockTokens: 4, Blocks: 10, MaxSequences: 4, StepTokens: 32}
	w := newWorld(t, cfg)
	w.s.answers.observe(1) // admission believes that answers are short
	want := make(map[*Seq][]int32)
	for i := range 3 {
		alone := newWorld(t, cfg)
		q, r := sequence(strconv.Itoa(i), 8, 24), sequence(strconv.Itoa(i), 8, 24)
		w.add(q)
		alone.add(r)
		for len(alone.live) > 0 {
			alone.turn()
		}
		want[q] = r.Tokens
	}
	var order []string
	w.eos = func(q *Seq) bool {
		if len(q.Tokens) == q.Limit-1 {
			order = append(order, q.Tenant)
		}
		return false
	}
	for len(w.live) > 0 {
		require.Positive(t, w.turn())
	}
	require.Equal(t, []string{"0", "1", "2"}, order)
	require.Positive(t, w.s.Counts().Preempted)
	for q, tokens := range want {
		require.Equal(t, tokens, q.Tokens)
	}
}

func TestAPausedSequenceMakesRoom(t *testing.T) {
	w := newWorld(t, Config{BlockTokens: 4, Blocks: 10, MaxSequences: 1, StepTokens: 32})
	slow := sequence("slow", 20, 30)
	w.add(slow)
	w.turn()
	w.s.Pause(slow)
	w.waiting[slow] = true
	quick := sequence("quick", 20, 24)
	w.add(quick)
	for w.live[quick] {
		require.Positive(t, w.turn())
	}
	require.Zero(t, w.turn())
	require.Equal(t, 1, w.s.Counts().Preempted)
	w.s.Resume(slow)
	delete(w.waiting, slow)
	for len(w.live) > 0 {
		require.Positive(t, w.turn())
	}
	require.Len(t, slow.Tokens, 30)
}

func TestWorkOfALowLevelMakesRoom(t *testing.T) {
	cfg := small
	cfg.MaxSequences = 2
	w := newWorld(t, cfg)
	low := []*Seq{sequence("a", 20, 30), sequence("a", 21, 30)}
	low[0].Priority, low[1].Priority = 1, 2
	w.add(low[0])
	w.add(low[1])
	w.turn()
	w.turn()
	high := sequence("b", 8, 10)
	w.add(high)
	w.turn()
	require.Equal(t, []place{running, queued, running}, []place{low[0].place, low[1].place, high.place})
	same := sequence("b", 8, 10)
	same.Priority = 1
	w.add(same)
	w.turn()
	require.Equal(t, []place{running, queued}, []place{low[0].place, same.place}, "never one of its own level")
	for len(w.live) > 0 {
		require.Positive(t, w.turn())
	}
}

func TestNobodyGivesWayInVain(t *testing.T) {
	w := newWorld(t, Config{BlockTokens: 4, Blocks: 64, MaxSequences: 8, StepTokens: 64})
	w.s.answers.observe(1)
	w.add(sequence("a", 200, 204)) // 51 blocks, of the same level as what comes
	low := sequence("low", 8, 60)
	low.Priority = 1
	w.add(low)
	for range 5 {
		w.turn()
	}
	need := sequence("b", 80, 84) // more than low has
	w.add(need)
	for w.live[need] && need.place == queued && len(w.s.running) == 2 {
		w.turn()
		require.Equal(t, running, low.place)
	}
	for len(w.live) > 0 {
		require.Positive(t, w.turn())
	}
}

func TestWhatHasAPlaceAndNoStepExpiresToo(t *testing.T) {
	w := newWorld(t, Config{BlockTokens: 4, Blocks: 400, MaxSequences: 4, StepTokens: 8})
	var late []*Seq
	for i := range 4 {
		q := sequence(strconv.Itoa(i), 300, 304)
		q.Expiry = w.now.Add(10 * time.Millisecond)
		w.add(q)
		late = append(late, q)
	}
	for range 15 {
		w.turn()
	}
	require.True(t, w.live[late[0]] && w.live[late[1]])
	require.False(t, w.live[late[2]] || w.live[late[3]], "the budget of a step is for two of them")
}

func TestExtremePrioritiesAreServed(t *testing.T) {
	cfg := small
	cfg.TenantTokens, cfg.MaxSequences = 1, 1
	w := newWorld(t, cfg)
	for _, priority := range []int{math.MaxInt, math.MinInt, math.MaxInt} {
		q := sequence("a", 20, 30)
		q.Priority = priority
		w.add(q)
	}
	w.now = w.now.Add(10 * time.Hour)
	for len(w.live) > 0 {
		require.Positive(t, w.turn())
	}
	huge := New(Config{BlockTokens: 4, Blocks: 64, MaxSequences: 1, StepTokens: math.MaxInt})
	huge.Add(sequence("a", 20, 30), w.now)
	require.Len(t, huge.Next(w.now).Items, 1)
}

// TestRandomSchedules drives everything at once. The device proves that what a
// sequence builds on is its own, whoever computed it; check that no block is
// lost or has a wrong owner; and the end that nobody starves, and that each
// sequence got the tokens it would have got alone.
func TestRandomSchedules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blocks := rapid.IntRange(8, 40).Draw(t, "blocks")
		places := rapid.IntRange(1, 8).Draw(t, "places")
		cfg := Config{
			BlockTokens: rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "block"), Blocks: blocks,
			MaxSequences: places, StepTokens: 2*places + rapid.IntRange(0, 20).Draw(t, "budget"),
			TenantTokens: 40, Aging: 50 * time.Millisecond, NoReuse: rapid.IntRange(0, 5).Draw(t, "reuse") == 0,
		}
		w := newWorld(t, cfg)
		w.eos = func(q *Seq) bool { return value(q, len(q.Tokens)-1)%13 == 0 }
		type answer struct{ prompt, limit, choice int }
		began := make(map[*Seq]answer)
		var added []*Seq
		for range rapid.IntRange(1, 120).Draw(t, "operations") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0, 1, 2:
				limit := rapid.IntRange(2, blocks*cfg.BlockTokens).Draw(t, "limit")
				prompt := rapid.IntRange(1, limit-1).Draw(t, "prompt")
				q := sequence(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant"), prompt, limit)
				q.Tokens[rapid.IntRange(0, prompt-1).Draw(t, "where")] = int32(rapid.IntRange(0, 1).Draw(t, "token"))
				q.Owner, q.Priority = 0, rapid.IntRange(0, 2).Draw(t, "level")
				if rapid.Bool().Draw(t, "due") {
					q.Deadline = w.now.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "deadline")) * time.Millisecond)
				}
				for i := range min(rapid.IntRange(0, 2).Draw(t, "siblings"), places-1) {
					q.Siblings = append(q.Siblings, &Seq{Owner: i + 1})
				}
				for _, one := range append([]*Seq{q}, q.Siblings...) {
					began[one] = answer{prompt, limit, one.Owner.(int)}
					added = append(added, one)
				}
				w.add(q)
			case 3:
				if len(added) > 0 {
					if q := rapid.SampledFrom(added).Draw(t, "removed"); w.live[q] {
						w.remove(q)
					}
				}
			case 4:
				if len(added) > 0 {
					if q := rapid.SampledFrom(added).Draw(t, "paused"); w.live[q] && q.place == running && q.Decodes() {
						w.s.Pause(q)
						w.waiting[q] = true
					}
				}
			case 5:
				for _, q := range added {
					if w.waiting[q] {
						delete(w.waiting, q)
						w.s.Resume(q)
						break
					}
				}
			default:
				w.turn()
			}
			w.s.check(t)
		}
		for _, q := range added {
			if w.waiting[q] {
				delete(w.waiting, q)
				w.s.Resume(q)
			}
		}
		for len(w.live) > 0 {
			require.Positive(t, w.turn(), "nothing gets on")
		}
		for _, q := range added {
			if q.place != nowhere || len(q.Tokens) <= began[q].prompt {
				continue
			}
			tokens := slices.Clone(q.Tokens)
			for i := began[q].prompt; i < len(tokens); i++ {
				q.Tokens = tokens[:i]
				require.Equal(t, int32(value(q, i-1)+uint64(began[q].choice))%50, tokens[i])
			}
		}
		require.Zero(t, w.turn())
		counts := w.s.Counts()
		counts.Preempted, counts.PromptTokens, counts.ReusedTokens, counts.CachedBlocks = 0, 0, 0, 0
		require.Equal(t, Counts{IdleBlocks: blocks}, counts)
		require.Empty(t, w.s.tenants)
	})
}
