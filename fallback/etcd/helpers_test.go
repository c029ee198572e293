package etcd

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/intelliparadigm/haiku/fallback"
)

// patient is a deadline that a busy machine does not exceed by itself.
var patient = Options{Deadline: 10 * time.Second, Beat: 200 * time.Millisecond}

// brisk notices soon that a server is gone.
var brisk = Options{Deadline: 500 * time.Millisecond, Beat: 100 * time.Millisecond}

// long is for what must happen, however busy the machine is.
const long = 30 * time.Second

func textLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// dial returns a client of a replica's own.
func dial(t testing.TB, addr string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(ClientConfig(addr))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// open returns a Switch on a client of its own.
func open(t testing.TB, addr string, o Options) *Switch {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return New(dial(t, addr), o)
}

// item is what a watch yields.
type item struct {
	fallback.Setting
	err error
}

// watching is a watch in a goroutine of its own, which ends with the test.
type watching struct {
	t     testing.TB
	items chan item
	since int // for tests that begin several

	cancel context.CancelFunc
}

func watchName(t testing.TB, s *Switch, name string) *watching {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watching{t: t, items: make(chan item, 10_000), cancel: cancel}
	t.Cleanup(w.stop)
	go func() {
		defer close(w.items)
		for set, err := range s.Watch(ctx, name) {
			w.items <- item{set, err}
		}
	}()
	return w
}

// stop ends the watch, and waits for it.
func (w *watching) stop() {
	w.cancel()
	for range w.items {
	}
}

// next returns the next setting.
func (w *watching) next() fallback.Setting {
	w.t.Helper()
	select {
	case i, ok := <-w.items:
		require.True(w.t, ok, "it goes on")
		require.NoError(w.t, i.err)
		return i.Setting
	case <-time.After(long):
		w.t.Fatal("no setting came")
	}
	return fallback.Setting{}
}

// failure skips settings, and returns the error that ends the watch.
func (w *watching) failure() error {
	w.t.Helper()
	patience := time.After(long)
	for {
		select {
		case i, ok := <-w.items:
			require.True(w.t, ok, "it ends with an error")
			if i.err == nil {
				continue
			}
			_, more := <-w.items
			require.False(w.t, more, "the error is the last")
			return i.err
		case <-patience:
			w.t.Fatal("the watch did not end")
		}
	}
}

// now returns the present setting.
func now(t testing.TB, s *Switch, name string) fallback.Setting {
	t.Helper()
	for set, err := range s.Watch(context.Background(), name) {
		require.NoError(t, err)
		return set
	}
	t.Fatal("no setting")
	return fallback.Setting{}
}

// put sets what must not fail.
func put(t testing.TB, s *Switch, name string, set fallback.Setting) fallback.Setting {
	t.Helper()
	set, err := s.Set(context.Background(), name, set)
	require.NoError(t, err)
	return set
}
