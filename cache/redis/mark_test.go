package redis

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAValueComputedAcrossAnInvalidationIsRefused(t *testing.T) {
	srv := serve(t)
	a, b := srv.open(patient), srv.open(patient)
	tags := []string{"model", "tenant", "model"} // a tag may be named twice
	marked := func(mark []uint64) []Entry {
		return []Entry{
			{Key: "x", Value: []byte("1"), Tags: tags, Versions: mark},
			{Key: "y", Value: []byte("2"), Tags: tags[:1], Versions: mark[:1]},
		}
	}
	mark := a.Mark(t.Context(), tags...)
	require.Len(t, mark, 3)
	require.Equal(t, mark[0], mark[2])
	require.Equal(t, mark, b.Mark(t.Context(), tags...), "all processes see the same")
	require.True(t, a.SetAll(t.Context(), 1, marked(mark)))
	require.Equal(t, "1 2", get(t, b, "x", "y"))

	require.True(t, b.Invalidate(t.Context(), "tenant"))
	require.False(t, a.SetAll(t.Context(), 2, marked(mark)), "it began before")
	require.Equal(t, "- 2", get(t, b, "x", "y"), "y does not depend on what went, and is as it was")
	require.Equal(t, uint64(1), a.Stats().Outrun)
	require.True(t, a.SetAll(t.Context(), 3, marked(a.Mark(t.Context(), tags...))))
	require.Equal(t, "1 2", get(t, b, "x", "y"))
}

func TestAWriteNamesAllVersionsOrNone(t *testing.T) {
	s := serve(t).open(patient)
	mark := s.Mark(t.Context(), "model")
	for name, entries := range map[string][]Entry{
		"one entry of two": {{Key: "x", Tags: []string{"model"}, Versions: mark}, {Key: "y", Tags: []string{"tenant"}}},
		"one tag of two":   {{Key: "x", Tags: []string{"model", "tenant"}, Versions: mark}},
		"versions that differ": {
			{Key: "x", Tags: []string{"model"}, Versions: mark}, {Key: "y", Tags: []string{"model"}, Versions: []uint64{mark[0] + 2}},
		},
	} {
		require.False(t, s.SetAll(t.Context(), 1, entries), name)
		require.Equal(t, "- -", get(t, s, "x", "y"), name)
	}
	require.True(t, s.SetAll(t.Context(), 1, []Entry{{Key: "x", Tags: []string{"model"}, Versions: mark}, {Key: "y"}}), "without tags there is nothing to name")
	require.Nil(t, s.Mark(t.Context()))
}

func TestEachKeyIsAnsweredByItself(t *testing.T) {
	s := serve(t).open(patient)
	require.True(t, s.SetAll(t.Context(), 1, []Entry{entry("a", "a1"), entry("b", "b1")}))
	require.True(t, s.SetAll(t.Context(), 2, []Entry{entry("b", "b2")}))
	require.Equal(t, [][]byte{[]byte("a1"), []byte("b2"), nil}, s.GetEach(t.Context(), "a", "b", "c"))
	require.Empty(t, s.GetEach(t.Context()))
}

func TestAServerThatIsGoneGivesNoMark(t *testing.T) {
	srv := serve(t)
	s := srv.open(patient)
	srv.Kill()
	require.Nil(t, s.Mark(t.Context(), "model"))
	require.Equal(t, [][]byte{nil}, s.GetEach(t.Context(), "a"))
}
