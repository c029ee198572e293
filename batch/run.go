package batch

import (
	"context"
	"runtime/debug"
	"slices"
	"time"
)

// run is a batch in flight: there are as many as workers, used again and again.
// A run belongs to its worker, but for wanted and cancel, which the lock guards.
type run[Req, Resp any] struct {
	items  []*item[Req, Resp]
	parts  []part // what is still to be called, the next one last
	ctx    context.Context
	cancel context.CancelFunc
	wanted int // items that were not cancelled

	// The call in progress.
	live []*item[Req, Resp]
	reqs []Req

	// The first call, if it succeeded: what the cost is learned from.
	size int
	took time.Duration
}

// part is items[from:to] of a run.
type part struct{ from, to int }

// leave notes that one more item is not wanted. The lock is held.
func (r *run[Req, Resp]) leave() {
	r.wanted--
	if r.wanted == 0 && r.cancel != nil {
		r.cancel()
	}
}

// worker makes calls until the batcher is over. It begins with r if that is not
// nil: a function that calls runtime.Goexit takes its goroutine with it, and a
// new one then goes on with what is left of the batch.
func (b *DynamicBatcher[Req, Resp]) worker(r *run[Req, Resp]) {
	defer func() {
		if r != nil {
			go b.worker(r) // in this one's place in the wait group
			return
		}
		b.workers.Done()
	}()
	for {
		if r == nil {
			next, ok := <-b.work
			if !ok {
				return
			}
			b.open(next)
			r = next
		}
		for len(r.parts) > 0 {
			b.call(r)
		}
		b.settle(r)
		r = nil
	}
}

func (b *DynamicBatcher[Req, Resp]) open(r *run[Req, Resp]) {
	r.parts = append(r.parts, part{0, len(r.items)})
	ctx, cancel := context.WithCancel(b.base)
	b.mu.Lock()
	defer b.mu.Unlock()
	r.ctx, r.cancel = ctx, cancel
}

// call calls the function with the next part of the batch and notes the
// answers, whichever way it ends.
func (b *DynamicBatcher[Req, Resp]) call(r *run[Req, Resp]) {
	p := r.parts[len(r.parts)-1]
	r.parts = r.parts[:len(r.parts)-1]
	if !b.gather(r, p) {
		return
	}
	var (
		results []Result[Resp]
		err     error
		began   = b.now()
		ended   bool
	)
	defer func() {
		if !ended {
			err = ErrGoexit
			if v := recover(); v != nil {
				err = &PanicError{Value: v, Stack: debug.Stack()}
			}
		}
		b.note(r, p, b.now()-began, results, err)
	}()
	results, err = b.compute(r.ctx, slices.Clip(r.reqs))
	ended = true
}

// gather collects the requests of a part that are still wanted.
func (b *DynamicBatcher[Req, Resp]) gather(r *run[Req, Resp], p part) bool {
	r.live, r.reqs = r.live[:0], r.reqs[:0]
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, it := range r.items[p.from:p.to] {
		if !it.abandoned {
			r.live = append(r.live, it)
			r.reqs = append(r.reqs, it.req)
		}
	}
	return len(r.live) > 0
}

// note gives each request of a call its answer, or plans to try halves.
func (b *DynamicBatcher[Req, Resp]) note(r *run[Req, Resp], p part, took time.Duration, results []Result[Resp], err error) {
	switch {
	case err != nil && b.options.SplitOnFailure && len(r.live) > 1 && r.ctx.Err() == nil:
		half := p.from + (p.to-p.from)/2
		r.parts = append(r.parts, part{half, p.to}, part{p.from, half})
		return
	case err == nil && len(results) != len(r.live):
		err = &ResultCountError{Requests: len(r.live), Results: len(results)}
	case err == nil && r.size == 0:
		r.size, r.took = len(r.live), took
	}
	for i, it := range r.live {
		if err != nil {
			it.res.Err = err
		} else {
			it.res = results[i]
		}
	}
}

// settle answers the items of a finished batch and makes its worker idle.
func (b *DynamicBatcher[Req, Resp]) settle(r *run[Req, Resp]) {
	r.cancel()
	clear(r.live[:cap(r.live)]) // earlier calls may have been longer
	clear(r.reqs[:cap(r.reqs)])
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, it := range r.items {
		switch {
		case it.abandoned:
			b.recycle(it)
		case b.options.Ordered:
			it.status = held
		default:
			b.answer(it)
		}
	}
	if r.size > 0 {
		b.cost.Observe(r.size, r.took)
	}
	clear(r.items)
	*r = run[Req, Resp]{items: r.items[:0], parts: r.parts[:0], live: r.live[:0], reqs: r.reqs[:0]}
	b.idle = append(b.idle, r)
	b.release()
	b.proceed(b.now())
}
