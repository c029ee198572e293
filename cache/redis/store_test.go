package redis

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestWhatIsStoredIsReadByEveryProcess(t *testing.T) {
	srv := serve(t)
	a, b := srv.open(patient), srv.open(patient)
	require.Equal(t, "- -", get(t, a, "x", "y"))
	require.True(t, a.SetAll(t.Context(), 1, []Entry{entry("x", "1", "model"), entry("y", "", "model", "tenant")}))
	values := b.Get(t.Context(), "x", "nothing", "y")
	require.Equal(t, [][]byte{[]byte("1"), nil, {}}, values)
	require.Equal(t, Stats{Hits: 2, Misses: 1}, b.Stats())
	require.Equal(t, Stats{Misses: 2, Stored: 1}, a.Stats())
	require.Empty(t, a.Get(t.Context()))
	require.True(t, a.SetAll(t.Context(), 1, nil))
	require.True(t, a.Invalidate(t.Context()))
}

func TestBytesComeBackAsTheyWere(t *testing.T) {
	s := serve(t).open(patient)
	value := make([]byte, 70_000)
	for i := range value {
		value[i] = byte(i * 7)
	}
	key := "\x00\r\n}{ü"
	require.True(t, s.SetAll(t.Context(), 9, []Entry{{Key: key, Value: value, Tags: []string{"\x00", ""}}}))
	require.True(t, bytes.Equal(value, s.Get(t.Context(), key)[0]))
}

func TestATagTakesItsEntriesWithIt(t *testing.T) {
	srv := serve(t)
	a, b := srv.open(patient), srv.open(patient)
	require.NotEqual(t, slotOf("model"), slotOf("tenant"))
	write := func() {
		require.True(t, a.SetAll(t.Context(), 1, []Entry{entry("m", "1", "model"), entry("mt", "2", "model", "tenant"), entry("free", "3")}))
	}
	write()
	require.True(t, b.Invalidate(t.Context(), "tenant"))
	require.Equal(t, "1 - 3", get(t, a, "m", "mt", "free"))
	write() // a does not know yet what b did
	require.Equal(t, "1 2 3", get(t, b, "m", "mt", "free"))
	require.True(t, b.Invalidate(t.Context(), "model", "other"))
	require.Equal(t, "- - 3", get(t, a, "m", "mt", "free"))
}

func TestAGetAnswersFromOneWrite(t *testing.T) {
	s := serve(t).open(patient)
	require.True(t, s.SetAll(t.Context(), 1, []Entry{entry("a", "a1"), entry("b", "b1"), entry("c", "c1")}))
	require.True(t, s.SetAll(t.Context(), 2, []Entry{entry("b", "b2"), entry("c", "c2")}))
	require.Equal(t, "- b2 c2", get(t, s, "a", "b", "c"))
	require.Equal(t, "a1", get(t, s, "a"))
	require.True(t, s.SetAll(t.Context(), 2, []Entry{entry("c", "c3")}), "the same epoch, as another process may count")
	require.Equal(t, "- b2 -", get(t, s, "a", "b", "c"))
	require.Equal(t, uint64(3), s.Stats().Mixed)
}

func TestEntriesLeaveByTheirTTL(t *testing.T) {
	srv := serve(t)
	o := patient
	o.MaxTTL = time.Hour
	s, raw := srv.open(o), srv.raw()
	require.True(t, s.SetAll(t.Context(), 1, []Entry{
		{Key: "none"}, {Key: "long", TTL: 48 * time.Hour}, {Key: "short", TTL: time.Minute}, {Key: "least", TTL: time.Nanosecond},
	}))
	for key, want := range map[string]time.Duration{"none": time.Hour, "long": time.Hour, "short": time.Minute} {
		left, err := raw.PTTL(t.Context(), s.prefix+key).Result()
		require.NoError(t, err)
		require.InDelta(t, want.Seconds(), left.Seconds(), 30, key)
	}
	require.Eventually(t, func() bool { return get(t, s, "least") == "-" }, 10*time.Second, time.Millisecond)
}

func TestAWriteOutOfBoundsIsRefusedWhole(t *testing.T) {
	o := patient
	o.MaxValueBytes = 10
	s := serve(t).open(o)
	for name, bad := range map[string]Entry{
		"value": entry("bad", strings.Repeat("v", 11)),
		"TTL":   {Key: "bad", TTL: -1},
		"tags":  {Key: "bad", Tags: make([]string, maxTags+1)},
	} {
		require.False(t, s.SetAll(t.Context(), 1, []Entry{entry("good", "1"), bad}), name)
		require.Equal(t, "- -", get(t, s, "good", "bad"), name)
	}
	require.Equal(t, uint64(3), s.Stats().Refused)
	full := Entry{Key: "good", Value: make([]byte, 10), Tags: make([]string, maxTags)}
	for i := range full.Tags {
		full.Tags[i] = number(i)
	}
	require.True(t, s.SetAll(t.Context(), 1, []Entry{full}))
	require.NotEqual(t, "-", get(t, s, "good"))
}

func TestForeignAndTornBytesAreMisses(t *testing.T) {
	srv := serve(t)
	o := patient
	o.MaxValueBytes = 1000
	s, raw := srv.open(o), srv.raw()
	fill := func() string {
		require.True(t, s.SetAll(t.Context(), 1, []Entry{entry("k", "a value", "tag"), entry("other", "another", "tag")}))
		return raw.Get(t.Context(), s.prefix+"k").Val()
	}
	record := fill()
	for name, foreign := range map[string]string{
		"text": "hello", "empty": "", "only the magic": magic, "cut": record[:len(record)-1], "longer": record + "x",
		"a bit of the value": record[:len(record)-1] + "E", "huge": strings.Repeat("x", 1<<20),
		"many tags": record[:28] + "\xff" + record[29:], "huge record": record + strings.Repeat("x", 1<<20),
	} {
		require.NoError(t, raw.Set(t.Context(), s.prefix+"k", foreign, 0).Err())
		require.Equal(t, "- another", get(t, s, "k", "other"), name)
	}
	require.NoError(t, raw.Copy(t.Context(), s.prefix+"other", s.prefix+"k", 0, true).Err())
	require.Equal(t, "-", get(t, s, "k"), "the record of another key")
	require.NoError(t, raw.Del(t.Context(), s.prefix+"k").Err())
	require.NoError(t, raw.LPush(t.Context(), s.prefix+"k", "list").Err())
	require.Equal(t, "- another", get(t, s, "k", "other"))
	fill()
	require.Equal(t, "a value another", get(t, s, "k", "other"), "a write replaces even a list")
	require.Positive(t, s.Stats().Corrupt)
}

func TestForeignVersionsStoreNothing(t *testing.T) {
	srv := serve(t)
	s, raw := srv.open(patient), srv.raw()
	slot := tagVersion{slot: slotOf("tag")}.slotBytes()
	for i, version := range []string{"", "short", strings.Repeat("\x00", 8), "far too long"} {
		require.NoError(t, raw.HSet(t.Context(), s.tagsKey, slot, version).Err())
		require.False(t, s.SetAll(t.Context(), 1, []Entry{entry("k", "v", "tag")}))
		require.Equal(t, "-", get(t, s, "k"))
		require.Equal(t, uint64(i+1), s.Stats().Outrun)
	}
	require.True(t, s.Invalidate(t.Context(), "tag"))
	require.True(t, s.SetAll(t.Context(), 1, []Entry{entry("k", "v", "tag")}))
}

func TestAWriteThatFailsStoresNothing(t *testing.T) {
	srv := serve(t)
	s, raw := srv.open(patient), srv.raw()
	both := []Entry{entry("a", "1"), entry("b", "2", "tag")}
	require.NoError(t, raw.Set(t.Context(), s.tagsKey, "no hash", 0).Err())
	require.False(t, s.SetAll(t.Context(), 1, both))
	require.Equal(t, "-", get(t, s, "a"))
	require.NoError(t, raw.Del(t.Context(), s.tagsKey).Err())

	require.True(t, s.SetAll(t.Context(), 1, both))
	require.NoError(t, raw.ConfigSet(t.Context(), "maxmemory", "1").Err())
	for range 2 * defaultFailures {
		require.False(t, s.SetAll(t.Context(), 2, []Entry{entry("a", "3"), entry("b", "4", "tag"), entry("c", "5", "new")}))
	}
	require.Equal(t, "1 2 -", get(t, s, "a", "b", "c"), "a full server still reads")
	require.False(t, s.Stats().Open)
	require.NoError(t, raw.ConfigSet(t.Context(), "maxmemory", "0").Err())
	require.True(t, s.SetAll(t.Context(), 2, both))
}

func TestPrefixesDoNotMeet(t *testing.T) {
	srv := serve(t)
	a, b := patient, patient
	a.Prefix, b.Prefix = "a{}", "a"
	x, y := srv.open(a), srv.open(b)
	require.True(t, x.SetAll(t.Context(), 1, []Entry{entry("k", "1", "tag")}))
	require.True(t, y.Invalidate(t.Context(), "tag"))
	require.Equal(t, "1", get(t, x, "k"))
	require.Equal(t, "-", get(t, y, "k"))
	require.Equal(t, "{a%7B%7D}:e:", x.prefix)
}

func TestACluster(t *testing.T) {
	t.Parallel() // a node takes two seconds to trust its own slots
	srv := serve(t, "--cluster-enabled", "yes")
	raw := srv.raw()
	require.NoError(t, raw.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	require.Eventually(t, func() bool {
		return strings.Contains(raw.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	}, 10*time.Second, 10*time.Millisecond)
	options := ClientOptions(srv.Addr)
	options.IsClusterMode = true
	client := goredis.NewUniversalClient(options)
	defer client.Close()
	require.IsType(t, &goredis.ClusterClient{}, client)
	s := New(client, patient)
	require.True(t, s.SetAll(t.Context(), 1, []Entry{entry("a", "1", "x", "y"), entry("b", "2", "z")}))
	require.Equal(t, "1 2", get(t, s, "a", "b"))
	require.True(t, s.Invalidate(t.Context(), "x", "z"))
	require.Equal(t, "- -", get(t, s, "a", "b"))
}

func TestAClientThatIgnoresDeadlinesIsNotUsed(t *testing.T) {
	log := &bytes.Buffer{}
	client := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	s := New(client, Options{Logger: textLogger(log)})
	require.Equal(t, "-", get(t, s, "k"))
	require.False(t, s.SetAll(t.Context(), 1, []Entry{entry("k", "v")}))
	require.False(t, s.Invalidate(t.Context(), "tag"))
	require.Equal(t, Stats{Misses: 1, Skipped: 3, Unusable: true}, s.Stats())
	require.Contains(t, log.String(), "ContextTimeoutEnabled")
	require.ErrorIs(t, s.Close(), ErrOwed)
}

func TestAClosedStoreIsOff(t *testing.T) {
	s := serve(t).open(patient)
	require.True(t, s.SetAll(t.Context(), 1, []Entry{entry("k", "v")}))
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.Equal(t, "-", get(t, s, "k"))
	require.False(t, s.SetAll(t.Context(), 1, []Entry{entry("k", "v")}))
	require.False(t, s.Invalidate(t.Context(), "tag"))
}

func TestACallerThatLeftIsNotTheServersFault(t *testing.T) {
	s := serve(t).open(patient)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 * defaultFailures {
		require.Equal(t, "-", texts(s.Get(ctx, "k")))
		require.False(t, s.Invalidate(ctx, "tag"))
	}
	require.Zero(t, s.Stats().Errors+s.Stats().Timeouts)
	require.True(t, s.SetAll(t.Context(), 1, []Entry{entry("k", "v", "tag")}), "it delivers what is owed first")
	require.Equal(t, "v", get(t, s, "k"))
}
