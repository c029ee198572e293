// Package cache keeps answers, so that what was asked before is not computed
// again.
//
// The one idea: an answer is one record, and the tiers are ways to find it. The
// output tier finds it by a hash of everything that shapes an answer, the vector
// tier by the meaning of the question, the route tier says which model answers
// which kind of prompt. [Tiers.SetAll] makes a record visible in all of them by
// one atomic store, and what makes it unfit (eviction, expiry, invalidation)
// hides it in all of them the same way.
//
// [Through] is a haiku.Model around a haiku.Model that answers from the tiers
// what it can, and has the rest computed once for all that ask at the same time.
//
// What is never served from here: answers that were cut off, failed, asked for
// tools, or came from a model that stood in for another; another tenant's; and,
// unless the route or the request opts in, answers that were drawn at random.
package cache
