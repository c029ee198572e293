package batch

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCloseAndShutdownRaceWithRequests runs in real time, for the race detector.
func TestCloseAndShutdownRaceWithRequests(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 100
	}
	for round := range rounds {
		b, err := New(func(ctx context.Context, reqs []int) ([]Result[int], error) {
			return make([]Result[int], len(reqs)), nil
		}, Options{Workers: 1 + round%3, MaxDelay: 100 * time.Microsecond, MaxBatchSize: 4, Fixed: round%2 == 0, Ordered: round%5 == 0})
		require.NoError(t, err)
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*50*time.Microsecond+time.Microsecond)
					_, err := b.Do(ctx, i)
					cancel()
					if errors.Is(err, ErrClosed) {
						return
					}
				}
			})
		}
		for i := range 3 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*round)*time.Microsecond)
				defer cancel()
				_ = b.Shutdown(ctx)
				_ = b.Stats()
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		_, err = b.Do(t.Context(), 1)
		require.ErrorIs(t, err, ErrClosed)
	}
}
