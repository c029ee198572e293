package fallback

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// logged collects what is logged.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// replicas are breakers that share a store.
type replicas struct {
	store *memory
	log   logged
	all   []*Breaker
}

// share runs test with n replicas, in virtual time. Each knows the store when the
// test begins.
func share(t *testing.T, n int, o BreakerOptions, test func(t *testing.T, r *replicas)) {
	synctest.Test(t, func(t *testing.T) {
		r := &replicas{store: newMemory()}
		for range n {
			r.join(t, o)
		}
		test(t, r)
	})
}

func (r *replicas) join(t *testing.T, o BreakerOptions) *Breaker {
	o.Name, o.Counters, o.Switch = "large", r.store, r.store
	o.Logger = slog.New(slog.NewTextHandler(&r.log, nil))
	o.Replica = fmt.Sprint("replica ", len(r.all))
	b := newBreaker(t, o)
	<-b.Ready()
	r.all = append(r.all, b)
	return b
}

func (r *replicas) states() (all []State) {
	for _, b := range r.all {
		all = append(all, b.Status().State)
	}
	return all
}

// traffic makes a call a replica each gap, for a time, and returns how many were
// allowed.
func (r *replicas) traffic(d, gap time.Duration, o Outcome) (allowed int) {
	for end := time.Now().Add(d); time.Now().Before(end); elapse(gap) {
		for _, b := range r.all {
			if c, ok := b.Allow(); ok {
				allowed++
				c.Done(o)
			}
		}
	}
	return allowed
}

func settle() {
	elapse(time.Second)
	synctest.Wait()
}

func TestOneReplicaOpensAllWithinASecond(t *testing.T) {
	share(t, 3, BreakerOptions{}, func(t *testing.T, r *replicas) {
		fail(t, r.all[0], 5)
		settle()
		require.Equal(t, []State{Open, Open, Open}, r.states())
		s := r.store.now("large")
		require.Equal(t, Setting{State: Open, Wait: s.Wait, Remaining: s.Remaining, By: "replica 0", Reason: "attempts failed or fell silent one after the other", Revision: 1}, s)
		require.InDelta(t, float64(5*time.Minute), float64(s.Wait), float64(time.Second))
		for _, b := range r.all {
			require.InDelta(t, float64(5*time.Minute-time.Second), float64(b.Status().After), float64(100*time.Millisecond))
		}
		require.Equal(t, 1, r.store.tally().sets, "one writes, and the others follow")
	})
}

func TestAReplicaThatStartsLaterSeesTheRemainingTime(t *testing.T) {
	share(t, 1, BreakerOptions{OpenFor: time.Minute}, func(t *testing.T, r *replicas) {
		fail(t, r.all[0], 5)
		elapse(10 * time.Second)
		b := r.join(t, BreakerOptions{OpenFor: time.Minute})
		require.Equal(t, Open, b.Status().State)
		require.InDelta(t, float64(50*time.Second), float64(b.Status().After), float64(time.Second))
		require.Equal(t, r.all[0].Status().After/time.Second, b.Status().After/time.Second)
		elapse(51 * time.Second)
		late := r.join(t, BreakerOptions{OpenFor: time.Minute})
		refused(t, late) // asks for the permit
		require.Equal(t, HalfOpen, late.Status().State, "what is over is over there too")
	})
}

func TestOneReplicaProbesAndAllTakeTheTrafficBackTogether(t *testing.T) {
	share(t, 3, BreakerOptions{OpenFor: time.Minute}, func(t *testing.T, r *replicas) {
		fail(t, r.all[2], 5)
		settle()
		elapse(time.Minute)
		var probe *Call
		for range 100 {
			for _, b := range r.all {
				if c, ok := b.Allow(); ok {
					require.Nil(t, probe, "one probe in the cluster")
					require.True(t, c.Probe())
					probe = &c
				}
			}
			elapse(50 * time.Millisecond)
		}
		require.NotNil(t, probe)
		require.Equal(t, 1, r.store.tally().granted)
		probe.Done(Outcome{Class: OK})
		settle()
		for _, b := range r.all {
			require.Equal(t, 0.1, b.Status().Share)
		}
		require.Zero(t, r.store.permits(), "the permit has been given back")
		r.traffic(time.Minute, 100*time.Millisecond, Outcome{Class: OK})
		require.Equal(t, []State{Closed, Closed, Closed}, r.states())
		require.Equal(t, Closed, r.store.now("large").State)
		require.LessOrEqual(t, r.store.tally().sets, 5, "single probes are nothing to write")
	})
}

func TestAProbeThatIsCancelledLeavesThePermitToTheNext(t *testing.T) {
	share(t, 2, BreakerOptions{OpenFor: time.Minute}, func(t *testing.T, r *replicas) {
		fail(t, r.all[0], 5)
		settle()
		elapse(time.Minute)
		probed := r.traffic(20*time.Second, 100*time.Millisecond, Outcome{}) // each cancelled
		require.Greater(t, probed, 100)
		require.Equal(t, 1, r.store.tally().granted, "the permit is kept while it is good")
		r.traffic(10*time.Second, 100*time.Millisecond, Outcome{Class: Failed})
		settle()
		require.Equal(t, []State{Open, Open}, r.states())
		require.Zero(t, r.store.permits())
	})
}

func TestThePermitOfAReplicaThatDiesExpires(t *testing.T) {
	share(t, 2, BreakerOptions{OpenFor: time.Minute, ProbeFor: 10 * time.Second}, func(t *testing.T, r *replicas) {
		fail(t, r.all[0], 5)
		settle()
		elapse(time.Minute)
		require.Equal(t, HalfOpen, func() State { r.all[0].Allow(); settle(); return r.all[0].Status().State }())
		must(t, r.all[0]) // and is never heard of again
		dead := r.all[0]
		r.all = r.all[1:]
		r.traffic(8*time.Second, 100*time.Millisecond, Outcome{Class: OK})
		require.Equal(t, HalfOpen, r.all[0].Status().State)
		require.Zero(t, r.all[0].Status().Share)
		r.traffic(15*time.Second, 100*time.Millisecond, Outcome{Class: OK})
		require.Equal(t, Closed, r.all[0].Status().State)
		require.Equal(t, Closed, dead.Status().State)
	})
}

func TestAnOperatorStandsAboveAll(t *testing.T) {
	share(t, 2, BreakerOptions{OpenFor: time.Minute}, func(t *testing.T, r *replicas) {
		r.store.operate("large", Setting{State: Open, Forced: true, By: "the operator"})
		settle()
		require.Equal(t, []State{Open, Open}, r.states())
		elapse(time.Hour)
		require.Zero(t, r.traffic(time.Minute, time.Second, Outcome{Class: OK}), "no probes either")

		r.store.operate("large", Setting{State: Closed, Forced: true})
		settle()
		r.traffic(time.Minute, time.Second, Outcome{Class: Failed})
		require.Equal(t, []State{Closed, Closed}, r.states())
		require.True(t, r.all[0].Status().Forced)
		require.Zero(t, r.store.tally().sets)

		r.store.operate("large", Setting{State: HalfOpen, Share: 0.3, Forced: true})
		settle()
		require.Equal(t, 0.3, r.all[1].Status().Share)
		require.InDelta(t, 300, allowedOf(r.all[1], 1000), 1)
		r.traffic(time.Minute, time.Second, Outcome{Class: OK})
		require.Equal(t, []State{HalfOpen, HalfOpen}, r.states())

		r.store.operate("large", Setting{State: Closed})
		settle()
		require.False(t, r.all[0].Status().Forced)
		r.traffic(time.Minute, time.Second, Outcome{Class: Failed})
		require.Equal(t, []State{Open, Open}, r.states())
	})
}

func TestRatesAddUpOverReplicas(t *testing.T) {
	o := BreakerOptions{Policies: []Policy{ErrorRate{Least: 30}}}
	share(t, 10, o, func(t *testing.T, r *replicas) {
		for range 4 { // 40 failures, 4 each: none of them could tell alone
			for _, b := range r.all {
				if c, ok := b.Allow(); ok {
					c.Done(Outcome{Class: Failed})
				}
			}
		}
		settle()
		for _, b := range r.all {
			require.Equal(t, Open, b.Status().State)
		}
	})
	share(t, 10, o, func(t *testing.T, r *replicas) {
		r.traffic(10*time.Second, 100*time.Millisecond, Outcome{Class: OK})
		for range 40 { // all failures are one replica's: a tenth of what was seen
			c := must(t, r.all[3])
			c.Done(Outcome{Class: Failed})
		}
		settle()
		require.Equal(t, Closed, r.all[3].Status().State)
	})
}

func TestCountsAreExchangedInBatchesAndOnlyWhileThereIsTraffic(t *testing.T) {
	share(t, 1, BreakerOptions{}, func(t *testing.T, r *replicas) {
		r.traffic(10*time.Second, time.Millisecond, Outcome{Class: OK})
		require.InDelta(t, 40, r.store.tally().exchanges, 6)
		settle()
		before := r.store.tally().exchanges
		elapse(time.Hour)
		require.Equal(t, before, r.store.tally().exchanges)
		require.EqualValues(t, 10_000, r.store.counts["large"].sum.OK)
	})
}

func TestAStoreThatIsGoneIsJudgedWithout(t *testing.T) {
	for name, f := range map[string]fault{"error": failing, "stall": stalling} {
		t.Run(name, func(t *testing.T) {
			share(t, 2, BreakerOptions{OpenFor: time.Minute}, func(t *testing.T, r *replicas) {
				r.store.be(f)
				elapse(5 * time.Second)
				r.traffic(10*time.Second, time.Second, Outcome{Class: OK})
				start := time.Now()
				fail(t, r.all[0], 5)
				require.Zero(t, time.Since(start), "no call waits for the store")
				settle()
				require.Equal(t, []State{Open, Closed}, r.states(), "each by itself")
				elapse(time.Minute)
				if !r.all[0].Status().Alone { // it has not tried to write yet
					r.all[0].Allow()
					elapse(5 * time.Second)
				}
				probe := must(t, r.all[0])
				require.True(t, probe.Probe(), "nobody can be asked for the permit")
				probe.Done(Outcome{Class: Failed})
				elapse(10 * time.Minute)
				r.traffic(time.Minute, time.Second, Outcome{})

				r.store.be(sound)
				elapse(20 * time.Second)
				r.traffic(2*time.Minute, 100*time.Millisecond, Outcome{Class: OK})
				require.Equal(t, r.all[0].Status().State, r.all[1].Status().State, "together again")
				require.False(t, r.all[0].Status().Alone || r.all[1].Status().Alone)
				for what, parts := range map[string]int{"watch of the switch": 1, "counters": 1} {
					if f == stalling && what != "counters" {
						parts = 0 // a watch that says nothing says that nothing has changed
					}
					require.Equal(t, 2*parts*len(r.all), r.log.count(what), "once that it is gone, and once that it is back")
				}
				require.LessOrEqual(t, r.log.count("what=switch"), 2)
			})
		})
	}
}

func TestAPartitionedReplicaTakesWhatTheOthersDecidedMeanwhile(t *testing.T) {
	share(t, 2, BreakerOptions{OpenFor: time.Minute}, func(t *testing.T, r *replicas) {
		link := &link{memory: r.store}
		c := newBreaker(t, BreakerOptions{Name: "large", Switch: link, Counters: link, OpenFor: time.Minute, Logger: slog.New(slog.DiscardHandler)})
		<-c.Ready()
		link.cut(true)
		fail(t, c, 5)
		settle()
		require.Equal(t, Open, c.Status().State)
		require.Equal(t, []State{Closed, Closed}, r.states())
		r.store.operate("large", Setting{State: HalfOpen, Share: 0.5})
		elapse(20 * time.Second)
		link.cut(false)
		elapse(20 * time.Second)
		require.Equal(t, HalfOpen, c.Status().State)
		require.Equal(t, 0.5, c.Status().Share)
		require.Equal(t, []State{HalfOpen, HalfOpen}, r.states())
	})
}

func TestWhatAReplicaDecidedAloneHoldsIfNobodyDecidedOtherwise(t *testing.T) {
	share(t, 2, BreakerOptions{OpenFor: 10 * time.Minute}, func(t *testing.T, r *replicas) {
		r.store.be(failing)
		fail(t, r.all[0], 5)
		elapse(time.Minute)
		r.store.be(sound)
		elapse(20 * time.Second)
		require.Equal(t, []State{Open, Open}, r.states())
		require.InDelta(t, float64(r.all[0].Status().After), float64(r.all[1].Status().After), float64(time.Second))
	})
}

func TestAStoreThatForgetsIsToldAgain(t *testing.T) {
	share(t, 3, BreakerOptions{OpenFor: 10 * time.Minute}, func(t *testing.T, r *replicas) {
		fail(t, r.all[0], 5)
		settle()
		r.store.be(forgetful)
		settle()
		require.Equal(t, []State{Open, Open, Open}, r.states())
		require.Equal(t, Open, r.store.now("large").State)
		late := r.join(t, BreakerOptions{})
		require.Equal(t, Open, late.Status().State)
	})
}

func TestAThousandFlipsAMinuteAreFollowedAndToldSlowly(t *testing.T) {
	var seen changesSeen
	share(t, 2, BreakerOptions{OnChange: seen.add}, func(t *testing.T, r *replicas) {
		for i := range 1000 {
			r.store.operate("large", Setting{State: State(i % 2), Wait: time.Hour})
			elapse(60 * time.Millisecond)
			synctest.Wait()
			require.Equal(t, []State{State(i % 2), State(i % 2)}, r.states())
		}
		elapse(5 * time.Second)
		require.LessOrEqual(t, len(seen.list()), 2*(10+66))
		require.LessOrEqual(t, r.log.count("msg="), 2*(10+66))
		require.Zero(t, r.store.tally().sets, "nobody flips back")
	})
}

func TestADisagreementDoesNotFlap(t *testing.T) {
	var seen changesSeen
	share(t, 2, BreakerOptions{OpenFor: time.Minute, OnChange: seen.add}, func(t *testing.T, r *replicas) {
		end := time.Now().Add(time.Hour) // the model is out of reach for one of the two
		for time.Now().Before(end) {
			for i, b := range r.all {
				if c, ok := b.Allow(); ok {
					c.Done(Outcome{Class: []Class{OK, Failed}[i]})
				}
			}
			elapse(100 * time.Millisecond)
		}
		openings := 0
		for _, c := range seen.list() {
			if c.To == Open {
				openings++
			}
		}
		require.LessOrEqual(t, openings, 2*60, "no more than one each minute")
		require.Equal(t, r.states()[0], r.states()[1])
	})
}

func TestReplicasThatDecideAtOnceAgree(t *testing.T) {
	share(t, 8, BreakerOptions{}, func(t *testing.T, r *replicas) {
		for _, b := range r.all {
			fail(t, b, 5)
		}
		settle()
		require.LessOrEqual(t, r.store.tally().sets, 16)
		require.EqualValues(t, 1, r.store.now("large").Revision)
		for _, b := range r.all {
			require.InDelta(t, float64(r.all[0].Status().After), float64(b.Status().After), float64(100*time.Millisecond))
		}
	})
}

func TestCloseEndsWhatHangs(t *testing.T) {
	for _, f := range []fault{sound, failing, stalling} {
		share(t, 2, BreakerOptions{}, func(t *testing.T, r *replicas) {
			r.store.be(f)
			fail(t, r.all[0], 5)
			elapse(100 * time.Millisecond)
			for _, b := range r.all {
				b.Close()
			}
		})
	}
}

func TestABreakerIsReadyWhenItCannotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.fault = stalling
		b := newBreaker(t, BreakerOptions{Name: "x", Switch: m, Patience: 3 * time.Second})
		start := time.Now()
		<-b.Ready()
		require.Equal(t, 3*time.Second, time.Since(start))
		require.True(t, b.Status().Alone)
		<-newBreaker(t, BreakerOptions{}).Ready()
		<-newBreaker(t, BreakerOptions{Name: "x", Counters: m}).Ready()
	})
}

func TestWhatWasSeenBeforeAChangeDecidesNothingAfterIt(t *testing.T) {
	o := BreakerOptions{OpenFor: time.Second, Ramp: []float64{}, Policies: []Policy{ErrorRate{}}}
	recovers := func(t *testing.T, b *Breaker) {
		fail(t, b, 10)
		require.Equal(t, Open, b.Status().State)
		elapse(2 * time.Second)
		goodCall(b)
		require.Equal(t, Closed, b.Status().State)
		fail(t, b, 1)
		elapse(time.Second)
		require.Equal(t, Closed, b.Status().State, "the ten are old news")
		fail(t, b, 1)
		require.Equal(t, Closed, b.Status().State, "also beside one more")
	}
	synctest.Test(t, func(t *testing.T) { recovers(t, newBreaker(t, o)) })
	synctest.Test(t, func(t *testing.T) {
		o := o
		o.Name, o.Counters = "large", newMemory() // whose window remembers them
		recovers(t, newBreaker(t, o))
	})
}

func TestWhatIsNotCountedByAllYetIsCountedToo(t *testing.T) {
	b := newBreaker(t, BreakerOptions{Policies: []Policy{ErrorRate{}}})
	b.delta = Counts{Failed: 5}
	b.share(&Counts{Failed: 5}, time.Second)
	require.Equal(t, Open, b.Status().State)
}

// joinBy adds a replica that reaches the store by a link.
func (r *replicas) joinBy(t *testing.T, l *link, o BreakerOptions) *Breaker {
	o.Name, o.Counters, o.Switch, o.Logger = "large", l, l, slog.New(slog.DiscardHandler)
	b := newBreaker(t, o)
	<-b.Ready()
	r.all = append(r.all, b)
	return b
}

func TestWhoHasJustSeenTheModelFailInsists(t *testing.T) {
	for _, what := range []string{"all", "watch"} {
		share(t, 1, BreakerOptions{}, func(t *testing.T, r *replicas) {
			l := &link{memory: r.store, watchOnly: what == "watch"}
			b := r.joinBy(t, l, BreakerOptions{})
			l.cut(true)
			r.store.operate("large", Setting{State: HalfOpen, Share: 0.5}) // which b does not know yet
			fail(t, b, 5)
			elapse(500 * time.Millisecond)
			l.cut(false)
			elapse(10 * time.Second)
			require.Equal(t, []State{Open, Open}, r.states(), what)
			require.Equal(t, Open, r.store.now("large").State)
		})
	}
}

func TestTheSettingThatIsKnownIsNoNews(t *testing.T) {
	share(t, 2, BreakerOptions{OpenFor: 10 * time.Minute}, func(t *testing.T, r *replicas) {
		r.store.operate("large", Setting{State: Closed})
		settle()
		r.store.be(failing)
		fail(t, r.all[0], 5)
		elapse(time.Minute)
		r.store.be(sound) // and says again what it said before
		elapse(20 * time.Second)
		require.Equal(t, []State{Open, Open}, r.states())
	})
}

func TestAnOperatorsWordIsLostWithTheStoresData(t *testing.T) {
	share(t, 2, BreakerOptions{}, func(t *testing.T, r *replicas) {
		r.store.operate("large", Setting{State: Closed, Forced: true})
		settle()
		require.True(t, r.all[0].Status().Forced)
		r.store.be(forgetful)
		settle()
		require.False(t, r.all[0].Status().Forced)
		fail(t, r.all[0], 5)
		settle()
		require.Equal(t, []State{Open, Open}, r.states())
	})
}
