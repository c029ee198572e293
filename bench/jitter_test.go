//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/cache"
)

// lonely are groups of one phrasing.
func lonely(n int) []phrasings { return friends(n, 1) }

// TestIndependentRequestsHitAsTheClosedFormSays holds the simulation to renewal
// theory: a key asked at a rate of λ is computed once, and then found for as long
// as it lives, λ·E[life] times on average, whatever the life's distribution.
func TestIndependentRequestsHitAsTheClosedFormSays(t *testing.T) {
	groups := lonely(300)
	asks := steadyAsks(groups, 0.5, 200*time.Hour)
	for _, c := range []struct {
		policy   lifePolicy
		jitter   float64
		meanLife float64 // of a TTL
	}{
		{lifePolicy{}, 0, 1},
		{lifePolicy{}, 0.15, 1},
		{lifePolicy{apart: true}, 0.15, 1},
		{lifePolicy{least: true}, 0.15, 1 - 0.15/2}, // the mean of the least of three
		{lifePolicy{least: true}, 0.4, 1 - 0.4/2},
	} {
		want := 0.0
		for _, share := range popularity(len(groups)) {
			perLife := 0.5 * share * lifeTTL.Seconds() * c.meanLife
			want += 100 * share * perLife / (1 + perLife)
		}
		run := lifeRun{lifePolicy: c.policy, ttl: lifeTTL, jitter: c.jitter}
		require.InDelta(t, want, run.runAll(groups, asks, lifeFrom).hits(), 0.3, "%+v", c)
	}
}

// TestAnAnswerThatIsGoneLeavesAQuestionThatLeadsNowhere plays the case that
// tiers apart lose by.
func TestAnAnswerThatIsGoneLeavesAQuestionThatLeadsNowhere(t *testing.T) {
	groups := friends(1, 4)
	short, long := [lifeTiers]float64{-1, 1, 1}, [lifeTiers]float64{1, 1, 1}
	asks := []ask{{at: 0, draws: short}} // ends after 51 minutes in one tier, and 69 in the others
	for i := range 3 {
		asks = append(asks, ask{at: time.Hour + time.Duration(i)*time.Minute, phrase: i + 1, draws: long})
	}
	run := lifeRun{lifePolicy: lifePolicy{apart: true}, ttl: time.Hour, jitter: 0.15, threshold: 0.95}
	similarity := groups[0].similarity
	for i := range similarity { // the first is nearest to all
		similarity[i] = []float64{0.99, 0.96, 0.96, 0.96}
		similarity[i][i] = 1
	}
	require.Equal(t, 3, run.runAll(groups, asks, time.Minute).dangling, "each phrasing finds what is gone")
	run.lifePolicy = lifePolicy{}
	o := run.runAll(groups, asks, time.Minute)
	require.Equal(t, []int{0, 2, 1}, []int{o.dangling, o.similar, o.misses}, "the first of them answers the others")
}

// TestADrawnRefreshServesNothingOlder says what a drawn refresh promises: no life
// beyond the TTL, whatever is drawn.
func TestADrawnRefreshServesNothingOlder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := kept{ready: 0}
		for i := range e.draws {
			e.draws[i] = rapid.Float64Range(-1, 1).Draw(t, "draw")
		}
		jitter := rapid.Float64Range(0, 0.4).Draw(t, "jitter")
		run := lifeRun{lifePolicy: lifePolicies[5], ttl: time.Hour, jitter: jitter}
		run.land(&e)
		require.Equal(t, [lifeTiers]time.Duration{time.Hour, time.Hour, time.Hour}, e.ends)
		require.LessOrEqual(t, e.renews, 57*time.Minute)
		require.GreaterOrEqual(t, e.renews, 57*time.Minute-time.Duration(2*jitter*float64(time.Hour)))
	})
}

func TestThePeakIsWhatBeginsWithinASecond(t *testing.T) {
	ms := time.Millisecond
	o := lifeOutcome{asks: 8, generations: []time.Duration{0, 1 * ms, 2 * ms, 3 * ms, 2000 * ms, 2999 * ms, 3000 * ms, 5000 * ms}}
	require.Equal(t, 4, o.peak(0))
	require.Equal(t, 2, o.peak(4*ms), "2.000 and 2.999, or 2.999 and 3.000")
	require.Equal(t, 1, o.peak(4*time.Second))
	require.Zero(t, o.peak(time.Minute))
	require.InDelta(t, 50, o.cost(4*ms), 1e-9)
}

func TestWhatIsTheSameAsAThirdIsTheSame(t *testing.T) {
	pairs := []labelled{
		{a: "a", b: "b", same: true}, {a: "c", b: "d", same: true}, {a: "a", b: "e"}, {a: "d", b: "b", same: true},
		{a: "f", b: "g", same: true}, {a: "f", b: "g", same: true}, {a: "h", b: "h", same: true},
	}
	groups := groupsOf(pairs)
	for _, g := range groups {
		slices.Sort(g)
	}
	require.ElementsMatch(t, [][]string{{"a", "b", "c", "d"}, {"f", "g"}}, groups)
}

// mapMemory is a cache.Store that drops nothing.
type mapMemory struct {
	mu  sync.Mutex
	all map[cache.Key]*cache.Record
}

func (m *mapMemory) Get(key cache.Key) (*cache.Record, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.all[key]
	return r, ok
}

func (m *mapMemory) Set(key cache.Key, r *cache.Record, _ int64, _ time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[key] = r
	return true
}

func (m *mapMemory) Delete(key cache.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, key)
}

func (m *mapMemory) Bytes() int64 { return 0 }

func (m *mapMemory) Close() {}

// textEmbedder is a haiku.Embedder of a function.
type textEmbedder embedText

func (e textEmbedder) Embed(_ context.Context, req *haiku.EmbeddingRequest) (*haiku.Embeddings, error) {
	vectors, err := e([]string{req.Inputs[0].Text})
	return &haiku.Embeddings{Vectors: vectors}, err
}

// liveTiers sends the requests to a real cache in virtual time. Each group has a
// system prompt of its own, and so a partition; the lives are those of the draws.
func liveTiers(t *testing.T, texts [][]string, asks []ask, run lifeRun) (o lifeOutcome) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		model := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
			mu.Lock()
			o.generations = append(o.generations, time.Since(began))
			mu.Unlock()
			elapse(run.takes)
			if _, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: "pond"}); err != nil {
				return err
			}
			w.Finish(0, haiku.FinishStop)
			return nil
		})
		refresh := run.refresh
		if refresh == 0 {
			refresh = -1
		}
		jitter := -1.0 // none of its own: the lives are those of the requests
		if run.early {
			jitter = run.jitter
		}
		tiers, err := cache.New(cache.Options{
			Store: &mapMemory{all: make(map[cache.Key]*cache.Record)}, TTL: run.ttl, Jitter: jitter,
			Semantic: &cache.Semantic{Embedder: textEmbedder(lexicalEmbed), Threshold: run.threshold, Gate: func(string, string) bool { return true }},
		})
		require.NoError(t, err)
		defer tiers.Close()
		cached := cache.Through(model, tiers, cache.Policy{Refresh: refresh})
		var callers sync.WaitGroup
		for _, a := range asks {
			elapse(a.at - time.Since(began))
			callers.Go(func() {
				life := run.ttl
				if !run.early {
					life += time.Duration(a.draws[0] * run.jitter * float64(run.ttl))
				}
				ctx := cache.WithControl(t.Context(), cache.Control{TTL: life})
				_, err := haiku.NewStream(ctx, cached, &haiku.Request{Messages: []haiku.Message{
					{Role: haiku.RoleSystem, Content: fmt.Sprint("group ", a.group)}, {Role: haiku.RoleUser, Content: texts[a.group][a.phrase]},
				}}).Text()
				require.NoError(t, err)
			})
		}
		callers.Wait()
		elapse(2 * run.takes) // what is refreshed
		cached.Close()
		stats := tiers.Stats()
		o.asks, o.exact, o.similar, o.misses = len(asks), int(stats.Hits), int(stats.Semantic), int(stats.Misses)
	})
	return o
}

// TestTheLivesAreThoseOfTheCache shows that the table is about the real thing:
// the same requests, the same hits, and generations at the same times.
func TestTheLivesAreThoseOfTheCache(t *testing.T) {
	pairs, err := ownPairs(filepath.Join("..", "internal", "likeness", "testdata", "pairs.txt"))
	require.NoError(t, err)
	texts := groupsOf(pairs)[:12]
	groups, err := phrase(texts, 0, lexicalEmbed)
	require.NoError(t, err)
	for name, asks := range map[string][]ask{
		"steady": steadyAsks(groups, 0.01, 12*time.Hour),
		"waves":  waves{2.5, 57 * time.Minute, time.Minute}.make(groups, 12*time.Hour),
		"sudden": waves{6, 72 * time.Minute, time.Second}.make(groups, 6*time.Hour),
	} {
		for _, p := range []lifePolicy{lifePolicies[2], lifePolicies[4]} {
			for _, jitter := range []float64{0, 0.15} {
				run := lifeRun{lifePolicy: p, ttl: lifeTTL, jitter: jitter, takes: lifeTakes, threshold: 0.5}
				want := run.runAll(groups, asks, 0)
				require.True(t, want.similar > 0 || name == "sudden")
				require.Equal(t, want, liveTiers(t, texts, asks, run), "%s, %s, %g", name, p.name, jitter)
			}
		}
	}
}

// TestTheCacheDrawsItsRefreshesLikewise compares numbers, since the cache makes
// these draws itself.
func TestTheCacheDrawsItsRefreshesLikewise(t *testing.T) {
	pairs, err := ownPairs(filepath.Join("..", "internal", "likeness", "testdata", "pairs.txt"))
	require.NoError(t, err)
	texts := groupsOf(pairs)[:20]
	groups, err := phrase(texts, 0, lexicalEmbed)
	require.NoError(t, err)
	run := lifeRun{lifePolicy: lifePolicies[5], ttl: lifeTTL, jitter: 0.15, takes: lifeTakes, threshold: 0.5}
	for name, asks := range map[string][]ask{
		"steady": steadyAsks(groups, 0.04, 15*time.Hour),
		"waves":  timetable.make(groups, 15*time.Hour),
	} {
		want, got := run.runAll(groups, asks, 0), liveTiers(t, texts, asks, run)
		require.InDelta(t, want.hits(), got.hits(), 2, name)
		require.InEpsilon(t, len(want.generations), len(got.generations), 0.1, name)
	}
}

func TestACacheServesTheFirstThatPasses(t *testing.T) {
	q := asked{near: []candidate{{0.9, false, false}, {0.8, true, true}, {0.7, false, true}}}
	any, facts := func(candidate) bool { return true }, func(c candidate) bool { return c.fact }
	for _, c := range []struct {
		threshold float64
		pass      func(candidate) bool
		want      [3]int
	}{
		{0.95, any, [3]int{0, 0, 0}}, {0.85, any, [3]int{0, 1, 1}}, {0.75, facts, [3]int{1, 0, 0}}, {0.5, facts, [3]int{1, 0, 1}},
	} {
		require.Equal(t, c.want, served([]asked{q}, c.threshold, c.pass), "%g", c.threshold)
	}
}

func TestScoredPairsAreReadFromTheBenchmark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sts.csv")
	lines := "g\tf\ty\t1\t4.250\tA pond.\tThe pond.\ng\tf\ty\t2\t3.5\tx\ty\ntoo\tshort\ng\tf\ty\t3\t1\ta frog\ta fog\n"
	require.NoError(t, os.WriteFile(path, []byte(lines), 0o600))
	all, err := scoredPairs(path)
	require.NoError(t, err)
	require.Equal(t, []scored{{"A pond.", "The pond.", 4.25}, {"x", "y", 3.5}, {"a frog", "a fog", 1}}, all)
	clear, err := stsPairs(path)
	require.NoError(t, err)
	require.Equal(t, []labelled{{a: "a frog", b: "a fog"}}, clear, "what lies between is left out there")
}
