package infer

import (
	"errors"
	"math"
	"slices"

	"github.com/intelliparadigm/haiku"
)

// errBadLogits reports logits that no distribution can be made of.
var errBadLogits = errors.New("infer: the model's logits are not finite")

// sampler chooses the tokens of one sequence. The order of the pipeline is:
// repetition penalty, presence and frequency penalty, bias, temperature (this
// is the distribution that log-probabilities are of), top-k, top-p, min-p,
// draw. It belongs to the engine's loop.
type sampler struct {
	opts      haiku.Sampling
	seed      uint64
	choice    int
	seen      map[int32]bool // tokens in prompt and answer, kept for the repetition penalty only
	generated map[int32]int  // occurrences in the answer, kept for the other penalties only
}

// candidate is a token that may be drawn, with its share relative to the best.
type candidate struct {
	id    int32
	share float64 // exp((logit-best)/temperature), in (0,1]
}

// scratch is what samplers that run one after the other reuse.
type scratch struct {
	candidates []candidate
	lp         haiku.TokenLogprob
}

func newSampler(opts haiku.Sampling, seed uint64, choice int, prompt []int32) *sampler {
	s := &sampler{opts: opts, seed: seed, choice: choice}
	if r := opts.RepetitionPenalty; r != 0 && r != 1 {
		s.seen = make(map[int32]bool, len(prompt))
		for _, id := range prompt {
			s.seen[id] = true
		}
	}
	if opts.PresencePenalty != 0 || opts.FrequencyPenalty != 0 {
		s.generated = make(map[int32]int)
	}
	return s
}

// next chooses the token at a position from logits, [vocab], which it changes.
// The choice depends on the logits, the seed, the choice's index and the
// position alone.
func (s *sampler) next(logits []float32, position int, tmp *scratch) (int32, error) {
	s.adjust(logits)
	best, err := argmax(logits)
	if err != nil {
		return 0, err
	}
	id := best
	if s.opts.Temperature > 0 {
		tmp.candidates = s.candidates(tmp.candidates[:0], logits, logits[best])
		id = draw(tmp.candidates, uniform(s.seed, s.choice, position))
	}
	if s.seen != nil {
		s.seen[id] = true
	}
	if s.generated != nil {
		s.generated[id]++
	}
	return id, nil
}

// adjust applies what changes single logits.
func (s *sampler) adjust(logits []float32) {
	for id := range s.seen {
		if l := float64(logits[id]); l > 0 {
			logits[id] = float32(l / s.opts.RepetitionPenalty)
		} else {
			logits[id] = float32(l * s.opts.RepetitionPenalty)
		}
	}
	for id, n := range s.generated {
		logits[id] -= float32(s.opts.PresencePenalty + s.opts.FrequencyPenalty*float64(n))
	}
	for id, b := range s.opts.LogitBias {
		logits[id] += b
	}
}

// argmax returns the lowest id with the highest logit. Logits of −Inf forbid a
// token; NaN, +Inf or nothing but −Inf is an error.
func argmax(logits []float32) (int32, error) {
	best := 0
	for i, l := range logits {
		if l > logits[best] {
			best = i
		} else if l != l {
			return 0, errBadLogits
		}
	}
	if len(logits) == 0 || math.IsInf(float64(logits[best]), 0) {
		return 0, errBadLogits
	}
	return int32(best), nil
}

// candidates appends the tokens left after truncation, in order of their ids
// or, where something was cut, of their probability.
func (s *sampler) candidates(dst []candidate, logits []float32, best float32) []candidate {
	sum := 0.0
	for id, l := range logits {
		share := math.Exp(float64(l-best) / s.opts.Temperature)
		if share > 0 && share >= s.opts.MinP {
			dst = append(dst, candidate{int32(id), share})
		}
		sum += share
	}
	topP := s.opts.TopP
	topP = min(topP, 1)
	cutK := s.opts.TopK > 0 && s.opts.TopK < len(dst)
	if cutP := topP > 0 && topP < 1; !cutK && !cutP {
		return dst
	} else if cutP && !cutK {
		// All tokens below this bound together are less than 1−P, so none of
		// them is needed to reach P, and the sort is short.
		bound := (1 - topP) * sum / float64(len(logits))
		dst = slices.DeleteFunc(dst, func(c candidate) bool { return c.share < bound && c.share < 1 })
	}
	if cutK {
		dst = bestOf(dst, s.opts.TopK)
	}
	slices.SortFunc(dst, func(a, b candidate) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	if cutK {
		sum = total(dst)
	}
	return nucleus(dst, topP, sum)
}

// before orders candidates: the most probable first, equal ones by id.
func (c candidate) before(d candidate) bool {
	return c.share > d.share || (c.share == d.share && c.id < d.id)
}

// bestOf returns the k first of cs in no order. It keeps them in a heap with
// the last of them on top, so that most of a large vocabulary costs one
// comparison each.
func bestOf(cs []candidate, k int) []candidate {
	heap := cs[:k]
	sink := func(i int) {
		for {
			last := i
			for child := 2*i + 1; child <= 2*i+2 && child < k; child++ {
				if heap[last].before(heap[child]) {
					last = child
				}
			}
			if last == i {
				return
			}
			heap[i], heap[last] = heap[last], heap[i]
			i = last
		}
	}
	for i := k/2 - 1; i >= 0; i-- {
		sink(i)
	}
	for _, c := range cs[k:] {
		if c.before(heap[0]) {
			heap[0] = c
			sink(0)
		}
	}
	return heap
}

// nucleus keeps the first candidates whose shares reach p of sum.
func nucleus(sorted []candidate, p, sum float64) []candidate {
	if p <= 0 || p >= 1 {
		return sorted
	}
	reached := 0.0
	for i, c := range sorted {
		if reached += c.share; reached >= p*sum {
			return sorted[:i+1]
		}
	}
	return sorted
}

func total(cs []candidate) (sum float64) {
	for _, c := range cs {
		sum += c.share
	}
	return sum
}

// draw picks the candidate in whose part of the whole u, in [0,1), falls.
func draw(cs []candidate, u float64) int32 {
	left := u * total(cs)
	for _, c := range cs {
		if left -= c.share; left < 0 {
			return c.id
		}
	}
	return cs[len(cs)-1].id // rounding left a crumb
}

// uniform is a counter-based random number in [0,1): a hash of where it is
// used, so that it does not matter what else was drawn in between.
func uniform(seed uint64, choice, position int) float64 {
	x := mix(seed ^ mix(uint64(choice)+1))
	x = mix(x + uint64(position))
	return float64(x>>11) / (1 << 53)
}

// mix is the finaliser of SplitMix64 (Steele, Lea, Flood 2014) after one step
// of its Weyl sequence.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// logprob fills tmp with the log-probability of id and of the top alternatives
// in the distribution of the adjusted logits at the sampler's temperature.
func (s *sampler) logprob(logits []float32, id int32, top int, tmp *scratch) *haiku.TokenLogprob {
	t := s.opts.Temperature
	if t <= 0 {
		t = 1
	}
	best, _ := argmax(logits) // next has found it sound
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l-logits[best]) / t)
	}
	logSum := math.Log(sum)
	of := func(id int32) float32 {
		lp := float64(logits[id]-logits[best])/t - logSum
		return float32(max(lp, -9999)) // JSON has no −Inf; OpenAI writes −9999
	}
	tmp.lp.ID, tmp.lp.Logprob, tmp.lp.Top = id, of(id), tmp.lp.Top[:0]
	for len(tmp.lp.Top) < min(top, len(logits)) {
		next := nextBest(logits, tmp.lp.Top)
		tmp.lp.Top = append(tmp.lp.Top, haiku.TokenLogprob{ID: next, Logprob: of(next)})
	}
	return &tmp.lp
}

// nextBest returns the best token after those in ranked, which are in order.
func nextBest(logits []float32, ranked []haiku.TokenLogprob) int32 {
	best := int32(-1)
	last := int32(-1)
	if n := len(ranked); n > 0 {
		last = ranked[n-1].ID
	}
	for i, l := range logits {
		id := int32(i)
		after := last < 0 || l < logits[last] || (l == logits[last] && id > last)
		if after && (best < 0 || l > logits[best]) {
			best = id
		}
	}
	return best
}
