package batch_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku/batch"
)

// admissionCosts are an engine's true costs in most of these tests.
var admissionCosts = batch.StepCost{Base: 8 * time.Millisecond, PerPrefillToken: 40 * time.Microsecond, PerDecodeToken: 100 * time.Microsecond}

func admissionStep(c batch.StepCost, prefill, decode int, noise float64) batch.Step {
	d := c.Base + time.Duration(prefill)*c.PerPrefillToken + time.Duration(decode)*c.PerDecodeToken
	return batch.Step{PrefillTokens: prefill, DecodeTokens: decode, Duration: time.Duration(float64(d) * noise)}
}

func requireNear(t require.TestingT, want, got time.Duration, share float64, what string) {
	require.InDelta(t, float64(want), float64(got), share*float64(want), "%s: want %v, got %v", what, want, got)
}

func TestZeroAdmissionAdmitsEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a batch.Admission
		for range rapid.IntRange(0, 5).Draw(t, "steps") {
			a.Observe(admissionStep(admissionCosts, rapid.IntRange(0, 512).Draw(t, "prefill"), 1, 1))
		}
		d := a.Decide(anyAdmissionRequest.Draw(t, "request"), anyBacklog.Draw(t, "backlog"))
		if d.Reason == batch.TooLarge || d.Objective > 0 {
			t.Skip("not without limits")
		}
		require.True(t, d.Admit)
		require.Zero(t, d.RetryAfter)
	})
}

func TestAdmissionBeforeAnythingWasObserved(t *testing.T) {
	a := batch.Admission{TTFTObjective: time.Second, MaxQueuedRequests: 2}
	d := a.Decide(batch.Request{PromptTokens: 1e6}, batch.Backlog{QueuedRequests: 1, QueuedPromptTokens: 1e9})
	require.True(t, d.Admit, "nothing is known to be slow")
	require.Zero(t, d.PredictedTTFT)
	d = a.Decide(batch.Request{}, batch.Backlog{QueuedRequests: 2})
	require.Equal(t, batch.Decision{Reason: batch.QueueFull, Objective: time.Second, RetryAfter: time.Second}, d)

	a.Prior = batch.StepCost{Base: time.Millisecond, PerPrefillToken: time.Millisecond}
	require.Equal(t, 101*time.Millisecond, a.Predict(batch.Request{PromptTokens: 100}, batch.Backlog{}))
	require.Equal(t, a.Prior, a.Costs())
}

// Predictions that can be worked out by hand: base 10 ms, 1 ms for each prompt
// token and 2 ms for each decode.
func TestAdmissionPredictionByHand(t *testing.T) {
	a := batch.Admission{Prior: batch.StepCost{Base: 10 * time.Millisecond, PerPrefillToken: time.Millisecond, PerDecodeToken: 2 * time.Millisecond}, PriorOutputTokens: 100}
	ms := func(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }
	for _, tt := range []struct {
		name    string
		prompt  int
		backlog batch.Backlog
		want    time.Duration
	}{
		{"idle, one step", 50, batch.Backlog{}, ms(10 + 50)},
		{"idle, chunked in four", 200, batch.Backlog{StepTokenBudget: 64}, ms(4*10 + 200)},
		{"prompt ahead in the queue", 50, batch.Backlog{QueuedRequests: 1, QueuedPromptTokens: 30}, ms(10 + 80 + 5)}, // it joins in the only step
		{"a prompt half done", 50, batch.Backlog{RunningSequences: 1, RunningPrefillTokens: 30}, ms(10 + 80 + 2 + 6)},
		// Four sequences of a mean of 100 tokens end at a rate of one per 25
		// steps, and one more step prefills; each step takes 10+4·2 ms, or a
		// little less once a sequence has ended.
		{"no place free", 50, batch.Backlog{RunningSequences: 4, ExpectedDecodeTokens: 400, MaxSequences: 4}, ms(26*18 + 50 + 9)},
		{"no place free, and two ahead", 50, batch.Backlog{RunningSequences: 4, ExpectedDecodeTokens: 400, MaxSequences: 4,
			QueuedRequests: 2, QueuedPromptTokens: 100}, ms(76*18 + 150 + 9)},
		{"no place free, the answers nearly done", 50, batch.Backlog{RunningSequences: 4, ExpectedDecodeTokens: 40, MaxSequences: 4}, ms(6*18 + 50 + 9)},
	} {
		requireNear(t, tt.want, a.Predict(batch.Request{PromptTokens: tt.prompt}, tt.backlog), 0.06, tt.name)
	}
}

func TestAdmissionReasons(t *testing.T) {
	a := batch.Admission{
		Prior:         batch.StepCost{Base: 10 * time.Millisecond, PerPrefillToken: time.Millisecond},
		TTFTObjective: 500 * time.Millisecond, MaxQueuedRequests: 10, MaxQueuedTokens: 2000,
	}
	queued := func(requests, tokens int) batch.Backlog {
		return batch.Backlog{QueuedRequests: requests, QueuedPromptTokens: tokens, StepTokenBudget: 1024, TotalKVTokens: 8192, FreeKVTokens: 8192}
	}
	none := time.Duration(-1)
	for _, tt := range []struct {
		name    string
		request batch.Request
		backlog batch.Backlog
		reason  batch.Reason
		retry   time.Duration
	}{
		{"fits", batch.Request{PromptTokens: 100}, queued(2, 200), batch.Admitted, 0},
		{"late by 125 ms", batch.Request{PromptTokens: 100}, queued(2, 510), batch.TooLate, 125 * time.Millisecond},
		{"a laxer objective of its own", batch.Request{PromptTokens: 100, TTFTObjective: time.Second}, queued(2, 510), batch.Admitted, 0},
		{"no objective at all", batch.Request{PromptTokens: 100, TTFTObjective: none}, queued(2, 1800), batch.Admitted, 0},
		{"a prompt too long for the objective", batch.Request{PromptTokens: 600}, queued(0, 0), batch.Unreachable, batch.MaxRetryAfter},
		{"as many wait as may", batch.Request{PromptTokens: 100, TTFTObjective: none}, queued(10, 500), batch.QueueFull, 60 * time.Millisecond},
		{"too many tokens wait", batch.Request{PromptTokens: 700, TTFTObjective: none}, queued(3, 1500), batch.TokensFull, 510 * time.Millisecond},
		{"longer than the limit, nothing waits", batch.Request{PromptTokens: 3000, TTFTObjective: none}, queued(0, 0), batch.Admitted, 0},
		{"longer than the memory", batch.Request{PromptTokens: 9000, TTFTObjective: none}, queued(0, 0), batch.TooLarge, batch.MaxRetryAfter},
	} {
		d := a.Decide(tt.request, tt.backlog)
		require.Equal(t, tt.reason, d.Reason, "%s: %+v", tt.name, d)
		require.Equal(t, tt.reason == batch.Admitted, d.Admit, tt.name)
		requireNear(t, tt.retry, d.RetryAfter, 0.1, tt.name)
	}
}

func TestAdmissionWaitsForMemory(t *testing.T) {
	a := batch.Admission{Prior: batch.StepCost{Base: 10 * time.Millisecond}, PriorOutputTokens: 100}
	full := batch.Backlog{RunningSequences: 4, ExpectedDecodeTokens: 400, TotalKVTokens: 4000, FreeKVTokens: 0}
	requireNear(t, 265*time.Millisecond, a.Predict(batch.Request{PromptTokens: 10, KVTokens: 1000}, full), 0.01, "one of four must end: 25 steps, and its own")
	full.FreeKVTokens = 1000
	requireNear(t, 15*time.Millisecond, a.Predict(batch.Request{PromptTokens: 10, KVTokens: 1000}, full), 0.01, "its own step")
}

func TestAdmissionLearnsCostsFromNoisySteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		micros := func(name string, lo, hi int) time.Duration {
			return time.Duration(rapid.IntRange(lo, hi).Draw(t, name)) * time.Microsecond
		}
		truth := batch.StepCost{Base: micros("base", 2000, 20000), PerPrefillToken: micros("prefill", 20, 200), PerDecodeToken: micros("decode", 100, 500)}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		a := batch.Admission{Memory: 1000}
		for range 4000 {
			a.Observe(admissionStep(truth, rng.IntN(512), rng.IntN(64), 1+0.05*rng.NormFloat64()))
		}
		got := a.Costs()
		requireNear(t, truth.PerPrefillToken, got.PerPrefillToken, 0.05, "per prompt token")
		// The noise is in proportion to the whole step; a term is known as well
		// as it stands out of it.
		step := truth.Base + 256*truth.PerPrefillToken + 32*truth.PerDecodeToken
		require.InDelta(t, float64(truth.Base), float64(got.Base), 0.04*float64(step), "base: %v %v", truth, got)
		require.InDelta(t, 32*float64(truth.PerDecodeToken), 32*float64(got.PerDecodeToken), 0.04*float64(step), "decode: %v %v", truth, got)
	})
}

func TestAdmissionFollowsAnEngineThatSlowsDown(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var a batch.Admission
	slow := batch.StepCost{Base: 30 * time.Millisecond, PerPrefillToken: 90 * time.Microsecond, PerDecodeToken: 400 * time.Microsecond}
	for i := range 6000 {
		truth := admissionCosts
		if i >= 3000 {
			truth = slow
		}
		a.Observe(admissionStep(truth, rng.IntN(512), rng.IntN(64), 1))
	}
	got := a.Costs()
	requireNear(t, slow.Base, got.Base, 0.02, "base")
	requireNear(t, slow.PerPrefillToken, got.PerPrefillToken, 0.02, "prefill")
	requireNear(t, slow.PerDecodeToken, got.PerDecodeToken, 0.02, "decode")
}

// A long time of nothing but equal decodes says nothing about prefill; what was
// known before must still hold, and equal steps must be predicted as they are.
func TestAdmissionKeepsWhatACollinearHistoryDoesNotShow(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var a batch.Admission
	for range 500 {
		a.Observe(admissionStep(admissionCosts, rng.IntN(512), rng.IntN(64), 1+0.02*rng.NormFloat64()))
	}
	before := a.Costs()
	for range 100_000 {
		a.Observe(admissionStep(admissionCosts, 0, 32, 1+0.02*rng.NormFloat64()))
	}
	got := a.Costs()
	requireNear(t, before.PerPrefillToken, got.PerPrefillToken, 0.05, "prefill")
	requireNear(t, admissionCosts.Base+32*admissionCosts.PerDecodeToken, got.Base+32*got.PerDecodeToken, 0.01, "a step as seen")
	requireNear(t, admissionCosts.Base, got.Base, 0.25, "base")
}

func TestAdmissionOfOneKindOfStepPredictsThatKind(t *testing.T) {
	var a batch.Admission
	for range 3 {
		a.Observe(batch.Step{PrefillTokens: 256, Duration: 50 * time.Millisecond})
	}
	requireNear(t, 50*time.Millisecond, a.Predict(batch.Request{PromptTokens: 256}, batch.Backlog{}), 0.01, "as seen")
}

func TestAdmissionIsNotMisledByAStall(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var a batch.Admission
	for range 1000 {
		a.Observe(admissionStep(admissionCosts, rng.IntN(512), rng.IntN(64), 1))
	}
	a.Observe(batch.Step{PrefillTokens: 256, DecodeTokens: 32, Duration: time.Minute})
	request, want := batch.Request{PromptTokens: 256}, admissionCosts.Base+256*admissionCosts.PerPrefillToken
	requireNear(t, want, a.Predict(request, batch.Backlog{}), 0.15, "after a pause of a minute")
}

func TestAdmissionLearnsOutputLength(t *testing.T) {
	a := batch.Admission{PriorOutputTokens: 50, Memory: 100}
	require.Equal(t, 50, a.ExpectedOutput(0))
	require.Equal(t, 7, a.ExpectedOutput(7))
	for range 1000 {
		a.ObserveOutput(200)
	}
	require.Equal(t, 200, a.ExpectedOutput(0))
	require.Equal(t, 150, a.ExpectedLeft(50, 0))
	require.Equal(t, 100, a.ExpectedLeft(190, 0))
	require.Equal(t, 10, a.ExpectedLeft(50, 60))
	require.Equal(t, 1, a.ExpectedLeft(90, 60))
	a.ObserveOutput(-1)
	require.Equal(t, 200, a.ExpectedOutput(0))
}

func TestAdmissionLearnsTheQuantileOfItsErrors(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	a := batch.Admission{Prior: batch.StepCost{Base: 100 * time.Millisecond}, Attainment: 0.9, TTFTObjective: 150 * time.Millisecond}
	var late, all int
	for i := range 20_000 {
		d := a.Decide(batch.Request{PromptTokens: 1}, batch.Backlog{})
		actual := time.Duration(rng.ExpFloat64() * 60 * float64(time.Millisecond))
		a.ObserveTTFT(d, actual)
		if i > 1000 {
			all++
			if actual > d.LikelyTTFT {
				late++
			}
		}
	}
	require.InDelta(t, 0.1, float64(late)/float64(all), 0.02)
}

func TestAdmissionDoesNotAllocate(t *testing.T) {
	a := batch.Admission{TTFTObjective: time.Second, MaxQueuedRequests: 100, MaxQueuedTokens: 10_000, Prior: admissionCosts}
	b := batch.Backlog{QueuedRequests: 50, QueuedPromptTokens: 9000, RunningSequences: 16, ExpectedDecodeTokens: 900, MaxSequences: 16, StepTokenBudget: 512, TotalKVTokens: 1e5}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		d := a.Decide(batch.Request{PromptTokens: 2000}, b)
		a.Observe(admissionStep(admissionCosts, 300, 12, 1))
		a.ObserveOutput(40)
		a.ObserveTTFT(d, time.Second)
	}))
}

func BenchmarkAdmissionDecide(b *testing.B) {
	a := batch.Admission{TTFTObjective: time.Second, MaxQueuedRequests: 100, MaxQueuedTokens: 10_000, Prior: admissionCosts}
	backlog := batch.Backlog{QueuedRequests: 50, QueuedPromptTokens: 9000, RunningSequences: 16, ExpectedDecodeTokens: 900, MaxSequences: 16, StepTokenBudget: 512, TotalKVTokens: 1e5}
	for b.Loop() {
		a.Decide(batch.Request{PromptTokens: 2000}, backlog)
	}
}

func BenchmarkAdmissionObserve(b *testing.B) {
	var a batch.Admission
	i := 0
	for b.Loop() {
		i++
		a.Observe(admissionStep(admissionCosts, i%512, i%61, 1))
	}
}
