package schedule

import (
	"slices"
	"time"

	"github.com/stretchr/testify/require"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is a Scheduler with all that is around it.
type world struct {
	t       require.TestingT
	s       *Scheduler
	d       *device
	now     time.Time
	live    map[*Seq]bool
	eos     func(q *Seq) bool
	step    int
	waiting map[*Seq]bool // paused
}

func newWorld(t require.TestingT, cfg Config) *world {
	return &world{t: t, s: New(cfg), d: newDevice(cfg), now: epoch, live: make(map[*Seq]bool), waiting: make(map[*Seq]bool),
		eos: func(*Seq) bool { return false }}
}

func (w *world) add(q *Seq) {
	w.s.Add(q, w.now)
	w.live[q] = true
	for _, sibling := range q.Siblings {
		w.live[sibling] = true
	}
}

func (w *world) remove(q *Seq) {
	for _, sibling := range q.Siblings {
		delete(w.live, sibling)
	}
	w.s.Remove(q)
	delete(w.live, q)
	delete(w.waiting, q)
}

// turn takes one step, and reports how many tokens it had.
func (w *world) turn() int {
	w.step++
	w.now = w.now.Add(time.Millisecond)
	step := w.s.Next(w.now)
	w.s.check(w.t)
	tokens := 0
	seen := make(map[*Seq]bool)
	for _, it := range step.Items {
		require.False(w.t, seen[it.Seq], "twice in a step")
		require.False(w.t, w.waiting[it.Seq], "a paused sequence computes")
		seen[it.Seq] = true
		tokens += it.N
	}
	require.LessOrEqual(w.t, tokens, w.s.cfg.StepTokens)
	for _, q := range step.Expired {
		delete(w.live, q)
		for _, sibling := range q.Siblings {
			delete(w.live, sibling)
		}
	}
	w.d.compute(w.t, step)
	for _, it := range slices.Clone(step.Items) {
		last := it.Last()
		siblings := w.s.Done(it.Seq, it.N)
		if last {
			w.sample(it.Seq)
		}
		for _, sibling := range siblings {
			w.sample(sibling)
		}
	}
	w.s.check(w.t)
	return tokens
}

// sample chooses a token that depends on what is before it, and on the choice.
func (w *world) sample(q *Seq) {
	choice, _ := q.Owner.(int)
	if w.s.Append(q, int32(value(q, len(q.Tokens)-1)+uint64(choice))%50); len(q.Tokens) == q.Limit || w.eos(q) {
		w.remove(q)
	}
}

func sequence(root string, prompt, limit int) *Seq {
	q := &Seq{Tenant: root, Root: Root(root, 0, 1), Limit: limit}
	for i := range prompt {
		q.Tokens = append(q.Tokens, int32(i%50))
	}
	return q
}

var small = Config{BlockTokens: 4, Blocks: 64, MaxSequences: 8, StepTokens: 32}
