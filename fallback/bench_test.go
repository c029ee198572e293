package fallback

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// tokens is a model that pushes n tokens as fast as they are read.
func tokens(n int) haiku.Model {
	vocab := haiku.NewVocabulary([][]byte{[]byte("token ")})
	return haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		w.SetVocabulary(vocab)
		for range n {
			if _, err := w.Push(ctx, haiku.Piece{ID: 0}); err != nil {
				return err
			}
		}
		w.Finish(0, haiku.FinishStop)
		return nil
	})
}

func drain(tb testing.TB, m haiku.Model) {
	for _, err := range haiku.NewStream(context.Background(), m, &haiku.Request{ID: "x"}).Tokens() {
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// TestATokenAllocatesNothingInAChain compares answers of few and of many tokens.
func TestATokenAllocatesNothingInAChain(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	allocs := func(m haiku.Model) float64 { return testing.AllocsPerRun(20, func() { drain(t, m) }) }
	for name, wrap := range map[string]func(haiku.Model) haiku.Model{
		"bare":   func(m haiku.Model) haiku.Model { return m },
		"chain":  func(m haiku.Model) haiku.Model { return newChain(t, Options{}, m, small()) },
		"hedged": func(m haiku.Model) haiku.Model { return newChain(t, Options{HedgeAfter: 100 * ms}, m, small()) },
	} {
		// The reader makes a string of each token; nothing else may cost more.
		few, many := allocs(wrap(tokens(100))), allocs(wrap(tokens(1100)))
		require.InDelta(t, 1000, many-few, 50, name)
	}
}

func BenchmarkAnswer(b *testing.B) {
	for _, n := range []int{1, 256} {
		for _, bench := range []struct {
			name string
			wrap func(haiku.Model) haiku.Model
		}{
			{"bare", func(m haiku.Model) haiku.Model { return m }},
			{"chain", func(m haiku.Model) haiku.Model { return New(m, small()) }},
		} {
			b.Run(fmt.Sprintf("%s/%d", bench.name, n), func(b *testing.B) {
				m := bench.wrap(tokens(n))
				b.ReportAllocs()
				for b.Loop() {
					drain(b, m)
				}
			})
		}
	}
}
