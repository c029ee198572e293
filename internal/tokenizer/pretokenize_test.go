package tokenizer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestTextIsCutAsEachModelDoes takes one line for what sets a pre-tokeniser
// apart. A middle dot shows where it cuts; the ids that llama.cpp gives for the
// same texts with each model's vocabulary agree.
func TestTextIsCutAsEachModelDoes(t *testing.T) {
	for _, c := range []struct{ pre, cut string }{
		{"gpt-2", "don·'t· stop·!!"},
		{"gpt-2", "DON·'·T"},
		{"gpt-2", "a·  · b"},
		{"gpt-2", "x·\n·\n·y·  "},
		{"gpt-2", "12345· 678·-·9"},
		{"gpt-2", "a·\u00a0·b"},
		{"llama-bpe", "DON·'T· stop"},
		{"llama-bpe", "123·456·7"},
		{"llama-bpe", "x·  \n\n· · y"},
		{"llama-bpe", "(word·)· -·word·!\n\n·\tword"},
		{"llama-bpe", "a·\u3002\r\n·b"},
		{"qwen2", "1·2·3"},
		{"qwen2", "I·'LL· go"},
		{"starcoder", "x·1·2· word"},
		{"starcoder", "a· ·1"},
		{"falcon", "a·!?·b· ·$·12"},
		{"falcon", "123·456·7"},
		{"falcon", "it·'·s"},
		{"default", "a·+·b· `·1"},
		{"deepseek-coder", "word· word·\n·\n· ·1·2"},
		{"deepseek-coder", "a·漢字かな· !"},
		{"deepseek-llm", "word·,·  ·漢字·12345"},
		{"deepseek-llm", "ª·b"},
		{"deepseek-llm", "(·a·)· b"},
		{"deepseek-v3", "123·4"},
		{"deepseek-v3", "漢字かな·abc· (·def"},
		{"deepseek-v3", "_abc·.def"},
		{"deepseek-v3", "é\u0301x· $·5·\n"},
	} {
		preset, known := presetOf(c.pre)
		require.True(t, known, c.pre)
		var words []string
		preset.words.each(strings.ReplaceAll(c.cut, "·", ""), func(word string) { words = append(words, word) })
		require.Equal(t, c.cut, strings.Join(words, "·"), "%s", c.pre)
	}
}

// Words are the text, whatever it is.
func TestWordsAreTheText(t *testing.T) {
	names := []string{"gpt-2", "llama-bpe", "qwen2", "starcoder", "falcon", "default", "deepseek-coder", "deepseek-llm", "deepseek-v3"}
	rapid.Check(t, func(r *rapid.T) {
		preset, _ := presetOf(rapid.SampledFrom(names).Draw(r, "pre"))
		parts := []string{" ", "  ", "\n", "\r", "\t", "a", "Z", "é", "1", "²", "!", "$", "'s", "'LL", "漢", "か", "한", "\u3000", "\u0301", "\xff", "🦙"}
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom(parts)).Draw(r, "text"), "")
		var joined strings.Builder
		preset.words.each(text, func(word string) {
			require.NotEmpty(r, word)
			joined.WriteString(word)
		})
		require.Equal(r, text, joined.String())
	})
}

func TestAnUnknownPretokeniserIsNone(t *testing.T) {
	for _, name := range []string{"", "tekken", "GPT-2"} {
		_, known := presetOf(name)
		require.False(t, known, name)
	}
}
