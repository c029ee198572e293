package cache

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// alias finds a model under a name, as a registry does.
type alias struct{ *Cached }

func (a alias) Generate(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
	w.SetModel("alias")
	return a.Cached.Generate(ctx, w, req)
}

func (a alias) Recall(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) ([]haiku.Token, bool) {
	w.SetModel("alias")
	return a.Cached.Recall(ctx, w, req)
}

// TestAModelThatTellsNoNameKeepsTheOneItWasFoundUnder when its answer is made, recalled
// or replayed.
func TestAModelThatTellsNoNameKeepsTheOneItWasFoundUnder(t *testing.T) {
	inner := says(func(context.Context, *haiku.Request) string { return "frog" })
	for _, policy := range []Policy{{}, {Model: "poet"}, {Pace: 1}} {
		c := Through(inner, tiers(t, Options{}), policy)
		defer c.Close()
		for range 2 {
			stream := haiku.NewStream(t.Context(), alias{c}, ask("old pond"))
			_, err := stream.Text()
			require.NoError(t, err)
			require.Equal(t, "alias", stream.Model())
		}
	}
}
