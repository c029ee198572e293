package fallback

import (
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
