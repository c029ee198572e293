package cache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// fixed embeds the words that it knows as they were given.
type fixed map[string][]float32

func (e fixed) Embed(_ context.Context, req *haiku.EmbeddingRequest) (*haiku.Embeddings, error) {
	out := &haiku.Embeddings{}
	for _, in := range req.Inputs {
		out.Vectors = append(out.Vectors, e[strings.Fields(in.Text)[0]])
	}
	return out, nil
}

// topics is a model that answers by topic: every question "topic/n" of one has
// one answer, unless the topic is treacherous: then each has its own.
func topics(runs *int) haiku.Model {
	return haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
		*runs++
		question := req.Messages[0].Content
		topic, _, _ := strings.Cut(question, "/")
		answer := "the answer to " + topic
		if strings.HasPrefix(topic, "treacherous") {
			answer = "the answer to " + question
		}
		if _, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: answer}); err != nil {
			return err
		}
		w.Finish(0, haiku.FinishStop)
		return nil
	})
}

// near returns a vector whose cosine similarity to the axis of a topic is about
// 0.95 to 1.
func near(topic int, random *rand.Rand) []float32 {
	v := make([]float32, 16)
	v[topic] = 1
	for i := range v {
		v[i] += float32(random.NormFloat64() * 0.04)
	}
	return v
}

// TestABudgetLearnsWhichAnswersMayBeServed asks new questions all the time, near
// answers that are right for them and near others that never are.
func TestABudgetLearnsWhichAnswersMayBeServed(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine and many questions")
	}
	const asks = 12000
	random := rand.New(rand.NewPCG(1, 2))
	embedder, runs := fixed{}, 0
	ts := tiers(t, Options{MaxBytes: 1 << 30, Semantic: &Semantic{
		Embedder: embedder, Gate: func(string, string) bool { return true }, MaxEntries: 1 << 20,
		Budget:     &Budget{Delta: 0.02, Seed: 3},
		SameAnswer: func(kept, computed *Answer) bool { return kept.text() == computed.text() },
	}})
	c := Through(topics(&runs), ts, Policy{})
	defer c.Close()
	var wrong, hits [2]int // of the last half, of good and of treacherous topics
	for i := range asks {
		topic := random.IntN(16)
		name := fmt.Sprintf("good%d/%d", topic, i)
		if topic >= 14 {
			name = fmt.Sprintf("treacherous%d/%d", topic, i)
		}
		embedder[name] = near(topic, random)
		before := runs
		got, err := haiku.NewStream(t.Context(), c, ask(name)).Text()
		require.NoError(t, err)
		if runs > before || i < asks/2 {
			continue
		}
		kind := topic / 14
		hits[kind]++
		want, _, _ := strings.Cut(name, "/")
		if kind == 1 || got != "the answer to "+want {
			wrong[kind]++
		}
	}
	require.Zero(t, wrong[0])
	require.LessOrEqual(t, wrong[1], asks/2*2/100, "wrong answers are within the budget")
	require.Greater(t, hits[0], asks/2*14/16/2, "and the others are served: after some 400 questions near each, mostly")
	stats := ts.Stats()
	require.Greater(t, stats.Verified, stats.Wrong)
	require.Positive(t, stats.Wrong)
}

// TestShadowsTellHowOftenTheTierIsWrong has the gate let everything pass.
func TestShadowsTellHowOftenTheTierIsWrong(t *testing.T) {
	embedder, runs := fixed{}, 0
	ts := tiers(t, Options{Semantic: &Semantic{Embedder: embedder, Gate: func(string, string) bool { return true }, Shadow: 1}})
	c := Through(topics(&runs), ts, Policy{})
	defer c.Close()
	for i, name := range []string{"good/1", "good/2", "good/3", "treacherous/1", "treacherous/2"} {
		v := make([]float32, 2)
		v[i/3] = 1
		embedder[name] = v
		got, err := haiku.NewStream(t.Context(), c, ask(name)).Text()
		require.NoError(t, err)
		want, _, _ := strings.Cut(name, "/")
		if want == "treacherous" {
			want = name
		}
		require.Equal(t, "the answer to "+want, got, "who asks gets what was computed")
	}
	require.Equal(t, 5, runs)
	stats := ts.Stats()
	require.Equal(t, []int64{3, 1, 0, 5}, []int64{stats.Verified, stats.Wrong, stats.Semantic, stats.Misses})
	require.Len(t, ts.meanings.partitions, 1)
	for _, p := range ts.meanings.partitions {
		require.Len(t, p.kept, 3, "an answer that proved right again is kept once")
	}
	_, ok := ts.Get(KeyOf(ask("good/3"), ""))
	require.True(t, ok, "and found by its own question")
}
