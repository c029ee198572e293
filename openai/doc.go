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
// repetition_penalty. Names that change nothing (user, metadata …) are ignored.
// Names match in case. An absent model, or "", is the
// default model. The text parts of a message are joined by line breaks. A number
// that does not fit its parameter is refused, never clamped.
//
// # What only some models understand
//
// Tools, functions and their choice, response formats, reasoning effort, verbosity,
// predictions, modalities, audio, web search and storing; a completion's suffix,
// echo and best_of; a message's calls, their results, refusals, reasoning, and
// parts that are not text: all these become extensions of the haiku.Request,
// byte for byte as they were written and in the order of the body. Whatever says
// nothing does not: null, false and empty values, the response format text, and
// without tools the choice none or auto and parallel_tool_calls. A value of the
// wrong shape is refused here.
//
// A stream refuses extensions by name, with status 400, unless its model is
// haiku.Extended and takes them. An engine in this process does not; one elsewhere
// may. Messages of role function are refused for all.
//
// A member of the body that the API does not have (chat_template_kwargs,
// guided_json …) becomes an optional extension, if its name is made of lower-case
// letters, digits and underscores: an engine elsewhere may know it, and every
// other model answers as if it were not there. Members of messages that are not
// known are ignored.
//
// What such a model says beside its text comes in deltas: "reasoning_content",
// "tool_calls" and whatever else it names. In a stream each is put into the
// choice's delta as it is, in a chunk of its own, in order with the text. In a
// whole answer they are members of the message: the strings reasoning_content,
// reasoning and refusal are joined; tool calls are merged by their index, where id,
// type and name are the first that are given, and arguments are joined; of other
// members the last value counts. A call that was cut off stays as it is, and its
// choice ends with "length". Completions have no place for deltas and leave them
// out.
//
// # How a stream ends
//
// A good stream ends with a finish_reason per choice, the usage if asked for,
// and "data: [DONE]". A stream that fails after its first byte ends with one
// event that holds the error object, and no [DONE]: whoever looks only for the
// marker then knows that the answer is torn.
package openai
