package batch_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/batch"
)

// engineShape is a simulated engine and the requests that come to it.
type engineShape struct {
	name        string
	places      int
	budget      int
	kvTokens    int // 0: memory does not limit
	meanPrompt  float64
	meanOutput  float64
	equalOutput bool // all as long as the mean, else exponential
	objective   time.Duration
}

type simulatedRequest struct {
	arrived   time.Duration
	prompt    int // left to prefill
	output    int // left to generate
	generated int
	whole     int // answer
	kv        int // prompt and answer
	decision  batch.Decision
	first     time.Duration
}

// simulatedEngine is continuous batching in virtual time, event by event: it
// shares nothing with the prediction but the costs of a step.
type simulatedEngine struct {
	engineShape
	rng       *rand.Rand
	mix       []*simulatedRequest // what requests are like, if not by the shape
	admission *batch.Admission    // nil admits everything
	now       time.Duration
	queue     []*simulatedRequest
	running   []*simulatedRequest
	freeKV    int

	refused int
	served  []*simulatedRequest // have their first token
	ended   int
	from    time.Duration // counts begin here
}

func (e *simulatedEngine) newRequest(at time.Duration) *simulatedRequest {
	if len(e.mix) > 0 {
		like := e.mix[e.rng.IntN(len(e.mix))]
		return &simulatedRequest{arrived: at, prompt: like.kv - like.whole, output: like.whole, whole: like.whole, kv: like.kv}
	}
	output := e.meanOutput
	if !e.equalOutput {
		output *= e.rng.ExpFloat64()
	}
	// Lognormal prompts: many short ones, few long.
	prompt := e.meanPrompt * math.Exp(0.8*e.rng.NormFloat64()-0.32)
	r := &simulatedRequest{arrived: at, prompt: 1 + int(min(prompt, 6*e.meanPrompt)), output: 1 + int(output)}
	r.kv, r.whole = r.prompt+r.output, r.output
	return r
}

func (e *simulatedEngine) backlog() batch.Backlog {
	b := batch.Backlog{StepTokenBudget: e.budget, MaxSequences: e.places, TotalKVTokens: e.kvTokens, FreeKVTokens: e.freeKV,
		QueuedRequests: len(e.queue), RunningSequences: len(e.running)}
	for _, r := range e.queue {
		b.QueuedPromptTokens += r.prompt
		b.QueuedKVTokens += r.kv
	}
	for _, r := range e.running {
		b.RunningPrefillTokens += r.prompt
		b.ExpectedDecodeTokens += e.admission.ExpectedLeft(r.generated, 0)
	}
	return b
}

func (e *simulatedEngine) arrive(r *simulatedRequest) {
	if e.admission != nil {
		r.decision = e.admission.Decide(batch.Request{PromptTokens: r.prompt, KVTokens: r.kv}, e.backlog())
		if !r.decision.Admit {
			e.refused++
			return
		}
	}
	e.queue = append(e.queue, r)
}

// start gives places in order of arrival.
func (e *simulatedEngine) start() {
	for len(e.queue) > 0 && len(e.running) < e.places && (e.kvTokens == 0 || e.queue[0].kv <= e.freeKV) {
		e.freeKV -= e.queue[0].kv
		e.running = append(e.running, e.queue[0])
		e.queue = e.queue[1:]
	}
}

// step plans one step, decodes first, lets arrive what comes while it runs, and
// then shows its results.
func (e *simulatedEngine) step(arrivals func(until time.Duration)) {
	e.start()
	step := batch.Step{}
	for _, r := range e.running {
		if r.prompt == 0 {
			step.DecodeTokens++
		}
	}
	budget := max(1, e.budget-step.DecodeTokens)
	chunks := make([]int, len(e.running))
	for i, r := range e.running {
		chunks[i] = min(r.prompt, budget)
		budget -= chunks[i]
		step.PrefillTokens += chunks[i]
	}
	step.Duration = admissionStep(admissionCosts, step.PrefillTokens, step.DecodeTokens, math.Exp(0.05*e.rng.NormFloat64())).Duration
	arrivals(e.now + step.Duration)
	e.now += step.Duration
	if e.admission != nil {
		e.admission.Observe(step)
	}
	for i, r := range e.running {
		e.advance(r, chunks[i])
	}
	e.running = slices.DeleteFunc(e.running, func(r *simulatedRequest) bool { return r.output == 0 })
}

func (e *simulatedEngine) advance(r *simulatedRequest, chunk int) {
	if r.prompt -= chunk; r.prompt > 0 || chunk == 0 && r.generated == 0 {
		return
	}
	r.output--
	if r.generated++; r.generated == 1 {
		r.first = e.now - r.arrived
		if e.now >= e.from {
			e.served = append(e.served, r)
		}
		if e.admission != nil {
			e.admission.ObserveTTFT(r.decision, r.first)
		}
	}
	if r.output == 0 {
		e.freeKV += r.kv
		if e.now >= e.from {
			e.ended++
		}
		if e.admission != nil {
			e.admission.ObserveOutput(r.generated)
		}
	}
}

// simulateEngine runs Poisson arrivals at the given rate per second.
func simulateEngine(shape engineShape, a *batch.Admission, perSecond float64, length time.Duration, mix ...*simulatedRequest) *simulatedEngine {
	e := &simulatedEngine{engineShape: shape, rng: rand.New(rand.NewPCG(17, 4)), mix: mix, admission: a, freeKV: shape.kvTokens, from: length / 6}
	gap := func() time.Duration { return time.Duration(e.rng.ExpFloat64() / perSecond * float64(time.Second)) }
	next := gap()
	arrivals := func(until time.Duration) {
		for ; next <= until; next += gap() {
			e.arrive(e.newRequest(next))
		}
	}
	for e.now < length {
		if len(e.queue)+len(e.running) == 0 {
			e.now = next
			arrivals(next)
			continue
		}
		e.step(arrivals)
	}
	return e
}

// goodput is the requests per second whose first token met the objective.
func (e *simulatedEngine) goodput() float64 {
	met := 0
	for _, r := range e.served {
		if r.first <= e.objective {
			met++
		}
	}
	return float64(met) / (e.now - e.from).Seconds()
}

// saturate returns the requests per second that the engine completes when there
// are always some waiting.
func saturate(shape engineShape, length time.Duration, mix ...*simulatedRequest) float64 {
	e := simulateEngine(shape, &batch.Admission{MaxQueuedRequests: 300}, 200, length, mix...)
	return float64(e.ended) / (e.now - e.from).Seconds()
}

// predictionError is the median of |predicted − actual| / actual.
func (e *simulatedEngine) predictionError() float64 {
	var errors []float64
	for _, r := range e.served {
		errors = append(errors, math.Abs(r.decision.PredictedTTFT.Seconds()-r.first.Seconds())/r.first.Seconds())
	}
	slices.Sort(errors)
	return errors[len(errors)/2]
}

var engineShapes = []engineShape{
	{name: "places run out", places: 32, budget: 512, meanPrompt: 400, meanOutput: 120, objective: 2 * time.Second},
	{name: "places run out, equal answers", places: 32, budget: 512, meanPrompt: 400, meanOutput: 120, equalOutput: true, objective: 2 * time.Second},
	{name: "prefill is the limit", places: 256, budget: 512, meanPrompt: 1500, meanOutput: 20, objective: 2 * time.Second},
	{name: "memory runs out", places: 256, budget: 512, kvTokens: 16_000, meanPrompt: 400, meanOutput: 120, objective: 3 * time.Second},
}

// At twice the capacity nearly all that is served must be served in time;
// without admission the queue grows until nothing is. An objective admits short
// prompts more easily than long ones, so that more requests than the capacity
// can be served in time: the capacity for those admitted is the stricter
// measure.
func TestAdmissionKeepsGoodputUnderOverload(t *testing.T) {
	length := 240 * time.Second
	if testing.Short() {
		length = 120 * time.Second
	}
	for _, shape := range engineShapes {
		t.Run(shape.name, func(t *testing.T) {
			capacity := saturate(shape, length)
			open := simulateEngine(shape, new(batch.Admission), 2*capacity, length)
			closed := simulateEngine(shape, &batch.Admission{TTFTObjective: shape.objective}, 2*capacity, length)
			admitted := saturate(shape, length, closed.served...)
			met := closed.goodput() * (closed.now - closed.from).Seconds() / float64(len(closed.served))
			report := fmt.Sprintf("capacity %.2f/s; goodput at 2×: %.1f%% with admission (%.1f%% of the capacity for those admitted, %.1f%% of them in time), %.1f%% without; median error of predictions %.1f%%",
				capacity, 100*closed.goodput()/capacity, 100*closed.goodput()/admitted, 100*met, 100*open.goodput()/capacity, 100*closed.predictionError())
			t.Log(report)
			require.GreaterOrEqual(t, closed.goodput(), 0.9*max(capacity, admitted), report)
			require.Greater(t, met, 0.93, report)
			require.Less(t, open.goodput(), 0.2*capacity, report)
			require.Less(t, closed.predictionError(), 0.25, report)
		})
	}
}

// An engine that keeps up by itself must not be held back: at 60% of capacity
// hardly anyone is refused.
func TestAdmissionLeavesModerateLoadAlone(t *testing.T) {
	for _, shape := range engineShapes {
		t.Run(shape.name, func(t *testing.T) {
			load := 0.6 * saturate(shape, 60*time.Second)
			e := simulateEngine(shape, &batch.Admission{TTFTObjective: shape.objective}, load, 120*time.Second)
			report := fmt.Sprintf("%d refused, %d served, median error of predictions %.1f%%", e.refused, len(e.served), 100*e.predictionError())
			t.Log(report)
			require.Less(t, float64(e.refused), 0.02*float64(len(e.served)), report)
			require.Less(t, e.predictionError(), 0.5, report)
		})
	}
}

// Clients that come back when they were told to must mostly be let in then:
// RetryAfter is neither a lie nor an excuse.
func TestAdmissionRetryAfterIsWhenTheBacklogHasDrained(t *testing.T) {
	a := batch.Admission{Prior: admissionCosts, TTFTObjective: time.Second, PriorOutputTokens: 120}
	shape := engineShapes[0]
	e := &simulatedEngine{engineShape: shape, rng: rand.New(rand.NewPCG(1, 1)), admission: &a}
	for range 150 {
		e.queue = append(e.queue, e.newRequest(0)) // all at once, admitted by nobody
	}
	request := batch.Request{PromptTokens: 100}
	d := a.Decide(request, e.backlog())
	require.Equal(t, batch.TooLate, d.Reason)
	retry := d.RetryAfter
	for e.now < retry {
		e.step(func(time.Duration) {})
	}
	later := a.Predict(request, e.backlog())
	report := fmt.Sprintf("told to wait %v of %v; %v predicted then", retry, d.PredictedTTFT, later)
	t.Log(report)
	require.InDelta(t, a.TTFTObjective.Seconds(), later.Seconds(), 0.2*d.PredictedTTFT.Seconds(), report)
}
