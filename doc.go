// Package haiku streams the answers of language models from inside a Go
// service. The host owns the listener, signals, logging and configuration;
// haiku owns everything between an accepted request and the last flushed
// token.
//
// # The one idea
//
// net/http is one small interface and things wrapped around it. Haiku has two
// such interfaces, and everything else is one of them or wraps one:
//
//	InferenceHandler   answers an HTTP request         ServeInference(*Context)
//	Model              turns a Request into a stream   Generate(ctx, *StreamWriter, *Request) error
//
// [Middleware] wraps a handler; a [Mux] routes to handlers and is itself an
// http.Handler. An engine is a Model, and so is whatever stands before it: a
// cache, a breaker, a router that picks a model by name. Between the two lies a
// [StreamWriter]: the Model pushes pieces in at one end, and the handler takes
// tokens out at the other.
//
// # Mounting
//
// A handler asks for a stream and hands it to its [Context], and the Mux goes
// wherever the host wants it, inside any net/http middleware:
//
//	api := haiku.New()
//	api.Register("POST /v1/poem", haiku.HandlerFunc(func(c *haiku.Context) {
//		var in struct{ Topic string }
//		if err := c.Bind(&in); err != nil {
//			c.AbortWithError(err)
//			return
//		}
//		req := &haiku.Request{Prompt: "A poem about " + in.Topic + ":\n", MaxTokens: 64}
//		c.Stream(infer.NewStream(c.Context(), req))
//	}), haiku.Provide(engine))
//
//	mux := http.NewServeMux()
//	mux.Handle("/v1/", api)
//
// [Register], [Use] and [Handler] do the same on a default Mux. Package openai
// has handlers that speak OpenAI's API, and package infer the engine.
//
// # Streams
//
// Nothing runs before a stream is read, and nothing of it is left when the
// reader goes on. [Context.Stream] reads it into an HTTP response; a program
// without HTTP ranges over it:
//
//	for tok, err := range stream.Tokens() {
//		if err != nil {
//			return err
//		}
//		fmt.Print(tok.Text)
//	}
//
// Breaking out of the loop cancels the generation and waits for its end, and so
// does a client that leaves. The text of each token is whole UTF-8 characters
// and never part of a stop string: bytes that could still become one wait.
//
// An [Encoder] gives the answer its bytes, in events that are flushed as tokens
// come or as one body at the end. Tokens that are ready together leave in one
// flush. On its way from [StreamWriter.TryPush] to the connection a token takes
// no lock and allocates nothing.
//
// # Extensions
//
// What a wire format asks for beyond [Request], such as tools, is an [Extension].
// A stream refuses it by name unless the Model is [Extended]: nothing that was
// asked for is dropped, but what the wire format itself does not know. What such a
// Model says beside text is a delta: JSON members that go through the stream in
// order with the text, and that an Encoder puts into its frames as they are.
//
// # Policies
//
// [StreamOptions], set for a route by [Streaming], say what happens when the
// two ends differ in speed or nothing happens at all. The producer pauses when
// the reader is Buffer tokens behind, and StallLimit bounds that pause. Each
// flush has WriteTimeout, in place of the server's own timeouts, which are made
// for whole requests and are lifted while a stream runs. A stream that is
// silent gets a comment each Keepalive, and one whose first token is late opens
// after OpenAfter, because proxies cut silent connections.
//
// # Errors
//
// An [Error] has a status and the fields of OpenAI's error object, and
// [ErrorFrom] is the one place where any error becomes one. Before the first
// byte it is a response with that status; after it, one last event. Its cause
// is for logs and errors.Is, and no client sees it. A panic in a Model, in an
// Encoder or in a handler is the error of its own request.
//
// # Testing
//
// A [ModelFunc] is a model of three lines, and net/http/httptest serves the
// rest, so a handler's test needs no weights:
//
//	fake := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
//		_, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: "hi", Finish: haiku.FinishStop})
//		return err
//	})
//	rec := httptest.NewRecorder()
//	api.ServeHTTP(rec, httptest.NewRequest("POST", "/v1/poem", strings.NewReader(`{"Topic":"frogs"}`)))
//
// Package haikutest has models and executors with a clock and faults of their
// own, and the suites that implementers of Model run.
package haiku
