package haiku_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

func TestAClientThatLeaves(t *testing.T) {
	for _, form := range []string{"sse", "json"} {
		for name, texts := range map[string][]string{"while waiting": nil, "in mid-stream": {"a", "b", "c"}} {
			t.Run(form+" "+name, func(t *testing.T) {
				modelEnded, returned := make(chan error, 1), make(chan error, 1)
				started := make(chan struct{}, 1)
				var used haiku.Usage
				mux := quietMux()
				mux.Register("/", haiku.HandlerFunc(func(c *haiku.Context) {
					var v struct{}
					require.NoError(t, c.Bind(&v))
					s := haiku.NewStream(c.Context(), haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, r *haiku.Request) error {
						w.SetUsage(haiku.Usage{PromptTokens: 5})
						started <- struct{}{}
						return waiting(modelEnded, texts...).Generate(ctx, w, r)
					}), &haiku.Request{Encoder: &wordEncoder{events: form == "sse"}})
					err := c.Stream(s)
					used = s.Usage()
					returned <- err
				}), haiku.Streaming(haiku.StreamOptions{OpenAfter: time.Millisecond}))
				onLoopback(t, mux, func(t *testing.T, s *site) {
					ctx, leave := context.WithCancel(t.Context())
					defer leave()
					req, err := http.NewRequestWithContext(ctx, "POST", s.url, strings.NewReader("{}"))
					require.NoError(t, err)
					if form == "json" { // nothing comes before the end
						go func() { <-started; leave() }()
					}
					resp, err := s.Do(req)
					if form == "json" {
						require.ErrorIs(t, err, context.Canceled)
					} else {
						require.NoError(t, err)
						_, err = io.ReadAtLeast(resp.Body, make([]byte, 64), 1+len(texts))
						require.NoError(t, err)
						<-started
						leave()
						defer resp.Body.Close()
					}
					require.Equal(t, context.Canceled, <-modelEnded)
					require.Error(t, <-returned)
					require.Equal(t, haiku.Usage{PromptTokens: 5}, used)
				})
			})
		}
	}
}

// The stream may belong to another context than the request's: the client's
// leaving must reach it all the same.
func TestAClientThatLeavesEndsAStreamOfAnotherContext(t *testing.T) {
	ended := make(chan error, 1)
	mux := quietMux()
	mux.Register("/", haiku.HandlerFunc(func(c *haiku.Context) {
		_ = c.Stream(haiku.NewStream(context.Background(), waiting(ended, "a"), &haiku.Request{}))
	}))
	onLoopback(t, mux, func(t *testing.T, s *site) {
		resp, err := s.Get(s.url)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, context.Canceled, <-ended)
	})
}

// Many clients that read one event and go, among streams that fail and streams
// that end, leave nothing behind.
func TestManyClientsThatLeave(t *testing.T) {
	var running atomic.Int32
	counted := func(m haiku.Model) haiku.Model {
		return haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, r *haiku.Request) error {
			running.Add(1)
			defer running.Add(-1)
			return m.Generate(ctx, w, r)
		})
	}
	var handlers sync.WaitGroup
	mux := quietMux()
	for path, m := range map[string]haiku.Model{
		"/endless": endless("x"), "/waits": waiting(make(chan error, 400), "x"),
		"/fails": failing(haiku.ErrOverloaded, "x", "y"), "/ends": pieces("x", "y"),
	} {
		h := streaming(counted(m), haiku.Request{})
		mux.Register(path, haiku.HandlerFunc(func(c *haiku.Context) {
			defer handlers.Done()
			h(c)
		}))
	}
	onLoopback(t, mux, func(t *testing.T, s *site) {
		var clients sync.WaitGroup
		for i := range 100 {
			path := []string{"/endless", "/waits", "/fails", "/ends"}[i%4]
			handlers.Add(1)
			clients.Go(func() {
				resp, err := s.Get(s.url + path)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = resp.Body.Read(make([]byte, 8))
				_ = resp.Body.Close()
			})
		}
		clients.Wait()
		handlers.Wait() // every handler returns, and its model before it
		require.Zero(t, running.Load())
	})
}
