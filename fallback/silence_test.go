package fallback

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// TestClientsThatLeaveDoNotHideASilence: each gives up in the middle of an answer
// that has stopped, long before the chain would end it.
func TestClientsThatLeaveDoNotHideASilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(t, Options{}, does("large", says("a"), hangs()), small())
		for range 5 {
			require.Equal(t, Closed, c.Breaker(0).Status().State)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			require.ErrorIs(t, ask(ctx, c, &haiku.Request{}).err, context.DeadlineExceeded)
			cancel()
		}
		s := c.Breaker(0).Status()
		require.Equal(t, Open, s.State)
		require.Equal(t, "attempts failed or fell silent one after the other", s.Reason)
		require.EqualValues(t, 5, c.Stats()[0].Slow)
		require.Equal(t, "from small", ask(t.Context(), c, &haiku.Request{}).text)
	})
}

func TestASilenceIsKnownWhileItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(t, Options{}, does("large", says("a"), hangs()), small())
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() { ask(t.Context(), c, &haiku.Request{}) })
		}
		elapse(900 * ms)
		require.Equal(t, Closed, c.Breaker(0).Status().State)
		elapse(400 * ms) // the limit, and a look
		require.Equal(t, Open, c.Breaker(0).Status().State)
		begun := time.Now()
		all.Wait()
		require.InDelta(t, 10*time.Second-1300*ms, time.Since(begun), float64(500*ms), "the clients have their errors by Stall alone")
		require.EqualValues(t, 5, c.Stats()[0].Failed)
	})
}

// finishes is ends by a model that lingers.
func finishes(_ context.Context, w *haiku.StreamWriter, _ *haiku.Usage) (bool, error) {
	w.Finish(0, haiku.FinishStop)
	return false, nil
}

func TestWhatIsASilence(t *testing.T) {
	for name, tt := range map[string]struct {
		o      Options
		steps  []step
		want   Class
		silent bool
	}{
		"none":                                      {steps: []step{says("a"), takes(100 * ms), says("b"), ends()}, want: OK},
		"one of 2 s":                                {steps: []step{says("a"), takes(2 * time.Second), says("b"), ends()}, want: Slow, silent: true},
		"before the end":                            {steps: []step{says("a"), says("b"), takes(2 * time.Second), ends()}, want: Slow, silent: true},
		"then it broke":                             {steps: []step{says("a"), takes(2 * time.Second), errs(errBroken)}, want: Failed, silent: true},
		"before the first token":                    {o: Options{FirstToken: -1, Breaker: BreakerOptions{Limits: Limits{FirstToken: -1}}}, steps: []step{takes(2 * time.Second), says("a"), ends()}, want: OK},
		"after the last":                            {steps: []step{says("a"), finishes, takes(2 * time.Second)}, want: OK},
		"within a limit of its own":                 {o: Options{Breaker: BreakerOptions{Limits: Limits{Silence: 3 * time.Second, Gap: -1}}}, steps: []step{says("a"), takes(2 * time.Second), says("b"), ends()}, want: OK},
		"without limits, of 4 s":                    {o: Options{Breaker: BreakerOptions{Limits: Limits{Gap: -1}}}, steps: []step{says("a"), takes(4 * time.Second), says("b"), ends()}, want: OK},
		"without limits, of 7 s":                    {o: Options{Breaker: BreakerOptions{Limits: Limits{Gap: -1}}}, steps: []step{says("a"), takes(7 * time.Second), says("b"), ends()}, want: Slow, silent: true},
		"that nobody minds":                         {o: Options{Breaker: BreakerOptions{Limits: Limits{Gap: -1, Silence: -1}}}, steps: []step{says("a"), takes(9 * time.Second), says("b"), ends()}, want: OK},
		"that is over Stall alone":                  {o: Options{Stall: time.Second, Breaker: BreakerOptions{Limits: Limits{Silence: -1}}}, steps: []step{says("a"), takes(9 * time.Second), says("b"), ends()}, want: Failed},
		"that is under Stall, which is no multiple": {o: Options{Stall: 2300 * ms, Breaker: BreakerOptions{Limits: Limits{Silence: 4 * time.Second, Gap: -1}}}, steps: []step{says("a"), takes(2200 * ms), says("b"), ends()}, want: OK},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen Outcome
				tt.o.Observe = func(ctx context.Context, _ string) (context.Context, func(Attempt)) {
					return ctx, func(a Attempt) { seen = a.Outcome }
				}
				c := newChain(t, tt.o, does("large", tt.steps...), small())
				ask(t.Context(), c, &haiku.Request{})
				require.Equal(t, [2]any{tt.want, tt.silent}, [2]any{seen.Class, seen.Silent})
			})
		})
	}
}

func TestAReaderThatIsBehindMakesNoModelSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var steps []step
		for range 300 {
			steps = append(steps, says("x"))
		}
		silent := false
		c := newChain(t, Options{Observe: func(ctx context.Context, _ string) (context.Context, func(Attempt)) {
			return ctx, func(a Attempt) { silent = a.Outcome.Silent }
		}}, does("large", append(steps, ends())...), small())
		for _, err := range haiku.NewStream(t.Context(), c, &haiku.Request{}).Tokens() {
			require.NoError(t, err)
			elapse(3 * time.Second)
		}
		require.False(t, silent)
	})
}

func TestAProbeThatFallsSilentOpensAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, BreakerOptions{OpenFor: time.Minute, Policies: []Policy{Consecutive{Failures: 1}}})
		fail(t, b, 1)
		elapse(time.Minute)
		probe := must(t, b)
		require.True(t, probe.Probe())
		probe.FirstToken()
		require.Equal(t, HalfOpen, b.Status().State)
		probe.Silent()
		probe.Silent()
		require.Equal(t, Open, b.Status().State)
		require.Equal(t, time.Minute, b.Status().After)
		require.Equal(t, Slow, probe.Done(Outcome{}).Class, "the client has left")
		var none Call
		none.Silent()
	})
}

// TestASilentAnswerCountsOnce: when it fell silent, and not again when it ended.
func TestASilentAnswerCountsOnce(t *testing.T) {
	b := newBreaker(t, BreakerOptions{Policies: []Policy{Consecutive{Failures: 3}}})
	for range 2 {
		call := must(t, b)
		call.FirstToken()
		call.Silent()
		require.Equal(t, Failed, call.Done(Outcome{Class: Failed}).Class)
	}
	require.Equal(t, Closed, b.Status().State)
	call := must(t, b)
	call.Done(Outcome{Class: OK, FirstToken: ms})
	call = must(t, b)
	call.FirstToken()
	call.Silent()
	require.Equal(t, Closed, b.Status().State, "one of between has ended the row")
}

func TestWhoWasToldToEndIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(t, Options{}, does("large", says("a"), hears(3*time.Second), errs(errBroken)), small())
		ctx, cancel := context.WithTimeout(t.Context(), 500*ms)
		defer cancel()
		require.Error(t, ask(ctx, c, &haiku.Request{}).err)
		require.EqualValues(t, 1, c.Stats()[0].Neutral, "%+v", c.Stats()[0])
	})
}

func TestASilenceFromBeforeAChangeIsOldNews(t *testing.T) {
	b := newBreaker(t, BreakerOptions{OpenFor: 1, Ramp: []float64{1}})
	old := must(t, b)
	fail(t, b, 5)
	<-time.After(1)
	ptr(must(t, b)).Done(Outcome{Class: OK})
	old.Silent()
	require.Equal(t, HalfOpen, b.Status().State)
	own := must(t, b)
	own.Silent()
	require.Equal(t, Open, b.Status().State)
}

func TestASilenceChangesNothingThatAnOperatorHasForced(t *testing.T) {
	share(t, 1, BreakerOptions{}, func(t *testing.T, r *replicas) {
		r.store.operate("large", Setting{State: HalfOpen, Share: 1, Forced: true})
		settle()
		call := must(t, r.all[0])
		call.Silent()
		require.Equal(t, HalfOpen, r.all[0].Status().State)
	})
}
