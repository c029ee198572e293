// Package batch merges requests that arrive one by one into calls of a function
// on many: embeddings, classifiers, rerankers, prefills, database look-ups.
//
// The one idea: a batch never waits in vain. A [DynamicBatcher] knows what one
// more request in a batch would save (the fixed cost of a call, learned from
// the calls), and how likely the next request comes soon (learned from the
// gaps between arrivals). It holds a batch back only while the expected saving
// exceeds the delay of those that wait, and starts it at once otherwise: with
// no wait when requests are rare, with a wider window when they come densely
// or in volleys, and never past a hard bound. While all workers are busy,
// requests accumulate anyhow, and no window is needed.
//
// The decision is [Window.Decide], a pure function of a [State] and the clock.
// The batcher around it is a lock, one goroutine that waits for the clock, and
// the workers.
//
// [Admission] is the other decision that belongs before any work: whether to take
// a request on at all, from the time to first token that its backlog predicts.
//
// The package imports the standard library only.
package batch
