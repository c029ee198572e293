package fallback_test

import (
	"context"
	"iter"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/fallback"
)

// laggingSwitch is a Switch of one replica whose watch tells of each change some
// time after Set has returned.
type laggingSwitch struct {
	lag time.Duration

	mu      sync.Mutex
	present fallback.Setting
	changes chan fallback.Setting
}

func (s *laggingSwitch) Watch(ctx context.Context, _ string) iter.Seq2[fallback.Setting, error] {
	return func(yield func(fallback.Setting, error) bool) {
		s.mu.Lock()
		now := s.present
		s.mu.Unlock()
		for yield(now, nil) {
			select {
			case now = <-s.changes:
				<-time.After(s.lag)
			case <-ctx.Done():
				return
			}
		}
	}
}

func (s *laggingSwitch) Set(_ context.Context, _ string, to fallback.Setting) (fallback.Setting, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if to.Revision != s.present.Revision {
		return fallback.Setting{}, fallback.ErrChanged
	}
	to.Revision, to.Remaining = to.Revision+1, to.Wait
	s.present = to
	s.changes <- to
	return to, nil
}

func (*laggingSwitch) Probe(context.Context, string, time.Duration) (func(context.Context) error, error) {
	return func(context.Context) error { return nil }, nil
}

// TestABreakerDoesNotFollowWhatItHasReplaced lets the watch tell of what the
// breaker wrote itself when it has written something else since.
func TestABreakerDoesNotFollowWhatItHasReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &laggingSwitch{lag: 10 * time.Second, changes: make(chan fallback.Setting, 100)}
		var changes []fallback.State
		b, err := fallback.NewBreaker(fallback.BreakerOptions{
			Name: "m", Switch: s, OpenFor: time.Second, Ramp: []float64{1}, RampAnswers: 1,
			OnChange: func(c fallback.Change) { changes = append(changes, c.To) }, Logger: slog.New(slog.DiscardHandler),
		})
		require.NoError(t, err)
		<-b.Ready()
		for i := range 500 {
			<-time.After(100 * time.Millisecond)
			call, ok := b.Allow()
			if !ok {
				continue
			}
			class := fallback.OK
			if i < 5 {
				class = fallback.Failed
			}
			call.Done(fallback.Outcome{Class: class, FirstToken: time.Millisecond})
		}
		require.Equal(t, fallback.Closed, b.Status().State)
		b.Close()
		require.Equal(t, []fallback.State{fallback.Open, fallback.HalfOpen, fallback.HalfOpen, fallback.Closed}, changes)
	})
}
