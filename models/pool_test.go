package models_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/fallback"
	"github.com/intelliparadigm/haiku/models"
	"github.com/intelliparadigm/haiku/upstream/pool"
)

// counters note the names under which replicas would add up what they saw.
type counters struct {
	mu    sync.Mutex
	names []string
}

func (c *counters) Exchange(_ context.Context, name string, d fallback.Counts, _ time.Duration) (fallback.Counts, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.names, name) {
		c.names = append(c.names, name)
	}
	return d, nil
}

func (c *counters) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(slices.Values(c.names))
}

// TestServersOfTwoModelsAreJudgedApart gives them the same names.
func TestServersOfTwoModelsAreJudgedApart(t *testing.T) {
	seen := &counters{}
	url := serve(t, "x").URL
	s := open(t, `{"models": [
		{"name": "one", "servers": [{"name": "a", "url": "`+url+`"}, {"name": "b", "url": "`+url+`"}]},
		{"name": "two", "servers": [{"name": "a", "url": "`+url+`"}, {"name": "b", "url": "`+url+`"}]}
	]}`, models.Parts{Pool: pool.Options{AffinityBytes: -1, Breaker: fallback.BreakerOptions{Name: "here", Counters: seen, Interval: time.Millisecond}}})
	require.Eventually(t, func() bool {
		ask(t, s, "one")
		ask(t, s, "two")
		return len(seen.all()) == 4
	}, 5*time.Second, time.Millisecond)
	require.Equal(t, []string{"here/one/servers/a", "here/one/servers/b", "here/two/servers/a", "here/two/servers/b"}, seen.all())
}

// TestAPoolAsksAnotherServerInsteadOfTheSameAgain has one that is not there yet.
func TestAPoolAsksAnotherServerInsteadOfTheSameAgain(t *testing.T) {
	var asked atomic.Int64
	starting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			asked.Add(1)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer starting.Close()
	well := serve(t, "well")
	s := open(t, `{"models": [{"name": "chat", "servers": [
		{"name": "a", "url": "`+starting.URL+`", "health": "none"}, {"name": "b", "url": "`+well.URL+`", "health": "none"}
	]}]}`, models.Parts{Pool: pool.Options{AffinityBytes: -1}})
	p, _ := s.Pool("chat")
	for range 20 {
		text, _ := ask(t, s, "chat")
		require.Equal(t, "well", text)
	}
	require.Equal(t, p.Status()[0].Requests, asked.Load())
}
