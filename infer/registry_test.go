package infer_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/cache"
	"github.com/intelliparadigm/haiku/fallback"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
)

func TestARegistryRoutesByName(t *testing.T) {
	small := haikutest.NewEngine(t, counting(1, nil), infer.Options{Name: "small"})
	large := haikutest.NewEngine(t, counting(2, nil), infer.Options{Name: "large"})
	var r infer.Registry
	r.Add("small", small)
	r.Add("large", large)
	r.Add("alias", large)
	for name, want := range map[string]string{"": "w0 ", "small": "w0 ", "large": "w0 w1 ", "alias": "w0 w1 "} {
		req := ask("x")
		req.Model = name
		got, err := text(t.Context(), &r, req)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	ids := []string{}
	for _, m := range r.Models() {
		ids = append(ids, m.ID)
	}
	require.Equal(t, []string{"alias", "large", "small"}, ids)
	r.Remove("alias")
	req := ask("x")
	req.Model = "alias"
	_, err := text(t.Context(), &r, req)
	require.ErrorIs(t, err, haiku.ErrModelNotFound)
}

// toolUser is a Model that takes extensions of one name.
type toolUser struct{ haiku.Model }

func (toolUser) TakesExtensions(req *haiku.Request) error {
	for _, e := range req.Extensions {
		if e.Name != "tools" {
			return haiku.ErrUnsupported.With(e.Name, "not this")
		}
	}
	return nil
}

func TestARegistryAsksTheModelThatItPassesARequestTo(t *testing.T) {
	var r infer.Registry
	r.Add("plain", haikutest.NewModel(t, "a"))
	r.Add("tools", toolUser{haikutest.NewModel(t, "b")})
	for _, c := range []struct {
		model, extension string
		want             error
	}{
		{"", "tools", haiku.ErrUnsupported}, {"plain", "tools", haiku.ErrUnsupported}, {"tools", "tools", nil},
		{"tools", "audio", haiku.ErrUnsupported}, {"none", "tools", haiku.ErrModelNotFound},
	} {
		req := ask("x")
		req.Model = c.model
		req.Extensions = []haiku.Extension{{Name: c.extension, Value: []byte("[]")}}
		_, err := text(t.Context(), &r, req)
		require.ErrorIs(t, err, c.want, c)
	}
}

// swapping is a model that changes the registry it is in when it is asked for
// its names.
type swapping struct {
	haiku.Model
	in *infer.Registry
}

func (s swapping) Models() []haiku.ModelInfo {
	s.in.Add("next", s.Model)
	return []haiku.ModelInfo{{ID: "self", ContextTokens: 7}}
}

func TestARegistryMayBeChangedByAModelThatIsAskedForItsNames(t *testing.T) {
	var r infer.Registry
	r.Add("a", swapping{haikutest.NewModel(t), &r})
	done := make(chan []haiku.ModelInfo)
	go func() { done <- r.Models() }()
	select {
	case got := <-done:
		require.Equal(t, []haiku.ModelInfo{{ID: "a", OwnedBy: "haiku", ContextTokens: 7}}, got)
	case <-time.After(5 * time.Second):
		require.Fail(t, "the registry waits for itself")
	}
	require.Len(t, r.Models(), 2)
}

// knowing is a model that has its answer at hand, and names the request's model.
type knowing struct{ haiku.Model }

func (knowing) Recall(_ context.Context, w *haiku.StreamWriter, req *haiku.Request) ([]haiku.Token, bool) {
	return []haiku.Token{{Text: "known " + req.Model, Finish: haiku.FinishStop}}, true
}

func TestARegistryPassesOnWhatAModelHasAtHand(t *testing.T) {
	var r infer.Registry
	m := haikutest.NewEngine(t, counting(1, nil), infer.Options{Name: "made"})
	r.Add("made", m)
	r.Add("known", knowing{m})
	for name, want := range map[string]string{"": "w0 ", "made": "w0 ", "known": "known "} {
		req := ask("x")
		req.Model = name
		stream := haiku.NewStream(t.Context(), &r, req)
		got, err := stream.Text()
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, name == "known", stream.Model() == "known")
	}
}

func TestModelsThatShareACacheAnswerForThemselves(t *testing.T) {
	for name, around := range map[string]func(haiku.Model) haiku.Model{
		"by themselves":           func(m haiku.Model) haiku.Model { return m },
		"each first in its chain": func(m haiku.Model) haiku.Model { return fallback.New(m, haikutest.NewModel(t, "x")) },
	} {
		t.Run(name, func(t *testing.T) { modelsThatShareACache(t, around) })
	}
}

func modelsThatShareACache(t *testing.T, around func(haiku.Model) haiku.Model) {
	tiers, err := cache.New(cache.Options{})
	require.NoError(t, err)
	defer tiers.Close()
	var r infer.Registry
	for i, name := range []string{"small", "large"} {
		engine := haikutest.NewEngine(t, counting(1+i, nil), infer.Options{Name: "own name of " + name})
		cached := cache.Through(engine, tiers, cache.Policy{})
		defer cached.Close()
		r.Add(name, around(cached))
	}
	for _, c := range []struct {
		model, want string
		misses      int64 // so far
	}{
		{"small", "w0 ", 1},
		{"large", "w0 w1 ", 2},
		{"large", "w0 w1 ", 2},
		{"small", "w0 ", 2},
		{"", "w0 ", 2}, // the first one's
		{"invalidate", "", 2},
		{"large", "w0 w1 ", 3},
		{"small", "w0 ", 3},
	} {
		if c.model == "invalidate" {
			require.True(t, tiers.Invalidate(t.Context(), "model:large"))
			continue
		}
		req := ask("x")
		req.Model = c.model
		got, err := text(t.Context(), &r, req)
		require.NoError(t, err)
		require.Equal(t, c.want, got, c.model)
		require.Equal(t, c.misses, tiers.Stats().Misses, c.model)
	}
}
