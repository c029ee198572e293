package cache

import (
	"context"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/internal/likeness"
)

// Lexical is an Embedder that needs no model. It compares texts by their words
// and pieces of words, not by what they mean: it finds the same question in
// nearly the same words, and no paraphrase. An embedding model, such as one of
// package model2vec, finds more.
type Lexical struct{}

var _ haiku.Embedder = Lexical{}

// lexicalDimensions is the length of its vectors.
const lexicalDimensions = 256

// Embed returns a vector of 256 dimensions and length one for each input.
func (Lexical) Embed(ctx context.Context, req *haiku.EmbeddingRequest) (*haiku.Embeddings, error) {
	switch {
	case len(req.Inputs) == 0:
		return nil, haiku.ErrInvalidRequest.With("input", "there is nothing to embed")
	case req.Dimensions != 0 && req.Dimensions != lexicalDimensions:
		return nil, haiku.ErrInvalidRequest.With("dimensions", "these embeddings have %d dimensions, not %d", lexicalDimensions, req.Dimensions)
	}
	out := &haiku.Embeddings{Model: "lexical"}
	for i := range req.Inputs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if len(req.Inputs[i].Tokens) > 0 {
			return nil, haiku.ErrUnsupported.With("input", "this embedder knows no tokens")
		}
		out.Vectors = append(out.Vectors, likeness.Lexical{}.Embed(req.Inputs[i].Text))
	}
	return out, nil
}
