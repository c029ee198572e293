//go:build unix

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/sony/gobreaker/v2"

	"github.com/intelliparadigm/haiku/fallback"
)

// breakerCalls makes calls of one breaker and tells it how they went.
type breakerCalls struct {
	name string
	once func()
}

// breakerTable compares what a call costs that a breaker lets through, with its
// outcome, and one that it refuses. All have a window of 30 s in ten parts, or
// what is nearest to that, and none trips on the way.
func breakerTable(s settings) error {
	calls := 2_000_000
	if s.quick {
		calls = 200_000
	}
	fmt.Printf("ns of CPU a call, median of %d rounds of %d calls\n\n", s.rounds, calls)
	fmt.Println("| breaker | let through | allocations | by two goroutines | refused | allocations |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | ---: |")
	closed, err := closedBreakers()
	if err != nil {
		return err
	}
	open, err := openBreakers()
	if err != nil {
		return err
	}
	through, shared, refused := make([][]float64, len(closed)), make([][]float64, len(closed)), make([][]float64, len(closed))
	allocs, refusedAllocs := make([]float64, len(closed)), make([]float64, len(closed))
	for range s.rounds {
		for i := range closed {
			ns, a := perCall(1, calls, closed[i].once)
			through[i], allocs[i] = append(through[i], ns), a
			ns, _ = perCall(2, calls/2, closed[i].once)
			shared[i] = append(shared[i], ns)
			ns, a = perCall(1, calls, open[i].once)
			refused[i], refusedAllocs[i] = append(refused[i], ns), a
		}
	}
	for i, b := range closed {
		fmt.Printf("| %s | %.0f | %.0f | %.0f | %.0f | %.0f |\n", b.name, median(through[i]), allocs[i], median(shared[i]), median(refused[i]), refusedAllocs[i])
	}
	return nil
}

// perCall is the CPU time in ns, and the allocations, of one call.
func perCall(goroutines, calls int, once func()) (ns, allocs float64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := cpuTime()
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for range calls {
				once()
			}
		})
	}
	all.Wait()
	spent := cpuTime() - start
	runtime.ReadMemStats(&after)
	n := float64(goroutines * calls)
	return float64(spent.Nanoseconds()) / n, float64((after.Mallocs - before.Mallocs) / uint64(n))
}

var errSick = errors.New("sick")

func haikuBreaker(policies ...fallback.Policy) (*fallback.Breaker, error) {
	return fallback.NewBreaker(fallback.BreakerOptions{Policies: policies, Logger: slog.New(slog.DiscardHandler)})
}

func sonyBreaker() *gobreaker.TwoStepCircuitBreaker[any] {
	return gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		Interval: 30 * time.Second, BucketPeriod: 3 * time.Second, Timeout: time.Hour,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.Requests >= 10 && 2*c.TotalFailures >= c.Requests },
	})
}

func failsafeBreaker() circuitbreaker.CircuitBreaker[any] {
	return circuitbreaker.NewBuilder[any]().WithFailureRateThreshold(0.5, 10, 30*time.Second).WithDelay(time.Hour).Build()
}

func closedBreakers() ([]breakerCalls, error) {
	all, err := haikuBreaker()
	if err != nil {
		return nil, err
	}
	rate, err := haikuBreaker(fallback.ErrorRate{})
	if err != nil {
		return nil, err
	}
	sony, safe := sonyBreaker(), failsafeBreaker()
	return []breakerCalls{
		{"haiku, five policies, with the time to first token", func() {
			c, _ := all.Allow()
			c.FirstToken()
			c.Done(fallback.Outcome{Class: fallback.OK, Gap: time.Millisecond})
		}},
		{"haiku, error rate alone", func() {
			c, _ := rate.Allow()
			c.Done(fallback.Outcome{Class: fallback.OK})
		}},
		{"gobreaker 2.4, error rate", func() {
			if done, err := sony.Allow(); err == nil {
				done(nil)
			}
		}},
		{"failsafe-go 0.9, error rate", func() {
			if safe.TryAcquirePermit() {
				safe.RecordSuccess()
			}
		}},
	}, nil
}

func openBreakers() ([]breakerCalls, error) {
	own, err := haikuBreaker(fallback.Consecutive{Failures: 1})
	if err != nil {
		return nil, err
	}
	call, _ := own.Allow()
	call.Done(fallback.Outcome{Class: fallback.Failed})
	sony, safe := sonyBreaker(), failsafeBreaker()
	for range 20 {
		if done, err := sony.Allow(); err == nil {
			done(errSick)
		}
	}
	safe.Open()
	refuse := func() { own.Allow() }
	return []breakerCalls{
		{"", refuse}, {"", refuse},
		{"", func() { _, _ = sony.Allow() }},
		{"", func() { safe.TryAcquirePermit() }},
	}, nil
}
