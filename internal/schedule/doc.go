// Package schedule decides what the next step of an engine computes.
//
// The one idea: a scheduler is a function of its state and the time. It owns the
// queue, the sequences that run and the blocks their keys and values lie in, and
// knows nothing of executors, streams or goroutines. The loop around it adds
// requests, asks [Scheduler.Next] for a step, computes it, and says what became
// of it.
//
//   - A step has a budget of tokens. Decodes come first, one token each. Of what
//     is left, half goes to the prompt that has waited longest and the rest to
//     those with least to do, so that neither long nor short prompts starve.
//   - Requests are admitted by level, by earliest deadline inside a level, and
//     fairly between tenants, counted in tokens that were computed for them.
//   - Blocks are taken as sequences grow. What was computed stays behind as a
//     prefix cache until its block is needed, found by the hash of a block's
//     tokens and all before them, salted by the tenant and the adapter.
//   - When blocks run out, the sequence of the lowest rank gives up its own and
//     is computed again later. Admission leaves room for what the running ones
//     are expected to grow by, which makes that rare.
package schedule
