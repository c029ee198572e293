package infer

import (
	"time"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/batch"
)

// arrived is what the queue knows of a job from its submission on.
type arrived struct {
	at       time.Time
	deadline time.Time      // of the first token; zero for none
	decision batch.Decision // by which it was accepted
}

// accept decides whether j may wait, and remembers by which prediction. The
// caller holds mu.
func (e *Engine) accept(j *job) error {
	if e.life != accepting {
		return haiku.ErrClosed.Because(ErrClosed)
	}
	j.at = time.Now()
	objective := time.Duration(-1) // none
	if j.objective.TTFT > 0 {
		objective = j.objective.TTFT
		j.deadline = j.at.Add(objective)
	}
	j.decision = e.admission.Decide(batch.Request{
		PromptTokens: e.toCompute(len(j.prompt)), MaxTokens: j.limit - len(j.prompt), TTFTObjective: objective,
	}, e.backlog(j))
	if !j.decision.Admit {
		return refusal(j.decision, len(e.queued))
	}
	return nil
}

// refusal is what a client learns that has to come back later.
func refusal(d batch.Decision, waiting int) error {
	var err *haiku.Error
	switch d.Reason {
	case batch.TooLate, batch.Unreachable:
		err = haiku.ErrTooBusy.With("", "the first token would take about %v, %v are asked for", d.LikelyTTFT.Round(time.Millisecond), d.Objective)
	default:
		err = haiku.ErrTooBusy.With("", "%d requests are waiting already", waiting)
	}
	err.RetryAfter = d.RetryAfter
	return err
}

// toCompute is how many of a prompt's tokens are expected not to be in the
// prefix cache: what is in it belongs to the loop, so the past has to do.
func (e *Engine) toCompute(tokens int) int {
	if e.stats.PromptTokens == 0 {
		return tokens
	}
	found := float64(e.stats.ReusedTokens) / float64(e.stats.PromptTokens)
	return max(1, int(float64(tokens)*(1-found)))
}

// backlog is what stands before j. The caller holds mu.
func (e *Engine) backlog(j *job) batch.Backlog {
	b := e.load
	b.StepTokenBudget, b.MaxSequences = e.opts.MaxBatchTokens, e.opts.MaxSequences
	b.MinPrefillTokens = max(1, e.opts.MaxBatchTokens-e.opts.MaxSequences)
	b.TotalKVTokens = e.spec.Blocks * e.spec.BlockTokens
	for other := range e.queued {
		if other.before(j) {
			b.QueuedRequests += other.open
			b.QueuedPromptTokens += e.toCompute(len(other.prompt))
		}
	}
	return b
}

// before reports whether j, which came earlier, is served before a new job.
func (j *job) before(later *job) bool {
	if j.objective.Priority != later.objective.Priority {
		return j.objective.Priority < later.objective.Priority
	}
	return later.deadline.IsZero() || (!j.deadline.IsZero() && !j.deadline.After(later.deadline))
}

// weigh measures what runs, for later backlogs. The caller holds mu.
func (e *Engine) weigh(idleBlocks int) {
	e.load = batch.Backlog{RunningSequences: len(e.running), FreeKVTokens: idleBlocks * e.spec.BlockTokens}
	for _, s := range e.running {
		made := max(0, len(s.Tokens)-len(s.job.prompt))
		if made == 0 {
			e.load.RunningPrefillTokens += len(s.Tokens) - s.Computed
		}
		if !s.job.embeds {
			e.load.ExpectedDecodeTokens += e.admission.ExpectedLeft(made, s.job.limit-len(s.job.prompt))
		}
	}
}

// began tells the admission how good its prediction was.
func (e *Engine) began(j *job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.admission.ObserveTTFT(j.decision, time.Since(j.at))
}

// expire ends jobs that have waited too long for their first step.
func (e *Engine) expire(j *job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if j.stage != waiting {
		return
	}
	err := haiku.ErrTooBusy.With("", "the request has waited for %v", e.opts.QueueTimeout)
	err.RetryAfter = max(e.admission.Predict(batch.Request{PromptTokens: len(j.prompt)}, e.backlog(j)), time.Millisecond)
	e.complete(j, err)
}
