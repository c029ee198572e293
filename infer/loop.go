package infer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"

	"github.com/intelliparadigm/haiku"
)

// loopState is what belongs to the engine's loop alone.
type loopState struct {
	blocks  *blockPool
	running []*sequence
	visit   []*sequence // reused by settle
	lastSeq SeqID

	demands    []demand
	shares     []int
	logits     [][]float32 // [item][vocab], rows made when first needed
	hidden     []float32   // [MaxBatchTokens][HiddenSize], made when first needed
	hiddenUsed int         // rows of hidden that items of the step have
	batch      Batch       // the step that runs
	members    []*sequence // members[i] owns batch.Items[i]
	alone      int         // -1, or the item to be computed next in a batch that failed as a whole
	tmp        scratch
}

func newLoopState(spec Spec) loopState {
	return loopState{blocks: newBlockPool(spec), alone: wholeBatch}
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

// abort ends every running request and forgets the step.
func (e *Engine) abort(err error) {
	for len(e.running) > 0 {
		e.fail(e.running[0].job, err)
	}
	e.endBatch()
}

// turn is one round: drop, deliver, admit, plan, compute, sample. It reports
// whether the engine is over.
func (e *Engine) turn() (over bool) {
	if len(e.members) == 0 {
		e.settle()
		e.admit()
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
	e.mu.Lock()
	over = e.life == killed && e.active == 0
	e.mu.Unlock()
	if !over {
		<-e.wake
	}
	return over
}

// settle drops what nobody waits for and delivers what waited for room.
func (e *Engine) settle() {
	e.mu.Lock()
	over := e.life == killed
	if over {
		for _, j := range e.queue {
			j.queued = false
			e.complete(j, haiku.ErrClosed.Because(ErrClosed))
		}
		e.queue = nil
	}
	e.mu.Unlock()
	e.visit = append(e.visit[:0], e.running...) // running changes on the way
	for _, s := range e.visit {
		switch {
		case s.state == finished: // by a sibling's failure just now
		case over:
			e.fail(s.job, haiku.ErrClosed.Because(ErrClosed))
		case s.job.ctx.Err() != nil:
			e.fail(s.job, s.job.ctx.Err())
		case s.state == paused && s.job.room.Load() != s.roomSeen:
			e.guarded(s, func() { e.push(s, s.waiting) })
		}
	}
	clear(e.visit) // an idle engine keeps no prompt and no stream
}

// admit moves jobs from the queue into the batch, in order, as long as there
// are places and KV blocks for all they may need. A job that does not fit
// waits, and those behind it too, so that a large one is not passed for ever.
func (e *Engine) admit() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.queue) > 0 && e.life != killed {
		j := e.queue[0]
		if len(e.running)+j.open > e.opts.MaxSequences || j.open*e.blocks.need(j.limit) > len(e.blocks.free) {
			return
		}
		e.queue[0] = nil
		e.queue = e.queue[1:]
		j.queued = false
		j.usage.PromptTokens = len(j.prompt)
		for choice := range j.open {
			e.running = append(e.running, e.newSequence(j, choice))
		}
	}
}

func (e *Engine) newSequence(j *job, choice int) *sequence {
	e.lastSeq++
	blocks, _ := e.blocks.take(e.blocks.need(j.limit)) // admit has counted them
	s := &sequence{
		id: e.lastSeq, job: j, choice: choice, blocks: blocks,
		tokens: append(make([]int32, 0, min(j.limit, len(j.prompt)+64)), j.prompt...),
	}
	if j.req != nil {
		s.sampler = newSampler(j.req.Sampling, j.seed, choice, j.prompt)
	}
	j.seqs = append(j.seqs, s)
	return s
}

// prepare plans the next step and reports whether there is anything to do.
func (e *Engine) prepare() bool {
	e.demands = e.demands[:0]
	for _, s := range e.running {
		e.demands = append(e.demands, s.demand())
	}
	e.shares = plan(e.shares, e.demands, e.opts.MaxBatchTokens)
	e.batch.Items, e.hiddenUsed = e.batch.Items[:0], 0
	rows := 0 // of logits
	for i, tokens := range e.shares {
		if tokens == 0 {
			continue
		}
		s := e.running[i]
		it := s.item(tokens)
		switch {
		case s.job.sum != nil:
			it.Hidden = e.hiddenRows(tokens)
		case s.computed+tokens == len(s.tokens): // the last token there is
			it.Logits = e.logitsRow(rows)
			rows++
		}
		e.batch.Items = append(e.batch.Items, it)
		e.members = append(e.members, s)
	}
	return len(e.members) > 0
}

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
		s.computed += len(item.Tokens)
		switch {
		case item.Hidden != nil:
			e.pool(s, item.Hidden)
		case item.Logits != nil:
			e.guarded(s, func() { e.sample(s, item.Logits) })
		}
	}
	e.endBatch()
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
	s.state = decoding
	id, err := s.sampler.next(logits, len(s.tokens), &e.tmp)
	if err != nil {
		e.fail(s.job, err)
		return
	}
	s.job.usage.CompletionTokens++
	if e.text.eos[id] {
		s.job.w.Finish(s.choice, haiku.FinishStop)
		e.finish(s)
		return
	}
	s.tokens = append(s.tokens, id)
	piece := haiku.Piece{Choice: s.choice, ID: id}
	if s.job.req.Logprobs {
		piece.Logprob = s.sampler.logprob(logits, id, s.job.req.TopLogprobs, &e.tmp)
	}
	if len(s.tokens) == s.job.limit {
		piece.Finish = haiku.FinishLength
	}
	e.push(s, piece)
}

// push gives a piece to the stream, or pauses the sequence until there is room.
func (e *Engine) push(s *sequence, p haiku.Piece) {
	seen := s.job.room.Load()
	switch s.job.w.TryPush(p) {
	case haiku.Pushed:
		s.state, s.waiting = decoding, haiku.Piece{}
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
		s.state, s.waiting, s.roomSeen = paused, p, seen
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
	e.blocks.give(s.blocks)
	e.release(s.id)
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
