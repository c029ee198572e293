package fallback

import (
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestABreakerOpensProbesAndReturnsInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen changesSeen
		b := newBreaker(t, BreakerOptions{Name: "large", OnChange: seen.add})
		fail(t, b, 5)
		require.Equal(t, 5*time.Minute, ptr(refused(t, b)).RetryAfter())
		elapse(5*time.Minute - 1)
		require.EqualValues(t, 1, ptr(refused(t, b)).RetryAfter())
		elapse(1)
		probe := must(t, b)
		require.True(t, probe.Probe())
		refused(t, b)
		synctest.Wait()
		probe.Done(Outcome{Class: OK})

		for _, share := range []float64{0.1, 0.25, 0.5} {
			synctest.Wait()
			require.Equal(t, Status{State: HalfOpen, Share: share, Reason: "its answers were good"}, clean(b.Status()))
			require.InDelta(t, 1000*share, allowedOf(b, 1000), 1)
			for range 5 {
				goodCall(b)
			}
		}
		require.Equal(t, Status{State: Closed, Reason: "it answers again"}, clean(b.Status()))
		synctest.Wait()
		require.Equal(t, []Change{
			{Name: "large", From: Closed, To: Open, Why: "attempts failed or fell silent one after the other"},
			{Name: "large", From: Open, To: HalfOpen, Why: "its time was over"},
			{Name: "large", From: HalfOpen, To: HalfOpen, Share: 0.1, Why: "its answers were good"},
			{Name: "large", From: HalfOpen, To: HalfOpen, Share: 0.25, Why: "its answers were good"},
			{Name: "large", From: HalfOpen, To: HalfOpen, Share: 0.5, Why: "its answers were good"},
			{Name: "large", From: HalfOpen, To: Closed, Why: "it answers again"},
		}, seen.list())
	})
}

// allowedOf is how many of n calls, which mean nothing, are allowed.
func allowedOf(b *Breaker, n int) (allowed int) {
	for range n {
		if c, ok := b.Allow(); ok {
			allowed++
			c.Done(Outcome{})
		}
	}
	return allowed
}

// goodCall asks until a call is allowed, which is good.
func goodCall(b *Breaker) {
	for {
		if c, ok := b.Allow(); ok {
			c.Done(Outcome{Class: OK})
			return
		}
	}
}

func ptr[T any](v T) *T { return &v }

func clean(s Status) Status {
	s.Recent = Counts{}
	return s
}

func TestOneOfFiveHundredProbesWhenTheWaitIsOver(t *testing.T) {
	for name, end := range map[string]func(c *Call){
		"good":      func(c *Call) { c.Done(Outcome{Class: OK}) },
		"cancelled": func(c *Call) { c.Done(Outcome{}) },
		"panics": func(c *Call) {
			defer func() { recover() }()
			defer c.Done(Outcome{})
			panic("in the probe")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBreaker(t, BreakerOptions{})
				fail(t, b, 5)
				var calls, most atomic.Int64
				volley := func() {
					calls.Store(0)
					var all sync.WaitGroup
					for range 500 {
						all.Go(func() {
							runtime.Gosched()
							c, ok := b.Allow()
							if !ok {
								return
							}
							calls.Add(1)
							elapse(2 * time.Second)
							end(&c)
						})
					}
					all.Wait()
					most.Store(max(most.Load(), calls.Load()))
				}
				elapse(5 * time.Minute)
				volley()
				require.EqualValues(t, 1, calls.Load())
				if name == "good" {
					require.Equal(t, 0.1, b.Status().Share)
					return
				}
				require.Equal(t, HalfOpen, b.Status().State)
				volley() // the permit is back at once
				require.EqualValues(t, 1, calls.Load())
			})
		})
	}
}

func TestAProbeThatTakesTooLongLetsTheNextOneTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, BreakerOptions{ProbeFor: 10 * time.Second})
		fail(t, b, 5)
		elapse(5 * time.Minute)
		slow := must(t, b)
		elapse(10*time.Second - 1)
		refused(t, b)
		elapse(1)
		next := must(t, b)
		refused(t, b)
		slow.Done(Outcome{}) // gives no permit back that it does not have any more
		refused(t, b)
		next.Done(Outcome{})
		last := must(t, b)
		last.Done(Outcome{Class: Failed})
		require.Equal(t, Open, b.Status().State)
	})
}

func TestAProbeThatFailsOpensAgain(t *testing.T) {
	for name, end := range map[string]func(c *Call){
		"failed":        func(c *Call) { c.Done(Outcome{Class: Failed}) },
		"rejected":      func(c *Call) { c.Done(Outcome{Class: Rejected}) },
		"late":          func(c *Call) { elapse(121 * time.Millisecond); c.FirstToken() },
		"never started": func(c *Call) { elapse(120 * time.Millisecond); c.Late() },
		"slow":          func(c *Call) { c.Done(Outcome{Class: OK, Gap: time.Second}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBreaker(t, BreakerOptions{OpenFor: time.Minute})
				fail(t, b, 5)
				elapse(time.Minute)
				probe := must(t, b)
				end(&probe)
				s := b.Status()
				require.Equal(t, Open, s.State)
				require.Equal(t, time.Minute, s.After)
				probe.Done(Outcome{Class: OK})
				require.Equal(t, Open, b.Status().State, "what began before is old news")
			})
		})
	}
}

func TestAFailureWhileTrafficGrowsOpensAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, BreakerOptions{Ramp: []float64{1}})
		fail(t, b, 5)
		elapse(5 * time.Minute)
		ptr(must(t, b)).Done(Outcome{Class: OK})
		ptr(must(t, b)).Done(Outcome{Class: OK})
		ptr(must(t, b)).Done(Outcome{Class: OK, Gap: time.Second})
		require.Equal(t, HalfOpen, b.Status().State, "one slow answer is none that failed")
		ptr(must(t, b)).Done(Outcome{Class: Failed})
		require.Equal(t, Open, b.Status().State)
	})
}

func TestTheLaterDeadlineWins(t *testing.T) {
	second, minute := Outcome{Class: Failed, RetryAfter: time.Second}, Outcome{Class: Failed, RetryAfter: time.Minute}
	for name, tt := range map[string]struct {
		then Outcome
		want time.Duration // from the first failure on
	}{
		"longer":             {minute, time.Minute + 500*time.Millisecond},
		"again":              {second, 1500 * time.Millisecond},
		"longer than is fit": {Outcome{Class: Failed, RetryAfter: 1000 * time.Hour}, time.Hour + 500*time.Millisecond},
		"not a failure":      {Outcome{Class: OK}, time.Second},
		"the client left":    {Outcome{}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBreaker(t, BreakerOptions{OpenFor: time.Second, Policies: []Policy{Consecutive{Failures: 1}}})
				one, two := must(t, b), must(t, b)
				one.Done(second)
				elapse(500 * time.Millisecond)
				two.Done(tt.then)
				require.Equal(t, tt.want-500*time.Millisecond, b.Status().After)
			})
		})
	}
	t.Run("the longer one first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBreaker(t, BreakerOptions{OpenFor: time.Second, Policies: []Policy{Consecutive{Failures: 1}}})
			one, two := must(t, b), must(t, b)
			one.Done(minute)
			two.Done(second)
			require.Equal(t, time.Minute, b.Status().After)
		})
	})
}

func TestFailuresThatAreFarApartStillOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, BreakerOptions{Window: 30 * time.Second})
		for range 4 {
			fail(t, b, 1)
			ptr(must(t, b)).Done(Outcome{})
			ptr(must(t, b)).Done(Outcome{Class: Rejected})
			require.Equal(t, Closed, b.Status().State)
			elapse(45 * time.Second)
		}
		fail(t, b, 1)
		require.Equal(t, Open, b.Status().State)
	})
}

// TestWhoeverSetsTheClockChangesNothing moves the wall clock by moving the one
// moment that is remembered the other way: a difference of monotonic times is the
// same, one of dates would be an hour off.
func TestWhoeverSetsTheClockChangesNothing(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, time.Hour} {
		for _, state := range []State{Closed, Open, HalfOpen} {
			b := newBreaker(t, BreakerOptions{OpenFor: time.Minute})
			if state != Closed {
				fail(t, b, 5)
			}
			if state == HalfOpen {
				b.core.until = 0
				must(t, b)
			}
			b.Close() // nobody else reads the time
			before := b.Status()
			origin := reflect.ValueOf(&b.origin).Elem().FieldByName("wall")
			wall := (*uint64)(unsafe.Pointer(origin.UnsafeAddr()))
			*wall += uint64(int64(step/time.Second)) << 30 // seconds since 1885, above 30 bits of nanoseconds
			require.InDelta(t, float64(-step), float64(time.Now().Round(0).Sub(b.origin.Round(0)))-float64(b.now()), float64(time.Second), "the step is there")
			after := b.Status()
			require.Equal(t, state, after.State)
			require.InDelta(t, float64(before.After), float64(after.After), float64(time.Second))
		}
	}
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for name, o := range map[string]BreakerOptions{
		"Window":        {Window: -1},
		"OpenFor":       {OpenFor: -1},
		"ProbeFor":      {ProbeFor: -1},
		"Interval":      {Interval: -1},
		"Patience":      {Patience: -1},
		"RampAnswers":   {RampAnswers: -1},
		"a share of 0":  {Ramp: []float64{0, 1}},
		"a share above": {Ramp: []float64{0.5, 1.5}},
		"falling":       {Ramp: []float64{0.5, 0.5}},
		"NaN":           {Ramp: []float64{nan()}},
		"Name":          {Counters: newMemory()},
	} {
		_, err := NewBreaker(o)
		require.ErrorContains(t, err, "BreakerOptions", name)
	}
	b := newBreaker(t, BreakerOptions{Policies: []Policy{}, Limits: Limits{-1, -1, -1}, Ramp: []float64{}})
	fail(t, b, 100)
	require.Equal(t, Closed, b.Status().State, "no policy, no opening")
}

func nan() float64 { z := 0.0; return z / z }

func TestChangesAreToldNoFasterThanOneASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen changesSeen
		b := newBreaker(t, BreakerOptions{OpenFor: 30 * time.Millisecond, Policies: []Policy{Consecutive{Failures: 1}}, OnChange: seen.add})
		elapse(time.Hour) // is no credit
		for range 1000 {  // open and half-open in turn
			c := must(t, b)
			c.Done(Outcome{Class: Failed})
			elapse(60 * time.Millisecond)
		}
		elapse(time.Minute)
		all := seen.list()
		require.LessOrEqual(t, len(all), 10+61)
		told := 0
		for i, c := range all {
			told += 1 + c.Merged
			if i > 0 {
				require.Equal(t, all[i-1].To, c.From)
			}
		}
		require.Equal(t, 1999, told, "none is lost")
		require.Equal(t, Open, all[len(all)-1].To, "and the last is the last")
	})
}

func TestCloseWaitsForNoChangeThatIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, BreakerOptions{OpenFor: time.Millisecond, Policies: []Policy{Consecutive{Failures: 1}}})
		for range 20 {
			fail(t, b, 1)
			elapse(time.Millisecond)
		}
		start := time.Now()
		b.Close()
		require.Zero(t, time.Since(start))
	})
}

func TestCallsThatBreakTheRulesDoNoHarm(t *testing.T) {
	b := newBreaker(t, BreakerOptions{Policies: []Policy{Consecutive{Failures: 2}}})
	var none Call
	none.FirstToken()
	none.Late()
	require.Equal(t, Outcome{}, none.Done(Outcome{Class: Failed}))
	c := must(t, b)
	c.Done(Outcome{Class: Failed})
	c.Done(Outcome{Class: Failed})
	c.FirstToken()
	c.Late()
	require.Equal(t, Closed, b.Status().State)
	b.Close()
	b.Close()
	fail(t, b, 1)
	require.Equal(t, Open, b.Status().State, "it goes on judging")
	denied := refused(t, b)
	denied.Done(Outcome{Class: OK})
}

func TestACallAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	b := newBreaker(t, BreakerOptions{})
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		c, _ := b.Allow()
		c.FirstToken()
		c.Done(Outcome{Class: OK, Gap: time.Millisecond})
	}))
	require.Equal(t, Closed, b.Status().State)
	fail(t, b, 5)
	require.Zero(t, testing.AllocsPerRun(1000, func() { b.Allow() }))
}

func BenchmarkCall(b *testing.B) {
	br, _ := NewBreaker(BreakerOptions{})
	b.ReportAllocs()
	for b.Loop() {
		c, _ := br.Allow()
		c.FirstToken()
		c.Done(Outcome{Class: OK})
	}
}

// TestFewRequestsBringAModelBackToo: one a minute, of which a tenth would be tried
// for most of an hour.
func TestFewRequestsBringAModelBackToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, BreakerOptions{})
		fail(t, b, 5)
		minutes := 0
		for ; b.Status().State != Closed; minutes++ {
			require.Less(t, minutes, 100)
			elapse(time.Minute)
			if c, ok := b.Allow(); ok {
				c.FirstToken()
				c.Done(Outcome{Class: OK})
			}
		}
		require.Equal(t, 5+11+8+6, minutes, "the wait, then about the tenth request, two fourth ones and three second ones")
	})
}
