package cache

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// vectorOf embeds everything as one vector.
type vectorOf []float32

func (v vectorOf) Embed(context.Context, *haiku.EmbeddingRequest) (*haiku.Embeddings, error) {
	return &haiku.Embeddings{Vectors: [][]float32{v}}, nil
}

// TestNoLikenessLeadsToAnotherTenant has an embedder for which all is the same, a
// gate that lets everything pass, and one kind of prompt.
func TestNoLikenessLeadsToAnotherTenant(t *testing.T) {
	decided := 0
	m := &model{}
	c := Through(m, tiers(t, Options{Semantic: &Semantic{Embedder: vectorOf{1, 0}, Gate: func(string, string) bool { return true }}}), Policy{
		Routes: NewRoutes(Table{Kind: func(*haiku.Request) string { return "" }, Decide: func(context.Context, *haiku.Request) (Route, error) {
			decided++
			return Route{}, nil
		}}),
	})
	defer c.Close()
	get := func(tenant, question string) string {
		got, err := haiku.NewStream(haiku.WithIdentity(t.Context(), haiku.Identity{Tenant: tenant}), c, ask(question)).Text()
		require.NoError(t, err)
		return strings.TrimSpace(got)
	}
	require.Equal(t, "old pond", get("a", "old pond"))
	require.Equal(t, "old pond", get("a", "quite another"))
	require.Equal(t, "old pond of b", get("b", "old pond of b"))
	require.Equal(t, "frog of c", get("c", "frog of c"))
	require.Equal(t, []int64{3, 3}, []int64{m.runs.Load(), int64(decided)})
}

// TestWhatHasNoDirectionIsComparedWithNothing has embedders that are broken: the
// questions still have their exact hits.
func TestWhatHasNoDirectionIsComparedWithNothing(t *testing.T) {
	nan := float32(math.NaN())
	for name, v := range map[string]vectorOf{"zero": {0, 0}, "NaN": {nan, 1}, "infinite": {float32(math.Inf(1)), 0}, "empty": {}} {
		c, m := semantic(t, Semantic{Embedder: v, Gate: func(string, string) bool { return true }})
		for range 2 {
			for _, question := range []string{"old pond", "frog"} {
				got, err := haiku.NewStream(t.Context(), c, ask(question)).Text()
				require.NoError(t, err)
				require.Equal(t, question+" ", got, name)
			}
		}
		require.Equal(t, int64(2), m.runs.Load(), name)
		require.Equal(t, int64(2), c.tiers.Stats().Unembedded, name)
	}
}

// TestAVectorOfAnotherSizeIsAMiss changes the embedder's size under way.
func TestAVectorOfAnotherSizeIsAMiss(t *testing.T) {
	embedder := fixed{"two": {1, 0}, "three": {1, 0, 0}}
	c, m := semantic(t, Semantic{Embedder: embedder, Gate: func(string, string) bool { return true }})
	for _, question := range []string{"two a", "three a", "two b", "three b"} {
		_, err := haiku.NewStream(t.Context(), c, ask(question)).Text()
		require.NoError(t, err)
	}
	require.Equal(t, int64(2), m.runs.Load())
	require.Equal(t, int64(2), c.tiers.Stats().Semantic)
}

func TestWhatAModelLeavesUnfinishedIsNotKept(t *testing.T) {
	for name, end := range map[string]func(context.Context) error{
		"a panic":           func(context.Context) error { panic("bad model") },
		"no finish reason":  func(context.Context) error { return nil },
		"a deadline":        func(context.Context) error { return context.DeadlineExceeded },
		"its own goroutine": func(context.Context) error { runtime.Goexit(); return nil },
	} {
		runs := 0
		c := Through(haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
			runs++
			if _, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: "half"}); err != nil {
				return err
			}
			return end(ctx)
		}), tiers(t, Options{}), Policy{})
		for n := range 2 {
			_, err := haiku.NewStream(haiku.WithLogger(t.Context(), slog.New(slog.DiscardHandler)), c, ask("old pond")).Text()
			require.Error(t, err, name)
			require.Equal(t, n+1, runs, name)
		}
		c.Close()
	}
}

// TestADeadlineIsItsOwnRequests has the one who began give up first.
func TestADeadlineIsItsOwnRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{step: 10 * time.Millisecond}
		c := Through(m, tiers(t, Options{Store: newMapStore()}), Policy{})
		defer c.Close()
		var all sync.WaitGroup
		for i, patience := range []time.Duration{25 * time.Millisecond, 5 * time.Second, 35 * time.Millisecond} {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				<-time.After(time.Duration(i) * time.Millisecond)
				got, err := haiku.NewStream(ctx, c, ask("a b c d e f")).Text()
				if patience < time.Second {
					require.ErrorIs(t, err, context.DeadlineExceeded)
					return
				}
				require.NoError(t, err)
				require.Equal(t, "a b c d e f ", got)
			})
		}
		all.Wait()
		require.Equal(t, int64(1), m.runs.Load())
	})
}

// TestReadsSeeTheirOwnWrites asks ristretto at once for what was just written, and
// gives it more than it may hold.
func TestReadsSeeTheirOwnWrites(t *testing.T) {
	ts := tiers(t, Options{MaxBytes: 1 << 20})
	for i := range 1000 {
		name := fmt.Sprint(i)
		if ts.SetAll(t.Context(), entry(name, i, Mark{})) != nil {
			continue // dropped and said so
		}
		a, ok := ts.Get(keyOf(name))
		require.True(t, ok, name)
		require.Equal(t, name, a.Model)
	}
	require.Less(t, ts.Stats().Dropped, int64(10))
	huge := entry("huge", 1, Mark{})
	huge.Answer.Tokens = []haiku.Token{{Text: strings.Repeat("x", 3<<20)}}
	require.ErrorIs(t, ts.SetAll(t.Context(), huge), ErrDropped)
	_, ok := ts.Route(t.Context(), keyOf("route huge"))
	require.False(t, ok)
}

// TestTheHeapStaysWithinTheBytes writes many times what may be held.
func TestTheHeapStaysWithinTheBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine and many bytes")
	}
	const budget = 32 << 20
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	ts := tiers(t, Options{MaxBytes: budget})
	for i := range 20_000 {
		w := entry(fmt.Sprint(i), i, Mark{})
		w.Answer.Tokens = []haiku.Token{{Text: strings.Repeat("x", 10<<10)}}
		_ = ts.SetAll(t.Context(), w)
	}
	require.LessOrEqual(t, heap()-before, int64(budget*12/10))
	require.Greater(t, ts.Stats().Bytes, int64(budget*8/10))
	runtime.KeepAlive(ts)
}
