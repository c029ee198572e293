package outage

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBroken = errors.New("broken")

func fails(context.Context) error { return errBroken }

func works(context.Context) error { return nil }

// hangs ends with its context, as an operation must.
func hangs(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestAServerThatHangsCostsTheDeadlineAndThenNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down []error
		var up []time.Duration
		g := New(Options{
			Deadline: time.Second, Failures: 2, Pause: 10 * time.Second,
			Down: func(err error) { down = append(down, err) }, Up: func(after time.Duration) { up = append(up, after) },
		})
		begin := time.Now()
		for range 2 {
			require.ErrorIs(t, g.Do(t.Context(), hangs), context.DeadlineExceeded)
		}
		for range 5 {
			require.ErrorIs(t, g.Do(t.Context(), works), ErrOff)
		}
		require.Equal(t, 2*time.Second, time.Since(begin))
		require.Equal(t, []error{context.DeadlineExceeded}, down)
		require.Equal(t, Stats{Timeouts: 2, Skipped: 5, Opened: 1, Open: true}, g.Stats())
		<-time.After(10 * time.Second)
		require.NoError(t, g.Do(t.Context(), works))
		require.Equal(t, []time.Duration{10 * time.Second}, up)
		require.False(t, g.Stats().Open)
	})
}

func TestACallerThatLeavesSaysNothingAboutTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{Deadline: time.Minute, Failures: 1})
		hasty, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, g.Do(hasty, hangs), context.DeadlineExceeded)
		require.ErrorIs(t, g.Do(hasty, works), context.DeadlineExceeded, "it is not even tried")
		require.Equal(t, Stats{}, g.Stats())
	})
}

// unnoticed is a context that is past its deadline and does not know it yet.
type unnoticed struct{ context.Context }

func (unnoticed) Deadline() (time.Time, bool) { return time.Now(), true }

func TestASocketMayNoticeTheCallersDeadlineFirst(t *testing.T) {
	g := New(Options{Deadline: time.Minute, Failures: 1})
	require.ErrorIs(t, g.Do(unnoticed{t.Context()}, func(context.Context) error { return os.ErrDeadlineExceeded }), os.ErrDeadlineExceeded)
	require.Equal(t, Stats{}, g.Stats())
}

func TestASocketsTimeoutIsATimeout(t *testing.T) {
	g := New(Options{Deadline: time.Hour})
	require.Error(t, g.Do(t.Context(), func(context.Context) error { return os.ErrDeadlineExceeded }))
	require.Error(t, g.Do(t.Context(), fails))
	require.Equal(t, Stats{Timeouts: 1, Errors: 1}, g.Stats())
}

func TestARefusalIsNoOutage(t *testing.T) {
	g := New(Options{Failures: 1, Well: func(err error) bool { return errors.Is(err, errBroken) }})
	for range 3 {
		require.ErrorIs(t, g.Do(t.Context(), fails), errBroken)
	}
	require.Equal(t, Stats{Errors: 3}, g.Stats())
}

func TestAPanicGivesTheProbeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{Failures: 1, Pause: time.Second})
		require.Error(t, g.Do(t.Context(), fails))
		<-time.After(time.Second)
		require.Panics(t, func() { _ = g.Do(t.Context(), func(context.Context) error { panic("a client's bug") }) })
		require.NoError(t, g.Do(t.Context(), works))
	})
}

func TestShutIsForGood(t *testing.T) {
	g := New(Options{})
	g.Shut()
	require.ErrorIs(t, g.Do(t.Context(), works), ErrOff)
	require.Equal(t, Stats{Skipped: 1}, g.Stats())
}
