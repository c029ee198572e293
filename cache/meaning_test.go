package cache

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
)

// letters embeds a text by how often each letter is in it.
type letters struct{ fail error }

func (e letters) Embed(_ context.Context, req *haiku.EmbeddingRequest) (*haiku.Embeddings, error) {
	if e.fail != nil {
		return nil, e.fail
	}
	out := &haiku.Embeddings{}
	for _, in := range req.Inputs {
		v, squares := make([]float32, 27), 0.0
		for _, r := range strings.ToLower(in.Text) {
			if r >= 'a' && r <= 'z' {
				v[r-'a']++
			}
		}
		v[26] = 0.1
		for _, x := range v {
			squares += float64(x * x)
		}
		for i := range v {
			v[i] /= float32(math.Sqrt(squares))
		}
		out.Vectors = append(out.Vectors, v)
	}
	return out, nil
}

// sameNegation is a gate that lets all pass but opposites.
func sameNegation(asked, kept string) bool {
	return strings.Contains(asked, "not") == strings.Contains(kept, "not")
}

func semantic(t *testing.T, o Semantic) (*Cached, *model) {
	t.Helper()
	m := &model{}
	c := Through(m, tiers(t, Options{Semantic: &o}), Policy{})
	t.Cleanup(c.Close)
	return c, m
}

func TestAQuestionThatMeansTheSameIsAnsweredFromMemory(t *testing.T) {
	c, m := semantic(t, Semantic{Embedder: letters{}, Gate: sameNegation})
	get := func(tenant, question string) string {
		got, err := haiku.NewStream(haiku.WithIdentity(t.Context(), haiku.Identity{Tenant: tenant}), c, ask(question)).Text()
		require.NoError(t, err)
		return got
	}
	get("t", "where is the old pond")
	require.Equal(t, "where is the old pond ", get("t", "is the old pond where"), "the same letters")
	require.Equal(t, int64(1), m.runs.Load())
	require.Equal(t, "where is the old pond not ", get("t", "where is the old pond not"), "the gate")
	require.Equal(t, int64(2), m.runs.Load())
	get("t", "zzz quite another thing")
	require.Equal(t, int64(3), m.runs.Load())
	require.Equal(t, "is the old pond where ", get("u", "is the old pond where"), "another tenant")
	require.Equal(t, int64(4), m.runs.Load())
	stats := c.tiers.Stats()
	require.Equal(t, []int64{1, 1}, []int64{stats.Semantic, stats.Gated})

	c.tiers.Invalidate(t.Context(), "tenant:t")
	get("t", "pond old the is where")
	require.Equal(t, int64(5), m.runs.Load(), "invalidated in this tier too")
}

// TestTheDefaultsAreStrict asks questions that look alike of the embedder that
// needs no model, and of the gate that comes with the cache.
func TestTheDefaultsAreStrict(t *testing.T) {
	c, m := semantic(t, Semantic{Threshold: 0.5})
	computes := func(question string) bool {
		before := m.runs.Load()
		_, err := haiku.NewStream(t.Context(), c, ask(question)).Text()
		require.NoError(t, err)
		return m.runs.Load() > before
	}
	require.True(t, computes("How do I enable logging in version 2 of nginx?"))
	for question, computed := range map[string]bool{
		"how do i enable logging in version 2 of nginx":        false,
		"How do I enable logging in version 3 of nginx?":       true,
		"How do I disable logging in version 2 of nginx?":      true,
		"How do I not enable logging in version 2 of nginx?":   true,
		"How do I enable logging in version 2 of apache?":      true,
		"Why do I enable logging in version 2 of nginx?":       true,
		"How do I enable `logging` in version 2 of \"nginx\"?": true,
	} {
		require.Equal(t, computed, computes(question), question)
	}
	require.Equal(t, int64(1), c.tiers.Stats().Semantic)
}

func TestLexicalEmbedsTextAlone(t *testing.T) {
	out, err := Lexical{}.Embed(t.Context(), &haiku.EmbeddingRequest{Inputs: []haiku.EmbeddingInput{{Text: "old pond"}, {Text: "a frog"}}})
	require.NoError(t, err)
	require.Len(t, out.Vectors, 2)
	require.Len(t, out.Vectors[0], lexicalDimensions)
	for _, req := range []*haiku.EmbeddingRequest{
		{}, {Dimensions: 3, Inputs: []haiku.EmbeddingInput{{Text: "x"}}}, {Inputs: []haiku.EmbeddingInput{{Tokens: []int32{1}}}},
	} {
		_, err := Lexical{}.Embed(t.Context(), req)
		require.Less(t, haiku.ErrorFrom(err).Status, 500)
		require.Error(t, err)
	}
}

func TestAnEmbedderThatFailsCostsNothingElse(t *testing.T) {
	c, m := semantic(t, Semantic{Embedder: letters{fail: errors.New("down")}, Gate: sameNegation})
	for range 2 {
		got, err := haiku.NewStream(t.Context(), c, ask("old pond")).Text()
		require.NoError(t, err)
		require.Equal(t, "old pond ", got)
	}
	require.Equal(t, int64(1), m.runs.Load(), "the exact hit needs none")
	require.Equal(t, int64(1), c.tiers.Stats().Unembedded)
}

func TestTheVectorTierIsBoundedAndTakesTheOthersAlong(t *testing.T) {
	c, _ := semantic(t, Semantic{Embedder: letters{}, Gate: func(asked, kept string) bool { return asked == kept }, MaxEntries: 10})
	for i := range 50 {
		_, err := haiku.NewStream(t.Context(), c, ask(fmt.Sprint("pond ", i))).Text()
		require.NoError(t, err)
	}
	kept := 0
	for i := range 50 {
		m, err := c.tiers.Meaning(t.Context(), ask(fmt.Sprint("pond ", i)), "")
		require.NoError(t, err)
		_, similar := c.tiers.Similar(t.Context(), m)
		_, exact := c.tiers.Get(KeyOf(ask(fmt.Sprint("pond ", i)), ""))
		require.True(t, exact || !similar, "in both or in none")
		if exact {
			kept++
		}
	}
	require.Equal(t, 10, kept)
	require.Len(t, c.tiers.meanings.partitions, 1)
}

func TestManyQuestionsAreFoundAsFewAre(t *testing.T) {
	for _, approximate := range []bool{false, true} {
		c, m := semantic(t, Semantic{Embedder: letters{}, Gate: func(asked, kept string) bool { return len(asked) == len(kept) }, Threshold: 0.9999, Approximate: approximate})
		question := func(i, turn int) string { // letters that no other has, in either order
			words := []string{strings.Repeat("a", i%20+1), strings.Repeat("b", i/20+1), "c"}
			return strings.Join([]string{words[turn%3], words[(turn+1)%3], words[(turn+2)%3]}, " ")
		}
		for i := range 300 {
			_, err := haiku.NewStream(t.Context(), c, ask(question(i, 0))).Text()
			require.NoError(t, err)
		}
		computed := m.runs.Load()
		found := 0
		for i := range 300 {
			got, err := haiku.NewStream(t.Context(), c, ask(question(i, 1))).Text()
			require.NoError(t, err)
			if strings.TrimSpace(got) == question(i, 0) {
				found++
			}
		}
		require.GreaterOrEqual(t, found, 280, "approximate: %v", approximate)
		require.LessOrEqual(t, m.runs.Load()-computed, int64(20))
	}
}

func TestManyMayAskAndForgetAtOnce(t *testing.T) {
	c, _ := semantic(t, Semantic{Embedder: letters{}, Gate: sameNegation, MaxEntries: 20, Approximate: true})
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 200 {
				question := fmt.Sprintf("%c%c pond", 'a'+i%26, 'a'+(i*w)%26)
				_, err := haiku.NewStream(t.Context(), c, ask(question)).Text()
				require.NoError(t, err)
				if i%50 == 0 {
					c.tiers.Invalidate(t.Context(), "tenant:")
				}
			}
		})
	}
	all.Wait()
}

// TestWhatHasExpiredDoesNotStandBeforeWhatHasNot answers a question anew each
// time that its answer has expired, more often than neighbours are looked at.
func TestWhatHasExpiredDoesNotStandBeforeWhatHasNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, m := newMapStore(), &model{}
		c := Through(m, tiers(t, Options{Store: store, TTL: time.Minute, Jitter: -1, Semantic: &Semantic{Embedder: letters{}, Gate: sameNegation}}), Policy{})
		defer c.Close()
		get := func(question string) {
			_, err := haiku.NewStream(t.Context(), c, ask(question)).Text()
			require.NoError(t, err)
		}
		for range 2 * nearest {
			<-time.After(2 * time.Minute)
			clear(store.all) // as a store does with what has expired
			get("an old pond")
		}
		require.Equal(t, int64(2*nearest), m.runs.Load())
		get("pond old an")
		require.Equal(t, int64(2*nearest), m.runs.Load())
		require.Equal(t, int64(1), c.tiers.Stats().Semantic)
	})
}
