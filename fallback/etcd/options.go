package etcd

import (
	"log/slog"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

const (
	defaultPrefix   = "haiku"
	defaultDeadline = time.Second
	defaultBeat     = 2 * time.Second
)

// Options shape a [Switch]. The zero value is a good start.
type Options struct {
	// Prefix begins every key, before a slash. Empty means "haiku".
	Prefix string
	// Deadline bounds each operation. The context of a call may end sooner. 0 or
	// less means 1 s.
	Deadline time.Duration
	// Beat is how often a watch asks whether it still hears what there is. A server
	// that cannot be reached is noticed after Beat and Deadline. 0 or less means 2 s.
	Beat time.Duration
	// Logger gets a line for each value found that is no setting. Nil means slog's
	// default.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if o.Deadline <= 0 {
		o.Deadline = defaultDeadline
	}
	if o.Beat <= 0 {
		o.Beat = defaultBeat
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// ClientConfig returns what a client for a [Switch] is made of, to be completed
// with credentials and TLS and given to clientv3.New: a connection over which
// nothing comes back is given up after some seconds, the next attempt to connect
// is never far, and the client says nothing by itself.
func ClientConfig(endpoints ...string) clientv3.Config {
	return clientv3.Config{
		Endpoints:            endpoints,
		DialTimeout:          2 * time.Second,
		DialKeepAliveTime:    10 * time.Second, // the least that gRPC allows
		DialKeepAliveTimeout: 3 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 2 * time.Second,
		})},
		Logger: zap.NewNop(),
	}
}
