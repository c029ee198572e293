package infer

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"

	"github.com/intelliparadigm/haiku"
)

// errExited is the failure of an item whose executor ended its goroutine.
var errExited = errors.New("infer: the executor ended its goroutine")

// compute runs the step. A batch that fails as a whole, by error or panic, is
// computed again item by item, so that only the guilty pay.
func (e *Engine) compute() {
	ctx, wanted := e.beginStep()
	e.clock.use.Host += e.clock.lap()
	defer e.endStep()
	if !wanted {
		e.failItems(context.Canceled)
		return
	}
	if e.alone == wholeBatch {
		e.alone = 0 // where to go on if the executor ends this goroutine
		err := e.step(ctx, &e.batch)
		switch {
		case err == nil:
			e.whole = true
			return
		case ctx.Err() != nil || len(e.members) == 1:
			e.failItems(err)
			return
		}
		e.opts.Logger.Warn("haiku: a step failed, its sequences are computed one by one",
			slog.Int("sequences", len(e.members)), slog.String("error", err.Error()))
	} else if e.alone > 0 {
		e.batch.Items[e.alone-1].Err = errExited // it was being computed when the old goroutine ended
	}
	for e.alone < len(e.batch.Items) {
		one := Batch{Items: e.batch.Items[e.alone : e.alone+1]}
		e.alone++
		if err := e.step(ctx, &one); err != nil {
			one.Items[0].Err = err
		}
	}
}

func (e *Engine) failItems(err error) {
	for i := range e.batch.Items {
		e.batch.Items[i].Err = err
	}
}

// beginStep returns the context of the next step, which ends when nobody waits
// for any of its sequences any more, and whether somebody does now.
func (e *Engine) beginStep() (ctx context.Context, wanted bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stepCtx.Err() != nil && e.life != killed {
		e.stepCtx, e.cancel = context.WithCancel(context.Background())
	}
	e.live = 0
	for _, s := range e.members {
		if j := s.job; !j.stepping && j.ctx.Err() == nil {
			j.stepping = true
			e.live++
		}
	}
	return e.stepCtx, e.live > 0
}

func (e *Engine) endStep() {
	step := e.clock.computed(e.batch.Items, e.members, e.whole)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.whole { // others say nothing about what a step costs
		e.admission.Observe(step)
	}
	e.whole = false
	e.publish(e.plan.Counts())
	for _, s := range e.members {
		s.job.stepping = false
	}
	e.live = 0
}

// step calls the executor and turns a panic into an error.
func (e *Engine) step(ctx context.Context, b *Batch) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &haiku.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	for i := range b.Items {
		b.Items[i].Err = nil
	}
	return e.exec.Step(ctx, b)
}
