//go:build unix

package main

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/intelliparadigm/haiku/batch"
	"github.com/intelliparadigm/haiku/internal/schedule"
)

// device is what a step takes on a made-up device, as in haikutest.Costs.
type device struct {
	step, prefillToken, decode time.Duration
}

// gpu is about what an 8-billion-parameter model takes on one accelerator of a
// data centre: 8 ms to read its weights, and 4,000 prompt tokens in 80 ms.
var gpu = device{step: 8 * time.Millisecond, prefillToken: 20 * time.Microsecond, decode: 50 * time.Microsecond}

// visit is one request of a simulated run.
type visit struct {
	at     time.Duration // since the beginning
	prompt []int32
	output int // tokens

	seq      schedule.Seq
	decision batch.Decision
	tokens   []time.Duration // when each token came, since the beginning
	refused  bool
}

// ttft is the time to first token.
func (v *visit) ttft() time.Duration { return v.tokens[0] - v.at }

// simulation runs the scheduler of the engine, and its admission, in virtual
// time: exactly the code that serves, without goroutines around it.
type simulation struct {
	schedule.Config
	device
	admission *batch.Admission // nil admits all
	objective time.Duration
	live      []*visit // accepted and not answered
}

// run serves all visits, in order of arrival, and returns how long that took.
func (sim *simulation) run(visits []*visit) time.Duration {
	plan := schedule.New(sim.Config)
	epoch := time.Unix(0, 0)
	now, next := time.Duration(0), 0
	for {
		for ; next < len(visits) && visits[next].at <= now; next++ {
			sim.arrive(plan, visits[next], epoch.Add(now))
		}
		step := plan.Next(epoch.Add(now))
		if len(step.Items) == 0 {
			if next == len(visits) {
				return now
			}
			now = visits[next].at
			continue
		}
		now += sim.cost(step)
		for i := range step.Items {
			sim.done(plan, &step.Items[i], now)
		}
	}
}

func (sim *simulation) arrive(plan *schedule.Scheduler, v *visit, now time.Time) {
	if sim.admission != nil {
		if v.decision = sim.decide(plan, v); !v.decision.Admit {
			v.refused = true
			return
		}
	}
	v.seq = schedule.Seq{Owner: v, Tokens: slices.Clone(v.prompt), Limit: len(v.prompt) + v.output}
	plan.Add(&v.seq, now)
	sim.live = append(sim.live, v)
}

// decide asks the admission as the engine does.
func (sim *simulation) decide(plan *schedule.Scheduler, v *visit) batch.Decision {
	b := batch.Backlog{
		StepTokenBudget: sim.StepTokens, MinPrefillTokens: sim.StepTokens - sim.MaxSequences, MaxSequences: sim.MaxSequences,
		TotalKVTokens: sim.Blocks * sim.BlockTokens, FreeKVTokens: plan.Counts().IdleBlocks * sim.BlockTokens,
	}
	for _, other := range sim.live {
		if other.seq.Waiting() {
			b.QueuedRequests++
			b.QueuedPromptTokens += len(other.prompt)
			continue
		}
		b.RunningSequences++
		b.ExpectedDecodeTokens += sim.admission.ExpectedLeft(len(other.tokens), 0)
		if len(other.tokens) == 0 {
			b.RunningPrefillTokens += len(other.prompt) - other.seq.Computed
		}
	}
	return sim.admission.Decide(batch.Request{PromptTokens: len(v.prompt), TTFTObjective: sim.objective}, b)
}

func (sim *simulation) cost(step *schedule.Step) time.Duration {
	cost, done := sim.step, batch.Step{}
	for i := range step.Items {
		if it := &step.Items[i]; it.Seq.Decodes() {
			cost += sim.decode
			done.DecodeTokens++
		} else {
			cost += time.Duration(it.N) * sim.prefillToken
			done.PrefillTokens += it.N
		}
	}
	if sim.admission != nil {
		done.Duration = cost
		sim.admission.Observe(done)
	}
	return cost
}

func (sim *simulation) done(plan *schedule.Scheduler, it *schedule.Item, now time.Duration) {
	v, last := it.Seq.Owner.(*visit), it.Last()
	plan.Done(it.Seq, it.N)
	if !last {
		return
	}
	plan.Append(it.Seq, int32(len(v.tokens)))
	v.tokens = append(v.tokens, now)
	if sim.admission != nil && len(v.tokens) == 1 {
		sim.admission.ObserveTTFT(v.decision, v.ttft())
	}
	if len(v.tokens) == v.output {
		if sim.admission != nil {
			sim.admission.ObserveOutput(v.output)
		}
		plan.Remove(it.Seq)
		sim.live = slices.DeleteFunc(sim.live, func(other *visit) bool { return other == v })
	}
}

// poissonVisits makes visits at a rate per second for a span; shape gives the lengths
// of prompt and answer. All prompts are different from the first token on.
func poissonVisits(random *rand.Rand, rate float64, span time.Duration, shape func(*rand.Rand) (prompt, output int)) []*visit {
	var list []*visit
	for at := time.Duration(0); ; {
		at += time.Duration(random.ExpFloat64() / rate * float64(time.Second))
		if at > span {
			return list
		}
		prompt, output := shape(random)
		list = append(list, newVisit(at, len(list), prompt, output))
	}
}

func newVisit(at time.Duration, number, prompt, output int) *visit {
	v := &visit{at: at, prompt: make([]int32, max(prompt, 1)), output: max(output, 1)}
	v.prompt[0] = int32(number)
	return v
}
