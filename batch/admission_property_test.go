package batch_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku/batch"
)

// anyCount draws ordinary numbers and absurd ones.
var anyCount = rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, 100_000), rapid.SampledFrom([]int{-1, math.MinInt, math.MaxInt, 1 << 40}))

var anyBacklog = rapid.Custom(func(t *rapid.T) batch.Backlog {
	n := func(name string) int { return anyCount.Draw(t, name) }
	return batch.Backlog{
		QueuedRequests: n("queued"), QueuedPromptTokens: n("queued prompt"), QueuedKVTokens: n("queued kv"),
		RunningSequences: n("running"), RunningPrefillTokens: n("prefill"), ExpectedDecodeTokens: n("decode"),
		StepTokenBudget: n("budget"), MinPrefillTokens: n("min prefill"), MaxSequences: n("places"), TotalKVTokens: n("kv"), FreeKVTokens: n("free kv"),
	}
})

var anyAdmissionRequest = rapid.Custom(func(t *rapid.T) batch.Request {
	return batch.Request{
		PromptTokens: anyCount.Draw(t, "prompt"), MaxTokens: anyCount.Draw(t, "max tokens"), KVTokens: anyCount.Draw(t, "kv"),
		TTFTObjective: time.Duration(anyCount.Draw(t, "objective")),
	}
})

// anyAdmission draws one with any history.
var anyAdmission = rapid.Custom(func(t *rapid.T) *batch.Admission {
	a := &batch.Admission{
		MaxQueuedRequests: anyCount.Draw(t, "max requests"), MaxQueuedTokens: anyCount.Draw(t, "max tokens"),
		TTFTObjective: time.Duration(anyCount.Draw(t, "objective")) * time.Millisecond,
		Attainment:    rapid.SampledFrom([]float64{0, .5, .99, -1, 2, math.NaN(), math.Inf(1)}).Draw(t, "attainment"),
		Memory:        rapid.SampledFrom([]int{0, 1, 2, 50, -4, math.MaxInt}).Draw(t, "memory"),
		Prior: batch.StepCost{Base: time.Duration(anyCount.Draw(t, "base")), PerPrefillToken: time.Duration(anyCount.Draw(t, "per prefill")),
			PerDecodeToken: time.Duration(anyCount.Draw(t, "per decode"))},
		PriorOutputTokens: anyCount.Draw(t, "prior output"),
	}
	for range rapid.IntRange(0, 40).Draw(t, "steps") {
		a.Observe(batch.Step{PrefillTokens: anyCount.Draw(t, "prefill"), DecodeTokens: anyCount.Draw(t, "decode"), Duration: time.Duration(anyCount.Draw(t, "duration"))})
	}
	for range rapid.IntRange(0, 5).Draw(t, "outputs") {
		a.ObserveOutput(anyCount.Draw(t, "output"))
	}
	return a
})

func TestAdmissionNeverDecidesNonsense(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := anyAdmission.Draw(t, "admission")
		for range 3 {
			d := a.Decide(anyAdmissionRequest.Draw(t, "request"), anyBacklog.Draw(t, "backlog"))
			require.GreaterOrEqual(t, d.PredictedTTFT, time.Duration(0))
			require.GreaterOrEqual(t, d.LikelyTTFT, time.Duration(0))
			require.Equal(t, d.Admit, d.Reason == batch.Admitted)
			if d.Admit {
				require.Zero(t, d.RetryAfter)
				require.True(t, d.Objective == 0 || d.LikelyTTFT <= d.Objective)
			} else {
				require.GreaterOrEqual(t, d.RetryAfter, time.Millisecond)
				require.LessOrEqual(t, d.RetryAfter, batch.MaxRetryAfter)
			}
			a.ObserveTTFT(d, time.Duration(anyCount.Draw(t, "actual")))
		}
		c := a.Costs()
		require.True(t, c.Base >= 0 && c.PerPrefillToken >= 0 && c.PerDecodeToken >= 0, "%+v", c)
		require.Positive(t, a.ExpectedOutput(0))
		require.Positive(t, a.ExpectedLeft(anyCount.Draw(t, "generated"), anyCount.Draw(t, "bound")))
	})
}

// plausibleBacklog draws what an engine may really have before it.
var plausibleBacklog = rapid.Custom(func(t *rapid.T) batch.Backlog {
	n := func(name string, most int) int { return rapid.IntRange(0, most).Draw(t, name) }
	b := batch.Backlog{
		QueuedRequests: n("queued", 500), QueuedPromptTokens: n("queued prompt", 200_000), QueuedKVTokens: n("queued kv", 300_000),
		StepTokenBudget: n("budget", 8192), MinPrefillTokens: n("min prefill", 256), MaxSequences: n("places", 256),
		RunningPrefillTokens: n("prefill", 20_000), ExpectedDecodeTokens: n("decode", 50_000), TotalKVTokens: n("kv", 200_000),
	}
	b.RunningSequences = n("running", 256)
	b.FreeKVTokens = rapid.IntRange(0, b.TotalKVTokens).Draw(t, "free kv")
	return b
})

func TestAdmissionPredictionNeverFallsWithMoreWork(t *testing.T) {
	more := map[string]func(r *batch.Request, b *batch.Backlog, n int){
		"queued requests":  func(_ *batch.Request, b *batch.Backlog, n int) { b.QueuedRequests += n },
		"queued prompts":   func(_ *batch.Request, b *batch.Backlog, n int) { b.QueuedPromptTokens += n },
		"queued memory":    func(_ *batch.Request, b *batch.Backlog, n int) { b.QueuedKVTokens = max(1, b.QueuedKVTokens) + n },
		"running prefill":  func(_ *batch.Request, b *batch.Backlog, n int) { b.RunningPrefillTokens += n },
		"expected decodes": func(_ *batch.Request, b *batch.Backlog, n int) { b.ExpectedDecodeTokens += n },
		"free memory":      func(_ *batch.Request, b *batch.Backlog, n int) { b.FreeKVTokens = max(0, b.FreeKVTokens-n) },
		"own prompt":       func(r *batch.Request, _ *batch.Backlog, n int) { r.PromptTokens += n },
		"running sequences": func(_ *batch.Request, b *batch.Backlog, n int) {
			if b.TotalKVTokens == 0 { // more sequences in the same memory free it in smaller pieces
				b.RunningSequences += n
			}
		},
	}
	for name, add := range more {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				a := batch.Admission{Prior: admissionCosts, PriorOutputTokens: rapid.IntRange(1, 1000).Draw(t, "output")}
				r := batch.Request{PromptTokens: rapid.IntRange(0, 8000).Draw(t, "prompt"), KVTokens: rapid.IntRange(0, 9000).Draw(t, "own kv")}
				b := plausibleBacklog.Draw(t, "backlog")
				if name == "queued memory" && b.QueuedKVTokens == 0 {
					b.QueuedKVTokens = 1
				}
				if name == "running sequences" && rapid.Bool().Draw(t, "no memory limit") {
					b.TotalKVTokens = 0
				}
				before := a.Predict(r, b)
				require.Less(t, before, 1000*time.Hour, "a NaN or an infinity becomes the longest Duration")
				n := rapid.IntRange(1, 2000).Draw(t, "more")
				add(&r, &b, n)
				require.GreaterOrEqual(t, a.Predict(r, b), before-time.Nanosecond)
			})
		})
	}
}
