package openai

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/cache"
)

const question = `{"model":"poem","stream":true,"temperature":0,"messages":[{"role":"user","content":"Write about an old silent pond."}]}`

// sink is a response that keeps the bytes of its body, in memory of its own.
type sink struct {
	header http.Header
	body   []byte
}

func (s *sink) Header() http.Header              { return s.header }
func (s *sink) WriteHeader(int)                  {}
func (s *sink) Write(b []byte) (int, error)      { s.body = append(s.body, b...); return len(b), nil }
func (s *sink) FlushError() error                { return nil }
func (s *sink) SetReadDeadline(time.Time) error  { return nil }
func (s *sink) SetWriteDeadline(time.Time) error { return nil }

// cached serves an answer of so many tokens from a cache that knows it.
func cached(t testing.TB, tokens int) http.Handler {
	t.Helper()
	tiers, err := cache.New(cache.Options{})
	require.NoError(t, err)
	t.Cleanup(tiers.Close)
	model := cache.Through(haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		for range tokens {
			if _, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: " pond"}); err != nil {
				return err
			}
		}
		w.Finish(0, haiku.FinishStop)
		w.SetUsage(haiku.Usage{PromptTokens: 8, CompletionTokens: tokens})
		return nil
	}), tiers, cache.Policy{})
	t.Cleanup(model.Close)
	h := Handler(model)
	ask(h, &sink{header: http.Header{}})
	return h
}

func ask(h http.Handler, w *sink) {
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(question))
	r.Header.Set("Content-Type", "application/json")
	w.body = w.body[:0]
	clear(w.header)
	h.ServeHTTP(w, r)
}

// hitCosts returns what an exact hit allocates, without the request itself.
func hitCosts(t *testing.T, tokens int) (allocations, allocated float64) {
	h, w := cached(t, tokens), &sink{header: http.Header{}}
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	count := func(h http.Handler) (float64, float64) {
		const times = 200
		ask(h, w)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range times {
			ask(h, w)
		}
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / times, float64(after.TotalAlloc-before.TotalAlloc) / times
	}
	own, ownBytes := count(nothing)
	all, allBytes := count(h)
	require.Equal(t, tokens, bytes.Count(w.body, []byte(`{"content":" pond"}`)))
	require.Equal(t, "hit", w.header.Get("X-Haiku-Cache"))
	return all - own, allBytes - ownBytes
}

func TestAnExactHitAllocatesLittle(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	few, fewBytes := hitCosts(t, 64)
	require.LessOrEqual(t, few, 28.0)
	require.LessOrEqual(t, fewBytes, 5e3)
	many, _ := hitCosts(t, 6400)
	require.LessOrEqual(t, many-few, 10.0, "and nothing for each token")
}

func BenchmarkExactHit(b *testing.B) {
	h, w := cached(b, 64), &sink{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		ask(h, w)
	}
}
