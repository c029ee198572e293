package cache

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// mapShared is a Shared in memory, which can be down.
type mapShared struct {
	mu       sync.Mutex
	down     bool
	all      map[string]Entry
	versions map[string]int
	written  map[string]map[string]int // versions of the tags when a key was written
}

func newMapShared() *mapShared {
	return &mapShared{all: make(map[string]Entry), versions: make(map[string]int), written: make(map[string]map[string]int)}
}

func (s *mapShared) Get(_ context.Context, keys ...string) [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	values := make([][]byte, len(keys))
	for i, key := range keys {
		e, ok := s.all[key]
		for tag, version := range s.written[key] {
			ok = ok && s.versions[tag] == version
		}
		if ok && !s.down {
			values[i] = e.Value
		}
	}
	return values
}

func (s *mapShared) GetEach(ctx context.Context, keys ...string) [][]byte { return s.Get(ctx, keys...) }

func (s *mapShared) Mark(_ context.Context, tags ...string) []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil
	}
	versions := make([]uint64, len(tags))
	for i, tag := range tags {
		versions[i] = uint64(s.versions[tag])
	}
	return versions
}

func (s *mapShared) SetAll(_ context.Context, _ uint64, entries []Entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return false
	}
	for _, e := range entries {
		for i, version := range e.Versions {
			if s.versions[e.Tags[i]] != int(version) {
				return false
			}
		}
	}
	for _, e := range entries {
		s.all[e.Key] = e
		s.written[e.Key] = make(map[string]int)
		for _, tag := range e.Tags {
			s.written[e.Key][tag] = s.versions[tag]
		}
	}
	return true
}

func (s *mapShared) Invalidate(_ context.Context, tags ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tag := range tags {
		s.versions[tag]++
	}
	return !s.down
}

func (s *mapShared) Close() error { return nil }

func TestProcessesShareWhatOneOfThemComputed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared, m := newMapShared(), &model{}
		process := func() *Cached {
			return Through(m, tiers(t, Options{Store: newMapStore(), Shared: shared, LocalTTL: 10 * time.Second, Jitter: -1}), Policy{})
		}
		one, two := process(), process()
		defer one.Close()
		defer two.Close()
		get := func(c *Cached) haiku.Usage {
			stream := haiku.NewStream(t.Context(), c, ask("an old pond"))
			got, err := stream.Text()
			require.NoError(t, err)
			require.Equal(t, "an old pond ", got)
			require.Equal(t, "the model", stream.Model())
			return stream.Usage()
		}
		get(one)
		require.Equal(t, haiku.Usage{PromptTokens: 3, CompletionTokens: 3, CachedTokens: 3}, get(two))
		get(two)
		require.Equal(t, int64(1), m.runs.Load())
		require.Equal(t, Stats{Hits: 2, Fetched: 1}, two.tiers.Stats())

		require.True(t, one.tiers.Invalidate(t.Context(), "model:"))
		get(one)
		require.Equal(t, int64(2), m.runs.Load())
		<-time.After(11 * time.Second)
		get(two)
		require.Equal(t, int64(2), m.runs.Load(), "the other process has the new one by now")

		// Without the shared level everyone is alone, and nobody waits or fails.
		shared.down = true
		<-time.After(time.Minute)
		get(one)
		get(two)
		get(two)
		require.Equal(t, int64(4), m.runs.Load())
		require.Equal(t, int64(1), one.tiers.Stats().Unshared)
		shared.down = false
		<-time.After(time.Minute)
		get(one)
		require.Equal(t, int64(4), m.runs.Load(), "what was shared before is there again")
	})
}

// TestWhatWasInvalidatedElsewhereMeanwhileIsNotShared computes an answer while
// another process invalidates what it depends on.
func TestWhatWasInvalidatedElsewhereMeanwhileIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newMapShared()
		process := func(m *model) *Cached {
			return Through(m, tiers(t, Options{Store: newMapStore(), Shared: shared, LocalTTL: 10 * time.Second, Jitter: -1}), Policy{})
		}
		slow, quick := &model{step: time.Second}, &model{}
		one, two := process(slow), process(quick)
		defer one.Close()
		defer two.Close()
		get := func(c *Cached) {
			_, err := haiku.NewStream(t.Context(), c, ask("an old pond")).Text()
			require.NoError(t, err)
		}
		go get(one)
		<-time.After(1500 * time.Millisecond)
		require.True(t, two.tiers.Invalidate(t.Context(), "model:"))
		<-time.After(5 * time.Second)
		get(two)
		require.Equal(t, int64(1), quick.runs.Load(), "what the other computed began before")
		require.Equal(t, int64(1), one.tiers.Stats().Unshared)
	})
}

// TestMeaningsAreSharedToo asks in one process what was asked in other words in
// another.
func TestMeaningsAreSharedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared, m := newMapShared(), &model{}
		process := func() *Cached {
			return Through(m, tiers(t, Options{
				Store: newMapStore(), Shared: shared, LocalTTL: 10 * time.Second, Jitter: -1,
				Semantic: &Semantic{Embedder: letters{}, Gate: sameNegation},
			}), Policy{})
		}
		one, two := process(), process()
		defer one.Close()
		defer two.Close()
		get := func(c *Cached, tenant, question string) string {
			got, err := haiku.NewStream(haiku.WithIdentity(t.Context(), haiku.Identity{Tenant: tenant}), c, ask(question)).Text()
			require.NoError(t, err)
			return got
		}
		get(one, "t", "where is the old pond")
		require.Equal(t, "where is the old pond ", get(two, "t", "is the old pond where"))
		require.Equal(t, "where is the old pond ", get(two, "t", "the old pond is where"), "from here now")
		require.Equal(t, int64(1), m.runs.Load())
		require.Equal(t, int64(2), two.tiers.Stats().Semantic)
		require.Equal(t, "is the old pond not where ", get(two, "t", "is the old pond not where"), "the gate")
		require.Equal(t, "is the old pond where ", get(two, "u", "is the old pond where"), "another tenant")
		require.Equal(t, int64(3), m.runs.Load())

		require.True(t, one.tiers.Invalidate(t.Context(), "tenant:t"))
		<-time.After(11 * time.Second)
		require.Equal(t, "pond old the is where ", get(two, "t", "pond old the is where"), "the other process learns of it within its LocalTTL")

		get(one, "t", "a frog leaps in")
		shared.down = true
		require.Equal(t, "leaps in a frog ", get(two, "t", "leaps in a frog"))
	})
}

func TestForeignBucketsAreMisses(t *testing.T) {
	shared := newMapShared()
	ts := tiers(t, Options{Shared: shared, Semantic: &Semantic{Embedder: letters{}, Gate: sameNegation}})
	m, err := ts.Meaning(t.Context(), ask("old pond"), "")
	require.NoError(t, err)
	other, err := ts.Meaning(t.Context(), ask("old pond"), "another namespace")
	require.NoError(t, err)
	key := keyOf("x")
	answer := func(m *Meaning) []byte {
		return packAnswer(&Write{Answer: &Answer{Model: "m"}, Meaning: m}, time.Now().Add(time.Hour), nil)
	}
	far, short, empty := *m, *m, *m
	far.Vector, short.Vector, empty.Vector = make([]float32, 27), m.Vector[:3], nil
	far.Vector[25] = 1
	for name, values := range map[string][2][]byte{
		"no key":            {[]byte("short"), answer(m)},
		"no answer":         {key[:], nil},
		"not JSON":          {key[:], []byte("{")},
		"no meaning":        {key[:], answer(nil)},
		"another partition": {key[:], answer(other)},
		"far":               {key[:], answer(&far)},
		"of another size":   {key[:], answer(&short)},
		"without direction": {key[:], answer(&empty)},
		"a torn partition":  {key[:], []byte(`{"expires":"2999-01-01T00:00:00Z","meaning":{"partition":"AAAA","text":"old pond","vector":"AAAA"}}`)},
		"a torn vector":     {key[:], []byte(`{"expires":"2999-01-01T00:00:00Z","meaning":{"partition":"AAAA","text":"old pond","vector":"AAA="}}`)},
	} {
		for _, bucket := range bucketKeys(m) {
			shared.SetAll(t.Context(), 1, []Entry{{Key: bucket, Value: values[0]}})
		}
		shared.SetAll(t.Context(), 1, []Entry{{Key: answerKey(key), Value: values[1]}})
		_, ok := ts.Similar(t.Context(), m)
		require.False(t, ok, name)
	}
	for _, bucket := range bucketKeys(m) {
		shared.SetAll(t.Context(), 1, []Entry{{Key: bucket, Value: key[:]}})
	}
	shared.SetAll(t.Context(), 1, []Entry{{Key: answerKey(key), Value: answer(m)}})
	a, ok := ts.Similar(t.Context(), m)
	require.True(t, ok)
	require.Equal(t, "m", a.Model)
}

func TestAForeignValueIsAMiss(t *testing.T) {
	shared, m := newMapShared(), &model{}
	c := Through(m, tiers(t, Options{Shared: shared}), Policy{})
	defer c.Close()
	for _, value := range []string{"", "not JSON", "{}", `{"expires":"2001-01-01T00:00:00Z"}`, "null", "[]"} {
		shared.SetAll(t.Context(), 1, []Entry{{Key: answerKey(KeyOf(ask("an old pond"), "")), Value: []byte(value)}})
		_, ok := c.tiers.fetch(t.Context(), KeyOf(ask("an old pond"), ""))
		require.False(t, ok, value)
	}
}

func TestRoutesAreSharedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newMapShared()
		one := tiers(t, Options{Store: newMapStore(), Shared: shared})
		two := tiers(t, Options{Store: newMapStore(), Shared: shared, LocalTTL: 10 * time.Second})
		prompt := keyOf("route a")
		require.NoError(t, one.SetAll(t.Context(), entry("a", 7, one.Mark(t.Context(), "table 1"))))
		got, ok := two.Route(t.Context(), prompt)
		require.True(t, ok)
		require.Equal(t, &Route{Model: "7", Temperature: new(7.0)}, got)
		require.True(t, one.Invalidate(t.Context(), "table 1"))
		_, ok = one.Route(t.Context(), prompt)
		require.False(t, ok)
		<-time.After(11 * time.Second)
		_, ok = two.Route(t.Context(), prompt)
		require.False(t, ok, "the other process learns of it within its LocalTTL")
		shared.SetAll(t.Context(), 1, []Entry{{Key: routeKey(prompt), Value: []byte(`{"expires":"2999-01-01T00:00:00Z"}`)}})
		_, ok = two.Route(t.Context(), prompt)
		require.False(t, ok)
	})
}
