package infer

import (
	"errors"
	"math"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/internal/splitmix"
)

// errBadLogits reports logits that no distribution can be made of.
var errBadLogits = errors.New("infer: no token is left whose logit is finite, or one is no number")

// sampler chooses the tokens of one sequence. It belongs to the engine's loop.
//
// The pipeline, l being the logits of one position:
//
//  1. repetition penalty r, on tokens of prompt and answer: l/r if l > 0, else l·r
//  2. presence penalty and frequency penalty f, on tokens that occurred n > 0
//     times in the answer: l - presence - f·n
//  3. bias: l + bias
//  4. mask: l = −∞ for tokens outside it
//  5. temperature t: p = softmax(l/t); 0 takes the largest l and ends here
//  6. top-k: the k largest p
//  7. top-p: of those, renormalised, the smallest set of the largest that
//     reaches p
//  8. min-p: of those, the ones with at least min-p times the largest
//  9. typical: of those, renormalised, the smallest set that reaches p of the
//     ones whose −log p is nearest to the entropy (Meister et al. 2022)
//  10. draw one by what is left, renormalised
//
// As in vLLM, and unlike llama.cpp's default, the temperature comes before the
// cuts. Log-probabilities are those of the distribution drawn from; without a
// temperature, of step 4's at temperature 1, since a certain choice would have
// nothing to tell.
type sampler struct {
	opts      haiku.Sampling
	seed      uint64
	choice    int
	seen      map[int32]bool // tokens in prompt and answer, kept for the repetition penalty only
	generated map[int32]int  // occurrences in the answer, kept for the other penalties only
}

// scratch is what samplers that run one after the other reuse.
type scratch struct {
	candidates []candidate // of the last choice
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
	if mask := s.opts.Mask; mask != nil {
		for id := range logits {
			if !mask.Allows(int32(id)) {
				logits[id] = float32(math.Inf(-1))
			}
		}
	}
}

// argmax returns the lowest id with the highest logit. Logits of −∞ forbid a
// token; NaN, +∞ or nothing but −∞ is an error.
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

// candidates appends the tokens that steps 5 to 9 leave.
func (s *sampler) candidates(dst []candidate, logits []float32, best float32) []candidate {
	o := &s.opts
	dst, sum := softmax(dst, logits, best, o.Temperature)
	cutP := o.TopP > 0 && o.TopP < 1
	switch {
	case o.TopK > 0 && o.TopK < len(dst):
		dst = bestOf(dst, o.TopK)
		sortByShare(dst)
		sum = total(dst)
	case cutP:
		dst = plausible(dst, o.TopP, sum)
		sortByShare(dst)
	}
	if cutP {
		dst = reaching(dst, o.TopP*sum)
	}
	if o.MinP > 0 {
		dst = atLeast(dst, o.MinP)
	}
	if o.TypicalP > 0 && o.TypicalP < 1 {
		dst = typical(dst, o.TypicalP)
	}
	return dst
}

// uniform is a counter-based random number in [0,1): a hash of where it is
// used, so that it does not matter what else was drawn in between.
func uniform(seed uint64, choice, position int) float64 {
	x := splitmix.Mix(seed ^ splitmix.Mix(uint64(choice)+1))
	x = splitmix.Mix(x + uint64(position))
	return float64(x>>11) / (1 << 53)
}

// logprob fills tmp with the log-probability of id, which next has just chosen
// from logits, and of up to top of the most probable tokens that it could have
// chosen.
func (s *sampler) logprob(logits []float32, id int32, top int, tmp *scratch) *haiku.TokenLogprob {
	if s.opts.Temperature <= 0 {
		tmp.candidates, _ = softmax(tmp.candidates[:0], logits, logits[id], 1) // id is the best
	}
	logSum := math.Log(total(tmp.candidates))
	of := func(c candidate) float32 {
		return float32(max(math.Log(c.share)-logSum, -9999)) // OpenAI's least
	}
	tmp.lp.ID, tmp.lp.Top = id, tmp.lp.Top[:0]
	for _, c := range tmp.candidates {
		if c.id == id {
			tmp.lp.Logprob = of(c)
		}
	}
	var last candidate
	for i := range min(top, len(tmp.candidates)) {
		last = nextBest(tmp.candidates, last, i == 0)
		tmp.lp.Top = append(tmp.lp.Top, haiku.TokenLogprob{ID: last.id, Logprob: of(last)})
	}
	return &tmp.lp
}

// nextBest returns the first candidate after last, or of all.
func nextBest(cs []candidate, last candidate, first bool) (best candidate) {
	found := false
	for _, c := range cs {
		if (first || last.before(c)) && (!found || c.before(best)) {
			best, found = c, true
		}
	}
	return best
}
