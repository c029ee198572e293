package haiku

import "context"

// Embedder turns texts into vectors whose directions tell how near they are in
// meaning. Methods may be called concurrently.
//
// A [Model] that also embeds implements it beside Generate, and wrapping Models
// pass it on through Unwrap() Model: see [ModelAs].
type Embedder interface {
	// Embed returns one vector for each input, in their order. It ends with
	// ctx's error soon after ctx does. An [Error] names the input at fault: one
	// that is empty or longer than the model's context, or asks for dimensions
	// that the model does not have.
	Embed(ctx context.Context, req *EmbeddingRequest) (*Embeddings, error)
}

// EmbeddingRequest asks for vectors.
type EmbeddingRequest struct {
	// Model is the name asked for, empty for the only or the first one.
	Model string
	// Inputs are what to embed, at least one.
	Inputs []EmbeddingInput
	// Dimensions is the wanted length of the vectors; 0 is the model's own.
	Dimensions int
}

// EmbeddingInput is one text, or its tokens.
type EmbeddingInput struct {
	// Text is embedded as data: texts of control tokens inside it stay text.
	Text string
	// Tokens, when not empty, are embedded instead, as they are: no
	// begin-of-sequence token is added.
	Tokens []int32
}

// Embeddings are the answer to an [EmbeddingRequest].
type Embeddings struct {
	Model string // the name of the model that answered
	// Vectors are of length one (in the sense of L2), [inputs][dimensions]; a
	// text of which the model knows no word may be all zeros.
	Vectors [][]float32
	Usage   Usage // PromptTokens alone
}
