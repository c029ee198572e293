// Package model2vec computes static embeddings in the format of model2vec: the
// mean of one vector for each token of a text. They cost microseconds on one
// core, need no other model, and are good enough for caches, routing and first
// retrieval.
//
// The one idea: a model is a table. Rows of int8 are read where the file is
// mapped, so that a process touches the rows of the words it sees and no others;
// wider types are copied to float32 once.
package model2vec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/internal/safetensors"
	"github.com/intelliparadigm/haiku/internal/tokenizer"
)

// ErrModel is matched by errors about a model that cannot be used.
var ErrModel = errors.New("model2vec: unusable model")

// maxTokens is how many tokens of a text count, as in model2vec itself.
const maxTokens = 512

// Model is a table of vectors and its tokenizer. It is immutable and safe for
// concurrent use until Close.
//
// It is a [haiku.Model] too, so that a registry can hold it beside those that
// answer; asked to generate it refuses.
type Model struct {
	name     string
	words    *tokenizer.WordPiece
	table    table
	median   int // characters of a token
	unscaled bool
	file     *safetensors.File
}

var (
	_ haiku.Embedder = (*Model)(nil)
	_ haiku.Model    = (*Model)(nil)
	_ haiku.Lister   = (*Model)(nil)
)

// table holds the vectors of all tokens, [vocab][dim], as int8 or float32.
type table struct {
	dim    int
	bytes  []byte    // of int8, mapped
	floats []float32 // in place of bytes
}

// config is what matters of config.json.
type config struct {
	Type      string `json:"model_type"`
	Normalize bool   `json:"normalize"`
}

// Open loads the model in a folder, as model2vec saves it: model.safetensors,
// tokenizer.json (WordPiece) and config.json. It is called what the folder is.
// Errors match [ErrModel] or come from the system.
func Open(dir string) (*Model, error) {
	words, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		return nil, fmt.Errorf("model2vec: %w", err)
	}
	settings, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, fmt.Errorf("model2vec: %w", err)
	}
	file, err := safetensors.Open(filepath.Join(dir, "model.safetensors"))
	switch {
	case errors.Is(err, safetensors.ErrFormat):
		return nil, fmt.Errorf("%w: %s: %w", ErrModel, dir, err)
	case err != nil:
		return nil, fmt.Errorf("model2vec: %w", err)
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		absolute = dir
	}
	m, err := newModel(filepath.Base(absolute), file, words, settings)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", dir, err), file.Close())
	}
	return m, nil
}

// Parse loads a model whose three files lie in memory, such as embedded ones,
// under a name. The caller keeps tensors unchanged while the model is in use.
func Parse(name string, tensors, tokenizerJSON, configJSON []byte) (*Model, error) {
	file, err := safetensors.Parse(tensors)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrModel, err)
	}
	return newModel(name, file, tokenizerJSON, configJSON)
}

func newModel(name string, file *safetensors.File, tokenizerJSON, configJSON []byte) (*Model, error) {
	var cfg config
	if err := json.Unmarshal(configJSON, &cfg); err != nil {
		return nil, fmt.Errorf("%w: config.json: %w", ErrModel, err)
	}
	if cfg.Type != "model2vec" {
		return nil, fmt.Errorf("%w: model_type is %q, want model2vec", ErrModel, cfg.Type)
	}
	words, err := tokenizer.ParseWordPiece(tokenizerJSON)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrModel, err)
	}
	m := &Model{name: name, words: words, file: file, unscaled: !cfg.Normalize}
	if m.table, err = readTable(file, words.VocabSize()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrModel, err)
	}
	m.median = medianLength(words)
	return m, nil
}

// readTable finds the vectors, and whatever else the file holds refuses it: a
// weight for each token, or a mapping of tokens to rows, would change the result.
func readTable(file *safetensors.File, vocab int) (table, error) {
	for _, t := range file.Tensors() {
		if t.Name != "embeddings" {
			return table{}, fmt.Errorf("tensor %q is not supported", t.Name)
		}
	}
	t, found := file.Tensor("embeddings")
	if !found {
		return table{}, errors.New(`there is no tensor "embeddings"`)
	}
	if len(t.Shape) != 2 || t.Shape[0] != vocab || t.Shape[1] == 0 {
		return table{}, fmt.Errorf("tensor embeddings is %v, the tokenizer has %d tokens", t.Shape, vocab)
	}
	if t.Type == "I8" {
		return table{dim: t.Shape[1], bytes: t.Data}, nil
	}
	floats, err := t.Floats()
	return table{dim: t.Shape[1], floats: floats}, err
}

// medianLength is the median length in characters of the tokens as they are
// written in the vocabulary, by which long texts are cut before they are
// tokenised: so model2vec does it.
func medianLength(words *tokenizer.WordPiece) int {
	var lengths []int
	for _, text := range words.Texts() {
		lengths = append(lengths, utf8.RuneCountInString(text))
	}
	slices.Sort(lengths)
	n := len(lengths)
	return max(1, (lengths[(n-1)/2]+lengths[n/2])/2)
}

// Close unmaps the table. The model must no longer be in use.
func (m *Model) Close() error { return m.file.Close() }

// Dimensions is the length of the vectors.
func (m *Model) Dimensions() int { return m.table.dim }

// Models lists the one model there is.
func (m *Model) Models() []haiku.ModelInfo {
	return []haiku.ModelInfo{{ID: m.name, OwnedBy: "haiku", ContextTokens: maxTokens}}
}

// Generate refuses: the model only embeds.
func (m *Model) Generate(context.Context, *haiku.StreamWriter, *haiku.Request) error {
	return haiku.ErrUnsupported.With("model", "this model makes embeddings and no text")
}

// Embed returns the mean of the vectors of each input's tokens, of length one if
// the model's config.json says that it is to be normalised. Tokens after the
// first 512 do not count, nor words that the vocabulary does not have; a text
// without any other is all zeros.
func (m *Model) Embed(ctx context.Context, req *haiku.EmbeddingRequest) (*haiku.Embeddings, error) {
	switch {
	case req.Model != "" && req.Model != m.name:
		return nil, haiku.ModelNotFound(req.Model)
	case len(req.Inputs) == 0:
		return nil, haiku.ErrInvalidRequest.With("input", "there is nothing to embed")
	case req.Dimensions != 0 && req.Dimensions != m.table.dim:
		return nil, haiku.ErrInvalidRequest.With("dimensions", "this model's embeddings have %d dimensions, not %d", m.table.dim, req.Dimensions)
	}
	out := &haiku.Embeddings{Model: m.name, Vectors: make([][]float32, len(req.Inputs))}
	var ids []int32
	sum := make([]float64, m.table.dim)
	for i := range req.Inputs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var err error
		if ids, err = m.tokens(ids[:0], &req.Inputs[i]); err != nil {
			param := "input"
			if len(req.Inputs) > 1 {
				param = fmt.Sprintf("input[%d]", i)
			}
			return nil, haiku.ErrInvalidRequest.With(param, "%v", err)
		}
		out.Usage.PromptTokens += len(ids)
		out.Vectors[i] = m.vector(sum, ids)
	}
	return out, nil
}

// tokens appends the ids of an input that count.
func (m *Model) tokens(dst []int32, in *haiku.EmbeddingInput) ([]int32, error) {
	if len(in.Tokens) > 0 {
		for _, id := range in.Tokens {
			if id < 0 || int(id) >= m.words.VocabSize() {
				return dst, fmt.Errorf("the token %d is not in the vocabulary of %d", id, m.words.VocabSize())
			}
		}
		return append(dst, in.Tokens[:min(len(in.Tokens), maxTokens)]...), nil
	}
	if strings.TrimSpace(in.Text) == "" {
		return dst, errors.New("there is nothing to embed: the text is empty")
	}
	dst = m.words.Encode(dst, firstRunes(in.Text, maxTokens*m.median), false)
	dst = slices.DeleteFunc(dst, func(id int32) bool { return id == m.words.UNK() })
	return dst[:min(len(dst), maxTokens)], nil
}

// firstRunes returns the first n characters of s.
func firstRunes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// vector is the mean of the rows of ids. sum is memory for it, [dim].
func (m *Model) vector(sum []float64, ids []int32) []float32 {
	clear(sum)
	for _, id := range ids {
		m.table.add(sum, int(id))
	}
	scale := 1 / math.Max(1, float64(len(ids)))
	if !m.unscaled {
		squares := 0.0
		for _, x := range sum {
			squares += x * x
		}
		if scale = 0; squares > 0 {
			scale = 1 / math.Sqrt(squares)
		}
	}
	v := make([]float32, len(sum))
	for d, x := range sum {
		v[d] = float32(x * scale)
	}
	return v
}

// add adds a row to sum.
func (t *table) add(sum []float64, row int) {
	if t.bytes != nil {
		for d, x := range t.bytes[row*t.dim : (row+1)*t.dim] {
			sum[d] += float64(int8(x))
		}
		return
	}
	for d, x := range t.floats[row*t.dim : (row+1)*t.dim] {
		sum[d] += float64(x)
	}
}
