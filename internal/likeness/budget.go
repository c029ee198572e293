package likeness

import (
	"math"
	"sync"

	"github.com/intelliparadigm/haiku/internal/splitmix"
)

// BudgetOptions describe a [Budget].
type BudgetOptions struct {
	// Delta bounds the probability that a decision is a wrong hit, between 0
	// and 1. 0 means 0.01.
	Delta float64
	// PerHit makes Delta bound the probability that a hit is wrong, which is
	// stricter: before an entry or all of them together have earned it, nothing
	// is served at all.
	PerHit bool
	// Shadow is the share of hits that are explored all the same, so that
	// errors are found that come later. 0 means 1/64, a negative value none.
	Shadow float64
	// Seed decides all random choices.
	Seed uint64
}

// Budget serves cached answers under a bound on wrong ones. It learns from
// observations how the chance of a right answer falls with the distance of two
// prompts, for each entry and, for entries of which little is known, for all of
// them together. The idea is that of vCache (Schroeder et al. 2025, arXiv
// 2502.03771): where the chance of a wrong answer is at most r, serving with
// probability Delta/r keeps the wrong ones below Delta, and exploring the rest
// of the time shows how large r is.
//
// Three things differ. Nearness is measured as the distance of the two unit
// vectors, sqrt(2-2·similarity). The logistic curve may level off below one:
// an entry may be wrong now and then however near a prompt is. And r is the
// largest that any curve gives which a likelihood ratio test does not reject;
// the chance that the true one is rejected comes out of Delta.
//
// What is promised is what its assumptions give: the true curve is near one of
// that form, observations are independent, and they are right. An entry that
// leans on the others keeps to Delta on average over entries, and not each for
// itself.
//
// A Budget and its entries are safe for concurrent use.
type Budget struct {
	options BudgetOptions
	fit     fitter
	all     Entry
}

// Entry is what is known of one cached answer: about 600 bytes, whatever it has
// seen. The zero value knows nothing. It must not be copied after use.
type Entry struct {
	mu      sync.Mutex
	seen    evidence
	draws   uint64
	pending int // observations, errors eightfold, since the curve was fitted
	risk    [levels]float32
}

// Decision is what to do with a candidate.
type Decision bool

// The two decisions. A host that explores asks the model, compares its answer
// with the cached one, and reports with [Budget.Observe].
const (
	Explore Decision = false
	Hit     Decision = true
)

// NewBudget returns a Budget that has seen nothing. A Delta outside of 0 to 1
// counts as the nearer end, and as 0.01 where it is no number.
func NewBudget(options BudgetOptions) *Budget {
	if options.Delta == 0 || math.IsNaN(options.Delta) {
		options.Delta = 0.01
	}
	options.Delta = min(max(options.Delta, 1e-6), 1)
	if options.Shadow == 0 {
		options.Shadow = 1.0 / 64
	}
	b := &Budget{options: options}
	b.fit.init(options.Delta / 10)
	return b
}

// Decide says whether to serve the entry's answer to a prompt of the given
// cosine similarity. key tells the entry from others, and should stay its own:
// the random choice depends on Seed, key and how often it was asked.
func (b *Budget) Decide(e *Entry, key uint64, similarity float64) Decision {
	at := levelOf(similarity)
	e.mu.Lock()
	e.draws++
	draw := splitmix.Mix(splitmix.Mix(b.options.Seed^splitmix.Mix(key)) + e.draws)
	risk, alone := e.riskAt(at), e.seen.wrongNear(at)
	e.mu.Unlock()
	if !alone {
		b.all.mu.Lock()
		risk = min(risk, b.all.riskAt(at))
		b.all.mu.Unlock()
	}
	return Decision(float64(draw>>11)/(1<<53) < b.chance(float64(risk)))
}

// chance is how often to serve where a wrong answer has probability risk.
func (b *Budget) chance(risk float64) float64 {
	doubt := b.options.Delta / 10 // of the curve itself
	wrong := doubt + (1-doubt)*risk
	switch {
	case risk > 0.5, b.options.PerHit && wrong > b.options.Delta:
		return 0
	}
	return min(b.options.Delta/wrong, 1) * (1 - max(b.options.Shadow, 0))
}

// Observe reports whether the entry's answer was right for a prompt of that
// similarity. Only prompts for which [Budget.Decide] said Explore, or others
// chosen without regard to the answer, may be reported.
func (b *Budget) Observe(e *Entry, similarity float64, correct bool) {
	at := levelOf(similarity)
	for _, e := range [2]*Entry{e, &b.all} {
		e.mu.Lock()
		e.seen.add(at, correct)
		// Little evidence counts at once, more of the same may wait until
		// there is a thirty-second more; errors wait an eighth as long.
		if e.pending++; !correct {
			e.pending += 7
		}
		if e.pending*32 >= e.seen.total() {
			e.risk, e.pending = b.fit.curve(&e.seen), 0
		}
		e.mu.Unlock()
	}
}

// riskAt is the bound on the chance of a wrong answer: 1 of an entry that has
// seen nothing.
func (e *Entry) riskAt(at int) float32 {
	if e.seen.total() == 0 {
		return 1
	}
	return e.risk[at]
}

// levels is how many distances are told apart, from 0 to sqrt(2).
const levels = 64

// levelOf is the level of a similarity, 0 for the same direction. What is no
// number is far.
func levelOf(similarity float64) int {
	d := math.Sqrt(max(2-2*similarity, 0)) / math.Sqrt2
	if !(d < 1) {
		return levels - 1
	}
	return int(d * levels)
}

// evidence counts right and wrong answers by distance.
type evidence struct{ right, wrong [levels]uint16 }

// maxCount is where counts are halved, so that the old is forgotten.
const maxCount = 1 << 15

func (s *evidence) add(at int, correct bool) {
	if s.right[at]+s.wrong[at] >= maxCount {
		for i := range levels {
			s.right[i], s.wrong[i] = s.right[i]/2, (s.wrong[i]+1)/2
		}
	}
	if correct {
		s.right[at]++
	} else {
		s.wrong[at]++
	}
}

func (s *evidence) total() (n int) {
	for i := range levels {
		n += int(s.right[i]) + int(s.wrong[i])
	}
	return n
}

// wrongNear reports whether a wrong answer was seen within twice the distance:
// then the entry is not one of many any more, and speaks for itself.
func (s *evidence) wrongNear(at int) bool {
	for i := range min(2*at+2, levels) {
		if s.wrong[i] > 0 {
			return true
		}
	}
	return false
}
