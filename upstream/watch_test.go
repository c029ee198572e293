package upstream

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var errSlow = errors.New("slow")

// watched is a watch in a phase of a limit, and a function that waits for its end
// and says when that was, at the latest at a time.
func watched(limit time.Duration) (w *watch, ended func(most time.Duration) time.Duration) {
	ctx, cancel := context.WithCancelCause(context.Background())
	w = newWatch(cancel)
	began := time.Now()
	w.phase(limit, errSlow, began)
	return w, func(most time.Duration) time.Duration {
		select {
		case <-ctx.Done():
		case <-time.After(most - time.Since(began)):
		}
		return time.Since(began)
	}
}

// TestSilenceIsNeverFoundEarlyAndWithinAQuarter has engines that send at any
// time, and this side not read for any time.
func TestSilenceIsNeverFoundEarlyAndWithinAQuarter(t *testing.T) {
	const limit = time.Second
	gap := rapid.Int64Range(0, int64(limit)-1)
	rapid.Check(t, func(rt *rapid.T) {
		gaps := rapid.SliceOf(gap).Draw(rt, "gaps")
		pauses := rapid.SliceOfN(rapid.Int64Range(0, int64(3*limit)), len(gaps), len(gaps)).Draw(rt, "pauses")
		var want, got []time.Duration // when this side looked, and when it should have
		var from, end time.Duration
		synctest.Test(t, func(t *testing.T) { // rapid is told outside of it: it has a goroutine of its own
			w, ended := watched(limit)
			defer w.stop()
			began := time.Now()
			for i, gap := range gaps {
				at := time.Since(began) + time.Duration(gap)
				want, got = append(want, at), append(got, ended(at))
				w.progress()
				was := w.pause()
				<-time.After(time.Duration(pauses[i]))
				w.resume(was)
			}
			from = time.Since(began)
			end = ended(from + 10*limit)
		})
		require.Equal(rt, want, got, "ended early")
		require.GreaterOrEqual(rt, end, from+limit)
		require.LessOrEqual(rt, end, from+limit+limit/looks)
	})
}

// TestAPauseThatIsNoProgress: while this side does not read, the engine is not to
// blame, and a short pause is not worth a new beginning.
func TestAPauseThatIsNoProgress(t *testing.T) {
	for pause, want := range map[time.Duration]time.Duration{
		0:                            time.Second,
		100 * time.Millisecond:       time.Second,
		900 * time.Millisecond:       2 * time.Second,
		1100 * time.Millisecond:      2250 * time.Millisecond,
		time.Hour + time.Millisecond: time.Hour + 1250*time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			w, ended := watched(time.Second)
			defer w.stop()
			was := w.pause()
			<-time.After(pause)
			w.resume(was)
			require.Equal(t, want, ended(2*time.Hour), pause)
		})
	}
}

func TestPhasesBeginAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ended := watched(time.Second)
		defer w.stop()
		require.Equal(t, 900*time.Millisecond, ended(900*time.Millisecond))
		w.progress()
		w.phase(300*time.Millisecond, errSlow, time.Now())
		require.Equal(t, 1200*time.Millisecond, ended(time.Hour), "what was in front counts no more")
	})
	synctest.Test(t, func(t *testing.T) {
		w, ended := watched(time.Second)
		w.phase(0, errSlow, time.Now())
		require.Equal(t, time.Hour, ended(time.Hour), "no limit")
		w.phase(time.Second, errSlow, time.Now())
		w.stop()
		w.phase(time.Second, errSlow, time.Now())
		require.Equal(t, 2*time.Hour, ended(2*time.Hour), "over")
	})
}
