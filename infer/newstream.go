package infer

import (
	"context"

	"github.com/intelliparadigm/haiku"
)

// NewStream prepares the answer to a payload, such as an
// openai.ChatCompletionRequest or a haiku.Request, from the model that
// [haiku.Provide] or [haiku.WithModel] put into ctx. Nothing runs before the
// stream is read, by [haiku.Context.Stream] or a loop over its Tokens.
//
// There is no error to check here: a context without a model and a payload
// that is not valid make a stream that fails with an error for the client.
func NewStream(ctx context.Context, payload haiku.Payload) *haiku.StreamWriter {
	m, ok := haiku.ModelFrom(ctx)
	if !ok {
		return haiku.FailedStream(ctx, haiku.ErrInternal.With("", "this route has no model"))
	}
	req, err := payload.InferenceRequest()
	if err != nil {
		return haiku.FailedStream(ctx, err)
	}
	return haiku.NewStream(ctx, m, req)
}
