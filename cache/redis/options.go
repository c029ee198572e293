package redis

import (
	"log/slog"
	"net/url"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/intelliparadigm/haiku/internal/redisclient"
)

const (
	defaultPrefix        = "haiku"
	defaultMaxValueBytes = 1 << 20
	defaultMaxTTL        = 24 * time.Hour
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
	if o.MaxValueBytes <= 0 {
		o.MaxValueBytes = defaultMaxValueBytes
	}
	if o.MaxTTL <= 0 {
		o.MaxTTL = defaultMaxTTL
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// hashTag is what decides the node of a cluster: the escaping leaves no brace
// in it that would end it early.
func (o Options) hashTag() string { return "{" + url.PathEscape(o.Prefix) + "}:" }

// ClientOptions returns options for a client that suits a [Store], to be
// completed with credentials and TLS and given to NewUniversalClient: the
// deadline of a context counts, eight connections, one immediate retry for a
// connection that turns out to be stale. Several addresses mean a cluster.
func ClientOptions(addresses ...string) *goredis.UniversalOptions {
	return redisclient.Options(addresses...)
}
