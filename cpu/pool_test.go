package cpu

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// countTask counts how often each index is run and which workers ran.
type countTask struct {
	runs    []atomic.Int32
	workers [8]atomic.Int32
	panicAt int
}

func (c *countTask) run(worker, lo, hi int) {
	if c.workers[worker].Add(1) != 1 {
		panic("two goroutines share a worker number")
	}
	for i := lo; i < hi; i++ {
		if i == c.panicAt {
			c.workers[worker].Add(-1)
			panic("asked for")
		}
		c.runs[i].Add(1)
	}
	c.workers[worker].Add(-1)
}

func TestPoolRunsEveryIndexOnce(t *testing.T) {
	for _, threads := range []int{1, 2, 3, 8} {
		p := newPool(threads)
		for round := range 300 {
			n, grain := round%97, 1+round%13
			task := &countTask{runs: make([]atomic.Int32, n), panicAt: -1}
			require.NoError(t, p.do(task, n, grain))
			for i := range task.runs {
				require.Equal(t, int32(1), task.runs[i].Load(), "index %d of %d", i, n)
			}
		}
		p.close()
	}
}

func TestPoolTurnsPanicsIntoErrorsAndGoesOn(t *testing.T) {
	p := newPool(3)
	defer p.close()
	for i := range 50 {
		task := &countTask{runs: make([]atomic.Int32, 50), panicAt: i}
		require.ErrorContains(t, p.do(task, 50, 1), "asked for")
		good := &countTask{runs: make([]atomic.Int32, 50), panicAt: -1}
		require.NoError(t, p.do(good, 50, 1))
	}
}

func TestIdleWorkersSleepAndWakeAgain(t *testing.T) {
	p := newPool(4)
	defer p.close()
	for range 3 {
		for _, w := range p.workers {
			for !w.sleeps.Load() {
				runtime.Gosched()
			}
		}
		task := &countTask{runs: make([]atomic.Int32, 64), panicAt: -1}
		require.NoError(t, p.do(task, 64, 1))
	}
}

// rendezvousTask ends only when all workers are in it at once.
type rendezvousTask struct {
	inside atomic.Int32
	want   int32
}

func (r *rendezvousTask) run(_, _, _ int) {
	r.inside.Add(1)
	for r.inside.Load() < r.want {
		runtime.Gosched()
	}
}

func TestAllWorkersTakePart(t *testing.T) {
	p := newPool(4)
	defer p.close()
	for range 20 {
		require.NoError(t, p.do(&rendezvousTask{want: 4}, 4, 1))
	}
}

func TestPoolMayBeClosedTwice(t *testing.T) {
	p := newPool(3)
	p.close()
	p.close()
}
