package cache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// mapStore is a Store that keeps everything, for tests in virtual time.
type mapStore struct {
	mu  sync.Mutex
	all map[Key]*Record
}

func newMapStore() *mapStore { return &mapStore{all: make(map[Key]*Record)} }

func (s *mapStore) Get(key Key) (*Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.all[key]
	return r, ok
}

func (s *mapStore) Set(key Key, r *Record, _ int64, _ time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[key] = r
	return true
}

func (s *mapStore) Delete(key Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, key)
}

func (s *mapStore) Bytes() int64 { return 0 }

func (s *mapStore) Close() {}

// model counts its generations and answers with the words of the prompt, one a
// step.
type model struct {
	runs   atomic.Int64
	live   atomic.Int64
	step   time.Duration
	fail   error // after the first word
	finish haiku.FinishReason
}

func (m *model) Generate(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
	m.runs.Add(1)
	m.live.Add(1)
	defer m.live.Add(-1)
	w.SetModel("the model")
	words := strings.Fields(req.Messages[len(req.Messages)-1].Content)
	made := 0
	defer func() { w.SetUsage(haiku.Usage{PromptTokens: len(words), CompletionTokens: made}) }()
	for i, word := range words {
		if m.step > 0 {
			if err := pause(ctx, m.step); err != nil {
				return err
			}
		}
		if m.fail != nil && i == 1 {
			return m.fail
		}
		if _, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: word + " "}); err != nil {
			return err
		}
		made++
	}
	reason := m.finish
	if reason == "" {
		reason = haiku.FinishStop
	}
	w.Finish(0, reason)
	return nil
}

func ask(content string) *haiku.Request {
	return &haiku.Request{Messages: []haiku.Message{{Role: haiku.RoleUser, Content: content}}}
}

func tiers(t testing.TB, o Options) *Tiers {
	t.Helper()
	ts, err := New(o)
	require.NoError(t, err)
	t.Cleanup(ts.Close)
	return ts
}

func TestWhatWasAskedBeforeIsNotComputedAgain(t *testing.T) {
	m := &model{}
	c := Through(m, tiers(t, Options{}), Policy{})
	defer c.Close()
	for i := range 5 {
		stream := haiku.NewStream(t.Context(), c, ask("an old pond"))
		got, err := stream.Text()
		require.NoError(t, err)
		require.Equal(t, "an old pond ", got)
		require.Equal(t, "the model", stream.Model())
		want := haiku.Usage{PromptTokens: 3, CompletionTokens: 3}
		if i > 0 {
			want.CachedTokens = 3
		}
		require.Equal(t, want, stream.Usage())
	}
	require.Equal(t, int64(1), m.runs.Load())
	stats := c.tiers.Stats()
	require.Positive(t, stats.Bytes)
	stats.Bytes = 0
	require.Equal(t, Stats{Hits: 4, Misses: 1, Writes: 1}, stats)
}

func TestTheHeadersSayWhereAnAnswerCameFrom(t *testing.T) {
	c := Through(&model{}, tiers(t, Options{}), Policy{})
	defer c.Close()
	mux := haiku.New()
	mux.Use(haiku.Provide(c), Control{}.Middleware())
	mux.Register("/", haiku.HandlerFunc(func(ctx *haiku.Context) {
		m, _ := haiku.ModelFrom(ctx.Context())
		_ = ctx.Stream(haiku.NewStream(ctx.Context(), m, ask("old pond")))
	}))
	for i, step := range []struct{ control, want string }{
		{"", "miss"}, {"", "hit"}, {"no-cache", "miss"}, {"", "hit"}, {"max-age=0", "miss"}, {"max-age=3600", "hit"},
		{"no-cache, no-store", "bypass"}, {"max-age=x", ""},
	} {
		req := httptest.NewRequest(http.MethodPost, "/", nil)
		req.Header.Set("Cache-Control", step.control)
		rec := httptest.NewRecorder()
		mux.ServeHTTP(rec, req)
		require.Equal(t, step.want, rec.Header().Get("X-Haiku-Cache"), "%d", i)
		require.Equal(t, step.want == "hit", rec.Header().Get("X-Haiku-Cache-Age") != "", "%d", i)
		if step.want == "" {
			require.Equal(t, 400, rec.Code)
		} else {
			require.Contains(t, rec.Body.String(), "old ")
		}
	}
}

func TestWhatIsNotAWholeAnswerIsNotKept(t *testing.T) {
	for name, m := range map[string]*model{
		"an error":    {fail: errors.New("broken")},
		"cut off":     {finish: haiku.FinishLength},
		"a tool call": {finish: haiku.FinishToolCalls},
		"withheld":    {finish: haiku.FinishContentFilter},
	} {
		c := Through(m, tiers(t, Options{}), Policy{})
		for range 3 {
			_, err := haiku.NewStream(t.Context(), c, ask("an old pond")).Text()
			require.Equal(t, m.fail != nil, err != nil, name)
		}
		require.Equal(t, int64(3), m.runs.Load(), name)
		c.Close()
	}
	m := &model{step: time.Millisecond}
	c := Through(m, tiers(t, Options{}), Policy{})
	defer c.Close()
	for tok, err := range haiku.NewStream(t.Context(), c, ask("an old pond")).Tokens() {
		require.NoError(t, err)
		require.NotEmpty(t, tok.Text)
		break // the client leaves
	}
	require.Zero(t, m.live.Load())
	_, ok := c.tiers.Get(KeyOf(ask("an old pond"), ""))
	require.False(t, ok)
}

func TestRandomAnswersAreKeptIfTheRouteSaysSo(t *testing.T) {
	m := &model{}
	c := Through(m, tiers(t, Options{}), Policy{})
	defer c.Close()
	seed := uint64(1)
	run := func(ctx context.Context, seed *uint64, logprobs bool) {
		req := ask("old pond")
		req.Sampling.Temperature, req.Sampling.Seed, req.Logprobs = 1, seed, logprobs
		_, err := haiku.NewStream(ctx, c, req).Text()
		require.NoError(t, err)
	}
	run(t.Context(), nil, false)
	run(t.Context(), nil, false)
	require.Equal(t, int64(2), m.runs.Load())
	run(t.Context(), &seed, false)
	run(t.Context(), &seed, false)
	require.Equal(t, int64(3), m.runs.Load())
	opted := WithControl(t.Context(), Control{Random: true})
	run(opted, nil, false)
	run(opted, nil, false)
	require.Equal(t, int64(4), m.runs.Load())
	run(opted, &seed, true)
	require.Equal(t, int64(5), m.runs.Load(), "log-probabilities are not kept")
}

func TestAThousandAtOnceComputeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{step: 10 * time.Millisecond}
		c := Through(m, tiers(t, Options{Store: newMapStore()}), Policy{})
		defer c.Close()
		var all sync.WaitGroup
		start := time.Now()
		for i := range 1000 {
			all.Go(func() {
				first := time.Duration(0)
				got := ""
				for tok, err := range haiku.NewStream(t.Context(), c, ask("an old silent pond")).Tokens() {
					require.NoError(t, err)
					if got += tok.Text; first == 0 {
						first = time.Since(start)
					}
				}
				require.Equal(t, "an old silent pond ", got)
				require.LessOrEqual(t, first, max(10*time.Millisecond, time.Duration(i)*40*time.Microsecond), "from the first token on")
			})
			if i%25 == 24 {
				<-time.After(time.Millisecond)
			}
		}
		all.Wait()
		require.Equal(t, int64(1), m.runs.Load())
		require.Equal(t, int64(1000), c.tiers.Stats().Misses+c.tiers.Stats().Hits)
	})
}

func TestTheOneWhoBeganMayLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{step: 10 * time.Millisecond}
		c := Through(m, tiers(t, Options{Store: newMapStore()}), Policy{})
		defer c.Close()
		leader, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			_, err := haiku.NewStream(leader, c, ask("a b c d e f")).Text()
			require.ErrorIs(t, err, context.Canceled)
		})
		<-time.After(15 * time.Millisecond)
		all.Go(func() {
			got, err := haiku.NewStream(t.Context(), c, ask("a b c d e f")).Text()
			require.NoError(t, err)
			require.Equal(t, "a b c d e f ", got)
		})
		<-time.After(10 * time.Millisecond)
		leave()
		all.Wait()
		require.Equal(t, int64(1), m.runs.Load())

		// The last one out ends the model.
		ctx, cancel := context.WithCancel(t.Context())
		for range 3 {
			all.Go(func() { _, _ = haiku.NewStream(ctx, c, ask("g h i j k l")).Text() })
		}
		<-time.After(15 * time.Millisecond)
		require.Equal(t, int64(1), m.live.Load())
		cancel()
		all.Wait()
		require.Zero(t, m.live.Load())
	})
}

func TestAFailureIsToldToAllAndNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		m := &model{step: 10 * time.Millisecond, fail: broken}
		c := Through(m, tiers(t, Options{Store: newMapStore()}), Policy{})
		defer c.Close()
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				_, err := haiku.NewStream(t.Context(), c, ask("a b c")).Text()
				require.ErrorIs(t, err, broken)
			})
		}
		all.Wait()
		require.Equal(t, int64(1), m.runs.Load())
		m.fail = nil
		_, err := haiku.NewStream(t.Context(), c, ask("a b c")).Text()
		require.NoError(t, err, "the next one begins anew")
	})
}

func TestEntriesExpireAndAreRefreshedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{step: time.Millisecond}
		c := Through(m, tiers(t, Options{Store: newMapStore(), TTL: time.Minute, Jitter: -1}), Policy{Refresh: 0.1})
		defer c.Close()
		get := func() {
			_, err := haiku.NewStream(t.Context(), c, ask("a b c")).Text()
			require.NoError(t, err)
		}
		get()
		<-time.After(50 * time.Second)
		get()
		synctest.Wait()
		require.Equal(t, int64(1), m.runs.Load(), "too early")
		<-time.After(5 * time.Second)
		for range 10 {
			get()
		}
		synctest.Wait()
		<-time.After(10 * time.Millisecond)
		require.Equal(t, int64(2), m.runs.Load(), "once, in the background")
		<-time.After(30 * time.Second)
		get()
		require.Equal(t, int64(2), m.runs.Load(), "the new one lives on")
		<-time.After(time.Hour)
		get()
		require.Equal(t, int64(3), m.runs.Load())
		require.Equal(t, int64(1), c.tiers.Stats().Refreshed)
	})
}

func TestAReplayCanBePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Through(&model{}, tiers(t, Options{Store: newMapStore()}), Policy{Pace: 20 * time.Millisecond})
		defer c.Close()
		for range 2 {
			start := time.Now()
			got, err := haiku.NewStream(t.Context(), c, ask("a b c d")).Text()
			require.NoError(t, err)
			require.Equal(t, "a b c d ", got)
			if c.tiers.Stats().Hits == 1 {
				require.GreaterOrEqual(t, time.Since(start), 60*time.Millisecond)
			}
		}
	})
}

// TestTenantsNeverMeet asks the same few questions for random tenants: an answer
// names the tenant it was computed for.
func TestTenantsNeverMeet(t *testing.T) {
	leaks := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
		if _, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: req.Tenant + ":" + req.Messages[0].Content}); err != nil {
			return err
		}
		w.Finish(0, haiku.FinishStop)
		return nil
	})
	ts := tiers(t, Options{})
	c := Through(leaks, ts, Policy{})
	defer c.Close()
	pairs := 100_000
	if testing.Short() {
		pairs = 5_000
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range pairs {
		tenant, prompt := fmt.Sprint("tenant", random.IntN(300)), fmt.Sprint("question ", random.IntN(20))
		ctx := haiku.WithIdentity(t.Context(), haiku.Identity{Tenant: tenant})
		got, err := haiku.NewStream(ctx, c, ask(prompt)).Text()
		require.NoError(t, err)
		require.Equal(t, tenant+":"+prompt, got)
	}
	require.Greater(t, ts.Stats().Hits, int64(pairs/10))
}
