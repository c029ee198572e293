package infer

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/internal/gguf"
	"github.com/intelliparadigm/haiku/tinymodel"
)

func tinyPrompter(t testing.TB) *prompter {
	t.Helper()
	file, err := gguf.Parse(tinymodel.GGUF())
	require.NoError(t, err)
	text, err := textFrom(file)
	require.NoError(t, err)
	p, err := newPrompter(text, len(text.Tokenizer.Pieces()))
	require.NoError(t, err)
	return p
}

func TestLeastTokensIsNeverMoreThanThereAre(t *testing.T) {
	p := tinyPrompter(t)
	longest := ""
	for _, piece := range p.text.Tokenizer.Pieces() {
		if len(piece) > len(longest) {
			longest = string(piece)
		}
	}
	parts := rapid.SampledFrom([]string{"a", " ", "\u2581", longest, strings.ReplaceAll(longest, " ", "\u2581"), "<|assistant|>", "é", "🦙", "autumn wind"})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(parts, 1, 40).Draw(t, "text"), "")
		for _, req := range []*haiku.Request{
			{Prompt: text}, {Messages: []haiku.Message{{Role: haiku.RoleUser, Content: text}}},
		} {
			ids, err := p.prompt(t.Context(), req)
			require.NoError(t, err)
			require.LessOrEqual(t, p.leastTokens(req), len(ids))
		}
	})
}

func TestAPromptThatCannotFitIsRefusedUnread(t *testing.T) {
	p := tinyPrompter(t)
	least := p.leastTokens(&haiku.Request{Prompt: strings.Repeat("x", 4<<20)})
	require.Greater(t, least, 10_000)
}

func TestABeginningTokenIsNotDoubled(t *testing.T) {
	p := tinyPrompter(t)
	for _, prompt := range []string{"autumn", "<s>autumn"} {
		ids, err := p.prompt(t.Context(), &haiku.Request{Prompt: prompt})
		require.NoError(t, err)
		require.EqualValues(t, 1, ids[0])
		require.NotEqualValues(t, 1, ids[1])
	}
}

func TestAMaskOfBitsBeyondTheVocabularyAllowsNothing(t *testing.T) {
	p := tinyPrompter(t)
	n := p.vocab.Len()
	mask := haiku.NewTokenMask(n)
	req := &haiku.Request{Prompt: "x", Sampling: haiku.Sampling{Mask: mask}}
	if n%64 != 0 {
		mask[len(mask)-1] = ^uint64(0) << (n % 64)
		require.ErrorIs(t, p.check(req), haiku.ErrInvalidRequest)
	}
	mask.Allow(int32(n - 1))
	require.NoError(t, p.check(req))
}

func TestAControlTokenOfAbsurdLengthIsRefused(t *testing.T) {
	text := tinyPrompter(t).text
	text.Specials = append(slices.Clone(text.Specials), strings.Repeat("<", 2000))
	_, err := newPrompter(text, len(text.Tokenizer.Pieces()))
	require.ErrorIs(t, err, ErrUnsupportedModel)
}
