package redis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku/fallback"
	"github.com/intelliparadigm/haiku/internal/testserver"
)

// event is a delta and when the server took it, in milliseconds.
type event struct {
	at    int64
	delta fallback.Counts
}

func plus(a, b fallback.Counts) fallback.Counts {
	for i, p := range fields(&a) {
		*p += *fields(&b)[i]
	}
	return a
}

// within adds up the events that are no older than age.
func within(events []event, now, age int64) (sum fallback.Counts) {
	for _, e := range events {
		if now-e.at <= age {
			sum = plus(sum, e.delta)
		}
	}
	return sum
}

func drawCounts(t *rapid.T) (c fallback.Counts) {
	if rapid.IntRange(0, 3).Draw(t, "nothing new") == 0 {
		return c
	}
	for range rapid.IntRange(1, 3).Draw(t, "numbers") {
		*fields(&c)[rapid.IntRange(0, counts-1).Draw(t, "which")] = rapid.Int64Range(0, 1000).Draw(t, "count")
	}
	return c
}

// TestSeveralClientsCountAsOne compares with a list of all that was counted:
// nothing younger than a window is missing, and nothing older than a window and
// a bucket is there, wherever their edges lie.
func TestSeveralClientsCountAsOne(t *testing.T) {
	srv := testserver.Redis(t)
	r := raw(t, srv.Addr)
	o := patient
	o.Buckets = 7
	var clients []*Counters
	for range 3 {
		clients = append(clients, atTestTime(open(t, srv.Addr, o)))
	}
	windows := []time.Duration{time.Second, 700 * time.Millisecond, 3 * time.Millisecond}
	rapid.Check(t, func(t *rapid.T) {
		require.NoError(t, r.FlushAll(t.Context()).Err())
		now := rapid.Int64Range(0, 1<<41).Draw(t, "begin")
		tick(t, r, now)
		type series struct {
			name   string
			window time.Duration
		}
		events := map[series][]event{}
		t.Repeat(map[string]func(*rapid.T){
			"exchange": func(t *rapid.T) {
				c := rapid.SampledFrom(clients).Draw(t, "client")
				s := series{rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name"), rapid.SampledFrom(windows).Draw(t, "window")}
				delta := drawCounts(t)
				events[s] = append(events[s], event{now, delta})
				sum := exchanged(t, c, s.name, delta, s.window)
				window := s.window.Milliseconds()
				width := (window + 6) / 7
				least, most := within(events[s], now, window), within(events[s], now, window+2*width-1)
				for i, p := range fields(&sum) {
					require.GreaterOrEqual(t, *p, *fields(&least)[i])
					require.LessOrEqual(t, *p, *fields(&most)[i])
				}
				edge := now - now%width - (window+width-1)/width*width
				require.Equal(t, within(events[s], now, now-edge), sum, "whole buckets")
			},
			"pass": func(t *rapid.T) {
				now += rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, 400), rapid.Int64Range(0, 3000)).Draw(t, "millis")
				tick(t, r, now)
			},
			"lose everything": func(t *rapid.T) {
				require.NoError(t, r.FlushAll(t.Context()).Err())
				tick(t, r, now)
				clear(events)
			},
		})
	})
}

// TestAClockThatIsSet covers the server's wall clock, which may be set.
func TestAClockThatIsSet(t *testing.T) {
	srv := testserver.Redis(t)
	r := raw(t, srv.Addr)
	c := atTestTime(open(t, srv.Addr, patient))
	count := func(now int64) int64 {
		t.Helper()
		tick(t, r, now)
		return exchanged(t, c, "m", seen(1), 10*time.Second).OK
	}
	const hour = 3_600_000 // in milliseconds
	const noon = 12 * hour
	require.Equal(t, int64(1), count(noon))
	require.Equal(t, int64(2), count(noon+500))
	require.Equal(t, int64(3), count(noon-3000), "set back a little: nothing is lost")
	require.Equal(t, int64(4), count(noon+9000))
	require.Equal(t, int64(1), count(noon-hour), "set back by far: counting begins anew")
	require.Equal(t, int64(2), count(noon-hour+1000))
	require.Equal(t, int64(1), count(noon), "set forward: all is old")
	require.Equal(t, int64(2), count(noon+1000))
}

// TestALateDeltaIsNotCounted is about deltas that a stopped server finds in
// its sockets when it wakes up.
func TestALateDeltaIsNotCounted(t *testing.T) {
	srv := testserver.Redis(t)
	r := raw(t, srv.Addr)
	c := atTestTime(open(t, srv.Addr, patient))
	tick(t, r, 0)
	require.Equal(t, int64(1), exchanged(t, c, "m", seen(1), time.Minute).OK)
	x, err := c.newExchange("m", seen(1), time.Minute)
	require.NoError(t, err)
	x.args[deadlineArg] = x.deadline(time.Now())
	tick(t, r, time.Minute.Milliseconds()/2)
	reply, err := c.script.Run(t.Context(), c.client, x.keys, x.args...).Int64Slice()
	require.NoError(t, err)
	require.Equal(t, []int64{30_000}, reply)
	require.Equal(t, int64(2), exchanged(t, c, "m", seen(1), time.Minute).OK, "one whose clock was wrong learns it and counts")
}
