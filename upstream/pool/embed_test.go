package pool

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// embedding is a server that embeds.
type embedding struct {
	*server
	runs  int
	fails error
	panic any
}

func (e *embedding) Embed(_ context.Context, _ *haiku.EmbeddingRequest) (*haiku.Embeddings, error) {
	if e.runs++; e.panic != nil {
		panic(e.panic)
	}
	return &haiku.Embeddings{Model: e.name}, e.fails
}

func TestEmbeddingsComeFromAServerThatIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sick, well := &embedding{server: &server{name: "sick"}, fails: errBroken}, &embedding{server: &server{name: "well"}}
		p := open(t, Options{}, Endpoint{Name: "sick", Model: sick}, Endpoint{Name: "well", Model: well})
		embedder, ok := haiku.ModelAs[haiku.Embedder](p)
		require.True(t, ok)
		for range 100 {
			out, err := embedder.Embed(t.Context(), &haiku.EmbeddingRequest{})
			require.NoError(t, err)
			require.Equal(t, "well", out.Model)
		}
		require.Equal(t, [2]int{5, 100}, [2]int{sick.runs, well.runs}, "it is ejected, as for answers")
		require.EqualValues(t, 5, p.Status()[0].Refused)
		sick.fails = nil
		<-time.After(31 * time.Second)
		for range 1000 { // it has a tenth of its share
			_, err := p.Embed(t.Context(), &haiku.EmbeddingRequest{})
			require.NoError(t, err)
		}
		require.Greater(t, sick.runs, 6)
		require.Zero(t, p.Status()[0].InFlight+p.Status()[1].InFlight)
	})
}

func TestAnEmbedderThatPanicsHoldsNothing(t *testing.T) {
	e := &embedding{server: &server{name: "a"}, panic: "host bug"}
	p := open(t, Options{}, Endpoint{Name: "a", Model: e})
	require.Panics(t, func() { _, _ = p.Embed(t.Context(), &haiku.EmbeddingRequest{}) })
	require.Equal(t, [2]int64{0, 1}, [2]int64{int64(p.Status()[0].InFlight), p.Status()[0].Refused})
	require.EqualValues(t, 1, p.Status()[0].Breaker.Recent.Failed)
}

func TestServersThatMakeNoEmbeddingsSaySo(t *testing.T) {
	p := open(t, Options{}, Endpoint{Name: "a", Model: &server{name: "a"}})
	_, err := p.Embed(t.Context(), &haiku.EmbeddingRequest{})
	require.ErrorIs(t, err, haiku.ErrUnsupported)
	require.Zero(t, p.Status()[0].Refused)
}
