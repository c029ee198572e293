package cache

import (
	"math/rand/v2"

	"github.com/intelliparadigm/haiku/internal/likeness"
)

// Budget bounds how often the vector tier may be wrong. For each kept answer it
// learns at which similarity other questions have the same one, from questions
// that are computed although an answer is near (the idea of vCache, Schroeder et
// al. 2025, arXiv 2502.03771). At first nearly all are; what has proved itself is
// served nearly always, and what has not hardly ever.
type Budget struct {
	// Delta bounds the share of requests that get a wrong answer, between 0 and 1;
	// 0 means 0.01. The promise holds as far as SameAnswer is right and questions
	// near an answer go on as they were; of an answer that few have asked near it
	// holds on average over such answers.
	Delta float64
	// PerHit makes it a bound on the share of hits that are wrong, which is
	// stricter.
	PerHit bool
	// Seed decides the random choices, which Delta is about.
	Seed uint64
}

func (b *Budget) new(shadow float64) *likeness.Budget {
	return likeness.NewBudget(likeness.BudgetOptions{Delta: b.Delta, PerHit: b.PerHit, Shadow: shadow, Seed: b.Seed})
}

// doubt is a kept answer that is not served but will be compared with the one
// that is computed in its place.
type doubt struct {
	answer     *Answer
	key        Key             // of its question
	trust      *likeness.Entry // nil without a budget
	similarity float64
}

// doubts reports whether a hit is to be verified in place of served.
func (s *meanings) doubts(near *nearby) bool {
	if s.budget != nil {
		return s.budget.Decide(near.record.trust, near.id, near.similarity) == likeness.Explore
	}
	return s.Shadow > 0 && rand.Float64() < s.Shadow
}

// judge compares a doubtful answer with the computed one, learns from that, and
// reports whether they say the same; false without a doubt.
func (t *Tiers) judge(d *doubt, computed *Answer) (same bool) {
	if d == nil {
		return false
	}
	same, ok := t.meanings.sameAnswer(d.answer, computed)
	if !ok {
		return false
	}
	t.stats.verified.Add(1)
	if !same {
		t.stats.wrong.Add(1)
	}
	if t.meanings.budget != nil {
		t.meanings.budget.Observe(d.trust, d.similarity, same)
	}
	return same
}

// sameAnswer compares two answers. A judge that panics has not judged: the answer
// that it was asked about is whole, and somebody's.
func (s *meanings) sameAnswer(kept, computed *Answer) (same, ok bool) {
	defer func() {
		if recover() != nil {
			same, ok = false, false
		}
	}()
	if s.SameAnswer != nil {
		return s.SameAnswer(kept, computed), true
	}
	same, _ = likeness.Same(likeness.Of(kept.text()), likeness.Of(computed.text()))
	return same, true
}
