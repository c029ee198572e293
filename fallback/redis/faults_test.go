package redis

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/fallback"
	"github.com/intelliparadigm/haiku/internal/testserver"
)

// brisk gives up soon and tries again soon.
var brisk = Options{Deadline: 400 * time.Millisecond, Failures: 3, Pause: time.Millisecond, MaxPause: 8 * time.Millisecond}

// untilDown exchanges until the server is given up.
func untilDown(t *testing.T, c *Counters, delta fallback.Counts) {
	t.Helper()
	for i := 0; !c.Stats().Open; i++ {
		require.Less(t, i, 100, "it gives up")
		_, err := c.Exchange(t.Context(), "m", delta, time.Minute)
		require.Error(t, err)
	}
}

// untilUp reads until the server is found back, and returns the sum.
func untilUp(t *testing.T, c *Counters) (sum fallback.Counts) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		sum, err = c.Exchange(t.Context(), "m", fallback.Counts{}, time.Minute)
		return err == nil
	}, 20*time.Second, 2*time.Millisecond)
	require.False(t, c.Stats().Open)
	return sum
}

func TestADeadServerIsAnErrorAndComesBack(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	c := open(t, srv.Addr, brisk)
	_ = untilUp(t, c)
	require.Equal(t, int64(1), exchanged(t, c, "m", seen(1), time.Minute).OK)
	srv.Kill()
	untilDown(t, c, seen(1))
	srv.Restart()
	require.Equal(t, fallback.Counts{}, untilUp(t, c), "what was lost stays lost")
	require.Equal(t, int64(1), exchanged(t, c, "m", seen(1), time.Minute).OK)
}

func TestAStoppedServerCostsTheDeadlineAndThenNothing(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	o := brisk
	o.Pause, o.MaxPause = time.Hour, time.Hour
	c := open(t, srv.Addr, o)
	_ = untilUp(t, c)
	srv.Pause()
	before := c.Stats()
	untilDown(t, c, seen(1))
	require.Equal(t, before.Timeouts+3, c.Stats().Timeouts)
	for range 1000 {
		_, err := c.Exchange(t.Context(), "m", seen(1), time.Minute)
		require.ErrorIs(t, err, ErrOff)
	}
	require.Equal(t, uint64(1000), c.Stats().Skipped)
}

func TestAServerThatWakesUpDoesNotCountTheDeltasOfItsSleep(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	c, r := open(t, srv.Addr, brisk), raw(t, srv.Addr)
	_ = untilUp(t, c)
	require.Equal(t, int64(1), exchanged(t, c, "m", seen(1), time.Minute).OK)
	srv.Pause()
	for range 2 {
		_, err := c.Exchange(t.Context(), "m", fallback.Counts{Failed: 1}, time.Minute)
		require.Error(t, err)
	}
	untilDown(t, c, fallback.Counts{}) // and so the deadline of the others is over
	srv.Resume()
	for range 2 {
		require.NoError(t, r.Ping(t.Context()).Err())
	}
	require.Equal(t, seen(1), untilUp(t, c))
}

func TestAPartitionIsAnErrorAndEnds(t *testing.T) {
	t.Parallel()
	proxy := testserver.NewProxy(t, testserver.Redis(t).Addr)
	c := open(t, proxy.Addr, brisk)
	_ = untilUp(t, c)
	require.Equal(t, int64(1), exchanged(t, c, "m", seen(1), time.Minute).OK)
	proxy.Partition()
	untilDown(t, c, seen(1))
	proxy.Heal()
	require.Equal(t, int64(1), untilUp(t, c).OK, "what was sent into the partition came too late")
	proxy.Cut()
	untilDown(t, c, fallback.Counts{})
	proxy.Heal()
	require.Equal(t, int64(1), untilUp(t, c).OK)
}

func TestAFlushedServerCountsOn(t *testing.T) {
	srv := testserver.Redis(t)
	c, r := open(t, srv.Addr, patient), raw(t, srv.Addr)
	require.Equal(t, int64(1), exchanged(t, c, "m", seen(1), time.Minute).OK)
	require.NoError(t, r.FlushAll(t.Context()).Err())
	require.NoError(t, r.ScriptFlush(t.Context()).Err())
	require.Equal(t, int64(1), exchanged(t, c, "m", seen(1), time.Minute).OK)
	require.Equal(t, int64(2), exchanged(t, c, "m", seen(1), time.Minute).OK)
}

func TestForeignValuesHarmNobody(t *testing.T) {
	srv := testserver.Redis(t)
	c, r := open(t, srv.Addr, patient), raw(t, srv.Addr)
	require.Equal(t, int64(1), exchanged(t, c, "m", seen(1), time.Minute).OK)
	key := r.Keys(t.Context(), "*counts1*").Val()[0]
	bucket := r.HKeys(t.Context(), key).Val()[0]
	require.NoError(t, r.HSet(t.Context(), key, "not a bucket", "7", bucket, "not a count").Err())
	require.Equal(t, int64(1), exchanged(t, c, "m", seen(1), time.Minute).OK)
	torn := "\xdc\x00\x14\x01" // an array of 20, of which one is there
	require.NoError(t, r.HSet(t.Context(), key, bucket, torn).Err())
	require.LessOrEqual(t, exchanged(t, c, "m", seen(1), time.Minute).OK, int64(2), "the time may be in the next bucket by now")
	require.NoError(t, r.Set(t.Context(), key, "not a hash", 0).Err())
	_, err := c.Exchange(t.Context(), "m", seen(1), time.Minute)
	require.ErrorContains(t, err, "WRONGTYPE")
}

func TestAServerThatIsFullIsNotGivenUp(t *testing.T) {
	srv := testserver.Redis(t)
	c, r := open(t, srv.Addr, patient), raw(t, srv.Addr)
	require.Equal(t, int64(1), exchanged(t, c, "m", seen(1), time.Minute).OK)
	require.NoError(t, r.ConfigSet(t.Context(), "maxmemory", "1").Err())
	for range 10 {
		_, err := c.Exchange(t.Context(), "m", seen(1), time.Minute)
		require.ErrorContains(t, err, "OOM")
	}
	require.Equal(t, Stats{Errors: 10}, c.Stats())
	require.NoError(t, r.ConfigSet(t.Context(), "maxmemory", "0").Err())
	require.Equal(t, int64(2), exchanged(t, c, "m", seen(1), time.Minute).OK)
}

func TestACallerThatLeavesIsNotTheServersFault(t *testing.T) {
	srv := testserver.Redis(t)
	c := open(t, srv.Addr, patient)
	left, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10 {
		_, err := c.Exchange(left, "m", seen(1), time.Minute)
		require.ErrorIs(t, err, context.Canceled)
	}
	require.Equal(t, Stats{}, c.Stats())
	require.Equal(t, int64(1), exchanged(t, c, "m", seen(1), time.Minute).OK)
}
