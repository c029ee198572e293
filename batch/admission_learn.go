package batch

import (
	"math"
	"time"
)

// Step is what one step of the engine computed and how long it took.
type Step struct {
	// PrefillTokens is the prompt tokens computed, in all sequences together.
	PrefillTokens int
	// DecodeTokens is the sequences that decoded a token.
	DecodeTokens int
	// Duration is how long the step took, from its start to its results.
	Duration time.Duration
}

// StepCost is what a step takes: Base + PrefillTokens·PerPrefillToken +
// DecodeTokens·PerDecodeToken.
type StepCost struct {
	// Base is what every step takes: launches, reading the weights.
	Base time.Duration
	// PerPrefillToken is the time of one prompt token.
	PerPrefillToken time.Duration
	// PerDecodeToken is the time of one sequence that decodes.
	PerDecodeToken time.Duration
}

// Observe learns from a step. Steps without work or duration teach nothing. One
// that stalls counts as eight times what was expected at most, so that a pause
// of the machine is not mistaken for the engine's speed.
func (a *Admission) Observe(s Step) {
	if s.PrefillTokens < 0 || s.DecodeTokens < 0 || s.PrefillTokens+s.DecodeTokens == 0 || s.Duration <= 0 {
		return
	}
	if a.steps.count == 0 {
		a.steps.cost = priorCost(a.Prior)
	}
	a.steps.observe(costVector{1, float64(s.PrefillTokens), float64(s.DecodeTokens)}, s.Duration.Seconds(), 1-1/a.memory())
}

// Costs returns what steps are believed to cost now, to the nanosecond.
func (a *Admission) Costs() StepCost {
	c := a.cost()
	return StepCost{Base: secondsDuration(c[baseTerm]), PerPrefillToken: secondsDuration(c[prefillTerm]), PerDecodeToken: secondsDuration(c[decodeTerm])}
}

func (a *Admission) cost() costVector {
	if a.steps.count == 0 {
		return priorCost(a.Prior)
	}
	return a.steps.cost
}

func priorCost(c StepCost) costVector {
	return costVector{max(0, c.Base.Seconds()), max(0, c.PerPrefillToken.Seconds()), max(0, c.PerDecodeToken.Seconds())}
}

// warm reports whether anything is known about the engine's speed.
func (a *Admission) warm() bool { return a.cost() != costVector{} }

// memory returns Memory in steps, at least 2.
func (a *Admission) memory() float64 {
	if a.Memory <= 0 {
		return defaultStepMemory
	}
	return float64(max(2, a.Memory))
}

// ObserveOutput learns from an answer that has ended how many tokens it had.
// One cut short because its client left had better not be counted.
func (a *Admission) ObserveOutput(tokens int) {
	if tokens < 0 {
		return
	}
	a.outputs++
	weight := max(1/float64(a.outputs), 1/a.memory()) // a plain mean at first
	a.output += weight * (float64(tokens) - a.output)
}

// meanOutput returns the mean length of answers, at least 1.
func (a *Admission) meanOutput() float64 {
	const most = 1 << 40 // so that what is computed from it fits an int
	switch {
	case a.outputs > 0:
		return min(max(1, a.output), most)
	case a.PriorOutputTokens > 0:
		return min(float64(a.PriorOutputTokens), most)
	}
	return defaultOutputTokens
}

// ExpectedOutput returns how many tokens an answer is expected to have, at
// least 1 and at most maxTokens; a maxTokens of 0 is no bound.
func (a *Admission) ExpectedOutput(maxTokens int) int {
	expected := int(math.Ceil(a.meanOutput()))
	if maxTokens > 0 {
		return min(expected, maxTokens)
	}
	return expected
}

// ExpectedLeft returns how many tokens a sequence that has generated some is
// expected to generate yet, at least 1 and at most what maxTokens leaves: what
// is missing to the mean, but half of the mean at least, since long answers
// have more left than the mean tells.
func (a *Admission) ExpectedLeft(generated, maxTokens int) int {
	mean, generated := a.meanOutput(), max(0, generated)
	left := int(math.Ceil(max(mean-float64(generated), mean/2)))
	if maxTokens > 0 {
		left = min(left, maxTokens-generated)
	}
	return max(1, left)
}

// ObserveTTFT learns from an admitted request how its time to first token
// compares with the prediction, so that LikelyTTFT is what the share Attainment
// stays within. Only requests with an objective at least half used up by the
// prediction count: errors matter where they decide.
func (a *Admission) ObserveTTFT(d Decision, actual time.Duration) {
	if d.Objective <= 0 || d.LikelyTTFT < d.Objective/2 || d.PredictedTTFT <= 0 {
		return
	}
	const pace = 0.01
	share := a.Attainment
	if !(share > 0 && share < 1) {
		share = defaultAttainment
	}
	// Steps in proportion to the other side's share balance when the shares are
	// right. What was promised at the decision is judged, not what would be now:
	// then the balance holds however late the results come, and however much
	// those of neighbours agree (I. Gibbs and E. Candès, Adaptive Conformal
	// Inference Under Distribution Shift, 2021).
	if actual > d.LikelyTTFT {
		a.excess += pace * share
	} else {
		a.excess -= pace * (1 - share)
	}
	a.excess = min(max(a.excess, -maxExcess), maxExcess)
}

// maxExcess keeps LikelyTTFT between an eighth and eight times the prediction:
// the logarithm of 8.
const maxExcess = 3 * math.Ln2
