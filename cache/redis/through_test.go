package redis

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/cache"
)

// TestAnswersOutliveTheirProcessAndTheirServer runs two caches, as two processes
// have them, over one server, which is killed and comes back empty.
func TestAnswersOutliveTheirProcessAndTheirServer(t *testing.T) {
	server := serve(t)
	var runs atomic.Int64
	model := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		runs.Add(1)
		if _, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: "old pond"}); err != nil {
			return err
		}
		w.Finish(0, haiku.FinishStop)
		return nil
	})
	process := func() func(prompt string) {
		tiers, err := cache.New(cache.Options{Shared: server.open(Options{Pause: 10 * time.Millisecond, MaxPause: 20 * time.Millisecond}), LocalTTL: time.Millisecond})
		require.NoError(t, err)
		t.Cleanup(tiers.Close)
		c := cache.Through(model, tiers, cache.Policy{Refresh: -1})
		t.Cleanup(c.Close)
		return func(prompt string) {
			got, err := haiku.NewStream(t.Context(), c, &haiku.Request{Prompt: prompt}).Text()
			require.NoError(t, err)
			require.Equal(t, "old pond", got)
		}
	}
	one, two := process(), process()
	one("a")
	two("a")
	require.Equal(t, int64(1), runs.Load())

	server.Kill()
	for range 20 { // computed by each, without an error and without a stall
		start := time.Now()
		one("b")
		two("b")
		require.Less(t, time.Since(start), 2*time.Second)
	}
	server.Restart()
	require.Eventually(t, func() bool {
		one("c")
		before := runs.Load()
		two("c")
		return runs.Load() == before
	}, 10*time.Second, 20*time.Millisecond, "they share again by themselves")
}

// TestMeaningsAndRoutesAreSharedThroughAServer asks in one process what another
// was asked in other words, by a route that the other has decided.
func TestMeaningsAndRoutesAreSharedThroughAServer(t *testing.T) {
	server := serve(t)
	runs, decided := 0, 0
	model := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
		runs++
		if _, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: "an answer of " + req.Model}); err != nil {
			return err
		}
		w.Finish(0, haiku.FinishStop)
		return nil
	})
	process := func() (*cache.Tiers, func(question string) string) {
		tiers, err := cache.New(cache.Options{Shared: server.open(patient), LocalTTL: 200 * time.Millisecond, Semantic: &cache.Semantic{Threshold: 0.8}})
		require.NoError(t, err)
		t.Cleanup(tiers.Close)
		c := cache.Through(model, tiers, cache.Policy{Refresh: -1, Routes: cache.NewRoutes(cache.Table{
			Version: "7", Decide: func(context.Context, *haiku.Request) (cache.Route, error) {
				decided++
				return cache.Route{Model: "small"}, nil
			},
		})})
		t.Cleanup(c.Close)
		return tiers, func(question string) string {
			got, err := haiku.NewStream(t.Context(), c, &haiku.Request{Messages: []haiku.Message{{Role: haiku.RoleUser, Content: question}}}).Text()
			require.NoError(t, err)
			return got
		}
	}
	one, ask := process()
	two, askOther := process()
	require.Equal(t, "an answer of small", ask("How do I enable logging in version 2 of nginx?"))
	require.Equal(t, "an answer of small", askOther("how do i enable logging in version 2 of nginx"))
	require.Equal(t, []int{1, 1}, []int{runs, decided})
	require.Equal(t, []int64{1, 1}, []int64{two.Stats().Semantic, two.Stats().Routed})
	askOther("how do i enable logging in version 3 of nginx")
	require.Equal(t, 2, runs)
	require.True(t, one.Invalidate(t.Context(), "model:small"))
	<-time.After(250 * time.Millisecond) // LocalTTL is over
	askOther("how do i enable logging in version 2 of nginx")
	require.Equal(t, []int{3, 2}, []int{runs, decided}, "both went")
}
