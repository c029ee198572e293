package batch

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var scheduleItems = flag.Int("items", 0, "`number` of requests in randomised schedules; 0 for 50,000 with -short, 200,000 without")

// TestRandomSchedules runs a batcher with random options under random arrivals,
// cancellations, deadlines, timeouts and faults, in virtual time, and checks
// that no request is lost, doubled, late, out of order, or computed after it
// left. Long mode: go test -run Schedules -items 1000000 ./batch
func TestRandomSchedules(t *testing.T) {
	const perRun = 1000
	total := *scheduleItems
	if total == 0 {
		total = 200_000
		if testing.Short() || raceEnabled {
			total = 50_000
		}
	}
	for seed := range total / perRun {
		synctest.Test(t, func(t *testing.T) { newSchedule(t, uint64(seed)).run(perRun) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// schedule is one run, and what was seen in it.
type schedule struct {
	t       *testing.T
	rand    *rand.Rand // of the arrivals
	noise   *rand.Rand // of the calls, under mu
	options Options
	faults  bool
	b       *DynamicBatcher[int, int]
	began   time.Time
	gap     time.Duration
	volley  int
	mu      sync.Mutex
	busy    int
	idle    time.Duration // since when a worker has been idle without a break
	fates   []fate
}

// fate is what became of one request.
type fate struct {
	arrived, left, started time.Duration
	calls                  int
	deadline               bool
	err                    error
	done                   bool
}

func newSchedule(t *testing.T, seed uint64) *schedule {
	r := rand.New(rand.NewPCG(seed, 4))
	s := &schedule{t: t, rand: r, noise: rand.New(rand.NewPCG(seed, 5)), faults: r.IntN(3) == 0}
	s.options = Options{
		MaxDelay:       time.Duration(r.IntN(20)-2)*time.Millisecond - 1, // never 0, the default
		MaxBatchSize:   1 + r.IntN(20),
		Fixed:          r.IntN(4) == 0,
		Workers:        1 + r.IntN(3),
		Ordered:        r.IntN(2) == 0,
		SplitOnFailure: s.faults && r.IntN(2) == 0,
	}
	if r.IntN(3) == 0 {
		s.options.PreferredSizes = []int{1 + r.IntN(s.options.MaxBatchSize)}
	}
	for range r.IntN(4) {
		s.options.Levels = append(s.options.Levels, Level{
			MaxQueue: r.IntN(2) * 50, Timeout: time.Duration(r.IntN(2)*r.IntN(60)) * time.Millisecond,
			OnTimeout: TimeoutAction(r.IntN(2)), IgnoreOwnTimeout: r.IntN(2) == 0,
		})
	}
	s.gap = time.Duration(10+r.IntN(5000)) * time.Microsecond
	s.volley = 1 + r.IntN(10)
	return s
}

func (s *schedule) now() time.Duration { return time.Since(s.began) }

func (s *schedule) run(n int) {
	s.began = time.Now()
	s.fates = make([]fate, n)
	b, err := New(s.compute, s.options)
	require.NoError(s.t, err)
	s.b = b
	var clients sync.WaitGroup
	for i := range n {
		if i%s.volley == 0 {
			elapse(time.Duration(float64(s.gap) * float64(s.volley) * s.rand.ExpFloat64()))
		}
		call := Call{Timeout: time.Duration(s.rand.IntN(2)*s.rand.IntN(30)) * time.Millisecond}
		if levels := len(s.options.Levels); levels > 0 {
			call.Priority = s.rand.IntN(levels)
		}
		patience := time.Duration(0)
		if s.rand.IntN(4) == 0 {
			patience = time.Duration(1+s.rand.IntN(40_000)) * time.Microsecond
		}
		byDeadline := s.rand.IntN(2) == 0
		clients.Go(func() { s.client(i, call, patience, byDeadline) })
		if s.options.Ordered {
			synctest.Wait() // so that requests are submitted in the order of their numbers
		}
	}
	synctest.Wait() // all are submitted
	require.NoError(s.t, b.Close())
	clients.Wait()
	s.check()
}

func (s *schedule) client(i int, call Call, patience time.Duration, byDeadline bool) {
	ctx := context.Background()
	f := &s.fates[i]
	if patience > 0 && byDeadline {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
		f.deadline = true
	} else if patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer time.AfterFunc(patience, cancel).Stop()
		defer cancel()
	}
	f.arrived = s.now()
	v, err := s.b.DoWith(ctx, i, call)
	s.mu.Lock()
	defer s.mu.Unlock()
	f.left, f.err, f.done = s.now(), err, true
	if err == nil && v != 2*i {
		s.t.Errorf("request %d got the answer of another: %d", i, v)
	}
	if f.deadline && errors.Is(err, context.DeadlineExceeded) && f.calls == 0 && s.busy < s.options.Workers && s.idle < f.left {
		s.t.Errorf("request %d waited past its deadline beside an idle worker: %+v", i, *f)
	}
}

// compute is the function: it takes some time, and fails now and then.
func (s *schedule) compute(_ context.Context, reqs []int) ([]Result[int], error) {
	s.enter(reqs)
	defer s.exit()
	s.mu.Lock()
	took := time.Duration(len(reqs))*100*time.Microsecond + 2*time.Millisecond + time.Duration(s.noise.IntN(1000))*time.Microsecond
	s.mu.Unlock()
	elapse(took)
	results := make([]Result[int], len(reqs))
	for i, req := range reqs {
		results[i].Value = 2 * req
		if s.faults && req%17 == 0 {
			switch req % 3 {
			case 0:
				return nil, errors.New("a whole batch fails")
			case 1:
				panic("guilty")
			default:
				runtime.Goexit()
			}
		}
	}
	return results, nil
}

func (s *schedule) enter(reqs []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	free := s.idle
	s.busy++
	if s.busy > s.options.Workers || len(reqs) > s.options.MaxBatchSize || len(reqs) == 0 {
		s.t.Errorf("%d requests in call %d at a time", len(reqs), s.busy)
	}
	for _, req := range reqs {
		f := &s.fates[req]
		f.calls++
		if f.done {
			s.t.Errorf("request %d was computed after it left: %+v", req, *f)
		}
		if f.calls == 1 {
			f.started = now
			if wait := now - max(f.arrived, free); wait > max(s.options.MaxDelay, 0) {
				s.t.Errorf("request %d waited %v beside an idle worker: %+v", req, wait, *f)
			}
		}
	}
}

func (s *schedule) exit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy == s.options.Workers {
		s.idle = s.now()
	}
	s.busy--
}

func (s *schedule) check() {
	var lost, doubled int
	for _, f := range s.fates {
		if !f.done {
			lost++
		}
		if f.calls > 1 && !s.options.SplitOnFailure || f.err == nil && f.calls == 0 {
			doubled++
		}
		if f.err != nil && !s.faults && !expected(f.err) {
			s.t.Errorf("unexpected: %v", f.err)
		}
	}
	require.Zero(s.t, lost)
	require.Zero(s.t, doubled)
	if s.options.Ordered {
		var left []time.Duration
		for _, f := range s.fates {
			if f.err == nil {
				left = append(left, f.left)
			}
		}
		require.True(s.t, slices.IsSorted(left), "answers are in the order of submission")
	}
	stats := s.b.Stats()
	require.Zero(s.t, stats.Running)
	for _, queued := range stats.Queued {
		require.Zero(s.t, queued)
	}
}

func expected(err error) bool {
	for _, known := range []error{context.Canceled, context.DeadlineExceeded, ErrQueueFull, ErrQueueTimeout} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}
