// Package models makes the models that a service offers from a description of
// them: names and aliases, the servers behind each, which one stands in for which.
//
// The one idea: a [Config] says in plain data what can be said in plain data, and
// [Parts] are what only Go can say: models in this process, caches, secrets,
// hooks. Open puts both together the way a host would by hand, from upstream,
// pool, fallback and infer.Registry, each of which can be used without it:
//
//	name, alias → wrappers (a cache, metrics …) → fallback → pool → engine
//
// A Config can be written in Go, or read from JSON by [Parse]. Its members have
// the names of the JSON in struct tags, so that a host's own decoder of another
// format can fill it in too.
package models
