package redis

import (
	"net/url"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/intelliparadigm/haiku/internal/redisclient"
)

const (
	defaultPrefix   = "haiku"
	defaultBuckets  = 10
	defaultDeadline = 50 * time.Millisecond

	maxBuckets = 1000
)

// Options shape [Counters]. The zero value is a good start.
type Options struct {
	// Prefix keeps different uses of one server apart. It is in the hash tag of
	// every key. Empty means "haiku".
	Prefix string
	// Buckets is into how many a window is cut. More make the window's edge finer
	// and an exchange dearer. 0 or less means 10, and 1,000 is the most.
	Buckets int
	// Deadline bounds each exchange, its wait for a connection included. The
	// context of a call may end sooner. 0 or less means 50 ms.
	Deadline time.Duration
	// Failures in a row turn the Counters off. 0 or less means 5.
	Failures int
	// Pause is how long the Counters are off before one exchange probes the
	// server. It doubles with each probe that fails, up to MaxPause. 0 or less
	// means 100 ms, and 30 s for MaxPause.
	Pause, MaxPause time.Duration
}

func (o Options) withDefaults() Options {
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if o.Buckets <= 0 {
		o.Buckets = defaultBuckets
	}
	o.Buckets = min(o.Buckets, maxBuckets)
	if o.Deadline <= 0 {
		o.Deadline = defaultDeadline
	}
	return o
}

// hashTag is what decides the node of a cluster: the escaping leaves no brace
// in it that would end it early.
func (o Options) hashTag(name string) string {
	return "{" + url.PathEscape(o.Prefix) + "/" + url.PathEscape(name) + "}:"
}

// ClientOptions returns options for a client that suits [Counters], to be
// completed with credentials and TLS and given to NewUniversalClient: the
// deadline of a context counts, eight connections, one immediate retry for a
// connection that turns out to be stale. Several addresses mean a cluster.
func ClientOptions(addresses ...string) *goredis.UniversalOptions {
	return redisclient.Options(addresses...)
}
