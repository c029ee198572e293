// Package upstream makes Models of inference engines that run elsewhere and speak
// OpenAI's HTTP API: vLLM, SGLang, llama.cpp, Ollama, and what runs them (Dynamo,
// Ray Serve, llm-d).
//
// The one idea: an [Engine] passes on what it understands and what it does not,
// and drops nothing. Sampling parameters are translated by a [Dialect], and one
// that the engine lacks refuses the request; tools, response formats and other
// extensions go as they came; of an answer, text is text, and other members of a
// delta (tool calls, reasoning) are passed on untouched.
//
// # Failures
//
// Before an answer's first content a request is tried again, within [Retry]: after
// a refused connection, a connection that had died while it was idle, and statuses
// that ask for it, heeding Retry-After. After it there is an error, never a second
// beginning. No connection, no first content and silence in between are told apart
// ([ErrConnect], [ErrFirstToken], [ErrIdle]); an answer that ends without its
// finish reason is [ErrIncomplete]. Bad credentials of the host are 502 to its
// clients, and not 401.
//
// A request that nobody waits for any more closes its connection, which is how
// engines learn of it.
//
// # Who is told what
//
// Of a client's headers the engine gets those of tracing and of the Gateway API
// Inference Extension ([Propagate] and Options.Forward), and never credentials or
// what belongs to one hop. Cache salts come from the verified tenant alone.
//
// # Passing through
//
// [Engine.Passthrough] is a handler for routes whose answers need no change: it
// forwards events as they are, after a look that finds the end, errors and usage.
package upstream
