// Package fallback lets a smaller model answer when the main one is slow or sick.
//
//	model := fallback.New(large, small)
//
// is a Model that asks large and, as long as nothing of an answer has been said,
// moves on to small. Around each model it keeps a [Breaker], which judges it by its
// streams and leaves it alone for a while when it is sick. Either can be used without
// the other.
//
// # What a stream says about a model
//
// The time to its first token, the mean gap between tokens, and how it ended: with a
// finish reason for every choice, or with an error, a stall, or nothing. Never how
// long it took as a whole, for that is the client's to ask for, and never what the
// client did: one that leaves, or sets a deadline, or reads slowly, changes nothing,
// whatever the words of the error are ([OutcomeOf]). An attempt counts when it ends.
// Only a first token that is late counts as soon as that is known, also when the
// client then gives up.
//
// Each way to be sick is a [Policy] of its own:
//
//	Latency      a first token over the limit at a bad health of the last ten attempts
//	SlowRate     half of the answers in the window are slow
//	ErrorRate    half of the attempts in the window fail, or nearly all are rejected
//	Baseline     first tokens take a multiple of what they used to
//	Consecutive  failures in a row, however far apart
//
// # How an answer moves on
//
// The next model is tried when one is refused by its breaker, fails, or has no text
// within its budget ([Options.FirstToken], or half of the request's own objective);
// or, sooner, beside it ([Options.HedgeAfter]), where the first to speak answers and
// the other is ended at once. A role, or an empty piece, is not text. From the first
// text, tool call, log-probability or finish reason on, what fails is an error event.
//
// Nothing is copied on the way: an attempt writes into the client's own stream from
// its first text on (haiku.Branch), and no token costs an allocation or a look at a
// clock. A model that does not heed its context keeps the handler, as every model
// does, but not the client: the answer has its end when the one that gave it is done.
//
// The usage of an answer is that of the model that served. What the others used is in
// [Chain.Stats], and in what [Options.Observe] sees of each attempt; when none has
// answered, the usage is that of all.
//
// # Replicas
//
// [Counters] and [Switch] are what the replicas of a service share: see the packages
// fallback/redis and fallback/etcd, which this one does not import.
package fallback
