package cache

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// says is a model that answers with what f returns, after it has returned.
func says(f func(ctx context.Context, req *haiku.Request) string) haiku.Model {
	return haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
		text := f(ctx, req)
		if _, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: text}); err != nil {
			return err
		}
		w.Finish(0, haiku.FinishStop)
		return nil
	})
}

func textOf(ctx context.Context, m haiku.Model, question string) (string, error) {
	return haiku.NewStream(haiku.WithLogger(ctx, slog.New(slog.DiscardHandler)), m, ask(question)).Text()
}

func TestAHooksPanicFailsItsRequestAlone(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("host bug") }, "Goexit": runtime.Goexit} {
		var calls atomic.Int64
		c := Through(&model{}, tiers(t, Options{Shared: newMapShared()}), Policy{Tags: func(*haiku.Request) []string {
			if calls.Add(1) == 1 {
				end()
			}
			return nil
		}})
		_, err := textOf(t.Context(), c, "old pond")
		require.Error(t, err, name)
		got, err := textOf(t.Context(), c, "old pond")
		require.NoError(t, err, name)
		require.Equal(t, "old pond ", got)
		c.Close()
	}
	c, _ := semantic(t, Semantic{Embedder: letters{}, Gate: sameNegation, Shadow: 1, SameAnswer: func(*Answer, *Answer) bool { panic("host bug") }})
	for _, question := range []string{"where is the old pond", "is the old pond where"} {
		got, err := textOf(t.Context(), c, question)
		require.NoError(t, err, "its answer is whole")
		require.Equal(t, question+" ", got)
	}
}

// broken panics when it is asked for a vector the second time.
type broken struct{ calls atomic.Int64 }

func (b *broken) Embed(ctx context.Context, req *haiku.EmbeddingRequest) (*haiku.Embeddings, error) {
	if b.calls.Add(1) > 1 {
		panic("host bug")
	}
	return letters{}.Embed(ctx, req)
}

func TestAPanicInARefreshEndsNothingElse(t *testing.T) {
	c := Through(&model{}, tiers(t, Options{Semantic: &Semantic{Embedder: &broken{}}}), Policy{Refresh: 1})
	for range 3 {
		_, err := textOf(t.Context(), c, "old pond")
		require.NoError(t, err)
	}
	c.Close()
	require.Zero(t, c.tiers.Stats().Refreshed)
}

// hooked is a Shared level that something happens around.
type hooked struct {
	*mapShared
	afterGet, beforeInvalidate func()
}

func (s *hooked) Get(ctx context.Context, keys ...string) [][]byte {
	values := s.mapShared.Get(ctx, keys...)
	if f := s.afterGet; f != nil {
		s.afterGet = nil
		f()
	}
	return values
}

func (s *hooked) Invalidate(ctx context.Context, tags ...string) bool {
	if f := s.beforeInvalidate; f != nil {
		s.beforeInvalidate = nil
		f()
	}
	return s.mapShared.Invalidate(ctx, tags...)
}

func TestNothingIsServedHereThatWasInvalidatedHere(t *testing.T) {
	for name, interfere := range map[string]func(s *hooked, ts *Tiers, get func()){
		"asked while the message is on its way": func(s *hooked, ts *Tiers, get func()) {
			s.beforeInvalidate = get
			require.True(t, ts.Invalidate(t.Context(), "model:"))
		},
		"invalidated while an answer is on its way": func(s *hooked, ts *Tiers, get func()) {
			s.afterGet = func() { require.True(t, ts.Invalidate(t.Context(), "model:")) }
			get()
		},
	} {
		shared := &hooked{mapShared: newMapShared()}
		other := Through(&model{}, tiers(t, Options{Store: newMapStore(), Shared: shared}), Policy{})
		_, err := textOf(t.Context(), other, "old pond")
		require.NoError(t, err)
		ts, m := tiers(t, Options{Store: newMapStore(), Shared: shared}), &model{}
		c := Through(m, ts, Policy{})
		get := func() {
			_, err := textOf(t.Context(), c, "old pond")
			require.NoError(t, err)
		}
		interfere(shared, ts, get)
		require.Zero(t, m.runs.Load(), name)
		get()
		require.Equal(t, int64(1), m.runs.Load(), name)
		c.Close()
		other.Close()
	}
}

func TestASlowFetchDoesNotReplaceWhatIsNewer(t *testing.T) {
	shared := &hooked{mapShared: newMapShared()}
	version := 0
	m := says(func(context.Context, *haiku.Request) string { version++; return fmt.Sprint("version ", version) })
	get := func(c *Cached, control Control) string {
		got, err := textOf(WithControl(t.Context(), control), c, "old pond")
		require.NoError(t, err)
		return got
	}
	other := Through(m, tiers(t, Options{Store: newMapStore(), Shared: shared}), Policy{})
	defer other.Close()
	require.Equal(t, "version 1", get(other, Control{}))
	c := Through(m, tiers(t, Options{Store: newMapStore(), Shared: shared}), Policy{})
	defer c.Close()
	shared.afterGet = func() { require.Equal(t, "version 2", get(c, Control{NoCache: true})) }
	get(c, Control{})
	require.Equal(t, "version 2", get(c, Control{}))
}

func TestWhoAsksAfterAnInvalidationIsToldTheNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var weights atomic.Value
		weights.Store("old")
		m := says(func(context.Context, *haiku.Request) string {
			text := weights.Load().(string)
			<-time.After(time.Second)
			return text
		})
		ts := tiers(t, Options{Store: newMapStore()})
		c := Through(m, ts, Policy{})
		defer c.Close()
		answers := make(chan string, 2)
		get := func() {
			got, err := textOf(t.Context(), c, "old pond")
			require.NoError(t, err)
			answers <- got
		}
		go get()
		<-time.After(time.Millisecond)
		weights.Store("new")
		ts.Invalidate(t.Context(), "model:")
		go get()
		require.Equal(t, []string{"old", "new"}, []string{<-answers, <-answers})
	})
}

func TestAFlightOutlivesTheRequestThatBeganIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := says(func(_ context.Context, req *haiku.Request) string {
			<-time.After(time.Second) // a queue
			return "about " + req.Messages[0].Content + fmt.Sprint(len(req.Stop), len(req.Stop[0]))
		})
		c := Through(m, tiers(t, Options{Store: newMapStore()}), Policy{})
		defer c.Close()
		req := func() *haiku.Request {
			r := ask("ponds")
			r.Stop = []string{"!!"}
			return r
		}
		first := req()
		ctx, leave := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer leave()
		got := make(chan string)
		go func() {
			<-time.After(time.Millisecond)
			text, _ := haiku.NewStream(t.Context(), c, req()).Text()
			got <- text
		}()
		_, err := haiku.NewStream(ctx, c, first).Text()
		require.Error(t, err)
		first.Messages[0].Content, first.Stop[0] = "another's secret", "?" // it is the caller's again
		require.Equal(t, "about ponds1 2", <-got)
	})
}

func TestNamesSeparateQuestions(t *testing.T) {
	m := says(func(_ context.Context, req *haiku.Request) string { return "you are " + req.Messages[0].Name })
	c := Through(m, tiers(t, Options{Semantic: &Semantic{}}), Policy{})
	defer c.Close()
	for _, name := range []string{"alice", "bob"} {
		got, err := haiku.NewStream(t.Context(), c, &haiku.Request{Messages: []haiku.Message{{Role: haiku.RoleUser, Name: name, Content: "What is my name?"}}}).Text()
		require.NoError(t, err)
		require.Equal(t, "you are "+name, got)
	}
}

func TestAClientCannotAskForALongerLife(t *testing.T) {
	for name, c := range map[string]struct {
		route Control
		asked string
		want  time.Duration
	}{
		"than the cache's":  {Control{}, "31536000", time.Minute},
		"than the route's":  {Control{TTL: time.Second}, "30", time.Second},
		"but for a shorter": {Control{}, "30", 30 * time.Second},
	} {
		ts := tiers(t, Options{TTL: time.Minute})
		m := Through(&model{}, ts, Policy{})
		control, err := c.route.asked(map[string][]string{"X-Haiku-Cache-Ttl": {c.asked}})
		require.NoError(t, err)
		_, err = textOf(WithControl(t.Context(), control), m, "old pond")
		require.NoError(t, err)
		h, ok := ts.find(KeyOf(ask("old pond"), ""))
		require.True(t, ok, name)
		require.InDelta(t, c.want, h.record.ends.Sub(h.Created), float64(time.Second)/2, name)
		m.Close()
	}
}

func TestARefreshThatHangsHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		m := says(func(ctx context.Context, _ *haiku.Request) string {
			if runs.Add(1) == 2 {
				<-ctx.Done()
			}
			return "x"
		})
		c := Through(m, tiers(t, Options{Store: newMapStore(), TTL: time.Minute, Jitter: -1}), Policy{Refresh: 0.5})
		defer c.Close()
		get := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := textOf(ctx, c, "old pond")
			return err
		}
		require.NoError(t, get())
		<-time.After(40 * time.Second)
		require.NoError(t, get()) // the refresh begins, and hangs
		<-time.After(21 * time.Second)
		require.NoError(t, get())
		require.Equal(t, int64(3), runs.Load())
		require.Zero(t, c.tiers.Stats().Refreshed)
	})
}

func TestWhoAsksAloneJoinsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{step: time.Second}
		c := Through(m, tiers(t, Options{Store: newMapStore()}), Policy{})
		defer c.Close()
		for _, control := range []Control{{NoStore: true}, {NoCache: true}} {
			go func() {
				req := ask("old pond")
				req.ID = "the same for both"
				_, _ = haiku.NewStream(WithControl(t.Context(), control), c, req).Text()
			}()
		}
		<-time.After(time.Minute)
		require.Equal(t, int64(2), m.runs.Load())
		_, ok := c.tiers.Get(KeyOf(ask("old pond"), ""))
		require.True(t, ok)
	})
}

func TestWhatWasUsedIsToldToThoseWhoLeaveEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{step: time.Second}
		c := Through(m, tiers(t, Options{Store: newMapStore()}), Policy{})
		defer c.Close()
		go func() { _, _ = textOf(t.Context(), c, "a b c d e f") }()
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		stream := haiku.NewStream(ctx, c, ask("a b c d e f"))
		_, err := stream.Text()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, haiku.Usage{CompletionTokens: 3}, stream.Usage(), "the others ride on")
	})
}

func TestDeadQuestionsMakeRoomForLivingOnes(t *testing.T) {
	ts := tiers(t, Options{Semantic: &Semantic{MaxEntries: 10}})
	put := func(n byte) {
		require.NoError(t, ts.SetAll(t.Context(), Write{Key: Key{n}, Answer: &Answer{}, Meaning: &Meaning{Partition: Key{n}, Text: "q", Vector: []float32{1, float32(n)}}}))
	}
	for n := range byte(9) {
		put(n)
	}
	for range 30 { // one entry, again and again
		put(9)
	}
	for n := range byte(10) {
		_, ok := ts.Get(Key{n})
		require.True(t, ok)
	}
	require.Zero(t, ts.Stats().Evicted)
	put(10)
	_, ok := ts.Get(Key{0})
	require.False(t, ok, "now the oldest goes")
}

func TestAnUpdateIsBoundAsWell(t *testing.T) {
	ts := tiers(t, Options{MaxBytes: 1 << 20})
	answer := func(bytes int) *Answer { return &Answer{Tokens: []haiku.Token{{Text: strings.Repeat("x", bytes)}}} }
	for i := range byte(20) {
		require.NoError(t, ts.SetAll(t.Context(), Write{Key: Key{i}, Answer: answer(1)}))
	}
	for i := range byte(20) {
		require.ErrorIs(t, ts.SetAll(t.Context(), Write{Key: Key{i}, Answer: answer(3 << 20)}), ErrDropped)
	}
	require.LessOrEqual(t, ts.Stats().Bytes, int64(1<<20))
}

func TestAQuestionThatWasDoubtedStaysKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{}
		c := Through(m, tiers(t, Options{Store: newMapStore(), Semantic: &Semantic{
			Embedder: letters{}, Gate: sameNegation, Shadow: 1, SameAnswer: func(*Answer, *Answer) bool { return true },
		}}), Policy{})
		defer c.Close()
		get := func(question string, control Control) {
			_, err := textOf(WithControl(t.Context(), control), c, question)
			require.NoError(t, err)
		}
		get("where is the old pond", Control{})
		<-time.After(time.Minute)
		get("where is the old pond", Control{MaxAge: time.Second})
		c.tiers.meanings.Shadow = 0
		get("is the old pond where", Control{})
		require.Equal(t, int64(2), m.runs.Load())
	})
}

func TestARouteThatIsDecidedDuringAnInvalidationIsNotKept(t *testing.T) {
	ts := tiers(t, Options{})
	name := "old"
	c := Through(says(func(_ context.Context, req *haiku.Request) string { return req.Model }), ts, Policy{
		Routes: NewRoutes(Table{Decide: func(context.Context, *haiku.Request) (Route, error) {
			decided := Route{Model: name}
			if name == "old" {
				name = "new"
				ts.Invalidate(t.Context(), "model:old")
			}
			return decided, nil
		}}),
	})
	defer c.Close()
	for _, want := range []string{"old", "new", "new"} {
		got, err := textOf(t.Context(), c, "q")
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestAFullRouteTierMakesRoomForMany(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine and many writes")
	}
	ts := tiers(t, Options{})
	put := func(i int) {
		require.NoError(t, ts.SetAll(t.Context(), Write{Prompt: Key{byte(i), byte(i >> 8), byte(i >> 16), 1}, Route: &Route{}}))
	}
	for i := range maxRoutes + 1 {
		put(i)
	}
	require.Equal(t, maxRoutes*15/16, len(ts.routes), "not one at a time")
}

func TestABudgetRemembersAQuestionThatIsRefreshed(t *testing.T) {
	ts := tiers(t, Options{Store: newMapStore(), Semantic: &Semantic{Budget: &Budget{}}})
	m := &Meaning{Text: "what is the price of tea", Vector: []float32{1, 0, 0}}
	put := func() *Record {
		require.NoError(t, ts.SetAll(t.Context(), Write{Key: Key{1}, Meaning: m, Answer: &Answer{}}))
		h, ok := ts.find(Key{1})
		require.True(t, ok)
		return h.record
	}
	require.Same(t, put().trust, put().trust)
}

func TestANameFromThePolicyStandsForNoneAndNeverReachesTheModel(t *testing.T) {
	tiers := tiers(t, Options{})
	var asked []string
	through := func(name string) *Cached {
		return Through(says(func(_ context.Context, req *haiku.Request) string {
			asked = append(asked, req.Model)
			return "from " + name
		}), tiers, Policy{Model: name})
	}
	a, b := through("a"), through("b")
	defer a.Close()
	defer b.Close()
	for range 2 {
		for name, m := range map[string]haiku.Model{"a": a, "b": b} {
			got, err := textOf(t.Context(), m, "old pond")
			require.NoError(t, err)
			require.Equal(t, "from "+name, got)
		}
	}
	named := ask("old pond")
	named.Model = "a" // as one asks who has the cache in front of a registry
	got, err := haiku.NewStream(t.Context(), b, named).Text()
	require.NoError(t, err)
	require.Equal(t, "from a", got)
	require.Equal(t, []string{"", ""}, asked)
}

func TestAnAnswerByAModelThatStandsInIsForThoseWhoWaitForItAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var well atomic.Bool
		c := Through(haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
			text := "well"
			if !well.Load() {
				text = "standing in"
				w.SetModel("small")
				w.SetHeader("X-Haiku-Served-By", "small")
				w.SetHeader("X-Haiku-Cache", "hit") // as a cache of its own would say
				w.SetDegraded()
			}
			if _, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: text}); err != nil {
				return err
			}
			if err := pause(ctx, time.Second); err != nil {
				return err
			}
			w.Finish(0, haiku.FinishStop)
			return nil
		}), tiers(t, Options{Store: newMapStore()}), Policy{})
		defer c.Close()
		type told struct {
			text, model string
			headers     []string
			degraded    bool
		}
		get := func() told {
			stream := haiku.NewStream(t.Context(), c, ask("old pond"))
			text, err := stream.Text()
			require.NoError(t, err)
			return told{text, stream.Model(), stream.Headers(), stream.Degraded()}
		}
		var riders [2]told
		var all sync.WaitGroup
		for i := range riders {
			all.Go(func() { riders[i] = get() })
		}
		all.Wait()
		want := told{"standing in", "small", []string{"X-Haiku-Cache", "miss", "X-Haiku-Served-By", "small"}, true}
		require.Equal(t, [2]told{want, want}, riders)
		require.EqualValues(t, 1, c.tiers.Stats().Shared)
		require.EqualValues(t, 1, c.tiers.Stats().Refused)
		well.Store(true)
		require.Equal(t, "well", get().text)
		require.Equal(t, told{"well", "", []string{"X-Haiku-Cache", "hit", "X-Haiku-Cache-Age", "0"}, false}, get())
	})
}
