package infer

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/internal/gguf"
	"github.com/intelliparadigm/haiku/internal/tokenizer"
)

// bpeFile is a byte-level vocabulary of ASCII in which <|im_end|> ends turns.
func bpeFile(t testing.TB, edit func(*gguf.Writer)) *ModelFile {
	t.Helper()
	var pieces []string
	var types []int32
	for b := rune('!'); b <= '~'; b++ {
		pieces, types = append(pieces, string(b)), append(types, tokenizer.TypeNormal)
	}
	pieces = append(pieces, "hi", "Ġ", "<|endoftext|>", "<|im_end|>", "<|x|>")
	types = append(types, tokenizer.TypeNormal, tokenizer.TypeNormal, tokenizer.TypeControl, tokenizer.TypeControl, tokenizer.TypeUserDefined)
	w := gguf.NewWriter()
	w.SetString("tokenizer.ggml.model", "gpt2")
	w.SetStrings("tokenizer.ggml.tokens", pieces)
	w.SetStrings("tokenizer.ggml.merges", []string{"h i"})
	w.SetInts("tokenizer.ggml.token_type", types)
	w.SetUint32("tokenizer.ggml.bos_token_id", 96)
	w.SetUint32("tokenizer.ggml.eos_token_id", 96)
	edit(w)
	var b bytes.Buffer
	_, err := w.WriteTo(&b)
	require.NoError(t, err)
	file, err := gguf.Parse(b.Bytes())
	require.NoError(t, err)
	return file
}

func TestAByteLevelVocabularyIsRead(t *testing.T) {
	text, err := textFrom(bpeFile(t, func(w *gguf.Writer) { w.SetString("tokenizer.ggml.pre", "qwen2") }))
	require.NoError(t, err)
	require.Equal(t, []int32{94, 95, 94}, text.Tokenizer.Encode(nil, "hi hi", false))
	require.Equal(t, []int32{97}, text.Tokenizer.Encode(nil, "<|im_end|>", true))
	require.Equal(t, []int32{96, 97}, text.EOS, "and what chat templates end turns with")
	require.Equal(t, []string{"<|endoftext|>", "<|im_end|>", "<|x|>"}, text.Specials)
	require.Empty(t, text.BOS, "Qwen adds none")
	require.Equal(t, "<|endoftext|>", text.BOSText)
	text, err = textFrom(bpeFile(t, func(w *gguf.Writer) { w.SetString("tokenizer.ggml.pre", "llama-bpe") }))
	require.NoError(t, err)
	require.Equal(t, []int32{96}, text.BOS, "Llama 3 does")
	text, err = textFrom(bpeFile(t, func(w *gguf.Writer) {
		w.SetString("tokenizer.ggml.pre", "llama-bpe")
		w.SetBool("tokenizer.ggml.add_bos_token", false)
	}))
	require.NoError(t, err)
	require.Empty(t, text.BOS, "but for a file that says otherwise")
}

func TestAVocabularyOfAnotherKindIsNamed(t *testing.T) {
	_, err := textFrom(bpeFile(t, func(w *gguf.Writer) { w.SetString("tokenizer.ggml.pre", "klingon") }))
	require.ErrorIs(t, err, tokenizer.ErrVocabulary)
	require.ErrorContains(t, err, `"klingon"`)
	w := gguf.NewWriter()
	w.SetString("tokenizer.ggml.model", "rwkv")
	w.SetStrings("tokenizer.ggml.tokens", []string{"a"})
	w.SetInts("tokenizer.ggml.token_type", []int32{1})
	var b bytes.Buffer
	_, err = w.WriteTo(&b)
	require.NoError(t, err)
	file, err := gguf.Parse(b.Bytes())
	require.NoError(t, err)
	_, err = textFrom(file)
	require.ErrorIs(t, err, ErrUnsupportedModel)
	require.ErrorContains(t, err, `tokenizer.ggml.model "rwkv"`)
}

func TestAWordPieceVocabularyIsRead(t *testing.T) {
	w := gguf.NewWriter()
	w.SetString("tokenizer.ggml.model", "bert")
	w.SetStrings("tokenizer.ggml.tokens", []string{"[UNK]", "▁un", "able", "▁É"})
	w.SetInts("tokenizer.ggml.token_type", []int32{2, 1, 1, 1})
	w.SetUint32("tokenizer.ggml.unknown_token_id", 0)
	w.SetBool("tokenizer.ggml.normalizer.lowercase", false)
	var b bytes.Buffer
	_, err := w.WriteTo(&b)
	require.NoError(t, err)
	file, err := gguf.Parse(b.Bytes())
	require.NoError(t, err)
	text, err := textFrom(file)
	require.NoError(t, err)
	require.Equal(t, []int32{1, 2, 3, 0}, text.Tokenizer.Encode(nil, fmt.Sprint("unable É ", "UN"), false))
}
