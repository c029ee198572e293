package pool

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// server is a Model in memory that takes a while for each of two tokens.
type server struct {
	mu     sync.Mutex
	name   string
	fail   error // before the first token
	breaks error // after it
	stalls bool  // after it
	step   time.Duration
	runs   int
	sick   bool
}

func (s *server) Generate(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
	s.mu.Lock()
	s.runs++
	fail, breaks, step := s.fail, s.breaks, s.step
	s.mu.Unlock()
	w.SetModel(s.name)
	for i := range 2 {
		if i == 1 && s.stalls {
			step = time.Hour
		}
		select {
		case <-time.After(step):
		case <-ctx.Done():
			return ctx.Err()
		}
		if fail != nil {
			return fail
		}
		if i == 1 && breaks != nil {
			return breaks
		}
		if _, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: "x"}); err != nil {
			return err
		}
		w.SetUsage(haiku.Usage{PromptTokens: 1, CompletionTokens: i + 1})
	}
	w.Finish(0, haiku.FinishStop)
	return nil
}

func (s *server) probe(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sick {
		return errors.New("sick")
	}
	return nil
}

func (s *server) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func open(t *testing.T, o Options, endpoints ...Endpoint) *Pool {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	p, err := New(o, endpoints...)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func ask(t *testing.T, m haiku.Model, prompt string) (text, model string, err error) {
	t.Helper()
	stream := haiku.NewStream(haiku.WithLogger(t.Context(), slog.New(slog.DiscardHandler)), m, &haiku.Request{Prompt: prompt})
	text, err = stream.Text()
	return text, stream.Model(), err
}

func TestARequestGoesOnToAServerThatAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &server{name: "a", fail: haiku.ErrOverloaded.With("", "busy")}
		b := &server{name: "b"}
		full := new(Gauge)
		p := open(t, Options{AffinityBytes: -1}, Endpoint{Name: "a", Model: a}, Endpoint{Name: "b", Model: b, Gauge: full})
		full.Report(Load{Queued: saturatedQueue}) // so that a is asked first
		text, model, err := ask(t, p, "x")
		require.NoError(t, err)
		require.Equal(t, []string{"xx", "b"}, []string{text, model})

		a.fail = haiku.ErrInvalidRequest.With("", "bad")
		_, _, err = ask(t, p, "x")
		require.ErrorIs(t, err, haiku.ErrInvalidRequest, "what is the client's fault is so everywhere")
		require.Equal(t, []int{2, 1}, []int{a.runs, b.runs})

		a.fail, a.breaks = nil, errors.New("torn")
		_, _, err = ask(t, p, "x")
		require.ErrorIs(t, err, a.breaks, "never after the first token")
		require.Equal(t, 1, b.runs)
		status := p.Status()
		require.Equal(t, []int64{3, 1, 1, 0}, []int64{status[0].Requests, status[0].Refused, status[1].Requests, status[1].Refused}, "a bad request is no refusal")
	})
}

func TestWhenAllRefuseTheSoonestIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusal := func(after time.Duration) error {
			e := *haiku.ErrTooBusy
			e.RetryAfter = after
			return &e
		}
		p := open(t, Options{}, Endpoint{Name: "a", Model: &server{fail: refusal(9 * time.Second)}},
			Endpoint{Name: "b", Model: &server{fail: refusal(2 * time.Second)}}, Endpoint{Name: "c", Model: &server{fail: errors.New("broken")}})
		_, _, err := ask(t, p, "x")
		require.Equal(t, 429, haiku.ErrorFrom(err).Status)
		require.Equal(t, 2*time.Second, haiku.ErrorFrom(err).RetryAfter)
		_, _, err = ask(t, open(t, Options{}), "x")
		require.ErrorIs(t, err, ErrNoServer)
	})
}

func TestAServerThatFailsItsProbesIsPassedByUntilItIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &server{name: "a"}, &server{name: "b"}
		p := open(t, Options{AffinityBytes: -1, Probe: time.Second}, Endpoint{Name: "a", Model: a, Probe: a.probe}, Endpoint{Name: "b", Model: b, Probe: b.probe})
		synctest.Wait()
		a.set(func() { a.sick = true })
		<-time.After(1500 * time.Millisecond)
		require.False(t, p.Status()[0].Down, "once is not often")
		<-time.After(time.Second)
		require.True(t, p.Status()[0].Down)
		for range 3 {
			_, model, err := ask(t, p, "x")
			require.NoError(t, err)
			require.Equal(t, "b", model)
		}
		b.set(func() { b.sick = true })
		<-time.After(3 * time.Second)
		_, _, err := ask(t, p, "x")
		require.ErrorIs(t, err, ErrNoServer)
		a.set(func() { a.sick = false })
		<-time.After(1100 * time.Millisecond)
		_, model, err := ask(t, p, "x")
		require.NoError(t, err)
		require.Equal(t, "a", model)
	})
}

// TestAServerThatIsBackStartsSlowly sends requests that all take a second, ten at a
// time, to two servers of which one was away.
func TestAServerThatIsBackStartsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &server{name: "a", step: 500 * time.Millisecond}, &server{name: "b", step: 500 * time.Millisecond}
		p := open(t, Options{AffinityBytes: -1, SlowStart: 20 * time.Second}, Endpoint{Name: "a", Model: a})
		require.NoError(t, p.Add(Endpoint{Name: "b", Model: b}))
		share := func() int {
			before := b.runs
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() { _, _, _ = ask(t, p, "x") })
				synctest.Wait()
			}
			all.Wait()
			return b.runs - before
		}
		require.LessOrEqual(t, share(), 1)
		<-time.After(8 * time.Second)
		require.InDelta(t, 3, share(), 1)
		<-time.After(20 * time.Second)
		require.Equal(t, 5, share())
	})
}

func TestADrainedServerFinishesWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &server{name: "a", step: time.Second}, &server{name: "b"}
		p := open(t, Options{AffinityBytes: -1}, Endpoint{Name: "a", Model: a})
		var all sync.WaitGroup
		all.Go(func() {
			text, _, err := ask(t, p, "x")
			require.NoError(t, err)
			require.Equal(t, "xx", text)
		})
		<-time.After(500 * time.Millisecond)
		require.NoError(t, p.Add(Endpoint{Name: "b", Model: b}))
		impatient, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, p.Drain(impatient, "a"), context.DeadlineExceeded)
		_, model, err := ask(t, p, "x")
		require.NoError(t, err)
		require.Equal(t, "b", model)
		begin := time.Now()
		require.NoError(t, p.Drain(t.Context(), "a"))
		require.Equal(t, 1400*time.Millisecond, time.Since(begin))
		all.Wait()
		require.Len(t, p.Status(), 1)
		require.Error(t, p.Drain(t.Context(), "a"))
		require.Error(t, p.Add(Endpoint{Name: "b", Model: b}), "a name is one server's")
		require.Error(t, p.Add(Endpoint{Name: "c"}))
	})
}

// TestLoadsArePolledAndGrowOld has other clients load one of two servers.
func TestLoadsArePolledAndGrowOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		metrics := func(running int) func(context.Context) (Load, error) {
			return func(ctx context.Context) (Load, error) {
				if down.Load() {
					<-ctx.Done()
					return Load{}, ctx.Err()
				}
				return Load{Running: running}, nil
			}
		}
		a, b := &server{name: "a"}, &server{name: "b"}
		p := open(t, Options{AffinityBytes: -1}, Endpoint{Name: "a", Model: a, Metrics: metrics(7)}, Endpoint{Name: "b", Model: b, Metrics: metrics(2)})
		synctest.Wait()
		_, model, err := ask(t, p, "x")
		require.NoError(t, err)
		require.Equal(t, "b", model)
		require.Equal(t, Load{Running: 7}, p.Status()[0].Load)
		down.Store(true)
		<-time.After(2 * time.Second)
		require.False(t, p.Status()[0].Fresh)
		require.Len(t, chosen(t, p, 50, ""), 2, "nothing is known any more")
	})
}

// TestWhatAnswersTellNeedsNoPolling reports a load by its gauge all the time.
func TestWhatAnswersTellNeedsNoPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var polls atomic.Int64
		gauge := new(Gauge)
		p := open(t, Options{}, Endpoint{Name: "a", Model: &server{}, Gauge: gauge, Metrics: func(context.Context) (Load, error) {
			polls.Add(1)
			return Load{}, nil
		}})
		synctest.Wait()
		for range 100 {
			gauge.Report(Load{Queued: 1})
			<-time.After(50 * time.Millisecond)
		}
		require.Equal(t, int64(1), polls.Load())
		require.Equal(t, Load{Queued: 1}, p.Status()[0].Load)
		<-time.After(time.Second)
		require.Greater(t, polls.Load(), int64(5))
	})
}

func TestConversationsStayWhereTheyBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var endpoints []Endpoint
		for _, name := range []string{"a", "b", "c", "d"} {
			endpoints = append(endpoints, Endpoint{Name: name, Model: &server{name: name}})
		}
		p := open(t, Options{AffinityBytes: 16}, endpoints...)
		turn := func(tenant, system, last string) string {
			stream := haiku.NewStream(haiku.WithIdentity(t.Context(), haiku.Identity{Tenant: tenant}), p, &haiku.Request{Messages: []haiku.Message{
				{Role: haiku.RoleSystem, Content: system}, {Role: haiku.RoleUser, Content: last},
			}})
			_, err := stream.Text()
			require.NoError(t, err)
			return stream.Model()
		}
		used := map[string]bool{}
		for _, tenant := range []string{"t", "u", "v", "w", "x", "y", "z"} {
			first := turn(tenant, "you are a helpful poet", "one")
			used[first] = true
			require.Equal(t, first, turn(tenant, "you are a helpful poet", "two"))
		}
		require.Greater(t, len(used), 1, "tenants share nothing, and lie anywhere")
	})
}

func TestACancelledRequestEndsItsServersWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &server{name: "a", step: time.Hour}, &server{name: "b", step: time.Hour}
		p := open(t, Options{}, Endpoint{Name: "a", Model: a}, Endpoint{Name: "b", Model: b})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := haiku.NewStream(ctx, p, &haiku.Request{Prompt: "x"}).Text()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1, a.runs+b.runs, "nobody waits for another server any more")
		for _, s := range p.Status() {
			require.Zero(t, s.InFlight)
		}
	})
}

// TestATokenCostsNoAllocationOnItsWayThrough compares with the server itself.
func TestATokenCostsNoAllocationOnItsWayThrough(t *testing.T) {
	const tokens = 2000
	model := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		for range tokens {
			if _, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: "x"}); err != nil {
				return err
			}
		}
		w.Finish(0, haiku.FinishStop)
		return nil
	})
	p := open(t, Options{}, Endpoint{Name: "a", Model: model}, Endpoint{Name: "b", Model: model})
	allocations := func(m haiku.Model) float64 {
		return testing.AllocsPerRun(10, func() {
			for _, err := range haiku.NewStream(t.Context(), m, &haiku.Request{Prompt: "x"}).Tokens() {
				require.NoError(t, err)
			}
		})
	}
	require.Less(t, allocations(p)-allocations(model), tokens/10.0, "a few for the request, none for a token")
}
