// Package infer runs language models in this process.
//
// An [Executor] computes batches of tokens on a device and knows nothing else.
// An [Engine] makes it a haiku.Model: it adds the tokenizer, the chat template,
// the scheduler that keeps many sequences in one continuous batch, the KV
// blocks and the sampling.
//
//	eng, err := infer.Open("model.gguf", cpu.New())
//	…
//	defer eng.Close()
//	haiku.Use(haiku.Provide(eng))
//
// In a handler, or with no HTTP at all:
//
//	stream := infer.NewStream(ctx, &haiku.Request{Prompt: "Once upon a time"})
//	for tok, err := range stream.Tokens() { … }
//
// # The life of a request
//
// Engine.Generate, on the stream's own goroutine, renders and tokenises the
// prompt, hashes its blocks, and puts a job into the queue, unless its first
// token would be later than its objective says. The adapter it asks for loads
// meanwhile. The engine's loop admits the job when there is a place in the batch
// and KV memory for what it is expected to need, begins where the prefix cache
// ends, computes its prompt in chunks among the others' tokens, samples a token
// after each step and pushes it into the stream's ring. A sequence whose ring is
// full leaves the batch until its reader has caught up; when memory runs out,
// the lowest in rank is computed again later. When the request's context ends,
// the sequence is dropped before the next step.
package infer
