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

// accept decides whether j may wait, and remembers by which prediction. tokens
// are those of its prompt and of what belongs to it. The caller holds mu.
func (e *Engine) accept(j *job, tokens int) error {
	if e.life != accepting {
		return haiku.ErrClosed.Because(ErrClosed)
	}
	j.at = time.Now()
	if err := e.full(tokens); err != nil {
		return err
	}
	objective := time.Duration(-1) // none
	if j.objective.TTFT > 0 {
		objective = j.objective.TTFT
		j.deadline = j.at.Add(objective)
	}
	j.decision = e.admission.Decide(batch.Request{
		PromptTokens: e.toCompute(tokens), MaxTokens: j.limit - len(j.prompt), TTFTObjective: objective,
	}, e.backlog(func(other *job) bool { return other.before(j) }))
	if d := j.decision; !d.Admit {
		err := haiku.ErrTooBusy.With("", "the first token would take about %v, %v are asked for", d.LikelyTTFT.Round(time.Millisecond), d.Objective)
		err.RetryAfter = d.RetryAfter
		return err
	}
	return nil
}

// full reports that no more requests, or no more tokens, may wait. Those whose
// adapters are on their way are bounded by themselves: they are in nobody's way.
// The time to come back is when about one has left. The caller holds mu.
func (e *Engine) full(tokens int) error {
	waiting, queued := len(e.queued)-e.held, 0
	for j := range e.queued {
		if !j.held {
			queued += len(j.prompt)
		}
	}
	limit := e.opts.MaxQueuedTokens
	if waiting < e.opts.MaxQueued && (limit <= 0 || waiting == 0 || queued+tokens <= limit) {
		return nil
	}
	err := haiku.ErrTooBusy.With("", "%d requests with %d tokens are waiting already", waiting, queued)
	err.RetryAfter = time.Second // while nothing is known
	if all := e.admission.Predict(batch.Request{PromptTokens: 1}, e.backlog(func(*job) bool { return true })); all > 0 {
		err.RetryAfter = min(max(all/time.Duration(max(waiting, 1)), time.Millisecond), batch.MaxRetryAfter)
	}
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

// backlog is what runs, and what waits as far as it counts. The caller holds mu.
func (e *Engine) backlog(counts func(*job) bool) batch.Backlog {
	b := e.load
	b.StepTokenBudget, b.MaxSequences = e.opts.MaxBatchTokens, e.opts.MaxSequences
	b.MinPrefillTokens = max(1, e.opts.MaxBatchTokens-e.opts.MaxSequences)
	b.TotalKVTokens = e.spec.Blocks * e.spec.BlockTokens
	for other := range e.queued {
		if !other.held && counts(other) {
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
	predicted := e.admission.Predict(batch.Request{PromptTokens: len(j.prompt)}, e.backlog(func(other *job) bool { return other.before(j) }))
	err.RetryAfter = min(max(predicted, time.Millisecond), batch.MaxRetryAfter)
	e.complete(j, err)
}
