package fallback

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// TestModelsOfOneNameAreJudgedApart: one model in two places is two models, also
// among replicas.
func TestModelsOfOneNameAreJudgedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		o := Options{Breaker: BreakerOptions{Name: "chat", Switch: store, Counters: store, Policies: []Policy{Consecutive{}}}}
		c := newChain(t, o, does("llama", errs(errBroken)), does("llama", says("x"), ends()), does("llama", says("y"), ends()))
		for i := range c.members {
			<-c.Breaker(i).Ready()
		}
		for range 5 {
			require.NoError(t, ask(t.Context(), c, &haiku.Request{}).err)
		}
		settle()
		require.Equal(t, Open, store.now("chat/llama").State)
		require.Equal(t, Open, c.Breaker(0).Status().State)
		require.Equal(t, Closed, c.Breaker(1).Status().State)
		require.Equal(t, []string{"chat/llama", "chat/llama/1", "chat/llama/2"}, []string{c.Breaker(0).Name(), c.Breaker(1).Name(), c.Breaker(2).Name()})
		require.Equal(t, "x", ask(t.Context(), c, &haiku.Request{}).text)
	})
}

func TestModelsKnowWhatTheyAreCalledWhereTheRequestDoesNotSay(t *testing.T) {
	var called []string
	telling := haiku.ModelFunc(func(_ context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		called = append(called, w.Model())
		return errBroken
	})
	c := newChain(t, Options{Names: []string{"gpu", "spare", ""}}, telling, telling, telling)
	outer := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
		w.SetModel("chat") // as a registry does
		return c.Generate(ctx, w, req)
	})
	ctx := haiku.WithLogger(t.Context(), slog.New(slog.DiscardHandler))
	for _, asked := range []string{"", "adapter"} {
		_, err := haiku.NewStream(ctx, outer, &haiku.Request{Model: asked}).Text()
		require.Error(t, err)
	}
	require.Equal(t, []string{"chat", "spare", "", "adapter", "spare", ""}, called)
}
