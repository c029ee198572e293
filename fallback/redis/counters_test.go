package redis

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/fallback"
	"github.com/intelliparadigm/haiku/internal/testserver"
)

// patient is a deadline that a busy machine does not exceed by itself.
var patient = Options{Deadline: 10 * time.Second}

// open returns Counters on a client of their own.
func open(t testing.TB, addr string, o Options) *Counters {
	t.Helper()
	client := goredis.NewUniversalClient(ClientOptions(addr))
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	c, err := New(client, o)
	require.NoError(t, err)
	return c
}

// raw returns a client that waits as long as it takes, for what tests do to the
// server behind the Counters' back.
func raw(t testing.TB, addr string) *goredis.Client {
	c := goredis.NewClient(&goredis.Options{Addr: addr, ReadTimeout: time.Minute, PoolSize: 2})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// tester is a test of testing or rapid.
type tester interface {
	require.TestingT
	Context() context.Context
}

// testClock is a clock that a test sets, in place of the server's.
const testClock = `
local now = tonumber(redis.call('GET', 'clock'))
`

// atTestTime makes c use the testClock.
func atTestTime(c *Counters) *Counters {
	c.script = goredis.NewScript(testClock + exchangeScript)
	return c
}

// tick sets the testClock, in milliseconds.
func tick(t tester, r *goredis.Client, millis int64) {
	require.NoError(t, r.Set(t.Context(), "clock", millis, 0).Err())
}

// seen is one answer and its time to first token, in buckets of the histogram.
func seen(bucket int) fallback.Counts {
	c := fallback.Counts{OK: 1}
	c.FirstToken[bucket] = 1
	return c
}

func exchanged(t tester, c *Counters, name string, delta fallback.Counts, window time.Duration) fallback.Counts {
	sum, err := c.Exchange(t.Context(), name, delta, window)
	require.NoError(t, err)
	return sum
}

func TestEveryNumberIsAddedUp(t *testing.T) {
	srv := testserver.Redis(t)
	a, b := open(t, srv.Addr, patient), open(t, srv.Addr, patient)
	delta, want := fallback.Counts{}, fallback.Counts{}
	for i, p := range fields(&delta) {
		*p = int64(i + 1)
	}
	delta.Slow = maxDelta
	for i, p := range fields(&want) {
		*p = 2 * *fields(&delta)[i]
	}
	require.Equal(t, delta, exchanged(t, a, "m", delta, time.Minute))
	require.Equal(t, want, exchanged(t, b, "m", delta, time.Minute))
	require.Equal(t, want, exchanged(t, a, "m", fallback.Counts{}, time.Minute), "nothing new")
	require.Equal(t, fallback.Counts{}, exchanged(t, a, "another", fallback.Counts{}, time.Minute))
	require.Equal(t, fallback.Counts{}, exchanged(t, a, "m", fallback.Counts{}, time.Hour), "another window is counted apart")
	other := patient
	other.Prefix = "other"
	require.Equal(t, fallback.Counts{}, exchanged(t, open(t, srv.Addr, other), "m", fallback.Counts{}, time.Minute))
}

func TestWhatCannotBeCountedIsRefused(t *testing.T) {
	c := open(t, "127.0.0.1:1", Options{})
	for _, delta := range []fallback.Counts{{OK: -1}, {Failed: maxDelta + 1}, {FirstToken: [16]int64{15: -1}}} {
		_, err := c.Exchange(t.Context(), "m", delta, time.Minute)
		require.ErrorIs(t, err, ErrInvalid)
	}
	for _, window := range []time.Duration{0, -time.Second, time.Microsecond} {
		_, err := c.Exchange(t.Context(), "m", fallback.Counts{OK: 1}, window)
		require.ErrorIs(t, err, ErrInvalid)
	}
	require.Equal(t, Stats{}, c.Stats(), "the server was not asked")
}

func TestAClientThatIgnoresDeadlinesIsRefused(t *testing.T) {
	client := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	_, err := New(client, Options{})
	require.ErrorIs(t, err, ErrClient)
}

// TestNothingIsLostBetweenClients counts with the server's own clock, across
// many edges of buckets.
func TestNothingIsLostBetweenClients(t *testing.T) {
	srv := testserver.Redis(t)
	const clients, each = 4, 300
	narrow := patient
	narrow.Buckets = maxBuckets
	var group sync.WaitGroup
	for range clients {
		c := open(t, srv.Addr, narrow)
		group.Go(func() {
			for i := range int64(each) {
				sum, err := c.Exchange(t.Context(), "m", seen(int(i%16)), 10*time.Second)
				if err != nil || sum.OK <= i || sum.OK > clients*each {
					t.Errorf("after %d of its own: %+v, %v", i+1, sum, err)
				}
			}
		})
	}
	group.Wait()
	sum := exchanged(t, open(t, srv.Addr, narrow), "m", fallback.Counts{}, 10*time.Second)
	require.Equal(t, int64(clients*each), sum.OK)
	keys := raw(t, srv.Addr).Keys(t.Context(), "{haiku/m}:counts1:*").Val()
	require.Len(t, keys, 1)
	require.Greater(t, raw(t, srv.Addr).HLen(t.Context(), keys[0]).Val(), int64(1), "it crossed edges")
}

func TestAnExchangeThatIsSentTwiceCountsOnce(t *testing.T) {
	srv := testserver.Redis(t)
	c := open(t, srv.Addr, patient)
	x, err := c.newExchange("m", fallback.Counts{OK: 1, Failed: 2}, time.Minute)
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, x.run(t.Context()))
		require.Equal(t, fallback.Counts{OK: 1, Failed: 2}, x.sum)
	}
	require.Equal(t, int64(2), exchanged(t, c, "m", fallback.Counts{OK: 1}, time.Minute).OK)
}

// trips counts what a client asks of its server.
type trips struct{ n atomic.Int64 }

func (*trips) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (c *trips) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (*trips) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func TestAnExchangeIsOneRoundTripOnceTheTimeIsKnown(t *testing.T) {
	srv := testserver.Redis(t)
	c := open(t, srv.Addr, patient)
	exchanged(t, c, "m", seen(1), time.Minute)
	last, _ := c.clocks.Load("m")
	now := last.(moment)
	c.clocks.Store("m", moment{now.server - time.Hour.Milliseconds(), now.here.Add(-time.Hour)})
	known := &trips{}
	c.client.AddHook(known)
	exchanged(t, c, "m", seen(1), time.Minute)
	require.EqualValues(t, 1, known.n.Load())
}

func TestNothingStaysForEver(t *testing.T) {
	srv := testserver.Redis(t)
	c, r := open(t, srv.Addr, patient), raw(t, srv.Addr)
	for i := range 5 {
		exchanged(t, c, "model "+strconv.Itoa(i), seen(3), time.Minute)
	}
	keys := r.Keys(t.Context(), "*").Val()
	require.Len(t, keys, 10)
	for _, key := range keys {
		ttl := r.PTTL(t.Context(), key).Val()
		require.Positive(t, ttl, key)
		require.LessOrEqual(t, ttl, 72*time.Second, key)
	}
	for range 20 {
		exchanged(t, c, "reads", fallback.Counts{}, time.Minute)
	}
	require.Len(t, r.Keys(t.Context(), "*").Val(), 10, "who only asks leaves nothing")
}

func TestKeysOfOneNameAreOnOneNode(t *testing.T) {
	for _, name := range []string{"m", "", "a{b}c", "}{", "日本/語"} {
		x, err := open(t, "127.0.0.1:1", Options{Prefix: "p{}"}).newExchange(name, seen(0), time.Second)
		require.NoError(t, err)
		tags := map[string]bool{}
		for _, key := range x.keys {
			tag, _, ok := strings.Cut(key, "}:")
			require.True(t, ok && strings.HasPrefix(tag, "{") && len(tag) > 1 && !strings.ContainsAny(tag[1:], "{}"), key)
			tags[tag] = true
		}
		require.Len(t, tags, 1, name)
	}
}

func TestACluster(t *testing.T) {
	t.Parallel() // a node takes two seconds to trust its own slots
	srv := testserver.Redis(t, "--cluster-enabled", "yes")
	r := raw(t, srv.Addr)
	require.NoError(t, r.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	require.Eventually(t, func() bool { return strings.Contains(r.ClusterInfo(t.Context()).Val(), "cluster_state:ok") }, 10*time.Second, 10*time.Millisecond)
	options := ClientOptions(srv.Addr)
	options.IsClusterMode = true
	client := goredis.NewUniversalClient(options)
	defer client.Close()
	c, err := New(client, patient)
	require.NoError(t, err)
	for i := range 3 {
		for _, name := range []string{"a", "b{}", "c"} {
			require.Equal(t, int64(i+1), exchanged(t, c, name, seen(i), time.Minute).OK)
		}
	}
}
