package infer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/internal/schedule"
)

// loopState is what belongs to the engine's loop alone.
type loopState struct {
	plan    *schedule.Scheduler
	running []*sequence // those that have been in a step
	visit   []*sequence // reused by settle

	logits     [][]float32 // [item][vocab], rows made when first needed
	asComputed []float32   // [vocab], logits that several sequences sample from
	hidden     []float32   // [rows][HiddenSize], grown when needed
	hiddenUsed int         // rows of hidden that items of the step have
	batch      Batch       // the step that runs
	members    []*sequence // members[i] owns batch.Items[i]
	alone      int         // -1, or the item to be computed next in a batch that failed as a whole
	whole      bool        // the step was computed at once, without an error of its own
	tmp        scratch
	clock      clock
}

func newLoopState(spec Spec, opts *Options) loopState {
	return loopState{alone: wholeBatch, plan: newPlan(spec, opts), clock: clock{last: time.Now()}}
}

func newPlan(spec Spec, opts *Options) *schedule.Scheduler {
	return schedule.New(schedule.Config{
		BlockTokens: spec.BlockTokens, Blocks: spec.Blocks,
		MaxSequences: opts.MaxSequences, StepTokens: opts.MaxBatchTokens,
		NoReuse: opts.NoPrefixCache,
	})
}

// wholeBatch as loopState.alone: the batch is computed in one step.
const wholeBatch = -1

// loop runs the engine until it is closed and idle. An executor that ends the
// goroutine by runtime.Goexit harms the item it did that for: the loop goes on
// in a new goroutine where the old one stood. A panic that no sequence can be
// blamed for is a fault of the engine: it ends the running requests, not the
// process.
func (e *Engine) loop() {
	over := false
	defer func() {
		if v := recover(); v != nil {
			e.abort(&haiku.PanicError{Value: v, Stack: debug.Stack()})
		}
		if over {
			close(e.stopped)
		} else {
			go e.loop()
		}
	}()
	for !over {
		over = e.turn()
	}
}

// abort ends every request, and begins anew with a plan that is sound.
func (e *Engine) abort(err error) {
	running := e.running
	e.running, e.plan = nil, newPlan(e.spec, &e.opts)
	for _, s := range running {
		e.release(SeqID(s.ID))
		e.end(s.job, err)
	}
	e.mu.Lock()
	for j := range e.queued {
		e.complete(j, err)
	}
	e.mu.Unlock()
	e.endBatch()
}

// turn is one round: drop, deliver, take in, plan, compute, sample. It reports
// whether the engine is over.
func (e *Engine) turn() (over bool) {
	if len(e.members) == 0 {
		e.settle()
		if !e.prepare() {
			return e.rest()
		}
	}
	e.compute()
	e.sampleAll()
	return false
}

// rest waits for something to do.
func (e *Engine) rest() (over bool) {
	e.clock.use.Host += e.clock.lap()
	if e.asleep(true) {
		return true
	}
	var due <-chan time.Time
	if at := e.plan.NextExpiry(); !at.IsZero() {
		timer := time.NewTimer(time.Until(at))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-e.wake:
	case <-due:
	}
	e.clock.use.Idle += e.clock.lap()
	e.asleep(false)
	return false
}

// asleep notes whether the loop waits for work, and reports whether the engine
// is over.
func (e *Engine) asleep(now bool) (over bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.publish(e.plan.Counts())
	e.idleSince = time.Time{}
	if now {
		e.idleSince = e.clock.last
	}
	return e.life == killed && e.active == 0
}

// settle takes in what is new, drops what nobody waits for and delivers what
// waited for room.
func (e *Engine) settle() {
	killed := e.takeIn()
	e.visit = append(e.visit[:0], e.running...) // running changes on the way
	for _, s := range e.visit {
		switch {
		case s.state == finished: // by a sibling's failure just now
		case killed:
			e.fail(s.job, haiku.ErrClosed.Because(ErrClosed))
		case s.job.ctx.Err() != nil:
			e.fail(s.job, s.job.ctx.Err())
		case s.state == paused && s.job.room.Load() != s.roomSeen:
			e.guarded(s, func() { e.push(s, s.pending) })
		}
	}
	clear(e.visit) // an idle engine keeps no prompt and no stream
}

// takeIn gives the plan what is new and takes from it what has ended. It reports
// whether the engine is closed, which ends all that wait.
func (e *Engine) takeIn() (closed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if closed = e.life == killed; closed {
		for j := range e.queued {
			e.complete(j, haiku.ErrClosed.Because(ErrClosed))
		}
	}
	for _, j := range e.inbox {
		if j.stage == waiting {
			lead := j.lead()
			lead.Deadline, lead.Held = j.deadline, j.held
			if e.opts.QueueTimeout > 0 {
				lead.Expiry = j.at.Add(e.opts.QueueTimeout)
			}
			e.plan.Add(&lead.Seq, j.at)
		}
	}
	for _, j := range e.freed {
		e.plan.Free(&j.lead().Seq)
	}
	for _, j := range e.gone {
		e.plan.Remove(&j.lead().Seq)
	}
	clear(e.inbox)
	clear(e.freed)
	clear(e.gone)
	e.inbox, e.freed, e.gone = e.inbox[:0], e.freed[:0], e.gone[:0]
	return closed
}

// prepare makes the next step and reports whether there is anything to do.
func (e *Engine) prepare() bool {
	step := e.plan.Next(time.Now())
	for _, id := range step.Preempted {
		e.release(SeqID(id))
	}
	for _, q := range step.Expired {
		e.expire(q.Owner.(*sequence).job)
	}
	e.start(step)
	e.batch.Items, e.hiddenUsed = e.batch.Items[:0], 0
	rows := 0 // of logits
	for i := range step.Items {
		share := &step.Items[i]
		s := share.Seq.Owner.(*sequence)
		if s.state == finished { // start has dropped it
			continue
		}
		it := s.item(share)
		switch {
		case s.job.embeds:
			it.Hidden = e.hiddenRows(share.N)
		case share.Last():
			it.Logits = e.logitsRow(rows)
			rows++
		}
		e.batch.Items = append(e.batch.Items, it)
		e.members = append(e.members, s)
	}
	return len(e.members) > 0
}

// start marks the jobs that are in a step for the first time. From here on
// their streams are written to, so those whose readers have gone are dropped.
func (e *Engine) start(step *schedule.Step) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range step.Items {
		s := step.Items[i].Seq.Owner.(*sequence)
		j := s.job
		switch j.stage {
		case waiting:
			j.stage = started
			delete(e.queued, j)
			j.usage.PromptTokens, j.usage.CachedTokens = len(j.prompt), s.Reused
			e.join(s)
		case over:
			s.state = finished
			e.plan.Remove(&s.Seq)
		}
	}
}

// join counts a sequence among those that run.
func (e *Engine) join(s *sequence) { e.running = append(e.running, s) }

func (e *Engine) logitsRow(i int) []float32 {
	if i == len(e.logits) {
		e.logits = append(e.logits, make([]float32, e.spec.VocabSize))
	}
	return e.logits[i]
}

// sampleAll takes the step's results and ends it.
func (e *Engine) sampleAll() {
	for i, s := range e.members {
		if s.state == finished { // a sibling has failed the job
			continue
		}
		item := &e.batch.Items[i]
		if item.Err != nil {
			e.fail(s.job, e.itemError(s.job, item.Err))
			continue
		}
		siblings := e.plan.Done(&s.Seq, len(item.Tokens))
		switch {
		case item.Hidden != nil:
			if item.Start == 0 { // also after a preemption
				clear(s.sum)
			}
			e.pool(s, item.Hidden)
		case item.Logits != nil:
			e.first(s, siblings, item.Logits)
		}
	}
	e.endBatch()
}

// first samples the next token of a sequence, and the first ones of siblings who
// go on from there. Sampling changes logits, so each gets them anew.
func (e *Engine) first(s *sequence, siblings []*schedule.Seq, logits []float32) {
	for _, q := range siblings {
		e.join(q.Owner.(*sequence))
	}
	if len(siblings) > 0 {
		e.asComputed = append(e.asComputed[:0], logits...)
	}
	e.guarded(s, func() { e.sample(s, logits) })
	for _, q := range siblings {
		if sibling := q.Owner.(*sequence); sibling.state != finished {
			copy(logits, e.asComputed)
			e.guarded(sibling, func() { e.sample(sibling, logits) })
		}
	}
}

// endBatch forgets the step and all that it refers to.
func (e *Engine) endBatch() {
	clear(e.members)
	clear(e.batch.Items)
	e.members, e.batch.Items = e.members[:0], e.batch.Items[:0]
	e.alone = wholeBatch
}

// guarded keeps a panic in one sequence's work from the others.
func (e *Engine) guarded(s *sequence, f func()) {
	defer func() {
		if v := recover(); v != nil {
			e.fail(s.job, &haiku.PanicError{Value: v, Stack: debug.Stack()})
		}
	}()
	f()
}

// itemError is what the client of j learns about a failure in the executor.
func (e *Engine) itemError(j *job, err error) error {
	switch {
	case j.ctx.Err() != nil:
		return j.ctx.Err()
	case errors.Is(err, ErrOutOfMemory):
		return haiku.ErrOverloaded.Because(err)
	case errors.Is(err, ErrClosed), e.isKilled():
		return haiku.ErrClosed.Because(err)
	default:
		return fmt.Errorf("infer: executor %s: %w", e.spec.Name, err)
	}
}

func (e *Engine) isKilled() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.life == killed
}

// sample chooses the next token of s and pushes it.
func (e *Engine) sample(s *sequence, logits []float32) {
	id, err := s.sampler.next(logits, len(s.Tokens), &e.tmp)
	if err != nil {
		e.fail(s.job, err)
		return
	}
	if s.job.usage.CompletionTokens++; s.job.usage.CompletionTokens == 1 {
		e.began(s.job)
	}
	if e.text.eos[id] {
		s.job.w.Finish(s.choice, haiku.FinishStop)
		e.finish(s)
		return
	}
	e.plan.Append(&s.Seq, id)
	piece := haiku.Piece{Choice: s.choice, ID: id}
	if s.job.req.Logprobs {
		piece.Logprob = s.sampler.logprob(logits, id, s.job.req.TopLogprobs, &e.tmp)
	}
	if len(s.Tokens) == s.job.limit {
		piece.Finish = haiku.FinishLength
	}
	e.push(s, piece)
}

// push gives a piece to the stream, or pauses the sequence until there is room.
func (e *Engine) push(s *sequence, p haiku.Piece) {
	seen := s.job.room.Load()
	switch s.job.w.TryPush(p) {
	case haiku.Pushed:
		if s.state == paused {
			s.state, s.pending = computing, haiku.Piece{}
			e.plan.Resume(&s.Seq)
		}
		if p.Finish != "" {
			e.finish(s)
		}
	case haiku.Stopped:
		e.finish(s)
	case haiku.Full:
		if s.state != paused && p.Logprob != nil { // it lies in memory that the next sample reuses
			own := *p.Logprob
			own.Top = slices.Clone(own.Top)
			p.Logprob = &own
		}
		s.state, s.pending, s.roomSeen = paused, p, seen
		e.plan.Pause(&s.Seq)
	default:
		err := s.job.ctx.Err()
		if err == nil {
			err = context.Canceled
		}
		e.fail(s.job, err)
	}
}

// fail ends all sequences of j with err.
func (e *Engine) fail(j *job, err error) {
	for _, s := range j.seqs {
		e.free(s)
	}
	e.end(j, err)
}

// end completes j, once.
func (e *Engine) end(j *job, err error) {
	if j.ended {
		return
	}
	j.ended = true
	e.mu.Lock()
	defer e.mu.Unlock()
	e.complete(j, err)
}

// finish ends one sequence well, and its job with the last.
func (e *Engine) finish(s *sequence) {
	e.free(s)
	if s.job.open--; s.job.open == 0 {
		e.end(s.job, nil)
	}
}

// free gives back what s holds, once.
func (e *Engine) free(s *sequence) {
	if s.state == finished {
		return
	}
	s.state = finished
	e.running = slices.DeleteFunc(e.running, func(r *sequence) bool { return r == s })
	id := SeqID(s.ID)
	e.plan.Remove(&s.Seq)
	if id != 0 {
		e.release(id)
	}
}

// release calls the executor in a goroutine of its own, so that even one that
// ends its goroutine does not leave the step half taken, and waits for it.
func (e *Engine) release(id SeqID) {
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		e.exec.Release(id)
	}()
	if v := <-done; v != nil {
		e.opts.Logger.Error("haiku: the executor panicked in Release", slog.Any("panic", v))
	}
}
