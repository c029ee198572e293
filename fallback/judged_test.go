package fallback

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// lasting is a model that stands in with an answer that takes a while.
func lasting() *script {
	return does("small", takes(10*ms), says("a"), takes(200*ms), says("b"), ends())
}

func TestWhoTakesLongerThanTheOperatorsBudgetHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(t, Options{FirstToken: 60 * ms, Breaker: BreakerOptions{Policies: []Policy{Consecutive{}}}}, does("large", hangs()), small())
		for range 5 {
			require.Equal(t, Closed, c.Breaker(0).Status().State)
			_, first, _ := timed(t.Context(), c, &haiku.Request{})
			require.Equal(t, 60*ms, first)
		}
		require.Equal(t, Open, c.Breaker(0).Status().State)
	})
}

// TestAModelWhoseClientsAreAllInAHurryIsStillJudged has a model hang before clients
// each of which gives it less than its limit.
func TestAModelWhoseClientsAreAllInAHurryIsStillJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := does("large", hangs())
		c := newChain(t, Options{Breaker: BreakerOptions{Policies: []Policy{Consecutive{Failures: 2}}}}, large, lasting())
		for i := range 2 * judgedEach {
			require.Equal(t, Closed, c.Breaker(0).Status().State, i)
			start := time.Now()
			a, first, _ := timed(t.Context(), c, &haiku.Request{Objective: haiku.Objective{TTFT: 80 * ms}})
			require.NoError(t, a.err)
			require.Equal(t, 50*ms, first, "no client waits for the judgement")
			at, _ := large.last()
			want := 40 * ms
			if i%judgedEach == judgedEach-1 {
				want = 120 * ms
			}
			require.Equal(t, want, at.Sub(start))
		}
		require.Equal(t, Open, c.Breaker(0).Status().State)
		require.EqualValues(t, 2, c.Stats()[0].Failed)
		require.EqualValues(t, 2*judgedEach-2, c.Stats()[0].Neutral)
	})
	synctest.Test(t, func(t *testing.T) { // and one that is in time after all may answer
		c := newChain(t, Options{}, does("large", takes(45*ms), says("large"), ends()), lasting())
		c.members[0].stats.overtaken.Store(judgedEach - 1)
		a, first, _ := timed(t.Context(), c, &haiku.Request{Objective: haiku.Objective{TTFT: 80 * ms}})
		require.Equal(t, "large", a.text)
		require.Equal(t, 45*ms, first)
		require.EqualValues(t, 1, c.Stats()[0].OK)
	})
}

// TestWhoWasToldToEndIsNotLate is about models that take a moment to hear it.
func TestWhoWasToldToEndIsNotLate(t *testing.T) {
	t.Run("the client has left", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newChain(t, Options{}, does("large", hears(200*ms), ends()))
			ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
			defer cancel()
			require.Error(t, ask(ctx, c, &haiku.Request{}).err)
			require.EqualValues(t, 1, c.Stats()[0].Neutral, "%+v", c.Stats()[0])
		})
	})
	t.Run("another was faster", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newChain(t, Options{HedgeAfter: 40 * ms}, does("large", hears(200*ms), ends()), lasting())
			_, first, _ := timed(t.Context(), c, &haiku.Request{})
			require.Equal(t, 50*ms, first)
			require.EqualValues(t, 1, c.Stats()[0].Neutral, "%+v", c.Stats()[0])
		})
	})
}

// TestWhoWasLateIsEndedByTheAnswer: there is nothing left to see of it.
func TestWhoWasLateIsEndedByTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := does("large", hangs())
		c := newChain(t, Options{HedgeAfter: 40 * ms}, large, does("small", takes(200*ms), says("a"), takes(time.Minute), says("b"), ends()))
		c.members[0].stats.overtaken.Store(judgedEach - 1)
		c.opts.Stall = noLimit
		start := time.Now()
		_, first, _ := timed(t.Context(), c, &haiku.Request{})
		require.Equal(t, 240*ms, first)
		at, _ := large.last()
		require.Equal(t, 240*ms, at.Sub(start))
		require.EqualValues(t, 1, c.Stats()[0].Slow)
	})
}

// TestAWholeAnswerIsNotTornByItsModelsLingering has a model say all it has to say and
// then not return.
func TestAWholeAnswerIsNotTornByItsModelsLingering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(t, Options{}, does("large", says("a"), func(ctx context.Context, w *haiku.StreamWriter, u *haiku.Usage) (bool, error) {
			w.Finish(0, haiku.FinishStop)
			return hangs()(ctx, w, u)
		}), small())
		all, done := chunks(t, chat(t, c, true))
		require.True(t, done)
		require.Nil(t, all[len(all)-1].Error)
		require.Zero(t, c.Stats()[0].Failed)
	})
}

// TestAWholeAnswerIsNotTornByAModelThatDoesNotListen has it say all, and neither
// return nor hear that it should.
func TestAWholeAnswerIsNotTornByAModelThatDoesNotListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(t, Options{}, does("large", says("a"), func(_ context.Context, w *haiku.StreamWriter, _ *haiku.Usage) (bool, error) {
			w.Finish(0, haiku.FinishStop)
			elapse(time.Minute)
			return false, nil
		}), small())
		all, done := chunks(t, chat(t, c, true))
		require.True(t, done)
		require.Nil(t, all[len(all)-1].Error)
		require.Zero(t, c.Stats()[0].Failed)
	})
}

func TestWhoHasAnsweredInBetweenIsNotJudgedForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := does("large", hangs())
		c := newChain(t, Options{HedgeAfter: 40 * ms}, large, lasting())
		for i := range 2*judgedEach - 2 {
			if large.steps = []step{hangs()}; i == judgedEach-1 {
				large.steps = []step{says("x"), ends()}
			}
			require.NoError(t, ask(t.Context(), c, &haiku.Request{}).err)
		}
		require.Zero(t, c.Stats()[0].Failed)
	})
}

func TestGapsAreThoseOfEachChoice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen attempts
		c := newChain(t, Options{Observe: seen.observe}, haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
			elapse(10 * ms)
			for i := range 8 { // 4 of each choice, in turn
				_, _ = w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Choice: i % 2, Text: "x"})
				if i%2 == 1 && i < 7 {
					elapse(100 * ms)
				}
			}
			w.Finish(0, haiku.FinishStop)
			w.Finish(1, haiku.FinishStop)
			return nil
		}))
		require.NoError(t, ask(t.Context(), c, &haiku.Request{Choices: 2}).err)
		require.Equal(t, 100*ms, seen.all[0].Outcome.Gap)
	})
}

// TestABreakerThatOpensTellsWhatTheModelSaid: how many attempts have failed does not
// tell an operator what to mend.
func TestABreakerThatOpensTellsWhatTheModelSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var changes []Change
		broken := true
		sick := haiku.ModelFunc(func(_ context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
			if !broken {
				w.TryPush(haiku.Piece{ID: -1, Text: "a"})
				w.Finish(0, haiku.FinishStop)
				return nil
			}
			return haiku.ErrInternal.Because(errors.New("dial tcp: connection refused"))
		})
		well := haiku.ModelFunc(func(_ context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
			w.TryPush(haiku.Piece{ID: -1, Text: "a"})
			w.Finish(0, haiku.FinishStop)
			return nil
		})
		chain, err := Options{Breaker: BreakerOptions{
			OnChange: func(c Change) { changes = append(changes, c) }, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		}}.New(sick, well)
		require.NoError(t, err)
		defer chain.Close()
		for range 5 {
			_, err := haiku.NewStream(t.Context(), chain, &haiku.Request{Prompt: "a"}).Text()
			require.NoError(t, err)
		}
		synctest.Wait()
		require.Len(t, changes, 1)
		require.ErrorIs(t, changes[0].Err, haiku.ErrInternal)
		require.Equal(t, 1, strings.Count(log.String(), "connection refused"), log.String())

		elapse(5 * time.Minute)
		_, err = haiku.NewStream(t.Context(), chain, &haiku.Request{Prompt: "a"}).Text()
		require.NoError(t, err)
		synctest.Wait()
		last := changes[len(changes)-1] // being half-open may have been told before it
		require.Equal(t, Open, last.To, "the probe has failed")
		require.Error(t, last.Err)

		broken = false
		elapse(5 * time.Minute)
		_, err = haiku.NewStream(t.Context(), chain, &haiku.Request{Prompt: "a"}).Text()
		require.NoError(t, err)
		synctest.Wait()
		last = changes[len(changes)-1]
		require.Equal(t, HalfOpen, last.To)
		require.NoError(t, last.Err)
	})
}
