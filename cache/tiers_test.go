package cache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

func keyOf(s string) Key { return KeyOf(&haiku.Request{Prompt: s}, "") }

// entry is one write of version n under a name: both tiers hold the number.
func entry(name string, n int, mark Mark) Write {
	temperature := float64(n)
	return Write{
		Key: keyOf(name), Answer: &Answer{Model: fmt.Sprint(n)},
		Prompt: keyOf("route " + name), Route: &Route{Model: fmt.Sprint(n), Temperature: &temperature}, Mark: mark,
	}
}

// refusing is a Store that does not take some records, and drops others later.
type refusing struct {
	Store
	chance func() bool
}

func (s refusing) Set(key Key, r *Record, bytes int64, ttl time.Duration) bool {
	if s.chance() {
		r.Hide()
		return false
	}
	return s.Store.Set(key, r, bytes, ttl)
}

func (s refusing) Get(key Key) (*Record, bool) {
	r, ok := s.Store.Get(key)
	if ok && s.chance() && s.chance() { // evicted just now
		r.Hide()
		s.Store.Delete(key)
		return nil, false
	}
	return r, ok
}

// history is what readers of one name have seen, for a check in the manner of
// linearizability: whatever tier is read, time never runs backwards.
type history struct {
	seen         atomic.Uint64 // the highest epoch that a read which is over has returned
	versions     atomic.Int64
	begun, ended atomic.Int64 // calls of Invalidate
	marked       sync.Map     // version → begun just after its Mark
	shown        sync.Map     // versions that a read has returned
	dropped      sync.Map     // versions that a tier did not take
}

// read looks into one tier. What it finds is no older than what any read found
// that was over before it began, and nothing that was marked before an Invalidate
// began which was over by then.
func (h *history) read(t *testing.T, tier string, look func() hit) {
	seen, ended := h.seen.Load(), h.ended.Load()
	found := look()
	if found.Answer == nil {
		return // gone, which may be at any time
	}
	r := found.record
	require.GreaterOrEqual(t, r.epoch, seen, "the %s tier shows what another tier knew to be replaced", tier)
	marked, ok := h.marked.Load(found.Model)
	require.True(t, ok)
	h.shown.Store(found.Model, tier)
	require.GreaterOrEqual(t, marked, ended, "the %s tier shows what was invalidated", tier)
	for old := h.seen.Load(); old < r.epoch && !h.seen.CompareAndSwap(old, r.epoch); old = h.seen.Load() {
	}
}

// TestTheTiersAgree has writers, invalidations, evictions from each tier, refusals
// and lives of a millisecond at once, over few names, and readers that look into
// all three tiers.
func TestTheTiersAgree(t *testing.T) {
	for name, store := range map[string]func(t *testing.T) Store{
		"a map":     func(*testing.T) Store { return newMapStore() },
		"ristretto": func(t *testing.T) Store { s, err := NewRistretto(1 << 20); require.NoError(t, err); return s },
	} {
		t.Run(name, func(t *testing.T) {
			var coin atomic.Uint64
			chance := func() bool { return rand.New(rand.NewPCG(coin.Add(1), 5)).IntN(20) == 0 }
			ts := tiers(t, Options{Store: refusing{store(t), chance}, Semantic: &Semantic{
				Embedder: letters{}, Gate: func(string, string) bool { return true }, MaxEntries: 5,
			}})
			names := []string{"a", "b", "c"}
			var meanings [3]*Meaning
			for i, name := range names {
				var err error
				meanings[i], err = ts.Meaning(t.Context(), ask(name), "")
				require.NoError(t, err)
			}
			var histories [3]history
			look := func(i, tier int) {
				histories[i].read(t, [...]string{"output", "vector", "route"}[tier], func() (h hit) {
					switch tier {
					case 0:
						h, _ = ts.find(keyOf(names[i]))
					case 1:
						h, _ = ts.similar(t.Context(), meanings[i])
					case 2:
						ts.mu.RLock()
						r := ts.routes[keyOf("route "+names[i])]
						ts.mu.RUnlock()
						if r != nil {
							h, _ = ts.take(r)
						}
					}
					return h
				})
			}
			var writers, readers sync.WaitGroup
			var over atomic.Bool
			rounds := 2000
			if testing.Short() {
				rounds = 300
			}
			for w := range 4 {
				writers.Go(func() {
					random := rand.New(rand.NewPCG(uint64(w), 1))
					for range rounds {
						i := random.IntN(3)
						h := &histories[i]
						if random.IntN(10) == 0 {
							h.begun.Add(1)
							ts.Invalidate(t.Context(), "tag"+names[i])
							h.ended.Add(1)
							continue
						}
						version := int(h.versions.Add(1))
						write := entry(names[i], version, ts.Mark(t.Context(), "tag"+names[i]))
						h.marked.Store(write.Answer.Model, h.begun.Load())
						write.Meaning = meanings[i]
						if random.IntN(5) == 0 {
							write.TTL = time.Millisecond
						}
						if ts.SetAll(t.Context(), write) == nil {
							look(i, random.IntN(3))
						} else {
							h.dropped.Store(write.Answer.Model, true)
						}
					}
				})
			}
			for r := range 2 {
				readers.Go(func() {
					random := rand.New(rand.NewPCG(uint64(r), 2))
					for !over.Load() {
						look(random.IntN(3), random.IntN(3))
					}
				})
			}
			writers.Wait()
			over.Store(true)
			readers.Wait()
			for i := range histories {
				histories[i].dropped.Range(func(version, _ any) bool {
					tier, shown := histories[i].shown.Load(version)
					require.False(t, shown, "the %v tier has shown a write that another did not take", tier)
					return true
				})
			}
			for i, name := range names {
				a, okA := ts.Get(keyOf(name))
				r, okR := ts.Route(t.Context(), keyOf("route "+name))
				b, okB := ts.Similar(t.Context(), meanings[i])
				if okA && okR {
					require.Equal(t, a.Model, r.Model)
				}
				if okA && okB {
					require.Equal(t, a.Model, b.Model)
				}
			}
			stats := ts.Stats()
			require.Positive(t, stats.Dropped)
			require.Positive(t, stats.Writes)
			require.Positive(t, stats.Evicted)
		})
	}
}

func TestAWriteThatATierDoesNotTakeIsNowhere(t *testing.T) {
	ts := tiers(t, Options{Store: refusing{newMapStore(), func() bool { return true }}})
	require.ErrorIs(t, ts.SetAll(t.Context(), entry("a", 1, Mark{})), ErrDropped)
	_, ok := ts.Get(keyOf("a"))
	require.False(t, ok)
	_, ok = ts.Route(t.Context(), keyOf("route a"))
	require.False(t, ok)
	require.Equal(t, Stats{Dropped: 1}, ts.Stats())
}

func TestWhatIsEvictedFromOneTierIsGoneFromAll(t *testing.T) {
	store := newMapStore()
	ts := tiers(t, Options{Store: store})
	require.NoError(t, ts.SetAll(t.Context(), entry("a", 1, Mark{})))
	r, ok := store.Get(keyOf("a"))
	require.True(t, ok)
	r.Hide() // as a store does that evicts it
	_, ok = ts.Route(t.Context(), keyOf("route a"))
	require.False(t, ok)
}

func TestRistrettoNeverHoldsMoreThanItsBytes(t *testing.T) {
	s, err := NewRistretto(100_000)
	require.NoError(t, err)
	ts := tiers(t, Options{Store: s})
	kept := 0
	for i := range 2000 {
		w := entry(fmt.Sprint(i), i, Mark{})
		w.Answer.Tokens = []haiku.Token{{Text: string(make([]byte, 1000))}}
		if ts.SetAll(t.Context(), w) == nil {
			kept++
		}
	}
	readable, routes := 0, 0
	for i := range 2000 {
		if _, ok := ts.Get(keyOf(fmt.Sprint(i))); ok {
			readable++
		}
		if _, ok := ts.Route(t.Context(), keyOf(fmt.Sprint("route ", i))); ok {
			routes++
		}
	}
	require.Equal(t, readable, routes, "the tiers agree")
	require.LessOrEqual(t, readable, 100)
	require.Positive(t, readable)
	require.Equal(t, int64(kept), ts.Stats().Writes)
	require.Equal(t, int64(2000-kept), ts.Stats().Dropped, "what was not taken is counted")
	require.Equal(t, int64(kept-readable), ts.Stats().Evicted, "and what had to go again")
	require.Positive(t, ts.Stats().Bytes)
	require.LessOrEqual(t, ts.Stats().Bytes, int64(100_000))
}

func TestAnAnswerUnderWayDoesNotSurviveAnInvalidation(t *testing.T) {
	ts := tiers(t, Options{})
	mark := ts.Mark(t.Context(), "model:m")
	ts.Invalidate(t.Context(), "model:m")
	require.NoError(t, ts.SetAll(t.Context(), entry("a", 1, mark)))
	_, ok := ts.Get(keyOf("a"))
	require.False(t, ok)
	require.NoError(t, ts.SetAll(t.Context(), entry("a", 2, ts.Mark(t.Context(), "model:m"))))
	_, ok = ts.Get(keyOf("a"))
	require.True(t, ok)
	ts.Invalidate(t.Context(), "another")
	_, ok = ts.Get(keyOf("a"))
	require.True(t, ok)
}

func TestInvalidationHitsATenantsEntriesAlone(t *testing.T) {
	m := &model{}
	c := Through(m, tiers(t, Options{}), Policy{Tags: func(*haiku.Request) []string { return []string{"weights 1"} }})
	defer c.Close()
	get := func(tenant string) {
		_, err := haiku.NewStream(haiku.WithIdentity(t.Context(), haiku.Identity{Tenant: tenant}), c, ask("a b")).Text()
		require.NoError(t, err)
	}
	get("one")
	get("two")
	require.Equal(t, int64(2), m.runs.Load())
	c.tiers.Invalidate(t.Context(), "tenant:one")
	get("two")
	require.Equal(t, int64(2), m.runs.Load())
	get("one")
	require.Equal(t, int64(3), m.runs.Load())
	c.tiers.Invalidate(t.Context(), "weights 1")
	get("one")
	get("two")
	require.Equal(t, int64(5), m.runs.Load())
}

// TestInvalidationHitsAnAdaptersAnswersAlone: an adapter is a model name, whether
// a request or a route gives it.
func TestInvalidationHitsAnAdaptersAnswersAlone(t *testing.T) {
	var seen []haiku.Request
	routes := NewRoutes(Table{Version: "1", Decide: func(_ context.Context, req *haiku.Request) (Route, error) {
		if req.Model == "routed" {
			return Route{Model: "base", Adapter: "sea"}, nil
		}
		return Route{}, nil
	}})
	c := Through(served(&seen), tiers(t, Options{}), Policy{Routes: routes})
	defer c.Close()
	computes := func(model, question string) bool {
		before := len(seen)
		req := ask(question)
		req.Model = model
		_, err := haiku.NewStream(t.Context(), c, req).Text()
		require.NoError(t, err)
		return len(seen) > before
	}
	all := []struct{ model, question string }{{"base", "a"}, {"sea", "a"}, {"river", "a"}, {"routed", "b"}}
	for _, a := range all {
		require.True(t, computes(a.model, a.question), a.model)
		require.False(t, computes(a.model, a.question), a.model)
	}
	require.Equal(t, "sea", seen[3].Model)
	c.tiers.Invalidate(t.Context(), "model:sea")
	for _, a := range all {
		require.Equal(t, a.model == "sea" || a.model == "routed", computes(a.model, a.question), a.model)
		require.False(t, computes(a.model, a.question), a.model)
	}
}

func TestLivesDifferByTheirJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := tiers(t, Options{Store: newMapStore(), TTL: 100 * time.Second, Jitter: 0.2})
		for i := range 1000 {
			require.NoError(t, ts.SetAll(t.Context(), entry(fmt.Sprint(i), i, Mark{})))
		}
		left := func() (n int) {
			for i := range 1000 {
				if _, ok := ts.Get(keyOf(fmt.Sprint(i))); ok {
					n++
				}
			}
			return n
		}
		<-time.After(79 * time.Second)
		require.Equal(t, 1000, left())
		<-time.After(21 * time.Second)
		require.InDelta(t, 500, left(), 80)
		<-time.After(20 * time.Second)
		require.Zero(t, left())
	})
}
