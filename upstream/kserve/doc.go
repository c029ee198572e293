// Package kserve is a [haiku.Model] over a server that speaks KServe v2 over
// gRPC with Triton's streaming, ModelStreamInfer. It is a package of its own, so
// that nobody else pays for gRPC.
//
//	model, err := kserve.New("triton:8001", kserve.Options{
//		Model:   "vllm_model",
//		Dialect: kserve.VLLM{},
//		Render:  template, // makes one text of a conversation
//	}, grpc.WithTransportCredentials(credentials.NewTLS(tlsConfig)))
//
// # Tensors
//
// KServe carries tensors, and what they are called differs from model to model: a
// [Dialect] builds them. [VLLM] and [TensorRTLLM] are those of Triton's own
// backends. A request that asks for something that the model has no tensor for is
// refused; nothing is dropped silently. Log-probabilities and prompts that are
// tokens are among it.
//
// A server has no chat template that could be reached this way, so messages need
// [Options.Render]. Nor does it know tenants: all requests share the prefix cache
// of the engine behind it, whose timing may tell one tenant what another has
// asked. Where that matters, a tenant needs a model instance of its own.
//
// # Streams
//
// Every request has a ModelStreamInfer stream of its own on one shared
// connection. Triton would take many requests on one stream, but cancelling the
// stream is the only way to cancel one of them, an error may end all of them,
// and the slowest reader would hold up the rest. On a stream of its own, leaving
// resets it at once, the server says by the end of the stream that an answer is
// whole, and what waits for a slow reader is 64 KiB.
//
// An answer is complete with the response that carries triton_final_response,
// which is asked for also where it is empty, or, from a server that does not know
// the mark, with a stream that ends well after a text. Anything else is
// [upstream.ErrIncomplete], and so is a stream without any text.
//
// # Failures
//
// Generate gives each failure its place on the wire as a [haiku.Error] and keeps
// what happened as its cause: [StatusError] is what the server said, and the
// kinds of failure are those of package upstream, from [upstream.ErrConnect] to
// [upstream.ErrCredentials]. UNAVAILABLE becomes 503,
// RESOURCE_EXHAUSTED 429 with the time that the server names, INVALID_ARGUMENT 400,
// DEADLINE_EXCEEDED 504, the rest 502. The words of the server are for logs only:
// Triton's may hold paths and stack traces. Only the end of the request's own
// context is an error of a context.
//
// A request is sent again only if the server was not available and nothing of
// the answer has come, after a wait that differs from request to request.
//
// # Connections
//
// The dial options of [New] are the host's: how the connection is secured,
// credentials for each call, interceptors, a load-balancing policy
// (grpc.WithDefaultServiceConfig). [Engine.Ready] is what a pool's health probe asks.
//
// The messages are written and read by hand, in wire.go and decode.go: there are
// few of them, and the tokens of an answer are read without an allocation.
// testdata holds what protoc makes of them.
package kserve
