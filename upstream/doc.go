// Package upstream makes inference engines that run elsewhere Models of Haiku.
// An [Engine] speaks the HTTP API that OpenAI's clients speak and vLLM, SGLang,
// llama.cpp, Ollama, Dynamo, Ray Serve and llm-d serve:
//
//	engine, err := upstream.New("http://localhost:8000/v1", upstream.Options{Dialect: upstream.VLLM})
//	mux.Handle("/v1/", openai.Handler(engine))
//
// As a Model it can be wrapped by a cache, a breaker or a router like any other.
// It is also a haiku.Embedder and a haiku.Lister, and takes extensions such as
// tools.
//
// # What is asked
//
// A request becomes one with all parameters written out, also those that change
// nothing: engines fill in what is missing from a model's own defaults. What a
// [Dialect] lacks is refused by name. Parameters that OpenAI's API does not have
// and engines do (chat_template_kwargs, guided_json …) pass as they were written,
// if Options.Extensions or the list that it adds to has them; others of these are
// left out. Stop strings are sent and matched here as
// well. Of a client's headers an engine gets those that are meant for engines
// (see [Propagate]) and those that Options.Forward names; of its identity no
// more than a hash, which names its part of the prefix cache and its queue. The
// engine's credentials are Options.Key's.
//
// # What is answered
//
// An answer is read in whatever form engines and the proxies before them send
// it; the table in quirks_test.go names the public reports that the forms are
// known from. Events are not decoded: text, finish reason and usage are found
// where they stand, and other members of a delta (tool calls, reasoning) pass as
// they are. An answer counts as complete when every choice has a finish reason,
// whatever follows; an end mark alone does not.
//
// # What goes wrong
//
// Errors are a haiku.Error with a status for the client, around one of the
// kinds that errors.Is finds ([ErrConnect], [ErrFirstToken], [ErrIdle],
// [ErrIncomplete], [ErrMalformed], [ErrCredentials]) or a [StatusError] with
// what the engine said. They never match the errors of a context unless the
// request's own has ended: a breaker can tell a slow engine from a client that
// left. Until content has been passed on a request may be sent again, within
// [Retry]; after it never. A request that ends closes its connection, which is
// how an engine learns of it at once.
//
// # Passing through
//
// [Engine.Passthrough] is a handler for where nothing has to be known of an
// answer but that it is one: no Model, no encoding, the engine's own bytes. It
// costs what a reverse proxy costs, and keeps what one does not: whole events
// only, errors in one form, deadlines, keepalives, retries, usage.
package upstream
