package infer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/internal/lora"
)

// adapterOf is an adapter of 8 KiB that makes the fake say its name.
func adapterOf(name string) *infer.AdapterFile {
	return &infer.AdapterFile{Name: "I am " + name, Pairs: []lora.Pair{{Tensor: "x", A: make([]float32, 1024), B: make([]float32, 1024)}}}
}

// offer offers adapters and counts how often each is read.
func offer(t testing.TB, engine *infer.Engine, names ...string) map[string]*atomic.Int64 {
	t.Helper()
	reads := make(map[string]*atomic.Int64)
	for _, name := range names {
		reads[name] = new(atomic.Int64)
		require.NoError(t, engine.OfferAdapter(name, func(context.Context) (*infer.AdapterFile, error) {
			reads[name].Add(1)
			return adapterOf(name), nil
		}))
	}
	return reads
}

// loadingIn makes an executor's adapters take their time to load.
func loadingIn(d time.Duration, mod func(*haikutest.Config)) *haikutest.Executor {
	return counting(10, func(cfg *haikutest.Config) {
		cfg.AdapterLoad = func(ctx context.Context, _ *infer.AdapterFile) error {
			select {
			case <-time.After(d):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if mod != nil {
			mod(cfg)
		}
	})
}

func TestAnAdapterLoadsOnceWhenItIsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := loadingIn(time.Second, nil)
		engine := haikutest.NewEngine(t, exec, infer.Options{Name: "base"})
		reads := offer(t, engine, "poet", "critic")
		require.Len(t, engine.Models(), 3, "they are listed before they are loaded")
		require.Zero(t, exec.Counts().Adapters)
		var all sync.WaitGroup
		start := time.Now()
		for range 20 {
			all.Go(func() {
				got, err := text(t.Context(), engine, with("poet", "x"))
				require.NoError(t, err)
				require.Equal(t, "I am poet", got)
				require.Equal(t, time.Second, time.Since(start))
			})
		}
		synctest.Wait()
		got, err := text(t.Context(), engine, ask("x"))
		require.NoError(t, err, "the model itself waits for no adapter")
		require.Equal(t, strings.Join(words(10), ""), got)
		require.Zero(t, time.Since(start))
		all.Wait()
		require.Equal(t, []int64{1, 0}, []int64{reads["poet"].Load(), reads["critic"].Load()})
		require.Equal(t, 1, exec.Counts().Adapters)
	})
}

// TestTheTimeOfALoadIsHidden counts how much later requests are answered because
// their adapters have to be loaded, while others keep the device busy.
func TestTheTimeOfALoadIsHidden(t *testing.T) {
	const adapters, load = 20, 50 * time.Millisecond
	took := func(t *testing.T, ahead bool) (d time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			exec := loadingIn(load, func(cfg *haikutest.Config) {
				cfg.Costs = haikutest.Costs{Step: 5 * time.Millisecond, PrefillToken: 100 * time.Microsecond}
			})
			engine := haikutest.NewEngine(t, exec, infer.Options{MaxSequences: 2})
			var names []string
			for i := range adapters {
				names = append(names, fmt.Sprint("adapter", i))
			}
			if offer(t, engine, names...); ahead {
				for _, name := range names {
					_, err := text(t.Context(), engine, with(name, "first"))
					require.NoError(t, err)
				}
			}
			start := time.Now()
			var all sync.WaitGroup
			for i := range 4 { // the queue is not empty
				all.Go(func() { _, _ = text(t.Context(), engine, ask(fmt.Sprint("busy ", i))) })
			}
			synctest.Wait()
			for i, name := range names {
				all.Go(func() {
					_, err := text(t.Context(), engine, with(name, fmt.Sprint(i, strings.Repeat("x", 100))))
					require.NoError(t, err)
				})
			}
			all.Wait()
			d = time.Since(start)
		})
		return d
	}
	loaded, offered := took(t, true), took(t, false)
	hidden := 1 - float64(offered-loaded)/float64(adapters*load)
	t.Logf("%v with adapters loaded ahead, %v with %d loads of %v: %.1f%% of the loads are hidden", loaded, offered, adapters, load, 100*hidden)
	require.GreaterOrEqual(t, hidden, 0.95)
}

func TestAdaptersMakeRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := loadingIn(time.Millisecond, func(cfg *haikutest.Config) { cfg.Costs.Step = time.Millisecond })
		engine := haikutest.NewEngine(t, exec, infer.Options{AdapterBytes: 2 * 8192})
		reads := offer(t, engine, "a", "b", "c")
		for _, name := range []string{"a", "b", "a", "c", "a", "b"} {
			got, err := text(t.Context(), engine, with(name, "x"))
			require.NoError(t, err)
			require.Equal(t, "I am "+name, got)
			require.LessOrEqual(t, exec.Counts().Adapters, 2)
			elapse(time.Millisecond)
		}
		require.Equal(t, []int64{1, 2, 1}, []int64{reads["a"].Load(), reads["b"].Load(), reads["c"].Load()}, "the one used longest ago goes")

		require.NoError(t, engine.OfferAdapter("huge", func(context.Context) (*infer.AdapterFile, error) {
			file := adapterOf("huge")
			file.Pairs = append(file.Pairs, file.Pairs[0], file.Pairs[0])
			return file, nil
		}))
		_, err := text(t.Context(), engine, with("huge", "x"))
		require.ErrorContains(t, err, "24576 bytes, AdapterBytes allows 16384")
	})
}

func TestAnAdapterInUseIsNotUnloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := loadingIn(time.Millisecond, func(cfg *haikutest.Config) { cfg.Costs.Step = 10 * time.Millisecond })
		engine := haikutest.NewEngine(t, exec, infer.Options{AdapterBytes: 8192, MaxSequences: 8})
		offer(t, engine, "a", "b", "c")
		random := rand.New(rand.NewPCG(8, 9))
		var all sync.WaitGroup
		for range 60 {
			name := string(rune('a' + random.IntN(3)))
			life := time.Hour
			if random.IntN(4) == 0 {
				life = time.Duration(random.IntN(100)) * time.Millisecond
			}
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), life)
				defer cancel()
				got, err := text(ctx, engine, with(name, "x"))
				if err == nil {
					require.Equal(t, "I am "+name, got)
				} else {
					require.ErrorIs(t, err, context.DeadlineExceeded)
				}
			})
			elapse(time.Duration(random.IntN(20)) * time.Millisecond)
			require.LessOrEqual(t, exec.Counts().Adapters, 1)
		}
		all.Wait() // that the fake saw no misuse is checked at the end
	})
}

func TestAFailedLoadIsItsOwnRequestsAffair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := haikutest.NewEngine(t, counting(3, nil), infer.Options{})
		offer(t, engine, "good")
		broken, tries := errors.New("the disk is gone"), 0
		require.NoError(t, engine.OfferAdapter("bad", func(context.Context) (*infer.AdapterFile, error) {
			<-time.After(time.Second)
			switch tries++; tries {
			case 1:
				return nil, broken
			case 2:
				panic("a strange file")
			case 3:
				return nil, nil
			}
			return adapterOf("bad"), nil
		}))
		for try := 1; try <= 4; try++ {
			var all sync.WaitGroup
			for i := range 6 {
				name := []string{"good", "bad"}[i%2]
				all.Go(func() {
					got, err := text(t.Context(), engine, with(name, "x"))
					switch {
					case name == "good" || try == 4:
						require.NoError(t, err)
						require.Equal(t, "I am "+name, got)
					case try == 1:
						require.ErrorIs(t, err, broken)
					default:
						require.Error(t, err)
					}
				})
			}
			all.Wait()
			require.Equal(t, try, tries, "one load for all three")
		}
	})
}

func TestCloseEndsALoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := haikutest.NewEngine(t, loadingIn(time.Hour, nil), infer.Options{})
		offer(t, engine, "a")
		var all sync.WaitGroup
		all.Go(func() {
			_, err := text(t.Context(), engine, with("a", "x"))
			require.ErrorIs(t, err, haiku.ErrClosed)
		})
		synctest.Wait()
		start := time.Now()
		require.NoError(t, engine.Close())
		all.Wait()
		require.Zero(t, time.Since(start))
		require.ErrorIs(t, engine.OfferAdapter("b", func(context.Context) (*infer.AdapterFile, error) { return nil, nil }), infer.ErrClosed)
	})
}

func TestNamesOfOffersAreChecked(t *testing.T) {
	engine := haikutest.NewEngine(t, counting(1, nil), infer.Options{Name: "base"})
	source := func(context.Context) (*infer.AdapterFile, error) { return adapterOf("x"), nil }
	for _, name := range []string{"", "base", "taken", "\xff", strings.Repeat("n", 300)} {
		if name == "taken" {
			require.NoError(t, engine.OfferAdapter(name, source))
		}
		require.ErrorIs(t, engine.OfferAdapter(name, source), infer.ErrAdapter, "%.9q", name)
	}
	require.ErrorIs(t, engine.OfferAdapter("x", nil), infer.ErrAdapter)
	require.NoError(t, engine.RemoveAdapter("taken"))
	_, err := text(t.Context(), engine, with("taken", "x"))
	require.ErrorIs(t, err, haiku.ErrModelNotFound)
	require.NoError(t, engine.Offer("file", "not there"))
	_, err = text(t.Context(), engine, with("file", "x"))
	require.ErrorContains(t, err, "not there")
}
