// Package openai speaks the OpenAI HTTP API: it decodes requests into
// haiku.Request, and writes answers as OpenAI's clients expect them.
//
// The one idea: the wire is two translations with the model between them. A
// request type is a haiku.Payload, which is checked completely before anything
// is queued; an encoder is a haiku.Encoder, which appends to bytes that were
// prepared when the stream began.
//
//	mux.Handle("/v1/", openai.Handler(engine))
//
// or, with a handler of the host's own:
//
//	haiku.Register("POST /v1/chat/completions", haiku.HandlerFunc(func(c *haiku.Context) {
//		var req openai.ChatCompletionRequest
//		if err := c.Bind(&req); err != nil {
//			c.AbortWithError(err)
//			return
//		}
//		c.Stream(infer.NewStream(c.Context(), &req))
//	}), haiku.Provide(engine))
//
// # What is accepted
//
// Sampling and limits are those of the API plus top_k, min_p and
// repetition_penalty. Features that change an answer and are not supported
// (tools, response formats, audio …) are refused by name with status 400; names
// that do not change it (user, metadata …) and names that are not known are
// ignored. Names match in case. An absent model, or "", is the default model.
// The text parts of a message are joined by line breaks. A number that does not
// fit its parameter is refused, never clamped.
//
// # How a stream ends
//
// A good stream ends with a finish_reason per choice, the usage if asked for,
// and "data: [DONE]". A stream that fails after its first byte ends with one
// event that holds the error object, and no [DONE]: whoever looks only for the
// marker then knows that the answer is torn.
package openai
