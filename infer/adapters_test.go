package infer_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
)

// with asks for an adapter.
func with(name, content string) *haiku.Request {
	req := ask(content)
	req.Model = name
	return req
}

func add(t testing.TB, engine *infer.Engine, names ...string) {
	t.Helper()
	for _, name := range names {
		require.NoError(t, engine.AddAdapter(t.Context(), name, &infer.AdapterFile{Name: "I am " + name}))
	}
}

// Sixty streams with adapters A, B and none share one batch, and each says what
// its own adapter makes it say.
func TestInterleavedStreamsKeepTheirOwnAdapter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(5, func(c *haikutest.Config) { c.Costs.Step = time.Millisecond })
		engine := haikutest.NewEngine(t, exec, infer.Options{Name: "base", MaxSequences: 60})
		add(t, engine, "A", "B")
		want := map[string]string{"": "w0 w1 w2 w3 w4 ", "base": "w0 w1 w2 w3 w4 ", "A": "I am A", "B": "I am B"}
		var wg sync.WaitGroup
		for i := range 60 {
			for name := range want {
				if i%4 != len(name) {
					continue
				}
				wg.Go(func() {
					got, err := text(t.Context(), engine, with(name, fmt.Sprint(i)))
					require.NoError(t, err)
					require.Equal(t, want[name], got, "%q", name)
				})
			}
		}
		wg.Wait()
		require.Greater(t, exec.Counts().LargestBatch, 10)
	})
}

func TestAnAdaptersNameIsAModelName(t *testing.T) {
	engine := haikutest.NewEngine(t, counting(1, nil), infer.Options{Name: "base"})
	add(t, engine, "poet", "critic")
	models := engine.Models()
	for i := range models {
		models[i].Created = 0
	}
	require.Equal(t, []haiku.ModelInfo{
		{ID: "base", OwnedBy: "haiku", ContextTokens: 4096},
		{ID: "critic", Parent: "base", OwnedBy: "haiku", ContextTokens: 4096},
		{ID: "poet", Parent: "base", OwnedBy: "haiku", ContextTokens: 4096},
	}, models)
	stream := haiku.NewStream(t.Context(), engine, with("poet", "x"))
	_, err := stream.Text()
	require.NoError(t, err)
	require.Equal(t, "poet", stream.Model())
	_, err = text(t.Context(), engine, with("singer", "x"))
	require.ErrorIs(t, err, haiku.ErrModelNotFound)
}

func TestTheScaleOfAnAdapterIsTheRequests(t *testing.T) {
	engine := haikutest.NewEngine(t, counting(2, nil), infer.Options{})
	add(t, engine, "A")
	scaled := func(name string, scale float64) (string, error) {
		req := with(name, "x")
		req.AdapterScale = &scale
		return text(t.Context(), engine, req)
	}
	got, err := scaled("A", 0)
	require.NoError(t, err)
	require.Equal(t, "w0 w1 ", got, "a scale of 0 is the base model")
	got, err = scaled("A", -0.5)
	require.NoError(t, err)
	require.Equal(t, "I am A", got)
	for _, bad := range []float64{math.NaN(), math.Inf(1), 1e9, -10.5} {
		_, err = scaled("A", bad)
		require.ErrorIs(t, err, haiku.ErrInvalidRequest)
		require.Equal(t, "adapter_scale", haiku.ErrorFrom(err).Param)
	}
	_, err = scaled("", 1)
	require.ErrorIs(t, err, haiku.ErrInvalidRequest, "there is no adapter to scale")
}

func TestARemovedAdapterServesThoseThatHaveItAndNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(9, func(c *haikutest.Config) { c.Costs.Step = time.Second })
		engine := haikutest.NewEngine(t, exec, infer.Options{})
		add(t, engine, "A")
		done := make(chan string)
		go func() {
			got, err := text(t.Context(), engine, with("A", "x"))
			require.NoError(t, err)
			done <- got
		}()
		elapse(2500 * time.Millisecond)
		require.NoError(t, engine.RemoveAdapter("A"))
		require.Equal(t, 1, exec.Counts().Adapters, "it is in use")
		_, err := text(t.Context(), engine, with("A", "y"))
		require.ErrorIs(t, err, haiku.ErrModelNotFound)
		require.ErrorIs(t, engine.RemoveAdapter("A"), infer.ErrAdapter)
		require.NoError(t, engine.AddAdapter(t.Context(), "A", &infer.AdapterFile{Name: "new"}), "the name is free")
		require.Equal(t, 2, exec.Counts().Adapters)
		got, err := text(t.Context(), engine, with("A", "z"))
		require.NoError(t, err)
		require.Equal(t, "new", got)
		require.Equal(t, "I am A", <-done)
		require.Equal(t, 1, exec.Counts().Adapters, "the old one went with its last request")
	})
}

func TestALoadTakesItsNameAndAFailedOneGivesItBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errBroken := errors.New("broken")
		fail := true
		exec := counting(1, func(c *haikutest.Config) {
			c.AdapterLoad = func(ctx context.Context, file *infer.AdapterFile) error {
				elapse(time.Minute)
				switch {
				case file.Name == "panic":
					panic("no such luck")
				case fail:
					return errBroken
				}
				return ctx.Err()
			}
		})
		engine := haikutest.NewEngine(t, exec, infer.Options{Name: "base"})
		file := &infer.AdapterFile{Name: "hello"}
		loaded := make(chan error)
		go func() { loaded <- engine.AddAdapter(t.Context(), "A", file) }()
		synctest.Wait()
		require.ErrorIs(t, engine.AddAdapter(t.Context(), "A", file), infer.ErrAdapter, "it is being loaded")
		require.ErrorIs(t, engine.RemoveAdapter("A"), infer.ErrAdapter)
		_, err := text(t.Context(), engine, with("A", "x"))
		require.ErrorIs(t, err, haiku.ErrModelNotFound, "it is not there yet")
		require.Len(t, engine.Models(), 1)
		require.ErrorIs(t, <-loaded, errBroken)
		var panicked *haiku.PanicError
		require.ErrorAs(t, engine.AddAdapter(t.Context(), "A", &infer.AdapterFile{Name: "panic"}), &panicked)
		fail = false
		require.NoError(t, engine.AddAdapter(t.Context(), "A", file))
		got, err := text(t.Context(), engine, with("A", "x"))
		require.NoError(t, err)
		require.Equal(t, "hello", got)
		for name, is := range map[string]error{"A": infer.ErrAdapter, "base": infer.ErrAdapter, "": infer.ErrAdapter, strings.Repeat("x", 300): infer.ErrAdapter, "\xff": infer.ErrAdapter} {
			require.ErrorIs(t, engine.AddAdapter(t.Context(), name, file), is)
		}
		require.ErrorIs(t, engine.AddAdapter(t.Context(), "B", nil), infer.ErrAdapter)
		require.ErrorContains(t, engine.LoadAdapter(t.Context(), "B", "absent.gguf"), "absent.gguf")
	})
}

// Close waits for a load, which finds the executor still there.
func TestCloseWaitsForALoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(1, func(c *haikutest.Config) {
			c.AdapterLoad = func(context.Context, *infer.AdapterFile) error { elapse(time.Second); return nil }
		})
		engine := haikutest.NewEngine(t, exec, infer.Options{})
		loaded := make(chan error)
		go func() { loaded <- engine.AddAdapter(t.Context(), "A", &infer.AdapterFile{}) }()
		synctest.Wait()
		require.NoError(t, engine.Close())
		require.NoError(t, <-loaded)
		require.ErrorIs(t, engine.AddAdapter(t.Context(), "B", &infer.AdapterFile{}), infer.ErrClosed)
	})
}

// plain hides the fake's adapters.
type plain struct{ infer.Executor }

func TestAnExecutorWithoutAdaptersSaysSo(t *testing.T) {
	exec := counting(1, nil)
	engine, err := infer.New(plain{exec}, exec.Text(), infer.Options{})
	require.NoError(t, err)
	defer engine.Close()
	require.ErrorIs(t, engine.AddAdapter(t.Context(), "A", &infer.AdapterFile{}), infer.ErrUnsupportedModel)
}

func TestARegistryFindsAdaptersUnlessTheirNameIsTaken(t *testing.T) {
	small := haikutest.NewEngine(t, counting(1, nil), infer.Options{Name: "small"})
	large := haikutest.NewEngine(t, counting(2, nil), infer.Options{Name: "large"})
	var r infer.Registry
	r.Add("small", small)
	r.Add("big", large)
	add(t, large, "A", "small")
	for name, want := range map[string]string{"small": "w0 ", "big": "w0 w1 ", "A": "I am A"} {
		got, err := text(t.Context(), &r, with(name, "x"))
		require.NoError(t, err)
		require.Equal(t, want, got, name)
	}
	var list []string
	for _, m := range r.Models() {
		list = append(list, m.ID+" of "+m.Parent)
	}
	require.Equal(t, []string{"A of big", "big of ", "small of "}, list)
	_, err := text(t.Context(), &r, with("B", "x"))
	require.ErrorIs(t, err, haiku.ErrModelNotFound)
}

func TestAClosedExecutorUnloadsNothing(t *testing.T) {
	exec := haikutest.New(haikutest.Config{})
	engine := haikutest.NewEngine(t, exec, infer.Options{})
	add(t, engine, "a", "b")
	require.NoError(t, engine.RemoveAdapter("a"))
	require.Equal(t, 1, exec.Counts().Adapters)
	require.NoError(t, engine.Close())
	require.NoError(t, engine.RemoveAdapter("b"))
	require.Equal(t, 1, exec.Counts().Adapters, "it is closed: what it held is its own affair")
}
