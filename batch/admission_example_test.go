package batch_test

import (
	"fmt"
	"time"

	"github.com/intelliparadigm/haiku/batch"
)

// An engine with 16 places, all taken, learns its speed from its own steps and
// refuses what would come too late.
func ExampleAdmission() {
	admission := batch.Admission{TTFTObjective: time.Second, MaxQueuedRequests: 64}

	// The engine's loop, after each step and after each answer:
	for i := range 400 {
		step := batch.Step{PrefillTokens: i % 3 * 128, DecodeTokens: 8 + i%9}
		step.Duration = 10*time.Millisecond + time.Duration(step.PrefillTokens)*50*time.Microsecond + time.Duration(step.DecodeTokens)*200*time.Microsecond
		admission.Observe(step)
		admission.ObserveOutput(100)
	}
	fmt.Printf("%+v\n", roundedCosts(admission.Costs()))

	// Whoever accepts requests:
	for _, queued := range []int{0, 4, 12} {
		d := admission.Decide(batch.Request{PromptTokens: 300}, batch.Backlog{
			QueuedRequests: queued, QueuedPromptTokens: queued * 300,
			RunningSequences: 16, ExpectedDecodeTokens: 16 * admission.ExpectedLeft(50, 0),
			StepTokenBudget: 512, MaxSequences: 16,
		})
		fmt.Println(queued, "waiting:", d.Reason, d.PredictedTTFT.Round(10*time.Millisecond), d.RetryAfter.Round(10*time.Millisecond))
	}
	// Output:
	// {Base:10ms PerPrefillToken:50µs PerDecodeToken:200µs}
	// 0 waiting: admitted 120ms 0s
	// 4 waiting: admitted 500ms 0s
	// 12 waiting: too late 1.28s 280ms
}

func roundedCosts(c batch.StepCost) batch.StepCost {
	return batch.StepCost{
		Base:            c.Base.Round(100 * time.Microsecond),
		PerPrefillToken: c.PerPrefillToken.Round(time.Microsecond),
		PerDecodeToken:  c.PerDecodeToken.Round(10 * time.Microsecond),
	}
}
