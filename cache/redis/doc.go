// Package redis is a level of a cache that several processes share, on a Redis
// server of version 5 or later (tested with 7.0). It is a second level: what it loses costs a
// miss, and a server that is slow, flushed, full or gone costs at most
// [Options.Deadline] per operation, then nothing at all until it is back.
//
// # Whole writes
//
// All entries of one [Store.SetAll] are written by one script, which Redis runs
// alone and, where it has an append-only file or replicas, records as one
// transaction. So nobody sees half of a write, whichever process dies when.
// Every entry carries the epoch of its write and a random number besides, since
// processes count epochs on their own. [Store.Get] reads its keys at one moment
// and answers from one write only; ask for keys together that were written
// together, and for others one by one.
//
// Entries leave one by one: by their own TTL, by the server's eviction, or
// overwritten by another write. A reader then misses that part and still never
// gets parts of two writes.
//
// # Tags
//
// A tag has a version, a random number, in a hash beside the entries. An entry
// holds the versions that its tags had when it was written, and is a miss once
// one of them has another. [Store.Invalidate] gives a tag a new version: one small
// command however many entries there are; these stay, unreadable, until their
// TTL ends. A version that was lost is drawn anew, so what outlives a flush or an
// eviction of the versions is a miss for ever. Tags are hashed into 65,536
// versions, which bounds the hash to some 4 MB: now and then two tags share a
// version and fall together.
//
// A write names the versions it expects, and the script compares them before it
// stores anything: so a write that ran into its deadline and is carried out later,
// by a server that wakes up, cannot slip behind an invalidation. Whoever computes a
// value asks for the versions first ([Store.Mark]) and names them in its entries:
// then a value that was computed across an invalidation is refused too.
//
// An invalidation that did not reach the server is owed: every later operation of
// the same Store delivers it first or is a miss. Other processes read on until
// then, which is what the false of Invalidate says.
//
// # The server
//
// A cache needs no persistence, and is safest without: a server that restarts
// from an old file brings back the versions of that time, and with them what was
// invalidated since. The same holds for a replica that takes over before an
// invalidation has reached it. Set maxmemory and an eviction policy
// (allkeys-lru or allkeys-lfu); under noeviction a full server refuses writes,
// which is counted and goes on without them.
//
// All keys of a Store share one hash tag, made of [Options.Prefix]: that lets one
// script reach them all on a Redis Cluster, and it keeps them on one of its
// nodes. To use more nodes, open several Stores with different prefixes and
// choose between them by the key; a write is whole within one of them.
//
// # The client
//
// The client belongs to the host, which closes it after the Store. It must heed
// the deadline of a context, which go-redis does only with ContextTimeoutEnabled;
// a Store on a client without it stays off and says so to its logger.
// [ClientOptions] are a good start. Operations are short, so a few connections
// are enough, eight by default; a large pool only means more of them to open at
// once when the server is back. go-redis has a logger of its own, for the whole
// process, that tells of each failed attempt to connect; its SetLogger silences it.
package redis
