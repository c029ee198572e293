package cache

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/haikutest"
)

// The suite sees what is replayed by Generate, and what is recalled.
func TestACachedModelKeepsTheModelsContract(t *testing.T) {
	seed := uint64(1)
	req := &haiku.Request{
		Messages: []haiku.Message{{Role: haiku.RoleUser, Content: "pond?"}}, Choices: 2, Stop: []string{"frog"},
		Sampling: haiku.Sampling{Seed: &seed, Temperature: 1, LogitBias: map[int32]float32{5: -1}},
	}
	haikutest.TestModel(t, func(t *testing.T) haiku.Model {
		c := Through(haikutest.NewModel(t, "an ", "old ", "silent ", "pond"), tiers(t, Options{}), Policy{})
		t.Cleanup(c.Close)
		_, err := haiku.NewStream(t.Context(), c, req).Text()
		require.NoError(t, err)
		return c
	}, req, &haiku.Request{Prompt: "x", MaxTokens: 1 << 20})
}

func TestWhoLeavesLastLearnsWhatWasUsed(t *testing.T) {
	c := Through(haikutest.NewModel(t, "an ", "old ", "silent ", "pond"), tiers(t, Options{}), Policy{})
	defer c.Close()
	for range 20 {
		ctx := WithControl(t.Context(), Control{NoStore: true})
		stream := haiku.NewStream(ctx, c, ask("pond?"))
		for _, err := range stream.Tokens() {
			require.NoError(t, err)
			break
		}
		require.Positive(t, stream.Usage().PromptTokens)
		require.Positive(t, stream.Usage().CompletionTokens)
	}
}

// What is not at hand is left to Generate, and not counted twice.
func TestOnlyWhatIsHereIsRecalled(t *testing.T) {
	m := &model{}
	c := Through(m, tiers(t, Options{}), Policy{})
	defer c.Close()
	recall := func(c *Cached, control Control) bool {
		ctx := WithControl(t.Context(), control)
		_, ok := c.Recall(ctx, haiku.NewStream(ctx, c, ask("old pond")), ask("old pond"))
		return ok
	}
	require.False(t, recall(c, Control{}))
	require.Equal(t, Stats{}, c.tiers.Stats())
	_, err := haiku.NewStream(t.Context(), c, ask("old pond")).Text()
	require.NoError(t, err)
	require.True(t, recall(c, Control{}))
	require.False(t, recall(c, Control{NoCache: true}))
	require.False(t, recall(c, Control{Namespace: "other"}))
	require.False(t, recall(c, Control{MaxAge: 1}))
	paced := Through(m, c.tiers, Policy{Pace: time.Second})
	defer paced.Close()
	require.False(t, recall(paced, Control{}))
	seen := c.tiers.Stats()
	seen.Bytes = 0
	require.Equal(t, Stats{Hits: 1, Misses: 1, Writes: 1}, seen)
	c.tiers.Invalidate(t.Context(), "model:")
	require.False(t, recall(c, Control{}))
}

// A route that has yet to be decided is Generate's affair: deciding may be slow.
func TestWhatARouteLeadsToIsRecalledOnceTheRouteIsKnown(t *testing.T) {
	decided := 0
	table := Table{Version: "1", Decide: func(context.Context, *haiku.Request) (Route, error) {
		decided++
		return Route{Model: "other"}, nil
	}}
	routes := NewRoutes(table)
	c := Through(&model{}, tiers(t, Options{}), Policy{Routes: routes})
	defer c.Close()
	recall := func() bool {
		_, ok := c.Recall(t.Context(), haiku.NewStream(t.Context(), c, ask("old pond")), ask("old pond"))
		return ok
	}
	require.False(t, recall())
	require.Zero(t, decided)
	_, err := haiku.NewStream(t.Context(), c, ask("old pond")).Text()
	require.NoError(t, err)
	require.True(t, recall())
	require.Equal(t, int64(1), c.tiers.Stats().Routed)
	require.Equal(t, 1, decided)
	table.Version = "2"
	routes.Set(table)
	require.False(t, recall())
}
