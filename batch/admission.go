package batch

import (
	"math"
	"time"
)

// MaxRetryAfter is the longest Decision.RetryAfter. A client that could be
// told to come back later still had better ask another replica.
const MaxRetryAfter = time.Minute

const (
	minRetryAfter  = time.Millisecond
	coldRetryAfter = time.Second // while nothing is known about the engine's speed

	defaultAttainment   = 0.95
	defaultOutputTokens = 128
	defaultStepMemory   = 256
)

// Admission decides whether an engine with continuous batching takes on one
// more request. It learns what a step costs and how long answers are, predicts
// from the backlog when a new request would have its first token, and refuses
// at once, with the time to come back, what would miss its objective: a late
// refusal costs the client its patience and the engine a prefill in vain.
//
// The zero value admits everything: limits are set by its fields, and the
// objective by TTFTObjective or by each request. The fields must not change
// after the first call.
//
// Nothing here reads a clock or starts a goroutine; every result is a function
// of what was observed and of the arguments, and no method allocates. An
// Admission is not safe for concurrent use. It belongs to whoever owns the
// queue, usually the engine's loop or its mutex.
//
// # Prediction
//
// A step computes one token for each decoding sequence and prefill tokens up
// to its budget, and takes base + p·prefill + d·decodes, learnt from the steps
// observed. The time to first token is then made of
//
//   - steps until a place is free, if all are taken: by Little's law a batch of
//     N sequences whose outputs have a mean of L tokens frees N/L places per
//     step. KV memory frees at the same pace.
//   - steps to prefill what is ahead and the prompt itself, at the rate that the
//     budget leaves beside decodes. They pass while the request waits for its
//     place, except for those of its own prompt;
//   - half a step, on average, of the step that runs while the request arrives.
//
// and the cost of those steps: the base of each, all the prefill ahead, and the
// decodes of a number of sequences that drifts from those running now to those
// that the queue feeds.
type Admission struct {
	// MaxQueuedRequests limits the requests that wait: with so many in the queue
	// a new one is refused. 0 sets no limit.
	MaxQueuedRequests int
	// MaxQueuedTokens limits the prompt tokens that wait, the new request's
	// included. A request longer than the limit is still taken while nothing
	// waits, for it would never be taken otherwise. 0 sets no limit.
	MaxQueuedTokens int
	// TTFTObjective is the time to first token, from the decision on, of
	// requests that name none. 0 means no objective.
	TTFTObjective time.Duration
	// Attainment is the share of admitted requests that should meet their
	// objective, in (0, 1). The prediction is a middling one; how far above it
	// this share of requests ends is learnt by ObserveTTFT. 0 means 0.95.
	Attainment float64
	// Prior is what a step is believed to cost before any was observed, and
	// what remains believed of the terms that no step has shown yet. Zero is
	// optimistic: nothing takes time until it was seen to.
	Prior StepCost
	// PriorOutputTokens is the mean length of answers before any was observed.
	// 0 means 128.
	PriorOutputTokens int
	// Memory is over how many steps, and how many answers, experience fades to
	// 1/e. Short memories follow changes, long ones are less noisy. 0 means 256.
	Memory int

	steps   stepFit
	outputs int     // answers observed
	output  float64 // their mean length in tokens, fading
	excess  float64 // log of the Attainment quantile of actual/predicted
}

// Request is what Decide needs to know about a new request.
type Request struct {
	// PromptTokens is the tokens to prefill: the prompt without what a prefix
	// cache already holds.
	PromptTokens int
	// MaxTokens bounds the tokens that it generates. 0 means no bound.
	MaxTokens int
	// KVTokens is the KV memory, in tokens, that must be free for it to start:
	// prompt and MaxTokens in an engine that reserves for the longest answer.
	// 0 means the prompt and the expected answer.
	KVTokens int
	// TTFTObjective is the time to first token that it must meet. 0 means
	// Admission.TTFTObjective, a negative one none at all.
	TTFTObjective time.Duration
}

// Backlog is what stands before a new request when it arrives. A queue with
// priorities counts only what would be served before it. Work of a step that is
// running counts as not done yet. Negative numbers count as 0.
type Backlog struct {
	// QueuedRequests is the requests ahead that have no place in the batch yet.
	QueuedRequests int
	// QueuedPromptTokens is their prompt tokens to prefill.
	QueuedPromptTokens int
	// QueuedKVTokens is the KV memory, in tokens, that they will take. 0 means
	// their prompts and an expected answer each.
	QueuedKVTokens int

	// RunningSequences is the sequences that have a place, decoding or not yet.
	RunningSequences int
	// RunningPrefillTokens is the prompt tokens that they still have to prefill.
	RunningPrefillTokens int
	// ExpectedDecodeTokens is the tokens that they will still generate, all
	// together, at least one each: the sum of Admission.ExpectedLeft. Where
	// nothing is known, RunningSequences times ExpectedOutput will do.
	ExpectedDecodeTokens int

	// StepTokenBudget is the tokens that a step computes at most, decodes
	// first. 0 means no bound: whole prompts in one step.
	StepTokenBudget int
	// MinPrefillTokens is what the scheduler gives prefill in every step however
	// many sequences decode. 0 means 1.
	MinPrefillTokens int
	// MaxSequences is the places of the batch. 0 means no bound.
	MaxSequences int
	// TotalKVTokens is the KV memory in tokens; 0 means that memory does not
	// limit the batch, and FreeKVTokens is not looked at.
	TotalKVTokens int
	// FreeKVTokens is the part of it that no running sequence holds.
	FreeKVTokens int
}

// Reason says why a request was refused.
type Reason uint8

const (
	// Admitted is the reason of requests that were not refused.
	Admitted Reason = iota
	// QueueFull means that MaxQueuedRequests wait.
	QueueFull
	// TokensFull means that more than MaxQueuedTokens would wait.
	TokensFull
	// TooLate means that the backlog would make the request miss its objective.
	TooLate
	// Unreachable means that it would miss its objective on an idle engine too:
	// the prompt is too long for it.
	Unreachable
	// TooLarge means that it does not fit into the KV memory at all.
	TooLarge
)

// String returns a word or two for logs and metrics.
func (r Reason) String() string {
	switch r {
	case Admitted:
		return "admitted"
	case QueueFull:
		return "queue full"
	case TokensFull:
		return "queued tokens full"
	case TooLate:
		return "too late"
	case Unreachable:
		return "objective unreachable"
	case TooLarge:
		return "too large"
	}
	return "unknown"
}

// Decision is the answer of Decide.
type Decision struct {
	// Admit says whether to take the request on.
	Admit bool
	// Reason says why not.
	Reason Reason
	// PredictedTTFT is the expected time to first token, from now on.
	PredictedTTFT time.Duration
	// LikelyTTFT is what the share Attainment of such requests stays within. It
	// is what was compared with the objective.
	LikelyTTFT time.Duration
	// Objective is the one that held for the request, 0 if none did.
	Objective time.Duration
	// RetryAfter is, for a refused request, when the backlog will have drained
	// enough for it if nobody else comes: between 1 ms and MaxRetryAfter, which
	// it is where waiting does not help (Unreachable, TooLarge), and 1 s while
	// the engine's speed is unknown. It is 0 for an admitted request.
	RetryAfter time.Duration
}

// Decide says whether to take on a request that arrives behind the backlog.
func (a *Admission) Decide(r Request, b Backlog) Decision {
	b = b.sane()
	predicted := a.predict(r, b)
	d := Decision{
		PredictedTTFT: secondsDuration(predicted),
		LikelyTTFT:    secondsDuration(predicted * math.Exp(a.excess)),
		Objective:     a.objective(r),
	}
	d.Reason = a.reason(r, b, d)
	d.Admit = d.Reason == Admitted
	if !d.Admit {
		d.RetryAfter = a.retryAfter(d, r, b)
	}
	return d
}

// Predict returns the expected time to first token of a request that arrives
// behind the backlog: 0 while nothing is known about the engine.
func (a *Admission) Predict(r Request, b Backlog) time.Duration {
	return secondsDuration(a.predict(r, b.sane()))
}

func (a *Admission) objective(r Request) time.Duration {
	if r.TTFTObjective != 0 {
		return max(0, r.TTFTObjective)
	}
	return max(0, a.TTFTObjective)
}

func (a *Admission) reason(r Request, b Backlog, d Decision) Reason {
	late := d.Objective > 0 && d.LikelyTTFT > d.Objective
	switch {
	case b.TotalKVTokens > 0 && a.kvTokens(r) > float64(b.TotalKVTokens):
		return TooLarge
	case late && secondsDuration(a.predict(r, b.idle())*math.Exp(a.excess)) > d.Objective:
		return Unreachable
	case a.MaxQueuedRequests > 0 && b.QueuedRequests >= a.MaxQueuedRequests:
		return QueueFull
	case a.excessTokens(r, b) > 0:
		return TokensFull
	case late:
		return TooLate
	}
	return Admitted
}

// excessTokens is by how much the request would exceed MaxQueuedTokens.
func (a *Admission) excessTokens(r Request, b Backlog) float64 {
	if a.MaxQueuedTokens <= 0 || b.QueuedRequests == 0 {
		return 0
	}
	return max(0, float64(b.QueuedPromptTokens)+float64(max(0, r.PromptTokens))-float64(a.MaxQueuedTokens))
}

// retryAfter returns when everything that speaks against the request will be
// over. A queue served in order drains as time passes, so that a prediction
// too long by a second is short enough after a second.
func (a *Admission) retryAfter(d Decision, r Request, b Backlog) time.Duration {
	if d.Reason == Unreachable || d.Reason == TooLarge {
		return MaxRetryAfter
	}
	if !a.warm() {
		return coldRetryAfter
	}
	var wait float64
	if d.Objective > 0 {
		wait = d.PredictedTTFT.Seconds() - d.Objective.Seconds()/math.Exp(a.excess)
	}
	mean := float64(b.QueuedPromptTokens) / float64(max(1, b.QueuedRequests))
	if a.MaxQueuedRequests > 0 {
		wait = max(wait, a.untilLeft(b.QueuedRequests+1-a.MaxQueuedRequests, mean, b))
	}
	if tokens := a.excessTokens(r, b); tokens > 0 {
		leave := math.Ceil(tokens / max(1, mean))
		wait = max(wait, a.untilLeft(int(min(leave, float64(b.QueuedRequests))), mean, b))
	}
	return min(max(secondsDuration(wait), minRetryAfter), MaxRetryAfter)
}

// untilLeft returns the seconds until so many of the queued requests, each
// with the mean prompt, have their first tokens.
func (a *Admission) untilLeft(requests int, meanPrompt float64, b Backlog) float64 {
	if requests <= 0 {
		return 0
	}
	share := float64(requests-1) / float64(max(1, b.QueuedRequests))
	b.QueuedRequests = requests - 1
	b.QueuedPromptTokens = int(share * float64(b.QueuedPromptTokens))
	b.QueuedKVTokens = int(share * float64(b.QueuedKVTokens))
	return a.predict(Request{PromptTokens: int(meanPrompt)}, b)
}

// secondsDuration returns seconds ≥ 0 as a Duration, the longest one if it is more.
func secondsDuration(seconds float64) time.Duration {
	if ns := seconds * float64(time.Second); ns < math.MaxInt64 {
		return max(0, time.Duration(ns))
	}
	return math.MaxInt64
}
