// Package pool makes one Model of several servers of the same model.
//
// The one idea: where a request goes is a function of what is known of the
// servers at that moment (pick). In this order it looks for a server that is not
// saturated, has the request's adapter or can have it soonest, is the one that
// computed the beginning of this prompt before, unless that has too much to do,
// and has the least load.
//
// What is known comes from the servers (a [Gauge] that a client reports to, or
// metrics that are polled), from this process's own requests, and from probes. Of
// what is too old nothing is believed.
package pool
