package otter

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/cache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func tiers(t *testing.T, maxBytes int64, ttl time.Duration) *cache.Tiers {
	t.Helper()
	s, err := New(maxBytes)
	require.NoError(t, err)
	ts, err := cache.New(cache.Options{Store: s, TTL: ttl, Jitter: -1})
	require.NoError(t, err)
	t.Cleanup(ts.Close)
	return ts
}

func key(name string) cache.Key { return cache.KeyOf(&haiku.Request{Prompt: name}, "") }

func TestTheTiersAgreeUnderEviction(t *testing.T) {
	ts := tiers(t, 100_000, time.Hour)
	for i := range 2000 {
		_ = ts.SetAll(t.Context(), cache.Write{
			Key: key(fmt.Sprint(i)), Answer: &cache.Answer{Tokens: []haiku.Token{{Text: strings.Repeat("x", 1000)}}},
			Prompt: key(fmt.Sprint("route ", i)), Route: &cache.Route{Model: "m"},
		})
	}
	readable := 0
	for i := range 2000 {
		_, answer := ts.Get(key(fmt.Sprint(i)))
		_, route := ts.Route(t.Context(), key(fmt.Sprint("route ", i)))
		require.Equal(t, answer, route)
		if answer {
			readable++
		}
	}
	require.Positive(t, readable)
	require.LessOrEqual(t, readable, 100)
	stats := ts.Stats()
	require.Equal(t, int64(2000), stats.Writes+stats.Dropped)
}

func TestAnAnswerIsServedAgain(t *testing.T) {
	runs := 0
	c := cache.Through(haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		runs++
		w.Finish(0, haiku.FinishStop)
		return nil
	}), tiers(t, 1<<20, time.Hour), cache.Policy{})
	defer c.Close()
	for range 3 {
		_, err := haiku.NewStream(t.Context(), c, &haiku.Request{Prompt: "x"}).Text()
		require.NoError(t, err)
	}
	require.Equal(t, 1, runs)
}
