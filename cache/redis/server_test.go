package redis

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// server is a redis-server of a test's own, on a loopback port, in a directory
// that goes with the test.
type server struct {
	t     testing.TB
	addr  string
	flags []string
	cmd   *exec.Cmd
	ended chan struct{} // closed when its output has ended
}

// serve starts a server without persistence; flags come last and win.
func serve(t testing.TB, flags ...string) *server {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is not on PATH (Debian: redis-server)")
	}
	common := []string{path, "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", "", "--appendonly", "no", "--loglevel", "notice"}
	s := &server{t: t, flags: append(common, flags...)}
	t.Cleanup(func() {
		if s.cmd != nil {
			s.kill()
		}
	})
	for range 5 { // another process may take the free port first
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		s.addr = l.Addr().String()
		require.NoError(t, l.Close())
		if s.start() {
			return s
		}
	}
	t.Fatal("redis-server does not start")
	return nil
}

// start runs the server on its address and returns once it serves there.
func (s *server) start() bool {
	_, port, _ := net.SplitHostPort(s.addr)
	s.cmd = exec.Command(s.flags[0], append([]string{"--port", port}, s.flags[1:]...)...)
	out, err := s.cmd.StdoutPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, s.cmd.Start())
	ready := make(chan bool, 1)
	s.ended = make(chan struct{})
	go func() {
		defer close(s.ended)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "Ready to accept connections") {
				ready <- true
				_, _ = io.Copy(io.Discard, out)
				return
			}
		}
		ready <- false
	}()
	if <-ready {
		return true
	}
	s.kill()
	return false
}

// kill ends the server as a crash does. It ends a stopped one too.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	<-s.ended
	_ = s.cmd.Wait()
	s.cmd = nil
}

// restart starts a killed server on the same port.
func (s *server) restart() { require.True(s.t, s.start(), "redis-server starts again") }

func (s *server) signal(sig syscall.Signal) { require.NoError(s.t, s.cmd.Process.Signal(sig)) }

// raw returns a client that waits as long as it takes, for what tests do to the
// server behind a Store's back.
func (s *server) raw() *goredis.Client {
	c := goredis.NewClient(&goredis.Options{Addr: s.addr, ReadTimeout: time.Minute, PoolSize: 2})
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// patient is a deadline that a busy machine does not exceed by itself.
var patient = Options{Deadline: 10 * time.Second}

// open returns a Store on a client of its own.
func (s *server) open(o Options) *Store {
	client := goredis.NewUniversalClient(ClientOptions(s.addr))
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
