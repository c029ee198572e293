package fallback

import (
	"context"
	"iter"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAnOperatorsWordFindsReplicasThatProbe is about what is said to replicas that
// are half-open.
func TestAnOperatorsWordFindsReplicasThatProbe(t *testing.T) {
	probing := func(t *testing.T, test func(t *testing.T, r *replicas)) {
		share(t, 2, BreakerOptions{OpenFor: time.Minute}, func(t *testing.T, r *replicas) {
			fail(t, r.all[0], 5)
			settle()
			elapse(time.Minute)
			r.traffic(2*time.Second, 100*time.Millisecond, Outcome{})
			require.Equal(t, []State{HalfOpen, HalfOpen}, r.states())
			test(t, r)
		})
	}
	t.Run("open, until further notice", func(t *testing.T) {
		probing(t, func(t *testing.T, r *replicas) {
			r.store.operate("large", Setting{State: Open, Forced: true})
			settle()
			require.Equal(t, []State{Open, Open}, r.states())
			require.Zero(t, r.traffic(time.Minute, time.Second, Outcome{Class: OK}))
		})
	})
	t.Run("open, for as long as it says", func(t *testing.T) {
		probing(t, func(t *testing.T, r *replicas) {
			r.store.operate("large", Setting{State: Open, Wait: 10 * time.Second})
			settle()
			require.Equal(t, []State{Open, Open}, r.states())
			r.traffic(12*time.Second, time.Second, Outcome{})
			require.Equal(t, []State{HalfOpen, HalfOpen}, r.states())
		})
	})
	t.Run("single probes, after a share", func(t *testing.T) {
		probing(t, func(t *testing.T, r *replicas) {
			r.store.operate("large", Setting{State: HalfOpen, Share: 0.5})
			settle()
			require.Equal(t, 0.5, r.all[1].Status().Share)
			require.Zero(t, r.store.permits(), "nobody needs one now")
			r.store.operate("large", Setting{State: HalfOpen, Forced: true})
			settle()
			require.Zero(t, r.all[1].Status().Share)
			require.Equal(t, []State{HalfOpen, HalfOpen}, r.states())
		})
	})
}

// TestAShareThatIsNoStepOfTheRampGoesOnFromThere is about replicas that are not
// configured alike, and operators.
func TestAShareThatIsNoStepOfTheRampGoesOnFromThere(t *testing.T) {
	for name, tt := range map[string]struct {
		ramp  []float64
		share float64
		then  State
		next  float64
	}{
		"between": {[]float64{0.1, 0.5}, 0.3, HalfOpen, 0.5},
		"below":   {[]float64{0.1, 0.5}, 0.05, HalfOpen, 0.5},
		"above":   {[]float64{0.1, 0.5}, 0.9, Closed, 0},
		"no ramp": {[]float64{}, 0.5, Closed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			share(t, 1, BreakerOptions{Ramp: tt.ramp, RampAnswers: 2}, func(t *testing.T, r *replicas) {
				r.store.operate("large", Setting{State: HalfOpen, Share: tt.share})
				settle()
				goodCall(r.all[0])
				require.Equal(t, tt.share, r.all[0].Status().Share)
				goodCall(r.all[0])
				require.Equal(t, tt.then, r.all[0].Status().State)
				require.Equal(t, tt.next, r.all[0].Status().Share)
			})
		})
	}
}

func TestABreakerThatIsClosedForGoodProbesByItself(t *testing.T) {
	share(t, 1, BreakerOptions{OpenFor: time.Minute}, func(t *testing.T, r *replicas) {
		b := r.all[0]
		b.Close()
		require.True(t, b.Status().Alone)
		fail(t, b, 5)
		elapse(time.Minute)
		probe := must(t, b)
		require.True(t, probe.Probe())
		probe.Done(Outcome{Class: OK})
		require.Equal(t, 0.1, b.Status().Share)
	})
}

// withoutPermits is a store that gives out no permit while it is told so.
type withoutPermits struct {
	*memory
	out atomic.Bool
}

func (w *withoutPermits) Probe(ctx context.Context, name string, ttl time.Duration) (func(context.Context) error, error) {
	if w.out.Load() {
		return nil, errGone
	}
	return w.memory.Probe(ctx, name, ttl)
}

func TestOneOutageDoesNotLeaveAReplicaAloneForGood(t *testing.T) {
	share(t, 1, BreakerOptions{OpenFor: time.Minute}, func(t *testing.T, r *replicas) {
		store := &withoutPermits{memory: r.store}
		var log logged
		b := newBreaker(t, BreakerOptions{Name: "large", Switch: store, OpenFor: time.Minute, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		<-b.Ready()
		fail(t, r.all[0], 5)
		settle()
		elapse(time.Minute)
		store.out.Store(true)
		refused(t, b) // asks for the permit, in vain
		settle()
		require.True(t, b.Status().Alone)
		store.out.Store(false)
		r.store.operate("large", Setting{State: Closed})
		settle()
		require.False(t, b.Status().Alone, "the switch takes what is written")
		require.Equal(t, 2, log.count("what=switch"), "once that it is gone, and once that it is back")
		require.Equal(t, Closed, b.Status().State)
	})
}

func TestAProbeThatIsLostLeavesItsReplicaAnother(t *testing.T) {
	share(t, 1, BreakerOptions{OpenFor: time.Minute, ProbeFor: 10 * time.Second}, func(t *testing.T, r *replicas) {
		b := r.all[0]
		fail(t, b, 5)
		settle()
		elapse(time.Minute)
		refused(t, b) // asks for the permit
		settle()
		must(t, b) // and is never heard of again
		elapse(10 * time.Second)
		refused(t, b)
		settle()
		probe := must(t, b)
		probe.Done(Outcome{Class: OK})
		require.Equal(t, 2, r.store.tally().granted)
	})
}

func TestWhatIsSeenHereCountsBeforeAllHaveCountedIt(t *testing.T) {
	b := newBreaker(t, BreakerOptions{Policies: []Policy{ErrorRate{}}})
	b.share(&Counts{Failed: 8}, time.Minute)
	fail(t, b, 1)
	require.Equal(t, Closed, b.Status().State)
	fail(t, b, 1)
	require.Equal(t, Open, b.Status().State)
}

func TestAReasonIsNeverEmptyAndThatOfTheOperatorIfTheWordIsHis(t *testing.T) {
	share(t, 1, BreakerOptions{OpenFor: time.Minute}, func(t *testing.T, r *replicas) {
		for _, tt := range []struct {
			set  Setting
			want string
		}{
			{Setting{State: Open, Wait: time.Minute}, "set for all replicas"},
			{Setting{State: Open, Forced: true, By: "ann"}, "set by ann"}, // it was open already
			{Setting{State: HalfOpen, Share: 0.5, Forced: true, By: "ann"}, "set by ann"},
			{Setting{State: Closed, By: "ann", Reason: "mended"}, "mended"},
		} {
			r.store.operate("large", tt.set)
			settle()
			require.Equal(t, tt.want, r.all[0].Status().Reason)
		}
		require.Zero(t, r.log.count(`why=""`))
	})
}

func TestALittleLongerIsNotWrittenEachTime(t *testing.T) {
	share(t, 1, BreakerOptions{OpenFor: time.Minute}, func(t *testing.T, r *replicas) {
		var calls []Call
		for range 100 {
			calls = append(calls, must(t, r.all[0]))
		}
		for i := range calls { // of which the last fails 50 s after the first
			calls[i].Done(Outcome{Class: Failed})
			elapse(500 * time.Millisecond)
		}
		settle()
		require.LessOrEqual(t, r.store.tally().sets, 1+50/6)
		require.Greater(t, r.store.tally().sets, 5)
	})
}

// falling is a store whose first watch falls silent after its first word.
type falling struct {
	*memory
	watches atomic.Int64
}

func (f *falling) Watch(ctx context.Context, name string) iter.Seq2[Setting, error] {
	if f.watches.Add(1) > 1 {
		return f.memory.Watch(ctx, name)
	}
	return func(yield func(Setting, error) bool) {
		yield(f.now(name), nil)
		<-ctx.Done()
	}
}

func TestWhoIsOvertakenLooksAgain(t *testing.T) {
	share(t, 1, BreakerOptions{}, func(t *testing.T, r *replicas) {
		store := &falling{memory: r.store}
		b := newBreaker(t, BreakerOptions{Name: "large", Switch: store})
		<-b.Ready()
		r.store.operate("large", Setting{State: Closed, Forced: true})
		fail(t, b, 5)
		settle()
		require.Equal(t, Closed, b.Status().State)
		require.True(t, b.Status().Forced)
	})
}

func TestAnOutageThatComesAndGoesIsLoggedOnceAMinute(t *testing.T) {
	share(t, 1, BreakerOptions{}, func(t *testing.T, r *replicas) {
		for range 20 { // in five minutes
			r.store.be(failing)
			r.traffic(5*time.Second, 100*time.Millisecond, Outcome{Class: OK})
			r.store.be(sound)
			r.traffic(10*time.Second, 100*time.Millisecond, Outcome{Class: OK})
		}
		for _, what := range []string{"what=counters", "watch of the switch"} {
			require.InDelta(t, 10, r.log.count(what), 2, what)
		}
	})
}
