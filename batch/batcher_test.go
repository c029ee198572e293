package batch

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// double answers each request with twice its value after perBatch + n·perItem.
func double(perItem, perBatch time.Duration) Func[int, int] {
	return func(ctx context.Context, reqs []int) ([]Result[int], error) {
		select {
		case <-time.After(perBatch + time.Duration(len(reqs))*perItem):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		results := make([]Result[int], len(reqs))
		for i, req := range reqs {
			results[i].Value = 2 * req
		}
		return results, nil
	}
}

func open(t *testing.T, f Func[int, int], o Options) *DynamicBatcher[int, int] {
	b, err := New(f, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// sizes records the batches that a function sees.
func sizes(f Func[int, int], seen *[][]int) Func[int, int] {
	var mu sync.Mutex
	return func(ctx context.Context, reqs []int) ([]Result[int], error) {
		mu.Lock()
		*seen = append(*seen, append([]int(nil), reqs...))
		mu.Unlock()
		return f(ctx, reqs)
	}
}

type outcome struct {
	value int
	err   error
	took  time.Duration
}

// submit calls DoWith on a goroutine of its own and returns once it waits.
func submit(ctx context.Context, b *DynamicBatcher[int, int], req int, call Call) <-chan outcome {
	out := make(chan outcome, 1)
	began := time.Now()
	go func() {
		v, err := b.DoWith(ctx, req, call)
		out <- outcome{v, err, time.Since(began)}
	}()
	synctest.Wait()
	return out
}

func bubble(t *testing.T, f func(t *testing.T)) { t.Helper(); synctest.Test(t, f) }

func TestALoneRequestIsServedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := open(t, double(time.Millisecond, 4*time.Millisecond), Options{})
		for i := range 50 {
			began := time.Now()
			v, err := b.Do(t.Context(), i)
			require.NoError(t, err)
			require.Equal(t, 2*i, v)
			require.Equal(t, 5*time.Millisecond, time.Since(began))
			elapse(time.Second)
		}
		require.Equal(t, 5*time.Millisecond, b.Stats().PerItem+b.Stats().PerBatch)
	})
}

func TestRequestsAccumulateWhileTheWorkerIsBusy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen [][]int
		b := open(t, sizes(double(0, time.Second), &seen), Options{MaxBatchSize: 4})
		var outs []<-chan outcome
		for i := range 8 {
			outs = append(outs, submit(t.Context(), b, i, Call{}))
		}
		for i, out := range outs {
			got := <-out
			require.NoError(t, got.err)
			require.Equal(t, 2*i, got.value)
		}
		require.Equal(t, [][]int{{0}, {1, 2, 3, 4}, {5, 6, 7}}, seen)
		require.InDelta(t, 8.0/3, b.Stats().MeanSize(), 1e-9)
	})
}

func TestAVolleyIsCollectedOnceVolleysAreKnown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen [][]int
		b := open(t, sizes(double(500*time.Microsecond, 4*time.Millisecond), &seen), Options{MaxBatchSize: 8})
		for range 30 {
			var wg sync.WaitGroup
			for i := range 6 {
				wg.Go(func() { _, _ = b.Do(t.Context(), i) })
				elapse(20 * time.Microsecond)
			}
			wg.Wait()
			elapse(time.Second)
		}
		require.Len(t, seen[len(seen)-1], 6, "the last volley is one batch")
	})
}

func TestAFixedWindowWaitsForMaxDelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := open(t, double(0, time.Millisecond), Options{Fixed: true, MaxDelay: 7 * time.Millisecond})
		got := <-submit(t.Context(), b, 1, Call{})
		require.Equal(t, 8*time.Millisecond, got.took)
	})
}

func TestAPreferredSizeStartsAtOnceAndCutsTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen [][]int
		o := Options{Fixed: true, MaxDelay: time.Hour, MaxBatchSize: 16, PreferredSizes: []int{8, 4}}
		b := open(t, sizes(double(0, time.Second), &seen), o)
		var outs []<-chan outcome
		for i := range 15 {
			outs = append(outs, submit(t.Context(), b, i, Call{}))
		}
		for i, out := range outs {
			took := time.Second // four start at once, and eight of the rest when the worker is idle again
			if i >= 4 {
				took = 2 * time.Second
			}
			if i >= 12 {
				took = time.Hour + time.Second
			}
			require.Equal(t, took, (<-out).took, "request %d", i)
		}
		require.Len(t, seen, 3)
	})
}

func TestUrgentLevelsGoFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen [][]int
		b := open(t, sizes(double(0, time.Second), &seen), Options{MaxBatchSize: 2, Levels: make([]Level, 3)})
		outs := []<-chan outcome{submit(t.Context(), b, 100, Call{})}
		for i, level := range []int{2, 1, 0, 2, 1, 0} {
			outs = append(outs, submit(t.Context(), b, i, Call{Priority: level}))
		}
		require.Equal(t, []int{2, 2, 2}, b.Stats().Queued)
		for _, out := range outs {
			require.NoError(t, (<-out).err)
		}
		require.Equal(t, [][]int{{100}, {2, 5}, {1, 4}, {0, 3}}, seen)
		_, err := b.DoWith(t.Context(), 0, Call{Priority: 3})
		require.ErrorIs(t, err, ErrPriority)
	})
}

func TestAFullQueueRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := open(t, double(0, time.Second), Options{Levels: []Level{{MaxQueue: 2}, {}}})
		outs := []<-chan outcome{submit(t.Context(), b, 0, Call{}), submit(t.Context(), b, 1, Call{}), submit(t.Context(), b, 2, Call{})}
		_, err := b.Do(t.Context(), 3)
		require.ErrorIs(t, err, ErrQueueFull)
		require.Equal(t, &QueueFullError{Level: 0, Limit: 2}, err)
		outs = append(outs, submit(t.Context(), b, 4, Call{Priority: 1}))
		for _, out := range outs {
			require.NoError(t, (<-out).err)
		}
		require.EqualValues(t, 1, b.Stats().Rejected)
	})
}

func TestQueueTimeoutsRejectAndDelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen [][]int
		levels := []Level{
			{Timeout: 100 * time.Millisecond, OnTimeout: Delay},
			{Timeout: 300 * time.Millisecond},
			{Timeout: 300 * time.Millisecond, IgnoreOwnTimeout: true},
		}
		b := open(t, sizes(double(0, time.Second), &seen), Options{MaxBatchSize: 2, Levels: levels})
		first := submit(t.Context(), b, 0, Call{})
		delayed := submit(t.Context(), b, 1, Call{})
		rejected := submit(t.Context(), b, 2, Call{Priority: 1, Timeout: time.Hour})
		early := submit(t.Context(), b, 3, Call{Priority: 1, Timeout: 50 * time.Millisecond})
		ignored := submit(t.Context(), b, 4, Call{Priority: 2, Timeout: 50 * time.Millisecond})
		for out, limit := range map[<-chan outcome]time.Duration{
			rejected: 300 * time.Millisecond, early: 50 * time.Millisecond, ignored: 300 * time.Millisecond,
		} {
			got := <-out
			require.ErrorIs(t, got.err, ErrQueueTimeout)
			require.Equal(t, limit, got.took)
			var timeout *QueueTimeoutError
			require.ErrorAs(t, got.err, &timeout)
			require.Equal(t, limit, timeout.Waited)
		}
		elapse(650 * time.Millisecond)
		timely := submit(t.Context(), b, 5, Call{})
		another := submit(t.Context(), b, 6, Call{})
		for _, out := range []<-chan outcome{first, delayed, timely, another} {
			require.NoError(t, (<-out).err)
		}
		require.Equal(t, [][]int{{0}, {5, 6}, {1}}, seen, "the delayed one goes behind the others of its level")
		s := b.Stats()
		require.EqualValues(t, 3, s.Expired)
		require.EqualValues(t, 1, s.Delayed)
	})
}

func TestNobodyTimesOutWhileAWorkerIsIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := open(t, double(0, time.Millisecond), Options{Fixed: true, MaxDelay: time.Second, Levels: []Level{{Timeout: 10 * time.Millisecond}}})
		got := <-submit(t.Context(), b, 1, Call{})
		require.NoError(t, got.err)
		require.Equal(t, 11*time.Millisecond, got.took)
	})
}

func TestTheWindowEndsBeforeADeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := open(t, double(0, 10*time.Millisecond), Options{Fixed: true, MaxDelay: time.Second})
		<-submit(t.Context(), b, 0, Call{})
		b.mu.Lock()
		for range 200 {
			b.cost.Observe(1, 10*time.Millisecond)
		}
		b.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		got := <-submit(ctx, b, 1, Call{})
		require.NoError(t, got.err)
		require.InDelta(t, 40*time.Millisecond, got.took, float64(time.Millisecond),
			"there would have been time for a second request, which may cost as much as the first")
	})
}

func TestCancelWhileWaitingLeavesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen [][]int
		b := open(t, sizes(double(0, time.Second), &seen), Options{})
		first := submit(t.Context(), b, 0, Call{})
		ctx, cancel := context.WithCancel(t.Context())
		gone := submit(ctx, b, 1, Call{})
		last := submit(t.Context(), b, 2, Call{})
		elapse(time.Millisecond)
		cancel()
		got := <-gone
		require.ErrorIs(t, got.err, context.Canceled)
		require.Equal(t, time.Millisecond, got.took)
		require.Equal(t, []int{1}, b.Stats().Queued)
		<-first
		<-last
		require.Equal(t, [][]int{{0}, {2}}, seen)
		_, err := b.Do(ctx, 3)
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestACallEndsWhenAllItsRequestsAreCancelled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ended := make(chan time.Duration, 1)
		began := time.Now()
		b := open(t, func(ctx context.Context, reqs []int) ([]Result[int], error) {
			<-ctx.Done()
			ended <- time.Since(began)
			return nil, ctx.Err()
		}, Options{Fixed: true, MaxBatchSize: 2, MaxDelay: time.Hour})
		one, cancelOne := context.WithTimeout(t.Context(), time.Second)
		two, cancelTwo := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancelOne()
		defer cancelTwo()
		first, second := submit(one, b, 1, Call{}), submit(two, b, 2, Call{})
		require.Equal(t, time.Second, (<-first).took, "one request leaves at once")
		require.Empty(t, ended)
		require.Equal(t, 3*time.Second, (<-second).took)
		require.Equal(t, 3*time.Second, <-ended)
		require.EqualValues(t, 2, b.Stats().Cancelled)
	})
}

func TestOneFailingRequestFailsAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		bad := errors.New("bad")
		b := open(t, func(ctx context.Context, reqs []int) ([]Result[int], error) {
			return []Result[int]{{Value: 1}, {Err: bad}}, nil
		}, Options{Fixed: true, MaxBatchSize: 2})
		first, second := submit(t.Context(), b, 1, Call{}), submit(t.Context(), b, 2, Call{})
		require.NoError(t, (<-first).err)
		require.Equal(t, bad, (<-second).err)
	})
}

// guilty fails in one of the ways in which a whole call can fail.
func guilty(how string) Func[int, int] {
	answer := double(0, time.Millisecond)
	return func(ctx context.Context, reqs []int) ([]Result[int], error) {
		for _, req := range reqs {
			if req%7 != 3 {
				continue
			}
			switch how {
			case "error":
				return nil, context.DeadlineExceeded
			case "panic":
				panic(context.DeadlineExceeded)
			case "nil panic":
				panic(nil)
			case "goexit":
				runtime.Goexit()
			case "count":
				return make([]Result[int], len(reqs)+1), nil
			}
		}
		return answer(ctx, reqs)
	}
}

func TestAFailedBatchIsSplitWhereThatIsSafe(t *testing.T) {
	for _, how := range []string{"error", "panic", "nil panic", "goexit"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := open(t, guilty(how), Options{Fixed: true, MaxBatchSize: 11, SplitOnFailure: true, Ordered: true})
				var outs []<-chan outcome
				for i := range 11 {
					outs = append(outs, submit(t.Context(), b, i, Call{}))
				}
				for i, out := range outs {
					if got := <-out; i%7 == 3 {
						require.Error(t, got.err, i)
					} else {
						require.NoError(t, got.err, i)
						require.Equal(t, 2*i, got.value)
					}
				}
				require.EqualValues(t, 1, b.Stats().Batches)
			})
		})
	}
}

func TestAFailedBatchFailsAsAWholeOtherwise(t *testing.T) {
	for how, check := range map[string]func(*testing.T, error){
		"error": func(t *testing.T, err error) { require.Equal(t, context.DeadlineExceeded, err) },
		"panic": func(t *testing.T, err error) {
			var p *PanicError
			require.ErrorAs(t, err, &p)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Contains(t, string(p.Stack), "guilty")
		},
		"goexit": func(t *testing.T, err error) { require.ErrorIs(t, err, ErrGoexit) },
		"count":  func(t *testing.T, err error) { require.Equal(t, &ResultCountError{Requests: 3, Results: 4}, err) },
	} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := open(t, guilty(how), Options{Fixed: true, MaxBatchSize: 3, SplitOnFailure: how == "count"})
				outs := []<-chan outcome{submit(t.Context(), b, 2, Call{}), submit(t.Context(), b, 3, Call{}), submit(t.Context(), b, 4, Call{})}
				for _, out := range outs {
					check(t, (<-out).err)
				}
				require.NoError(t, (<-submit(t.Context(), b, 5, Call{})).err, "the worker lives on")
			})
		})
	}
}

func TestRequestsCancelledDuringACallAreNotTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen [][]int
		b := open(t, sizes(func(ctx context.Context, reqs []int) ([]Result[int], error) {
			elapse(time.Second)
			if len(reqs) > 2 {
				return nil, errors.New("too many")
			}
			return make([]Result[int], len(reqs)), nil
		}, &seen), Options{Fixed: true, MaxBatchSize: 4, SplitOnFailure: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		gone := submit(ctx, b, 0, Call{})
		var outs []<-chan outcome
		for i := range 3 {
			outs = append(outs, submit(t.Context(), b, i+1, Call{}))
		}
		require.ErrorIs(t, (<-gone).err, context.DeadlineExceeded)
		for _, out := range outs {
			require.NoError(t, (<-out).err)
		}
		require.Equal(t, [][]int{{0, 1, 2, 3}, {1}, {2, 3}}, seen)
	})
}

func TestAnswersComeInTheOrderOfSubmissionOnDemand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := open(t, func(ctx context.Context, reqs []int) ([]Result[int], error) {
			elapse(time.Duration(reqs[0]) * time.Second)
			return make([]Result[int], len(reqs)), nil
		}, Options{Workers: 3, MaxBatchSize: 1, Ordered: true})
		slow := submit(t.Context(), b, 5, Call{})
		fast := submit(t.Context(), b, 1, Call{})
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		held := submit(ctx, b, 2, Call{})
		require.Equal(t, 4*time.Second, (<-held).took, "leaves although its answer is held back")
		require.Equal(t, 5*time.Second, (<-fast).took)
		require.Equal(t, 5*time.Second, (<-slow).took)
	})
}

func TestCloseDrainsAndRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := open(t, double(0, time.Second), Options{Fixed: true, MaxDelay: time.Hour, MaxBatchSize: 3})
		var outs []<-chan outcome
		for i := range 5 {
			outs = append(outs, submit(t.Context(), b, i, Call{}))
		}
		began := time.Now()
		require.NoError(t, b.Close())
		require.Equal(t, 2*time.Second, time.Since(began))
		for _, out := range outs {
			require.NoError(t, (<-out).err)
		}
		_, err := b.Do(t.Context(), 1)
		require.ErrorIs(t, err, ErrClosed)
		require.NoError(t, b.Close(), "again")
	})
}

func TestShutdownIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := open(t, double(0, time.Hour), Options{MaxBatchSize: 2, Ordered: true})
		first := submit(t.Context(), b, 0, Call{})
		second := submit(t.Context(), b, 1, Call{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, b.Shutdown(ctx), context.DeadlineExceeded)
		require.ErrorIs(t, (<-first).err, context.Canceled, "the running call was cancelled")
		got := <-second
		require.ErrorIs(t, got.err, ErrClosed)
		require.Equal(t, time.Minute, got.took)
	})
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{
		{MaxBatchSize: -1}, {Workers: -1}, {PreferredSizes: []int{0}}, {PreferredSizes: []int{33}},
		{Levels: []Level{{MaxQueue: -1}}}, {Levels: []Level{{Timeout: -1}}}, {Levels: []Level{{OnTimeout: 2}}},
	} {
		_, err := New(double(0, 0), o)
		require.Error(t, err, "%+v", o)
	}
}
