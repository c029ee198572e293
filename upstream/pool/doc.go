// Package pool makes one Model of several servers of the same model.
//
// The one idea: where a request goes is a function of what is known of the
// servers at that moment (pick). In this order it looks for a server that is not
// saturated, has the request's adapter or can have it soonest, is the one that
// computed the beginning of this prompt before, unless that has too much to do,
// and has the least load, by requests and by memory.
//
// What is known comes from the servers (a [Gauge] that a client reports to, or
// metrics that are polled, each figure with its own age), from this process's own
// requests, and from probes. Of what is too old nothing is believed, and a server
// that is silent is held to be as busy as the others. While other processes send
// requests too, the better of two is taken instead of the best: they see the same
// figures.
//
// Around each server is a breaker (package fallback), which judges it by its
// streams. One that it leaves alone is passed by, but for one real request at a
// time that tries it out; then it starts slowly. There is a bound on how many are
// passed by at once, and when there is nobody else they are used all the same.
package pool
