package cache

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// served is a model that tells what it was asked for.
func served(seen *[]haiku.Request) haiku.Model {
	return haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
		*seen = append(*seen, *req)
		w.SetModel(req.Model)
		if _, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: "answer of " + req.Model}); err != nil {
			return err
		}
		w.Finish(0, haiku.FinishStop)
		return nil
	})
}

func TestARouteIsDecidedOnceForAKindOfRequest(t *testing.T) {
	var seen []haiku.Request
	decided := 0
	table := func(version, model string) Table {
		return Table{Version: version, Decide: func(_ context.Context, req *haiku.Request) (Route, error) {
			decided++
			return Route{Model: model, Adapter: "", AdapterScale: new(0.5), Temperature: new(0.0)}, nil
		}}
	}
	routes := NewRoutes(table("1", "small"))
	ts := tiers(t, Options{Store: newMapStore()})
	c := Through(served(&seen), ts, Policy{Routes: routes})
	defer c.Close()
	get := func(tenant, system, question string) string {
		req := &haiku.Request{Model: "auto", Sampling: haiku.Sampling{Temperature: 0.7}, Messages: []haiku.Message{
			{Role: haiku.RoleSystem, Content: system}, {Role: haiku.RoleUser, Content: question},
		}}
		stream := haiku.NewStream(haiku.WithIdentity(t.Context(), haiku.Identity{Tenant: tenant}), c, req)
		got, err := stream.Text()
		require.NoError(t, err)
		require.Equal(t, "auto", req.Model, "the request is its owner's")
		return got
	}
	require.Equal(t, "answer of small", get("a", "be brief", "one"))
	require.Equal(t, []float64{0.5, 0}, []float64{*seen[0].AdapterScale, seen[0].Sampling.Temperature})
	get("a", "be brief", "two")
	get("a", "be brief", "one")
	require.Equal(t, []int{1, 2}, []int{decided, len(seen)}, "one kind, two answers")
	get("a", "be long", "one")
	get("b", "be brief", "one")
	require.Equal(t, []int{3, 4}, []int{decided, len(seen)}, "another prompt, another tenant")

	routes.Set(table("2", "large"))
	require.Equal(t, "answer of large", get("a", "be brief", "one"))
	require.Equal(t, []int{4, 5}, []int{decided, len(seen)}, "a new table counts at once")
	routes.Set(table("1", "small"))
	require.Equal(t, "answer of small", get("a", "be brief", "one"))
	require.Equal(t, []int{4, 5}, []int{decided, len(seen)}, "what the old one had decided is still right if it comes back")
	require.Equal(t, []int64{3, 4}, []int64{ts.Stats().Routed, ts.Stats().Decided})
}

func TestARouteThatCannotBeDecidedFailsItsRequest(t *testing.T) {
	down := errors.New("the classifier is down")
	c := Through(&model{}, tiers(t, Options{}), Policy{Routes: NewRoutes(Table{Decide: func(context.Context, *haiku.Request) (Route, error) {
		return Route{}, down
	}})})
	defer c.Close()
	_, err := haiku.NewStream(t.Context(), c, ask("x")).Text()
	require.ErrorIs(t, err, down)
}

// TestARouteComesAndGoesWithItsAnswer invalidates what one of two answers of a
// kind depends on: the route that was written with it goes too, the other stays.
func TestARouteComesAndGoesWithItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []haiku.Request
		decided := 0
		routes := NewRoutes(Table{Version: "1", Kind: func(*haiku.Request) string { return "template 7" },
			Decide: func(context.Context, *haiku.Request) (Route, error) { decided++; return Route{Adapter: "law"}, nil }})
		ts := tiers(t, Options{Store: newMapStore(), Jitter: -1})
		c := Through(served(&seen), ts, Policy{Routes: routes, Tags: func(req *haiku.Request) []string {
			return []string{"question:" + req.Messages[0].Content}
		}})
		defer c.Close()
		get := func(question string) {
			_, err := haiku.NewStream(t.Context(), c, ask(question)).Text()
			require.NoError(t, err)
		}
		get("one")
		require.Equal(t, "law", seen[0].Model, "an adapter's name is a model's")
		get("two")
		require.Equal(t, 1, decided)
		ts.Invalidate(t.Context(), "question:one")
		get("two")
		require.Equal(t, []int{2, 2}, []int{decided, len(seen)}, "the answer of two is there, the route has to be decided")
		get("one")
		require.Equal(t, []int{2, 3}, []int{decided, len(seen)}, "and was kept without an answer of its own")
		<-time.After(2 * time.Hour)
		get("two")
		require.Equal(t, []int{3, 4}, []int{decided, len(seen)})
	})
}

func TestARouteOfARequestThatPassesByIsKept(t *testing.T) {
	var seen []haiku.Request
	decided := 0
	c := Through(served(&seen), tiers(t, Options{}), Policy{Routes: NewRoutes(Table{Decide: func(context.Context, *haiku.Request) (Route, error) {
		decided++
		return Route{Temperature: new(0.7)}, nil
	}})})
	defer c.Close()
	for _, control := range []Control{{}, {}, {NoStore: true}, {NoCache: true}, {}} {
		_, err := haiku.NewStream(WithControl(t.Context(), control), c, ask("x")).Text()
		require.NoError(t, err)
	}
	require.Equal(t, []int{2, 5}, []int{decided, len(seen)}, "no-cache decides anew")
	require.Equal(t, int64(5), c.tiers.Stats().Bypassed)
}
