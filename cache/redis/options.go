package redis

import (
	"log/slog"
	"net/url"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	defaultPrefix        = "haiku"
	defaultDeadline      = 50 * time.Millisecond
	defaultMaxValueBytes = 1 << 20
	defaultMaxTTL        = 24 * time.Hour
	defaultFailures      = 5
	defaultPause         = 100 * time.Millisecond
	defaultMaxPause      = 30 * time.Second

	poolSize = 8
)

// Options shape a [Store]. The zero value is a good start. Processes that share
// entries must agree on Prefix, and should on MaxValueBytes: an entry that is
// larger than a reader's bound is a miss for that reader.
type Options struct {
	// Prefix keeps the keys of different uses of one server apart. It is in the
	// hash tag of every key. Empty means "haiku".
	Prefix string
	// Deadline bounds each operation, its wait for a connection included. The
	// context of a call may end sooner. 0 or less means 50 ms.
	Deadline time.Duration
	// MaxValueBytes bounds a value. A write that holds a larger one is refused
	// whole. 0 or less means 1 MiB.
	MaxValueBytes int
	// MaxTTL bounds the time for which an entry is kept, and is the TTL of
	// entries that name none. 0 or less means 24 hours.
	MaxTTL time.Duration
	// Failures in a row turn the Store off. 0 or less means 5.
	Failures int
	// Pause is how long the Store is off before one operation probes the server.
	// It doubles with each probe that fails, up to MaxPause. 0 or less means
	// 100 ms, and 30 s for MaxPause.
	Pause, MaxPause time.Duration
	// Logger gets one line when the server is given up and one when it is back.
	// Nil means slog's default.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	orDefault(&o.Deadline, defaultDeadline)
	orDefault(&o.MaxValueBytes, defaultMaxValueBytes)
	orDefault(&o.MaxTTL, defaultMaxTTL)
	orDefault(&o.Failures, defaultFailures)
	orDefault(&o.Pause, defaultPause)
	orDefault(&o.MaxPause, defaultMaxPause)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

func orDefault[T int | time.Duration](v *T, to T) {
	if *v <= 0 {
		*v = to
	}
}

// hashTag is what decides the node of a cluster: the escaping leaves no brace
// in it that would end it early.
func (o Options) hashTag() string { return "{" + url.PathEscape(o.Prefix) + "}:" }

// ClientOptions returns options for a client that suits a [Store], to be
// completed with credentials and TLS and given to NewUniversalClient: the
// deadline of a context counts, eight connections, one immediate retry for a
// connection that turns out to be stale. Several addresses mean a cluster.
func ClientOptions(addresses ...string) *goredis.UniversalOptions {
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
		// few hosted servers that offer them is a miss here like any other pause.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// heedsDeadlines reports whether the client ends an operation with its context.
// A client of a type unknown here, such as a wrapper, is taken at its word.
func heedsDeadlines(client goredis.UniversalClient) bool {
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
