package schedule

import (
	"slices"
	"time"
)

// Next decides the next step. Every item of it has to be reported by Done, or
// its sequence removed, before Next is called again.
func (s *Scheduler) Next(now time.Time) *Step {
	clear(s.step.Items) // an idle Scheduler refers to no sequence
	clear(s.step.Expired)
	s.step.Items, s.step.Preempted, s.step.Expired = s.step.Items[:0], s.step.Preempted[:0], s.step.Expired[:0]
	s.turn++
	s.pool.settle()
	s.expire(now)
	if s.short { // what was thrown out a step ago is not to come straight back
		s.prefills(s.decodes(s.cfg.StepTokens))
	}
	if len(s.step.Items) == 0 {
		s.admit(now)
		s.prefills(s.decodes(s.cfg.StepTokens))
	}
	clear(s.visit[:cap(s.visit)])
	return &s.step
}

// NextExpiry is when the first sequence in the queue expires, zero if none does.
func (s *Scheduler) NextExpiry() time.Time {
	var first time.Time
	for _, q := range s.queue {
		if at := q.Expiry; q.turn == 0 && !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// expire drops what has waited too long for its first step, in the queue or with
// a place.
func (s *Scheduler) expire(now time.Time) {
	for _, list := range [][]*Seq{s.queue, s.running} {
		for _, q := range list {
			if q.turn == 0 && !q.Expiry.IsZero() && !q.Expiry.After(now) {
				s.step.Expired = append(s.step.Expired, q)
			}
		}
	}
	for _, q := range s.step.Expired {
		s.Remove(q)
	}
}

// decodes lets every sequence compute the token it has sampled, those of high
// rank first, and returns what is left of the budget. A sequence that finds no
// block takes those of one that ranks lower, and so of none in the step, or
// else gives up its own.
func (s *Scheduler) decodes(budget int) int {
	s.visit, s.short = append(s.visit[:0], s.running...), false
	for _, q := range s.visit {
		if q.place != running || q.paused || !q.Decodes() || budget == 0 {
			continue
		}
		if s.include(q, 1, true) {
			budget--
		} else {
			s.preempt(q)
			s.short = true
		}
	}
	return budget
}

// prefills shares the budget among the prompts. They make do with the blocks
// that are idle. Only if that leaves a step without anything, the first of them
// takes blocks from others.
func (s *Scheduler) prefills(budget int) {
	s.visit, s.wants = s.visit[:0], s.wants[:0]
	for _, q := range s.running {
		if !q.paused && q.left() > 0 && q.turn != s.turn {
			s.visit = append(s.visit, q)
		}
	}
	if len(s.visit) == 0 {
		return
	}
	slices.SortStableFunc(s.visit[1:], func(a, b *Seq) int {
		if a.level != b.level {
			return a.level - b.level
		}
		return a.left() - b.left()
	})
	for _, q := range s.visit {
		s.wants = append(s.wants, q.left())
	}
	s.wants = shares(s.wants, budget)
	for i, q := range s.visit {
		if n := min(s.wants[i], s.room(q)); n > 0 {
			s.include(q, n, false)
		}
	}
	if first := s.visit[0]; len(s.step.Items) == 0 && budget > 0 {
		s.include(first, min(s.wants[0], s.cfg.BlockTokens-first.Computed%s.cfg.BlockTokens), true)
	}
}

// shares replaces what prompts want by what they get of a budget. Half of it is
// for the first, which has waited longest; the others take what they want in
// their order, which is that of the least work; and what they leave is the
// first one's too. So the first gets on at half speed at least, whatever comes
// behind it, and a short prompt does not wait for a long one.
func shares(wants []int, budget int) []int {
	want := wants[0]
	wants[0] = min(want, (budget+1)/2)
	budget -= wants[0]
	for i := 1; i < len(wants); i++ {
		wants[i] = min(wants[i], budget)
		budget -= wants[i]
	}
	wants[0] += min(want-wants[0], budget)
	return wants
}

// room is how many more positions a sequence could have without preemption.
func (s *Scheduler) room(q *Seq) int {
	return (len(q.Blocks)+s.pool.idle)*s.cfg.BlockTokens - q.Computed
}

// include adds an item to the step if there are blocks for it. With force,
// sequences of lower rank are preempted for them.
func (s *Scheduler) include(q *Seq, n int, force bool) bool {
	for s.missing(q, n) > s.pool.idle {
		victim := s.victim(q)
		if !force || victim == nil {
			return false
		}
		s.preempt(victim)
		s.short = true
	}
	q.turn = s.turn
	it := Item{Seq: q, N: n, CopyFrom: none}
	if s.parts(q) {
		at := q.Computed / s.cfg.BlockTokens
		it.CopyFrom = q.Blocks[at]
		q.Blocks[at] = s.pool.take()
		s.pool.lend(it.CopyFrom)
	}
	for len(q.Blocks) < s.BlocksFor(q.Computed+n) {
		q.Blocks = append(q.Blocks, s.pool.take())
	}
	s.step.Items = append(s.step.Items, it)
	return true
}

// missing is the number of blocks that n more tokens need.
func (s *Scheduler) missing(q *Seq, n int) int {
	blocks := max(s.BlocksFor(q.Computed+n)-len(q.Blocks), 0)
	if s.parts(q) {
		blocks++
	}
	return blocks
}

// parts reports whether the next token of q goes into a block that others use
// too. Their tokens up to there are the same, and what follows will differ.
func (s *Scheduler) parts(q *Seq) bool {
	at := q.Computed / s.cfg.BlockTokens
	return q.Computed%s.cfg.BlockTokens != 0 && at < len(q.Blocks) && s.pool.shared(q.Blocks[at])
}

// victim is whose blocks q may take: a sequence that is paused, else the one of
// the lowest rank, unless that is q.
func (s *Scheduler) victim(q *Seq) *Seq {
	if v := s.paused(); v != nil {
		return v
	}
	if v := s.running[len(s.running)-1]; v != q {
		return v
	}
	return nil
}

// paused is the sequence of the lowest rank among those that are, nil if none
// is.
func (s *Scheduler) paused() *Seq {
	for i := len(s.running) - 1; i >= 0; i-- {
		if v := s.running[i]; v.paused {
			return v
		}
	}
	return nil
}

// preempt takes the blocks from a sequence. It comes back through the queue, and
// computes again what the cache does not hold any more.
func (s *Scheduler) preempt(q *Seq) {
	s.step.Preempted = append(s.step.Preempted, q.ID)
	s.counts.Preempted++
	s.halt(q)
	if q.paused {
		q.place = parked
	} else {
		s.enqueue(q)
	}
}
