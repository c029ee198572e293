package batch

import "math"

// sane returns the backlog without negative numbers.
func (b Backlog) sane() Backlog {
	for _, n := range [...]*int{
		&b.QueuedRequests, &b.QueuedPromptTokens, &b.QueuedKVTokens,
		&b.RunningSequences, &b.RunningPrefillTokens, &b.ExpectedDecodeTokens,
		&b.StepTokenBudget, &b.MinPrefillTokens, &b.MaxSequences, &b.TotalKVTokens, &b.FreeKVTokens,
	} {
		*n = max(0, *n)
	}
	b.FreeKVTokens = min(b.FreeKVTokens, b.TotalKVTokens)
	return b
}

// idle returns the backlog of the same engine without any work.
func (b Backlog) idle() Backlog {
	return Backlog{
		StepTokenBudget: b.StepTokenBudget, MinPrefillTokens: b.MinPrefillTokens, MaxSequences: b.MaxSequences,
		TotalKVTokens: b.TotalKVTokens, FreeKVTokens: b.TotalKVTokens,
	}
}

// predict returns the seconds to the first token of r. It never falls when
// work is added to the backlog.
func (a *Admission) predict(r Request, b Backlog) float64 {
	cost := a.cost()
	queued, running := float64(b.QueuedRequests), float64(b.RunningSequences)
	own := float64(max(1, r.PromptTokens)) // what a cache holds whole takes a step too
	prefill := float64(b.RunningPrefillTokens) + float64(b.QueuedPromptTokens) + own

	perStep := b.prefillPerStep()
	steps := max(1, math.Ceil(prefill/perStep), a.stepsToPlace(r, b)+max(1, math.Ceil(own/perStep)))
	seconds := cost[baseTerm]*steps + cost[prefillTerm]*prefill + cost[decodeTerm]*a.decodes(steps, b)
	if running+queued > 0 {
		seconds += (cost[baseTerm] + cost[decodeTerm]*running) / 2 // of the step that runs now
	}
	return seconds
}

// places returns MaxSequences, +Inf without a bound.
func (b Backlog) places() float64 {
	if b.MaxSequences == 0 {
		return math.Inf(1)
	}
	return float64(b.MaxSequences)
}

// prefillPerStep returns the prompt tokens that a step has room for beside the
// sequences that decode: those running, and on average half of those queued,
// which join them one by one.
func (b Backlog) prefillPerStep() float64 {
	if b.StepTokenBudget == 0 {
		return math.Inf(1)
	}
	decoding := min(b.places(), float64(b.RunningSequences)+float64(b.QueuedRequests)/2)
	least := min(float64(max(1, b.MinPrefillTokens)), float64(b.StepTokenBudget))
	return max(least, float64(b.StepTokenBudget)-decoding)
}

// stepsToPlace returns the steps until the requests ahead and r have places
// and memory: those it lacks come free as sequences end, one per mean output
// length and sequence.
func (a *Admission) stepsToPlace(r Request, b Backlog) float64 {
	running, places := float64(b.RunningSequences), b.places()
	var steps float64
	if lacking := running + float64(b.QueuedRequests) + 1 - places; lacking > 0 {
		steps = a.tokensToEnd(lacking, b) / places
	}
	if lacking := a.lackingMemory(r, b); lacking > 0 {
		steps = max(steps, a.tokensToEnd(lacking, b)/min(places, max(1, running)))
	}
	return steps
}

// lackingMemory returns how many sequences must end to free the KV memory that
// the requests ahead and r will take.
func (a *Admission) lackingMemory(r Request, b Backlog) float64 {
	total, free := float64(b.TotalKVTokens), float64(b.FreeKVTokens)
	queued := float64(b.QueuedKVTokens)
	if queued == 0 {
		queued = float64(b.QueuedPromptTokens) + float64(b.QueuedRequests)*a.meanOutput()
	}
	need := queued + a.kvTokens(r)
	if total == 0 || need <= free {
		return 0
	}
	var ends float64
	if used := total - free; used > 0 {
		ends = float64(b.RunningSequences) * min(1, (need-free)/used)
	}
	if need > total { // all that runs now, and some of those queued
		ends += (need - total) / need * float64(b.QueuedRequests+1)
	}
	return ends
}

func (a *Admission) kvTokens(r Request) float64 {
	if r.KVTokens > 0 {
		return float64(r.KVTokens)
	}
	return float64(max(1, r.PromptTokens)) + float64(a.ExpectedOutput(r.MaxTokens))
}

// tokensToEnd returns the tokens generated until so many sequences have ended,
// first those that run, then those that took their places.
func (a *Admission) tokensToEnd(sequences float64, b Backlog) float64 {
	mean := a.meanOutput()
	running := float64(b.RunningSequences)
	later := max(0, sequences-running) * mean
	if running == 0 {
		return later
	}
	// In a steady state sequences end at the rate of running/mean per step,
	// however their lengths are distributed. What is left of those running lies
	// between half of that (all outputs equally long) and all of it
	// (memoryless); outside this range they are not like the past's, and what
	// the caller knows about them counts.
	left := max(running, float64(b.ExpectedDecodeTokens))
	left = min(max(running*mean, left), 2*left)
	return min(1, sequences/running)*left + later
}

// decodes returns the tokens decoded in the given steps while the queue ahead
// enters the batch evenly and sequences leave at random after their mean
// output: with u steps/mean, a sequence that runs decodes the share
// (1−e^(−u))/u of the steps, and one that enters at a random step the rest.
func (a *Admission) decodes(steps float64, b Backlog) float64 {
	mean := a.meanOutput()
	u := steps / mean
	stays := 1 - u/2
	if u > 1e-6 {
		stays = -math.Expm1(-u) / u
	}
	tokens := float64(b.RunningSequences)*steps*stays + float64(b.QueuedRequests)*mean*(1-stays)
	return min(tokens, b.places()*steps)
}
