package cache

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

func TestFindingAnEntryAllocatesLittle(t *testing.T) {
	req := &haiku.Request{Tenant: "t", Model: "m", Messages: []haiku.Message{{Role: haiku.RoleUser, Content: "an old pond"}}}
	require.Zero(t, testing.AllocsPerRun(100, func() { KeyOf(req, "space") }))
	ts := tiers(t, Options{})
	key := KeyOf(req, "")
	require.NoError(t, ts.SetAll(t.Context(), Write{Key: key, Answer: &Answer{}, Prompt: key, Route: &Route{}}))
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { ts.Get(key) }), 1.0, "ristretto takes the key on the heap")
	require.Zero(t, testing.AllocsPerRun(100, func() { ts.Route(t.Context(), key) }))
}
