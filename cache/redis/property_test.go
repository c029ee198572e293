package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// stored is an entry of the model: live while its tags have these versions.
type stored struct {
	value    string
	epoch    uint64
	write    int
	versions map[string]int
}

// model is what two Stores on one server must look like to a single caller.
type model struct {
	entries  map[string]stored
	versions map[string]int
	writes   int
}

func (m *model) live(key string) (stored, bool) {
	e, ok := m.entries[key]
	for tag, v := range e.versions {
		ok = ok && m.versions[tag] == v
	}
	return e, ok
}

func (m *model) set(epoch uint64, entries []Entry) {
	m.writes++
	for _, e := range entries {
		versions := map[string]int{}
		for _, tag := range e.Tags {
			versions[tag] = m.versions[tag]
		}
		m.entries[e.Key] = stored{string(e.Value), epoch, m.writes, versions}
	}
}

// get returns what Get must: the first write of the highest epoch.
func (m *model) get(keys []string) string {
	best, found := stored{}, false
	for _, key := range keys {
		if e, ok := m.live(key); ok && (!found || e.epoch > best.epoch) {
			best, found = e, true
		}
	}
	texts := make([]string, len(keys))
	for i, key := range keys {
		texts[i] = "-"
		if e, ok := m.live(key); ok && e.write == best.write {
			texts[i] = e.value
		}
	}
	return strings.Join(texts, " ")
}

func (m *model) invalidate(tags ...string) {
	for _, tag := range tags {
		m.versions[tag]++
	}
}

var (
	someKeys = []string{"a", "b", "c", "d"}
	someTags = []string{"model", "adapter", "tenant"}
)

func draw(t *rapid.T, from []string, least int, label string) []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(from), least, len(from), rapid.ID).Draw(t, label)
}

func TestTwoStoresAreOneCache(t *testing.T) {
	srv := serve(t)
	raw := srv.raw()
	a, b := srv.open(patient), srv.open(patient)
	rapid.Check(t, func(t *rapid.T) {
		require.NoError(t, raw.FlushAll(t.Context()).Err())
		m := model{entries: map[string]stored{}, versions: map[string]int{}}
		pick := func() *Store { return rapid.SampledFrom([]*Store{a, b}).Draw(t, "store") }
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				entries, epoch := []Entry{}, rapid.Uint64Range(0, 3).Draw(t, "epoch")
				for _, key := range draw(t, someKeys, 1, "keys") {
					entries = append(entries, entry(key, fmt.Sprint(key, m.writes), draw(t, someTags, 0, "tags")...))
				}
				require.True(t, pick().SetAll(t.Context(), epoch, entries))
				m.set(epoch, entries)
			},
			"get": func(t *rapid.T) {
				keys := draw(t, someKeys, 1, "keys")
				require.Equal(t, m.get(keys), texts(pick().Get(t.Context(), keys...)))
			},
			"invalidate": func(t *rapid.T) {
				tags := draw(t, someTags, 1, "tags")
				require.True(t, pick().Invalidate(t.Context(), tags...))
				m.invalidate(tags...)
			},
			"evict": func(t *rapid.T) {
				key := rapid.SampledFrom(someKeys).Draw(t, "key")
				require.NoError(t, raw.Del(t.Context(), a.prefix+key).Err())
				delete(m.entries, key)
			},
			"lose the versions": func(t *rapid.T) {
				require.NoError(t, raw.Del(t.Context(), a.tagsKey).Err())
				m.invalidate(someTags...)
			},
		})
	})
}

// history is what concurrent callers know about writes, in ticks of one clock.
type history struct {
	clock     atomic.Int64
	completed sync.Map     // write → tick at which its SetAll had returned
	overtaken atomic.Int64 // the latest beginning of a completed write
	floor     atomic.Int64 // the latest beginning of a completed invalidation
}

func raise(v *atomic.Int64, to int64) {
	for old := v.Load(); old < to && !v.CompareAndSwap(old, to); old = v.Load() {
	}
}

func (h *history) write(ctx context.Context, s *Store, begin int64) bool {
	id := number(int(begin))
	ok := s.SetAll(ctx, uint64(begin), []Entry{entry("a", id, "tag"), entry("b", id), entry("c", id, "tag", "other")})
	if ok {
		h.completed.Store(id, h.clock.Add(1))
		raise(&h.overtaken, begin)
	}
	return ok
}

// read returns what is wrong with one Get, and whether it was a hit. b has no
// tag, so it alone outlives an invalidation.
func (h *history) read(ctx context.Context, s *Store) (hit bool, wrong string) {
	overtaken, floor := h.overtaken.Load(), h.floor.Load()
	v := strings.Split(texts(s.Get(ctx, "a", "b", "c")), " ")
	if v[1] == "-" {
		return false, ""
	}
	if v[0] != v[2] || v[0] != "-" && v[0] != v[1] {
		return false, fmt.Sprint("parts of two writes, or half of one: ", v)
	}
	completed, known := h.completed.Load(v[1])
	if known && completed.(int64) < overtaken {
		return false, fmt.Sprint("a later write was over before this read began: ", v)
	}
	if v[0] == "-" {
		return false, ""
	}
	if known && completed.(int64) < floor {
		return false, fmt.Sprint("it was invalidated before this read began: ", v)
	}
	return true, ""
}

func TestConcurrentCallersSeeWholeWritesInOrder(t *testing.T) {
	srv := serve(t)
	h := &history{}
	steps := 600
	if testing.Short() {
		steps = 200
	}
	var hits atomic.Int64
	var group sync.WaitGroup
	for w := range 6 {
		s, random := srv.open(patient), rand.New(rand.NewPCG(7, uint64(w)))
		group.Go(func() {
			for range steps {
				switch begin := h.clock.Add(1); {
				case random.IntN(20) == 0:
					if !s.Invalidate(t.Context(), "tag") {
						t.Error("an invalidation failed")
					}
					raise(&h.floor, begin)
				case random.IntN(3) == 0:
					_ = h.write(t.Context(), s, begin)
				default:
					hit, wrong := h.read(t.Context(), s)
					if wrong != "" {
						t.Error(wrong)
					}
					if hit {
						hits.Add(1)
					}
				}
			}
		})
	}
	group.Wait()
	require.Positive(t, hits.Load())
}

func TestOneStoreServesManyGoroutines(t *testing.T) {
	s := serve(t).open(patient)
	var group sync.WaitGroup
	for g := range 20 {
		group.Go(func() {
			for i := range 20 {
				key, value := fmt.Sprint("k", g), fmt.Sprint(g, i)
				if !s.SetAll(t.Context(), 1, []Entry{entry(key, value, key)}) || texts(s.Get(t.Context(), key)) != value {
					t.Error("a write of its own is not read back")
				}
				if i%7 == 0 && (!s.Invalidate(t.Context(), key) || texts(s.Get(t.Context(), key)) != "-") {
					t.Error("an invalidation of its own is not seen")
				}
				_ = s.Stats()
			}
		})
	}
	group.Wait()
}
