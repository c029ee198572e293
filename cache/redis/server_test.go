package redis

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/internal/testserver"
)

// defaultFailures is what Options.Failures says.
const defaultFailures = 5

// server is a redis-server of a test's own.
type server struct {
	*testserver.Server
	t testing.TB
}

// serve starts a server without persistence; flags come last and win.
func serve(t testing.TB, flags ...string) *server {
	t.Helper()
	return &server{testserver.Redis(t, flags...), t}
}

// raw returns a client that waits as long as it takes, for what tests do to the
// server behind a Store's back.
func (s *server) raw() *goredis.Client {
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr, ReadTimeout: time.Minute, PoolSize: 2})
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// patient is a deadline that a busy machine does not exceed by itself.
var patient = Options{Deadline: 10 * time.Second}

// open returns a Store on a client of its own.
func (s *server) open(o Options) *Store {
	client := goredis.NewUniversalClient(ClientOptions(s.Addr))
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	store := New(client, o)
	s.t.Cleanup(func() {
		_ = store.Close()
		require.NoError(s.t, client.Close())
	})
	return store
}

func entry(key, value string, tags ...string) Entry {
	return Entry{Key: key, Value: []byte(value), TTL: time.Minute, Tags: tags}
}

// texts shows values, "-" for a miss.
func texts(values [][]byte) string {
	s := make([]string, len(values))
	for i, v := range values {
		if s[i] = "-"; v != nil {
			s[i] = string(v)
		}
	}
	return strings.Join(s, " ")
}

func get(t testing.TB, s *Store, keys ...string) string {
	return texts(s.Get(ctxOf(t), keys...))
}

func ctxOf(t testing.TB) context.Context { return t.Context() }

func number(i int) string { return strconv.Itoa(i) }
