package fallback

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// TestAnObserverThatPanicsHarmsNoAnswer has it panic where an attempt has ended,
// also on the goroutines of timers.
func TestAnObserverThatPanicsHarmsNoAnswer(t *testing.T) {
	for name, large := range map[string]*script{
		"of the first": does("large", says("x"), ends()),
		"of a hedge":   does("large", hangs()),
		"of the next":  does("large", errs(errBroken)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newChain(t, Options{HedgeAfter: 10 * ms, Observe: func(ctx context.Context, _ string) (context.Context, func(Attempt)) {
					return ctx, func(Attempt) { panic("rude") }
				}}, large, does("small", says("x"), ends()))
				var log logged
				ctx := haiku.WithLogger(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
				a, _, _ := timed(ctx, c, &haiku.Request{})
				require.NoError(t, a.err)
				require.Equal(t, "x", a.text)
				require.Positive(t, log.count("rude"))
			})
		})
	}
}

func TestAListenerThatPanicsHarmsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		b := newBreaker(t, BreakerOptions{OpenFor: time.Second, OnChange: func(Change) { panic("rude") }, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		fail(t, b, 5)
		elapse(time.Second)
		probe := must(t, b)
		synctest.Wait()
		probe.Done(Outcome{Class: OK})
		synctest.Wait()
		require.Equal(t, HalfOpen, b.Status().State)
		require.Equal(t, 3, log.count("panic=rude"))
	})
}

// rudePolicy panics when an attempt has failed.
type rudePolicy struct{}

func (rudePolicy) Judge(Limits) Judge { return rudePolicy{} }

func (rudePolicy) Observe(s *Sample) string {
	if s.Outcome.Class == Failed {
		panic("rude")
	}
	return ""
}

func (rudePolicy) Reset() { panic("rude") }

func TestAPolicyThatPanicsIsAskedNoMore(t *testing.T) {
	var log logged
	b := newBreaker(t, BreakerOptions{
		Policies: []Policy{rudePolicy{}, rudePolicy{}, Consecutive{}}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	fail(t, b, 5)
	require.Equal(t, Open, b.Status().State, "the others go on")
	require.Equal(t, 2, log.count("panic=rude"), "each says so once")
}
