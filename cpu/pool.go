package cpu

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/intelliparadigm/haiku/internal/simd"
)

// maxThreads bounds a pool; the number of active workers has to fit its state.
const maxThreads = 256

// spinRounds is how often a goroutine looks for a change before it sleeps:
// some tens of microseconds, longer than the gap between two operations of a
// step and shorter than anyone would notice.
const spinRounds = 256

// task is an operation that can be cut into ranges. run computes [lo, hi) and
// may be called for several ranges at once, each time with another worker
// number, which selects the scratch memory to use.
type task interface {
	run(worker, lo, hi int)
}

// pool shares tasks between the goroutine that calls do and goroutines of its
// own. Ranges are handed out one at a time, and a worker that wakes up late
// finds the task closed and is not waited for.
type pool struct {
	// state is generation<<32 | active workers<<1 | open. Workers enter only
	// while open is set; the owner closes the task, then waits until none is
	// active. Fields of the task are written while it is closed.
	state   atomic.Uint64
	next    atomic.Int64 // first index not handed out
	task    task
	n       int
	grain   int
	failure atomic.Pointer[error] // first panic of the task

	ownerSleeps atomic.Bool
	done        chan struct{} // wakes the owner

	workers []*worker
	closing atomic.Bool
	exited  sync.WaitGroup
}

// worker is one goroutine of a pool; number 0 is the owner.
type worker struct {
	number int
	sleeps atomic.Bool
	wake   chan struct{}
}

const (
	stateOpen   = 1
	stateActive = 2
)

func newPool(threads int) *pool {
	p := &pool{done: make(chan struct{}, 1)}
	for i := 1; i < threads; i++ {
		w := &worker{number: i, wake: make(chan struct{}, 1)}
		p.workers = append(p.workers, w)
		p.exited.Add(1)
		go p.serve(w)
	}
	return p
}

// threads is the number of worker numbers in use.
func (p *pool) threads() int { return len(p.workers) + 1 }

// do runs t over [0, n) in ranges of grain and returns when all is done. A
// panic of t becomes an error. It must not be called by two goroutines at once.
func (p *pool) do(t task, n, grain int) error {
	if n <= 0 {
		return nil
	}
	p.task, p.n, p.grain = t, n, max(1, grain)
	p.next.Store(0)
	p.failure.Store(nil)
	if len(p.workers) == 0 || n <= p.grain {
		p.work(0)
		return p.result()
	}
	generation := p.state.Load()>>32 + 1
	p.state.Store(generation<<32 | stateOpen)
	for _, w := range p.workers {
		if w.sleeps.CompareAndSwap(true, false) {
			w.wake <- struct{}{}
		}
	}
	p.work(0)
	p.state.And(^uint64(stateOpen))
	p.awaitIdle()
	return p.result()
}

func (p *pool) result() error {
	p.task = nil
	if failure := p.failure.Load(); failure != nil {
		return *failure
	}
	return nil
}

// awaitIdle waits until no worker is active in a closed task.
func (p *pool) awaitIdle() {
	for range spinRounds {
		if uint32(p.state.Load()) == 0 {
			return
		}
		simd.Pause()
	}
	p.ownerSleeps.Store(true)
	if uint32(p.state.Load()) == 0 && p.ownerSleeps.CompareAndSwap(true, false) {
		return
	}
	<-p.done
}

// work takes ranges until none is left.
func (p *pool) work(worker int) {
	defer p.recovered()
	for {
		lo := int(p.next.Add(int64(p.grain))) - p.grain
		if lo >= p.n {
			return
		}
		p.task.run(worker, lo, min(lo+p.grain, p.n))
	}
}

func (p *pool) recovered() {
	if cause := recover(); cause != nil {
		err := fmt.Errorf("cpu: panic in a computation: %v\n%s", cause, debug.Stack())
		p.failure.CompareAndSwap(nil, &err)
	}
}

// serve is the life of a worker.
func (p *pool) serve(w *worker) {
	defer p.exited.Done()
	var seen uint64 // generation last worked on
	for !p.closing.Load() {
		state := p.state.Load()
		if state&stateOpen == 0 || state>>32 == seen {
			p.await(w, seen)
			continue
		}
		if p.state.CompareAndSwap(state, state+stateActive) {
			seen = state >> 32
			p.work(w.number)
			p.leave()
		}
	}
}

func (p *pool) leave() {
	if state := p.state.Add(^uint64(stateActive - 1)); uint32(state) == 0 && p.ownerSleeps.CompareAndSwap(true, false) {
		p.done <- struct{}{}
	}
}

// await returns when there may be a task newer than seen, or the pool closes.
func (p *pool) await(w *worker, seen uint64) {
	for round := range spinRounds {
		if p.news(seen) {
			return
		}
		if round%16 == 15 {
			runtime.Gosched()
		}
		simd.Pause()
	}
	w.sleeps.Store(true)
	if p.news(seen) && w.sleeps.CompareAndSwap(true, false) {
		return
	}
	<-w.wake
}

func (p *pool) news(seen uint64) bool {
	state := p.state.Load()
	return state&stateOpen != 0 && state>>32 != seen || p.closing.Load()
}

// close ends the workers and waits for them. It may be called twice, but not
// during do.
func (p *pool) close() {
	p.closing.Store(true)
	for _, w := range p.workers {
		if w.sleeps.CompareAndSwap(true, false) {
			w.wake <- struct{}{}
		}
	}
	p.exited.Wait()
}
