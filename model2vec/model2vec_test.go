package model2vec

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/internal/safetensors"
)

const (
	words = `{"normalizer": {"type": "BertNormalizer", "lowercase": true}, "pre_tokenizer": {"type": "BertPreTokenizer"},
		"added_tokens": [{"id": 0, "content": "[UNK]", "special": true}],
		"model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
			"vocab": {"[UNK]": 0, "old": 1, "pond": 2, "frog": 3, "##s": 4}}}`
	settings = `{"model_type": "model2vec", "normalize": true}`
)

// toyRows are the vectors of the toy vocabulary.
var toyRows = [][]int8{{9, 9}, {3, 4}, {-5, 0}, {0, -128}, {0, 1}}

// tensors writes rows as a table of a type.
func tensors(t testing.TB, kind string, rows [][]int8, more ...*safetensors.Tensor) []byte {
	t.Helper()
	var data []byte
	for _, row := range rows {
		for _, x := range row {
			if kind == "I8" {
				data = append(data, byte(x))
			} else {
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(x)))
			}
		}
	}
	var b bytes.Buffer
	table := &safetensors.Tensor{Name: "embeddings", Type: kind, Shape: []int{len(rows), len(rows[0])}, Data: data}
	require.NoError(t, safetensors.Write(&b, nil, append(more, table)...))
	return b.Bytes()
}

func toy(t testing.TB, kind string) *Model {
	t.Helper()
	m, err := Parse("toy", tensors(t, kind, toyRows), []byte(words), []byte(settings))
	require.NoError(t, err)
	return m
}

func embed(t testing.TB, m *Model, texts ...string) *haiku.Embeddings {
	t.Helper()
	req := &haiku.EmbeddingRequest{}
	for _, text := range texts {
		req.Inputs = append(req.Inputs, haiku.EmbeddingInput{Text: text})
	}
	out, err := m.Embed(t.Context(), req)
	require.NoError(t, err)
	return out
}

func TestATextIsTheMeanOfItsTokensAtLengthOne(t *testing.T) {
	for _, kind := range []string{"I8", "F32"} {
		m := toy(t, kind)
		require.Equal(t, 2, m.Dimensions())
		require.Equal(t, &haiku.Embeddings{
			Model:   "toy",
			Vectors: [][]float32{{0.6, 0.8}, {-1, 0}, {float32(-2 / math.Sqrt(20)), float32(4 / math.Sqrt(20))}, {0, -1}, {0, 0}},
			Usage:   haiku.Usage{PromptTokens: 1 + 1 + 2 + 2},
		}, embed(t, m, "Old", "pond unheardof", "old pond", "frogs", "unheardof"))
	}
	m, err := Parse("toy", tensors(t, "I8", toyRows), []byte(words), []byte(`{"model_type": "model2vec", "normalize": false}`))
	require.NoError(t, err)
	require.Equal(t, [][]float32{{-1, 2}}, embed(t, m, "old pond").Vectors, "not to be scaled")
}

func TestTokensAreEmbeddedAsTheyAre(t *testing.T) {
	m := toy(t, "I8")
	out, err := m.Embed(t.Context(), &haiku.EmbeddingRequest{Model: "toy", Dimensions: 2, Inputs: []haiku.EmbeddingInput{{Tokens: []int32{1, 2}}}})
	require.NoError(t, err)
	require.Equal(t, embed(t, m, "old pond"), out)
	long := make([]int32, 1000)
	for i := range long {
		long[i] = 2
	}
	long[600] = 3
	out, err = m.Embed(t.Context(), &haiku.EmbeddingRequest{Inputs: []haiku.EmbeddingInput{{Tokens: long}, {Text: strings.Repeat("pond ", 1<<20) + "frog"}}})
	require.NoError(t, err)
	require.Equal(t, [][]float32{{-1, 0}, {-1, 0}}, out.Vectors)
	require.LessOrEqual(t, out.Usage.PromptTokens, 2*maxTokens)
}

func TestBadRequestsAreNamed(t *testing.T) {
	m := toy(t, "I8")
	for param, req := range map[string]*haiku.EmbeddingRequest{
		"model":      {Model: "other", Inputs: []haiku.EmbeddingInput{{Text: "x"}}},
		"input":      {},
		"dimensions": {Dimensions: 3, Inputs: []haiku.EmbeddingInput{{Text: "x"}}},
		"input[1]":   {Inputs: []haiku.EmbeddingInput{{Text: "x"}, {Text: " \n"}}},
		"input[0]":   {Inputs: []haiku.EmbeddingInput{{Tokens: []int32{5}}, {Text: "x"}}},
	} {
		_, err := m.Embed(t.Context(), req)
		require.Equal(t, param, haiku.ErrorFrom(err).Param)
		require.Less(t, haiku.ErrorFrom(err).Status, 500)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := m.Embed(ctx, &haiku.EmbeddingRequest{Inputs: []haiku.EmbeddingInput{{Text: "x"}}})
	require.ErrorIs(t, err, context.Canceled)
	_, err = haiku.NewStream(t.Context(), m, &haiku.Request{Prompt: "x"}).Text()
	require.ErrorIs(t, err, haiku.ErrUnsupported)
	require.Equal(t, "toy", m.Models()[0].ID)
}

func TestAModelThatCannotWorkIsNamed(t *testing.T) {
	for says, files := range map[string][3]string{
		"safetensors: malformed":               {"x", words, settings},
		"tokenizer: bad vocabulary":            {string(tensors(t, "I8", toyRows)), "{}", settings},
		"config.json: ":                        {string(tensors(t, "I8", toyRows)), words, "x"},
		`model_type is "bert"`:                 {string(tensors(t, "I8", toyRows)), words, `{"model_type": "bert"}`},
		"is [4 2], the tokenizer has 5 tokens": {string(tensors(t, "I8", toyRows[:4])), words, settings},
		"has type I32":                         {string(tensors(t, "I32", toyRows)), words, settings},
		`tensor "weights" is not supported`:    {string(tensors(t, "I8", toyRows, &safetensors.Tensor{Name: "weights", Type: "F32", Shape: []int{0}})), words, settings},
		`there is no tensor "embeddings"`:      {"\x02\x00\x00\x00\x00\x00\x00\x00{}", words, settings},
	} {
		_, err := Parse("toy", []byte(files[0]), []byte(files[1]), []byte(files[2]))
		require.ErrorIs(t, err, ErrModel)
		require.ErrorContains(t, err, says)
	}
	_, err := Open(t.TempDir())
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestOpenMapsAFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "frogs")
	require.NoError(t, os.Mkdir(dir, 0o700))
	for name, data := range map[string][]byte{"model.safetensors": tensors(t, "I8", toyRows), "tokenizer.json": []byte(words), "config.json": []byte(settings)} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	m, err := Open(dir)
	require.NoError(t, err)
	require.Equal(t, "frogs", embed(t, m, "frog").Model)
	require.NoError(t, m.Close())
}

func cosine(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

// TestPotionsSimilaritiesAreTheKnownOnes compares with values that model2vec
// gives.
func TestPotionsSimilaritiesAreTheKnownOnes(t *testing.T) {
	dir := "../../shared/models/potion-base-4M-int8"
	if _, err := os.Stat(dir); err != nil {
		t.Skip("the shared models are not here: ", err)
	}
	m, err := Open(dir)
	require.NoError(t, err)
	require.Equal(t, 6, m.median, "of the tokens as tokenizer.json writes them, by numpy")
	defer m.Close()
	v := embed(t, m, "How do I reset my password?", "I forgot my password, how can I change it?", "What is the capital of France?").Vectors
	require.InDelta(t, 0.838386, cosine(v[0], v[1]), 1e-5)
	require.InDelta(t, -0.011070, cosine(v[0], v[2]), 1e-5)
	require.InDelta(t, 1, cosine(v[0], v[0]), 1e-6)
}

func TestManyMayEmbedAtOnce(t *testing.T) {
	m := toy(t, "I8")
	want := embed(t, m, "old pond", "frogs")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				require.Equal(t, want, embed(t, m, "old pond", "frogs"))
			}
		})
	}
	wg.Wait()
}

func Example() {
	model, err := Open("potion-base-4M-int8")
	if err != nil {
		fmt.Println("no model here")
		return
	}
	defer model.Close()
	out, err := model.Embed(context.Background(), &haiku.EmbeddingRequest{Inputs: []haiku.EmbeddingInput{{Text: "an old pond"}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(out.Vectors[0]), "dimensions")
	// Output: no model here
}

func BenchmarkEmbed(b *testing.B) {
	m, err := Open("../../shared/models/potion-base-4M-int8")
	if err != nil {
		b.Skip("the shared models are not here: ", err)
	}
	defer m.Close()
	req := &haiku.EmbeddingRequest{Inputs: []haiku.EmbeddingInput{{Text: "How do I reset my password?"}}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Embed(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}

func TestAnUnreadableTableIsAnUnusableModel(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string]string{"tokenizer.json": words, "config.json": settings, "model.safetensors": "not one"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600))
	}
	_, err := Open(dir)
	require.ErrorIs(t, err, ErrModel)
}
