// Package etcd holds the setting that the replicas of a breaker follow in etcd,
// version 3.4 or later (tested with 3.4). Its [Switch] is a fallback.Switch: what
// an operator or any replica sets reaches all that watch at once, one replica in
// the cluster has leave to probe, and a setting is only ever replaced by somebody
// who has seen it.
//
// # For operators
//
// The setting of a model is JSON under PREFIX/switch/MODEL, by default
//
//	etcdctl get haiku/switch/llama-70b
//	etcdctl put haiku/switch/llama-70b '{"state":"open","forced":true,"by":"ann","reason":"driver update"}'
//	etcdctl put haiku/switch/llama-70b '{"state":"closed"}'
//
// Its members are
//
//	state   "closed": the model serves; "open": it does not; "half-open": some traffic tries it. Required
//	forced  true: replicas follow and do not change it, until somebody puts one without
//	share   of the traffic that is let through while half-open, 0 to 1
//	wait    how long it stays open before replicas try the model again: "5m", "90s"
//	lease   the lease that measures wait; replicas write it, and operators leave it out
//	by      who has set it, and
//	reason  why, for people
//
// Anything else is no setting: replicas keep the one before, as long as etcd
// remembers it, under the new revision so that they can replace it, and say so to
// [Options.Logger]. To delete
// the key is to set nothing: its revision is 0 then, as if it had never been set.
//
// The permit to probe is PREFIX/probe/MODEL. To delete it lets another replica
// probe.
//
// # Time
//
// How much is left of a setting's wait is asked of etcd, since clocks of machines
// differ: who sets it makes a lease that lasts as long, its number is in the
// setting, and who reads the setting asks what the lease has left. etcd counts a
// lease in whole seconds and ends it up to half a second late, so the answer may
// be up to a second too long, and is never too short. A change of etcd's leader, or a restart, begins leases anew: who
// reads then may wait up to the whole wait again, and no more. A setting without a
// lease, such as an operator's, counts from when it is read.
//
// # The server
//
// Every operation ends within [Options.Deadline]. A watch asks for its key every
// [Options.Beat] besides: that is how it notices a server that is gone, stopped or
// behind a broken network, where the watch itself would hear nothing for minutes, a
// server that has fallen behind, and one that has lost its data. It ends with an
// error then, and its caller watches again. It reads the setting first and watches
// from the very next revision, so that no last change is missed; changes that were
// compacted away are skipped over to the present one.
//
// A Set that ended in an error may have been carried out, or still be, if nobody
// has changed the setting meanwhile: the watch tells. A permit to probe, too, may
// have been taken then, and stays taken until its TTL is over.
//
// With etcd's authentication on, replicas need to read and write the keys under
// PREFIX/.
//
// # The client
//
// The client belongs to the host, which closes it when nothing watches any more.
// [ClientConfig] is a good start: the defaults of etcd's client and of gRPC notice
// a broken network after many minutes, wait for up to two minutes before they
// connect again, and write a line to standard error for each attempt.
package etcd
