// Package redis adds up what replicas saw of a model, on a Redis server of
// version 5 or later (tested with 7.0). Its [Counters] are the
// fallback.Counters of a breaker whose replicas judge together.
//
// # Counting
//
// A window is cut into buckets of equal length. One script adds a delta to the
// present bucket and returns the sum over the window, and Redis runs it alone: no
// delta is seen in part, and whoever comes later sees it. The window moves by
// whole buckets: what was seen counts for at least one window and at most for one
// window and one bucket. The counts of a name and window are one hash, with a
// field for each bucket and a TTL, so that what nobody asks for any more goes.
//
// Time is the server's, since replicas' clocks differ. If it is set back by less
// than a window, the newest bucket takes what comes until time has caught up; by
// more, counting begins anew. If it is set forward, what was counted before gets
// old early. No clock of this machine is read but the monotonic one.
//
// A delta counts once: each exchange has a random number, and the server
// remembers it for longer than the client may retry. It counts in time or not at
// all: a server that was stopped and wakes up finds the deltas of its sleep too
// old. After an error nobody knows whether the delta has been counted; who sends
// it again may count it twice.
//
// # The server
//
// Nothing needs to last: counts that were flushed, evicted or lost with a
// failover make the sums smaller until a window later. A server that is down or
// slow costs [Options.Deadline], and after some failures nothing: errors are
// [ErrOff] then, until one exchange now and then finds it back.
//
// All keys of one name share a hash tag, so that the script runs on a Redis
// Cluster; names are spread over its nodes. Replicas that share counts agree on
// [Options.Prefix] and [Options.Buckets] and pass the same window: sums of
// different windows are counted apart.
//
// # The client
//
// The client belongs to the host. It must heed the deadline of a context, which
// go-redis does only with ContextTimeoutEnabled; [ClientOptions] are a good
// start. One client can serve a cache/redis.Store too. go-redis has a logger of
// its own, for the whole process, that tells of each failed attempt to connect;
// its SetLogger silences it.
package redis
