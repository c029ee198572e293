package fallback

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku"
)

var usualLimits = Limits{FirstToken: 120 * time.Millisecond, Gap: 200 * time.Millisecond}

// judged is a policy's judge with the counts that a breaker would give it.
type judged struct {
	Judge
	recent Counts
}

func judge(p Policy) *judged { return &judged{Judge: p.Judge(usualLimits)} }

// sees shows it n ends of a kind and returns the last word.
func (j *judged) sees(n int, o Outcome) (why string) {
	for range n {
		if o.FirstToken > usualLimits.FirstToken {
			why = j.Observe(&Sample{Moment: Late, Outcome: Outcome{FirstToken: o.FirstToken}, Recent: &j.recent})
		}
		j.recent.count(&o)
		if w := j.Observe(&Sample{Moment: Ended, Outcome: o, Recent: &j.recent}); w != "" {
			why = w
		}
	}
	return why
}

var (
	good     = Outcome{Class: OK, FirstToken: 20 * time.Millisecond, Gap: 10 * time.Millisecond}
	late     = Outcome{Class: Slow, FirstToken: 240 * time.Millisecond}
	crawling = Outcome{Class: Slow, FirstToken: 20 * time.Millisecond, Gap: time.Second}
	broken   = Outcome{Class: Failed}
	busy     = Outcome{Class: Rejected}
)

func TestLatencyOpensForALateTokenOfAModelInBadHealth(t *testing.T) {
	t.Run("one late token is forgiven, the second is not", func(t *testing.T) {
		j := judge(Latency{})
		require.Empty(t, j.sees(1, late))
		require.Equal(t, "a first token took over 120ms at a health of 91", j.sees(1, late))
	})
	t.Run("bad health alone is none of its business", func(t *testing.T) {
		require.Empty(t, judge(Latency{}).sees(100, broken))
		require.Empty(t, judge(Latency{}).sees(100, crawling))
	})
	t.Run("it recovers in eight good answers", func(t *testing.T) {
		for n, want := range map[int]bool{7: true, 8: false} {
			j := judge(Latency{})
			j.sees(1, broken)
			j.sees(n, good)
			require.Equal(t, want, j.sees(1, late) != "", "after %d good answers", n)
		}
	})
	t.Run("what is hardly late is forgiven more often", func(t *testing.T) {
		j := judge(Latency{})
		hardly := Outcome{Class: Slow, FirstToken: 130 * time.Millisecond}
		require.Empty(t, j.sees(5, hardly))
		require.NotEmpty(t, j.sees(1, hardly))
	})
	t.Run("the limit itself is in time", func(t *testing.T) {
		j := judge(Latency{})
		j.sees(5, broken)
		require.Empty(t, j.sees(1, Outcome{Class: OK, FirstToken: 120 * time.Millisecond}))
	})
	t.Run("forgotten", func(t *testing.T) {
		j := judge(Latency{})
		j.sees(10, broken)
		j.Reset()
		require.Empty(t, j.sees(1, late))
	})
	t.Run("the score itself is good enough, and a rejection is worth half", func(t *testing.T) {
		j := judge(Latency{Health: 50})
		require.Empty(t, j.sees(10, busy))
		require.Empty(t, j.sees(1, late))
		j.sees(1, broken)
		require.NotEmpty(t, j.sees(1, late))
	})
	t.Run("another score", func(t *testing.T) {
		j := judge(Latency{Health: 50})
		j.sees(3, broken)
		require.Empty(t, j.sees(1, late))
		j.sees(1, broken)
		require.NotEmpty(t, j.sees(1, late))
	})
}

func TestHealthIsAWeightedMeanOfTheLastTen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		grades := rapid.SliceOf(rapid.Float64Range(0, 100)).Draw(t, "grades")
		var h health
		sum := 0.0
		for i, g := range grades {
			h.add(g)
			if ago := len(grades) - 1 - i; ago < 10 {
				sum += float64(10-ago) * (100 - g)
			}
		}
		require.InDelta(t, 100-sum/55, h.score(), 1e-9)
		require.GreaterOrEqual(t, h.score(), -1e-9)
	})
}

func TestSlowRateOpensWhenHalfOfTheAnswersAreSlow(t *testing.T) {
	for name, slow := range map[string]Outcome{"late": late, "crawling": crawling} {
		t.Run(name, func(t *testing.T) {
			j := judge(SlowRate{})
			require.Empty(t, j.sees(19, slow), "too few to tell")
			require.Equal(t, "20 of 20 answers were slow", j.sees(1, slow))
			j = judge(SlowRate{})
			j.sees(20, good)
			j.sees(50, broken) // are no answers
			require.Empty(t, j.sees(19, slow))
			require.Equal(t, "20 of 40 answers were slow", j.sees(1, slow))
		})
	}
	require.NotEmpty(t, judge(SlowRate{Share: 0.1, Least: 1}).sees(1, crawling))
}

func TestErrorRateOpensForFailuresAndForNothingButRejections(t *testing.T) {
	j := judge(ErrorRate{})
	require.Empty(t, j.sees(9, broken))
	require.Equal(t, "10 of 10 attempts failed", j.sees(1, broken))

	j = judge(ErrorRate{})
	j.sees(10, good)
	require.Empty(t, j.sees(80, busy), "a model that protects itself serves those it takes")
	require.NotEmpty(t, j.sees(10, busy))

	j = judge(ErrorRate{Share: 0.1, Rejected: 1, Least: 1})
	j.sees(10, good)
	require.Empty(t, j.sees(1, broken))
	require.NotEmpty(t, j.sees(1, broken))
}

func TestRatesAreJudgedByWhatAllReplicasSaw(t *testing.T) {
	for _, p := range []Policy{ErrorRate{}, SlowRate{}} {
		j := p.Judge(usualLimits)
		require.Empty(t, j.Observe(&Sample{Moment: Shared, Recent: &Counts{OK: 100}}))
		require.NotEmpty(t, j.Observe(&Sample{Moment: Shared, Recent: &Counts{Failed: 50, Slow: 50}}))
		require.Empty(t, j.Observe(&Sample{Moment: Late, Recent: &Counts{Failed: 50, Slow: 50}}))
	}
	for _, p := range []Policy{Latency{}, Consecutive{Failures: 1}, Baseline{Learn: 1}} {
		require.Empty(t, p.Judge(usualLimits).Observe(&Sample{Moment: Shared, Recent: &Counts{Failed: 100}}))
	}
}

func TestConsecutiveCountsWhatNothingGoodParts(t *testing.T) {
	j := judge(Consecutive{})
	for _, between := range []Outcome{{}, busy} {
		j.sees(4, broken)
		j.sees(10, between)
		require.NotEmpty(t, j.sees(1, broken))
		j.Reset()
	}
	for _, between := range []Outcome{good, crawling} {
		j.sees(4, broken)
		j.sees(1, between)
		require.Empty(t, j.sees(4, broken))
		j.Reset()
	}
}

func TestBaselineOpensWhenAModelIsNotWhatItWas(t *testing.T) {
	takes := func(d time.Duration) Outcome { return Outcome{Class: OK, FirstToken: d} }
	t.Run("far below the limit", func(t *testing.T) {
		j := judge(Baseline{})
		require.Empty(t, j.sees(200, takes(8*time.Millisecond)))
		require.Empty(t, j.sees(2, takes(80*time.Millisecond)), "two are none")
		require.NotEmpty(t, j.sees(20, takes(80*time.Millisecond)))
	})
	t.Run("not before it has learned", func(t *testing.T) {
		j := judge(Baseline{})
		j.sees(5, takes(8*time.Millisecond))
		require.Empty(t, j.sees(20, takes(80*time.Millisecond)))
	})
	t.Run("not for jitter of what is fast", func(t *testing.T) {
		j := judge(Baseline{})
		j.sees(200, takes(time.Millisecond))
		require.Empty(t, j.sees(100, takes(15*time.Millisecond)))
	})
	t.Run("a lasting change becomes usual", func(t *testing.T) {
		j := judge(Baseline{})
		j.sees(200, takes(8*time.Millisecond))
		for range 20 {
			j.sees(100, takes(80*time.Millisecond))
			j.Reset()
		}
		require.Empty(t, j.sees(100, takes(80*time.Millisecond)))
	})
	t.Run("attempts without a token say nothing", func(t *testing.T) {
		j := judge(Baseline{Learn: 1})
		require.Empty(t, j.sees(100, broken))
	})
}

func TestPoliciesCompose(t *testing.T) {
	b := newBreaker(t, BreakerOptions{Policies: []Policy{Consecutive{Failures: 100}, ErrorRate{Least: 2}}})
	fail(t, b, 2)
	require.Equal(t, "2 of 2 attempts failed", b.Status().Reason)
}

// unnoticed is a context that is past its deadline and does not know it yet.
type unnoticed struct{ context.Context }

func (unnoticed) Deadline() (time.Time, bool) { return time.Now(), true }

// TestClientsDecideNothing is about 20 each of what is the client's and what is
// the model's doing, with the same words in every error.
func TestClientsDecideNothing(t *testing.T) {
	aborted := errors.New("operation was aborted")
	alive := context.Background()
	gone, cancel := context.WithCancel(alive)
	cancel()
	expired, cancel := context.WithTimeout(alive, 0)
	defer cancel()
	sibling, stop := context.WithCancelCause(alive)
	stop(errors.New("a sibling was faster"))
	for name, tt := range map[string]struct {
		ctx      context.Context
		err      error
		complete bool
		want     Class
	}{
		"the client has left":                      {gone, aborted, false, Neutral},
		"the client's deadline":                    {expired, aborted, false, Neutral},
		"cancelled by a limit of ours":             {sibling, aborted, false, Neutral},
		"left, and the model says it was a fault":  {gone, haiku.ErrInternal, false, Neutral},
		"a moment before its deadline is noticed":  {unnoticed{alive}, context.DeadlineExceeded, false, Neutral},
		"left after the finish reason":             {gone, context.Canceled, true, OK},
		"the model's own words":                    {alive, aborted, false, Failed},
		"the model's own timeout":                  {alive, context.DeadlineExceeded, false, Failed},
		"the model cancels itself":                 {alive, context.Canceled, false, Failed},
		"no first token":                           {alive, ErrFirstToken, false, Failed},
		"stalled":                                  {alive, haiku.ErrTimeout.Because(ErrStalled), false, Failed},
		"overtaken":                                {alive, ErrOvertaken, false, Neutral},
		"no finish reason":                         {alive, errors.New("none"), false, Failed},
		"an error after the end":                   {alive, aborted, true, Failed},
		"complete":                                 {alive, nil, true, OK},
		"a request that is not valid":              {alive, haiku.ErrInvalidRequest, false, Neutral},
		"a prompt that is too long":                {alive, haiku.ErrContextLength, false, Neutral},
		"a client that does not read":              {alive, haiku.ErrSlowReader, false, Neutral},
		"no room":                                  {alive, haiku.ErrTooBusy, false, Rejected},
		"rate limited":                             {alive, haiku.ErrRateLimited, false, Rejected},
		"out of memory":                            {alive, haiku.ErrOverloaded, false, Rejected},
		"shutting down":                            {alive, haiku.ErrClosed, false, Failed},
		"a panic":                                  {alive, &haiku.PanicError{Value: 1}, false, Failed},
		"wrapped":                                  {alive, fmt.Errorf("x: %w", haiku.ErrTooBusy), false, Rejected},
		"a nil *Error":                             {alive, (*haiku.Error)(nil), false, Failed},
		"an error with a status of its own, below": {alive, &haiku.Error{Status: 422, Code: "odd"}, false, Neutral},
		"an error with a status of its own, above": {alive, &haiku.Error{Status: 599, Code: "odd"}, false, Failed},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, OutcomeOf(tt.ctx, tt.err, tt.complete).Class)
			b := newBreaker(t, BreakerOptions{Policies: []Policy{Consecutive{Failures: 20}, ErrorRate{Least: 20}}})
			for range 20 {
				require.Equal(t, Closed, b.Status().State)
				c := must(t, b)
				c.Done(OutcomeOf(tt.ctx, tt.err, tt.complete))
			}
			trips := tt.want == Failed || tt.want == Rejected
			require.Equal(t, trips, b.Status().State == Open)
			if tt.want == Neutral {
				require.Zero(t, b.Status().Recent)
			}
		})
	}
	require.Equal(t, time.Minute, OutcomeOf(alive, &haiku.Error{Status: 503, Code: "overloaded", RetryAfter: time.Minute}, false).RetryAfter)
}

func TestNeutralCallsDoNotPartFailures(t *testing.T) {
	b := newBreaker(t, BreakerOptions{Policies: []Policy{Consecutive{Failures: 3}}})
	for range 3 {
		fail(t, b, 1)
		for range 10 {
			if c, ok := b.Allow(); ok {
				c.FirstToken()
				c.Done(Outcome{})
			}
		}
	}
	require.Equal(t, Open, b.Status().State)
}

func TestBeingLateCountsWhoeverEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, BreakerOptions{})
		c := must(t, b)
		elapse(120 * time.Millisecond)
		c.Late()
		elapse(30 * time.Second)
		got := c.Done(Outcome{}) // the client has left
		require.Equal(t, Outcome{Class: Slow, FirstToken: 30*time.Second + 120*time.Millisecond}, got)
		require.Equal(t, Closed, b.Status().State)
		c = must(t, b)
		elapse(120 * time.Millisecond)
		c.Late()
		require.Equal(t, Open, b.Status().State, "as soon as it is known")
	})
}

func TestAnOutcomeIsHeldAgainstTheLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, BreakerOptions{Limits: Limits{FirstToken: time.Second, Gap: 100 * time.Millisecond}})
		c := must(t, b)
		elapse(time.Second)
		c.FirstToken()
		c.FirstToken()
		require.Equal(t, Outcome{Class: OK, FirstToken: time.Second, Gap: 100 * time.Millisecond}, c.Done(Outcome{Class: OK, Gap: 100 * time.Millisecond}))
		c = must(t, b)
		require.Equal(t, Slow, c.Done(Outcome{Class: OK, Gap: 101 * time.Millisecond}).Class)
		c = must(t, b)
		elapse(time.Second + 1)
		c.FirstToken()
		require.Equal(t, Slow, c.Done(Outcome{Class: OK}).Class)
		require.Equal(t, Counts{OK: 1, Slow: 2, FirstToken: [16]int64{10: 2}}, b.Status().Recent)
	})
}

func TestATimeThatIsToldAtTheEndIsLateToo(t *testing.T) {
	b := newBreaker(t, BreakerOptions{Policies: []Policy{Latency{}}})
	for range 2 {
		require.Equal(t, Closed, b.Status().State)
		ptr(must(t, b)).Done(late)
	}
	require.Equal(t, Open, b.Status().State)
}

func TestCountsAddUpAndForget(t *testing.T) {
	require.Equal(t, 0, bucketOf(999*time.Microsecond))
	require.Equal(t, 1, bucketOf(time.Millisecond))
	require.Equal(t, 7, bucketOf(120*time.Millisecond))
	require.Equal(t, 15, bucketOf(time.Hour))
	var c Counts
	require.Zero(t, c.FirstTokenWithin(0.5))
	for _, d := range []time.Duration{1, 3, 3, 100} {
		c.count(&Outcome{Class: OK, FirstToken: d * time.Millisecond})
	}
	require.Equal(t, 2*time.Millisecond, c.FirstTokenWithin(0))
	require.Equal(t, 4*time.Millisecond, c.FirstTokenWithin(0.5))
	require.Equal(t, 128*time.Millisecond, c.FirstTokenWithin(1))
	c.count(&Outcome{Class: Failed, FirstToken: time.Hour})
	require.Negative(t, c.FirstTokenWithin(1))
	require.EqualValues(t, 5, c.Total())

	rapid.Check(t, func(t *rapid.T) {
		w := newWindow(10 * time.Second)
		var seen []time.Duration
		now := time.Duration(0)
		for _, step := range rapid.SliceOf(rapid.Int64Range(0, int64(3*time.Second))).Draw(t, "steps") {
			now += time.Duration(step)
			w.count(now, &Outcome{Class: OK, FirstToken: time.Millisecond})
			seen = append(seen, now)
			var want int64
			for _, at := range seen {
				if now/time.Second-at/time.Second < 10 {
					want++
				}
			}
			require.Equal(t, Counts{OK: want, FirstToken: [16]int64{1: want}}, w.sum)
		}
	})
}
