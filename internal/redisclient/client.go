// Package redisclient is what the packages that talk to Redis need of its
// client: options that suit short operations, and what its errors mean.
package redisclient

import (
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const poolSize = 8

// Options returns options for a client, to be completed with credentials and TLS
// and given to NewUniversalClient: the deadline of a context counts, eight
// connections, one immediate retry for a connection that turns out to be stale.
// Several addresses mean a cluster.
func Options(addresses ...string) *goredis.UniversalOptions {
	return &goredis.UniversalOptions{
		Addrs:                 addresses,
		ContextTimeoutEnabled: true,
		PoolSize:              poolSize,
		DialTimeout:           time.Second,
		DialerRetries:         1,
		MaxRetries:            1,
		MinRetryBackoff:       -1,
		MaxRetryBackoff:       -1,
		// Asking for these costs a round trip per connection, and the upkeep of a
		// few hosted servers that offer them is an error here like any other pause.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// HeedsDeadlines reports whether the client ends an operation with its context.
// A client of a type unknown here, such as a wrapper, is taken at its word.
func HeedsDeadlines(client goredis.UniversalClient) bool {
	switch c := client.(type) {
	case *goredis.Client:
		return c.Options().ContextTimeoutEnabled
	case *goredis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	case *goredis.Ring:
		return c.Options().ContextTimeoutEnabled
	}
	return true
}

// RefusesWrites reports whether the server is well and merely takes no writes:
// it is full, a replica, or cannot save. Reading goes on.
func RefusesWrites(err error) bool {
	return goredis.IsOOMError(err) || goredis.IsReadOnlyError(err) || goredis.IsNoReplicasError(err) ||
		goredis.HasErrorPrefix(err, "MISCONF")
}
