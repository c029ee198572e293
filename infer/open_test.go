package infer

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/internal/gguf"
	"github.com/intelliparadigm/haiku/internal/tokenizer"
)

// vocabulary writes the tokenizer of a model file with one token more than the
// bytes: end, of a type, which is the one that ends a turn.
func vocabulary(t testing.TB, end string, kind int32) *ModelFile {
	t.Helper()
	pieces, types := []string{"<unk>", "<s>", "</s>"}, []int32{tokenizer.TypeUnknown, tokenizer.TypeControl, tokenizer.TypeControl}
	for b := range 256 {
		pieces, types = append(pieces, fmt.Sprintf("<0x%02X>", b)), append(types, tokenizer.TypeByte)
	}
	pieces, types = append(pieces, end), append(types, kind)
	w := gguf.NewWriter()
	w.SetString("tokenizer.ggml.model", "llama")
	w.SetStrings("tokenizer.ggml.tokens", pieces)
	w.SetFloats("tokenizer.ggml.scores", make([]float32, len(pieces)))
	w.SetInts("tokenizer.ggml.token_type", types)
	w.SetUint32("tokenizer.ggml.bos_token_id", 1)
	w.SetUint32("tokenizer.ggml.eos_token_id", 2)
	w.SetUint32("tokenizer.ggml.eot_token_id", 259)
	w.SetBool("tokenizer.ggml.add_space_prefix", false)
	var b bytes.Buffer
	_, err := w.WriteTo(&b)
	require.NoError(t, err)
	file, err := gguf.Parse(b.Bytes())
	require.NoError(t, err)
	return file
}

func TestTheTokenThatEndsATurnIsAControlTokenWhateverItsType(t *testing.T) {
	for _, kind := range []int32{tokenizer.TypeControl, tokenizer.TypeUserDefined, tokenizer.TypeNormal} {
		text, err := textFrom(vocabulary(t, "</turn>", kind))
		require.NoError(t, err)
		require.Equal(t, []int32{2, 259}, text.EOS)
		require.Equal(t, []string{"</turn>", "<unk>", "</s>", "<s>"}, text.Specials)
		require.Equal(t, []int32{259}, text.Tokenizer.Encode(nil, "</turn>", true))
		require.NotContains(t, text.Tokenizer.Encode(nil, "</turn>", false), int32(259))
		require.Empty(t, text.Tokenizer.Pieces()[259])
	}
}
