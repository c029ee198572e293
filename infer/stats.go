package infer

import (
	"time"

	"github.com/intelliparadigm/haiku/batch"
	"github.com/intelliparadigm/haiku/internal/schedule"
)

// Stats is what an [Engine] holds now and has done since it began.
type Stats struct {
	// Queued requests wait for their first step; QueuedTokens are their prompts'.
	Queued, QueuedTokens int
	// Running sequences have a place in the batch, or wait for the prompt that they
	// share with one; Paused are those of them that wait for a slow reader.
	Running, Paused int
	// Blocks are the KV blocks there are. IdleBlocks of them are in nobody's use;
	// CachedBlocks hold content that a later prompt can begin with.
	Blocks, IdleBlocks, CachedBlocks int

	// Preempted counts sequences that gave up their blocks and were computed again.
	Preempted int
	// PromptTokens are those of all prompts begun; ReusedTokens of them were found
	// in the prefix cache.
	PromptTokens, ReusedTokens int

	// Device use, counted at each step.
	Use
}

// Use counts the steps of a device and where the time went. The durations add up
// to the engine's age: a device that is kept busy has Idle time only where there
// was no work, and little Host time.
type Use struct {
	Steps int
	// Items are the sequences' shares in all steps: Items/Steps is the mean batch.
	Items, LargestBatch int
	// PrefillTokens are prompts' tokens, with those computed again; DecodeTokens
	// the ones that were sampled before. Steps that failed or were cancelled count
	// none.
	PrefillTokens, DecodeTokens int
	// Prefill, Decode and Mixed are the time in steps with prompts only, without
	// prompts, and with both.
	Prefill, Decode, Mixed time.Duration
	// Host is the time between steps while there was work: planning, sampling,
	// pushing. Idle is the time without work.
	Host, Idle time.Duration
}

// Busy is the time in which the device computed.
func (u Use) Busy() time.Duration { return u.Prefill + u.Decode + u.Mixed }

// Stats tells what the engine holds and has done. It may be called at any time,
// and costs as much as the queue is long.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Blocks = e.spec.Blocks
	if !e.idleSince.IsZero() {
		s.Idle += time.Since(e.idleSince)
	}
	for j := range e.queued {
		s.Queued++
		s.QueuedTokens += len(j.prompt)
	}
	return s
}

// clock is where the loop's time goes. It belongs to the loop.
type clock struct {
	last time.Time // until when time is accounted for
	use  Use
}

// lap returns the time since the last lap.
func (c *clock) lap() time.Duration {
	now := time.Now()
	d := now.Sub(c.last)
	c.last = now
	return d
}

// computed accounts for a step that has just ended. One that was not computed
// as a whole has taken its time and counts no tokens.
func (c *clock) computed(step []Item, members []*sequence, whole bool) batch.Step {
	prompts, done := 0, batch.Step{Duration: c.lap()}
	for i := range step {
		if n := len(step[i].Tokens); members[i].Decodes() {
			done.DecodeTokens += n
		} else {
			done.PrefillTokens += n
			prompts++
		}
	}
	if whole {
		c.use.DecodeTokens += done.DecodeTokens
		c.use.PrefillTokens += done.PrefillTokens
	}
	c.use.Steps++
	c.use.Items += len(step)
	c.use.LargestBatch = max(c.use.LargestBatch, len(step))
	switch d := done.Duration; prompts {
	case 0:
		c.use.Decode += d
	case len(step):
		c.use.Prefill += d
	default:
		c.use.Mixed += d
	}
	return done
}

// publish makes what the loop counts visible. The caller holds mu.
func (e *Engine) publish(counts schedule.Counts) {
	e.stats = Stats{
		Running: counts.Running, Paused: counts.Paused, IdleBlocks: counts.IdleBlocks, CachedBlocks: counts.CachedBlocks,
		Preempted: counts.Preempted, PromptTokens: counts.PromptTokens, ReusedTokens: counts.ReusedTokens,
		Use: e.clock.use,
	}
	e.weigh(counts.IdleBlocks)
}
