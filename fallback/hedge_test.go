package fallback

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
)

const ms = time.Millisecond

// timed asks and tells when the first text came, and when the answer was over.
func timed(ctx context.Context, m haiku.Model, req *haiku.Request) (a answer, first, last time.Duration) {
	start := time.Now()
	s := haiku.NewStream(ctx, m, req)
	for tok, err := range s.Tokens() {
		if a.err = err; err != nil {
			break
		}
		if a.text += tok.Text; first == 0 && tok.Text != "" {
			first = time.Since(start)
		}
	}
	a.model, a.usage = s.Model(), s.Usage()
	return a, first, time.Since(start)
}

// attempts collects what Observe sees.
type attempts struct {
	mu  sync.Mutex
	all []Attempt
}

func (o *attempts) observe(ctx context.Context, _ string) (context.Context, func(Attempt)) {
	return ctx, func(a Attempt) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.all = append(o.all, a)
	}
}

func TestTheFirstToSpeakAnswersAndTheOtherIsEnded(t *testing.T) {
	for name, tt := range map[string]struct {
		large []step
		by    string
		first time.Duration
		small int // runs
	}{
		"the first, before the hedge":  {[]step{takes(39 * ms), says("large"), takes(ms), ends()}, "large", 39 * ms, 0},
		"the first, beside the hedge":  {[]step{takes(70 * ms), says("large"), takes(50 * ms), ends()}, "large", 70 * ms, 1},
		"the hedge":                    {[]step{takes(90 * ms), says("large"), ends()}, "small", 80 * ms, 1},
		"the hedge of what hangs":      {[]step{hangs()}, "small", 80 * ms, 1},
		"the hedge of what then fails": {[]step{takes(60 * ms), errs(errBroken)}, "small", 80 * ms, 1},
		"the next of what fails first": {[]step{takes(30 * ms), errs(errBroken)}, "small", 70 * ms, 1},
		"a role is nothing":            {[]step{says(""), hangs()}, "small", 80 * ms, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen attempts
				large := does("large", tt.large...)
				small := does("small", takes(40*ms), says("small"), takes(50*ms), says("!"), ends())
				c := newChain(t, Options{HedgeAfter: 40 * ms, Observe: seen.observe}, large, small)
				start := time.Now()
				a, first, last := timed(t.Context(), c, &haiku.Request{})
				require.NoError(t, a.err)
				require.Equal(t, tt.by, a.model)
				require.Equal(t, map[string]string{"large": "large", "small": "small!"}[tt.by], a.text)
				require.Equal(t, tt.first, first)
				runs, running := small.count()
				require.Equal(t, tt.small, runs)
				require.Zero(t, running)
				_, running = large.count()
				require.Zero(t, running)
				loser := small
				if tt.by == "small" {
					loser = large
				}
				if loser.runs > 0 {
					at, _ := loser.last()
					require.LessOrEqual(t, at.Sub(start), tt.first, "ended at the very step")
				}
				for _, at := range seen.all {
					require.Equal(t, at.Model == tt.by, at.Served)
					require.Equal(t, at.Model == "small" && tt.first != 70*ms || at.Model == "small" && tt.by == "large", at.Hedge)
					if at.Err == ErrOvertaken {
						require.Equal(t, Neutral, at.Outcome.Class)
					}
				}
				require.Equal(t, time.Since(start), last)
			})
		})
	}
}

func TestWhatTheLoserUsedIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen attempts
		large := does("large", says(""), says(""), hangs())
		c := newChain(t, Options{HedgeAfter: 40 * ms, Observe: seen.observe}, large, small())
		a := ask(t.Context(), c, &haiku.Request{})
		require.Equal(t, haiku.Usage{PromptTokens: 10, CompletionTokens: 2}, a.usage, "the answer's own")
		require.Len(t, seen.all, 2)
		stats := c.Stats()
		require.Equal(t, haiku.Usage{PromptTokens: 10, CompletionTokens: 2}, stats[0].Wasted)
		require.Zero(t, stats[1].Wasted)
		require.Equal(t, haiku.Usage{PromptTokens: 10, CompletionTokens: 2}, stats[1].Usage)
		require.EqualValues(t, 1, stats[1].Served)
		require.EqualValues(t, 1, stats[0].Attempts)
	})
	c := newChain(t, Options{}, does("large", says(""), errs(errBroken)), does("small", says(""), errs(errBroken)))
	a := ask(t.Context(), c, &haiku.Request{})
	require.Equal(t, haiku.Usage{PromptTokens: 20, CompletionTokens: 2}, a.usage, "nobody answered: all of it")
}

func TestAModelThatIsAlwaysOvertakenIsStillJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := does("large", hangs())
		long := does("small", takes(10*ms), says("a"), takes(200*ms), says("b"), ends())
		c := newChain(t, Options{HedgeAfter: 40 * ms, Breaker: BreakerOptions{Policies: []Policy{Consecutive{Failures: 2}}}}, large, long)
		for i := range 32 {
			require.Equal(t, Closed, c.Breaker(0).Status().State, i)
			start := time.Now()
			_, first, _ := timed(t.Context(), c, &haiku.Request{})
			require.Equal(t, 50*ms, first, "no client waits for the judgement")
			at, err := large.last()
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, map[bool]time.Duration{true: 120 * ms, false: 50 * ms}[i%16 == 15], at.Sub(start))
		}
		require.Equal(t, Open, c.Breaker(0).Status().State)
	})
}

// TestTheFirstTokenOfTheModelThatStandsInComesWithin85ms runs the engines over fake
// executors of 8 ms per step of the large model and 4 ms per step of the small
// one, and 0.25 ms and 0.1 ms for each token of a prompt of about 135: the large
// one takes 42 ms to its first token, and the small one 18 ms, so that the large one
// can have 60.
func TestTheFirstTokenOfTheModelThatStandsInComesWithin85ms(t *testing.T) {
	const limit = 85 * ms
	engine := func(t *testing.T, name string, step, token time.Duration, faults ...haikutest.Fault) *infer.Engine {
		cfg := haikutest.Says(name, " ", "answers", ".")
		cfg.Costs = haikutest.Costs{Step: step, PrefillToken: token, DecodeSequence: step / 100}
		cfg.Faults = faults
		return haikutest.NewEngine(t, haikutest.New(cfg), infer.Options{Name: name})
	}
	prompt := ""
	for len(prompt) < 120 {
		prompt += "old pond "
	}
	for name, tt := range map[string]struct {
		fault []haikutest.Fault
		step  time.Duration
		opts  Options
		by    string
	}{
		"the large one is well":              {nil, 8 * ms, Options{HedgeAfter: 60 * ms}, "large"},
		"it fails at once":                   {[]haikutest.Fault{{Kind: haikutest.Fail}}, 8 * ms, Options{}, "small"},
		"it has no memory":                   {[]haikutest.Fault{{Kind: haikutest.OutOfMemory}}, 8 * ms, Options{}, "small"},
		"it panics":                          {[]haikutest.Fault{{Kind: haikutest.Panic}}, 8 * ms, Options{}, "small"},
		"it stalls, within a budget":         {[]haikutest.Fault{{Kind: haikutest.Stall}}, 8 * ms, Options{FirstToken: 60 * ms}, "small"},
		"it stalls, beside a hedge":          {[]haikutest.Fault{{Kind: haikutest.Stall}}, 8 * ms, Options{HedgeAfter: 60 * ms}, "small"},
		"it is slow, beside a hedge":         {nil, 400 * ms, Options{HedgeAfter: 60 * ms}, "small"},
		"it is slow, and the client says so": {nil, 400 * ms, Options{}, "small"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				large := engine(t, "large", tt.step, 250*time.Microsecond, tt.fault...)
				c := newChain(t, tt.opts, large, engine(t, "small", 4*ms, 100*time.Microsecond))
				var objective haiku.Objective
				if name == "it is slow, and the client says so" {
					objective.TTFT = limit
				}
				for i := range 20 { // the breaker opens on the way, and no prompt has been computed before
					a, first, _ := timed(haiku.WithLogger(t.Context(), discard), c, &haiku.Request{
						Objective: objective, Messages: []haiku.Message{{Role: haiku.RoleUser, Content: fmt.Sprint(i, " ", prompt)}},
					})
					require.NoError(t, a.err)
					require.LessOrEqual(t, first, limit)
					if tt.by == "large" {
						require.Equal(t, "large", a.model)
					}
				}
				require.Equal(t, tt.by, map[bool]string{true: "large", false: "small"}[c.Stats()[0].Served > 0])
			})
		})
	}
}

func TestAClientsObjectiveIsSharedByTheModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := does("large", takes(80*ms), says("large"), ends())
		c := newChain(t, Options{}, large, does("small", takes(20*ms), says("small"), ends()))
		for objective, want := range map[time.Duration]time.Duration{0: 80 * ms, time.Second: 80 * ms, 100 * ms: 70 * ms, ms: 20*ms + 500*time.Microsecond} {
			_, first, _ := timed(t.Context(), c, &haiku.Request{Objective: haiku.Objective{TTFT: objective}})
			require.Equal(t, want, first)
		}
	})
}

func TestWithNobodyToStandInABudgetIsNone(t *testing.T) {
	for name, o := range map[string]Options{"budget": {}, "hedge": {HedgeAfter: 10 * ms}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := func() *script { return does("large", takes(10*time.Second), says("at last"), ends()) }
				for _, c := range []*Chain{
					newChain(t, o, slow()),
					newChain(t, o, does("x", errs(errBroken)), slow()),
				} {
					a, first, _ := timed(haiku.WithLogger(t.Context(), discard), c, &haiku.Request{})
					require.NoError(t, a.err)
					require.Equal(t, 10*time.Second, first)
				}
				c := newChain(t, o, slow(), small())
				for range 5 {
					call := must(t, c.Breaker(1))
					call.Done(Outcome{Class: Failed})
				}
				_, first, _ := timed(t.Context(), c, &haiku.Request{})
				require.Equal(t, 10*time.Second, first, "the one that would stand in is being left alone")
			})
		})
	}
}

func TestThreeModelsInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(t, Options{}, does("a", hangs()), does("b", says(""), errs(errBroken)), does("c", hangs()), small())
		a, _, last := timed(haiku.WithLogger(t.Context(), discard), c, &haiku.Request{})
		require.NoError(t, a.err)
		require.Equal(t, "small", a.model)
		require.Equal(t, 240*ms, last)
	})
	synctest.Test(t, func(t *testing.T) {
		c := newChain(t, Options{HedgeAfter: 10 * ms}, does("a", hangs()), does("b", hangs()), small())
		a, first, _ := timed(t.Context(), c, &haiku.Request{})
		require.Equal(t, "small", a.model)
		require.Equal(t, 20*ms, first)
	})
}

// flushedAt serves from c and returns the answer and when its last byte left.
func flushedAt(c *Chain) (body string, at time.Duration) {
	start := time.Now()
	w := haikutest.NewRecorder()
	w.OnFlush(func(int) { at = time.Since(start) })
	serve(w, c)
	return w.Body(), at
}

func TestWhoDoesNotListenKeepsNoClientWaiting(t *testing.T) {
	deaf := func() *script { return does("large", hears(time.Hour), says("at last"), ends()) }
	synctest.Test(t, func(t *testing.T) {
		c := newChain(t, Options{}, deaf(), small())
		start := time.Now()
		body, at := flushedAt(c)
		require.Contains(t, body, "[DONE]")
		require.Equal(t, 120*ms, at)
		require.Equal(t, time.Hour, time.Since(start), "what runs is waited for")
		require.EqualValues(t, 1, c.Stats()[0].Failed)
	})
	synctest.Test(t, func(t *testing.T) {
		body, at := flushedAt(newChain(t, Options{}, deaf(), does("small", errs(errBroken))))
		require.Contains(t, body, `"code":"overloaded"`)
		require.Equal(t, 120*ms, at)
	})
	synctest.Test(t, func(t *testing.T) {
		large := does("large", says("a"), hears(time.Hour), says("b"), ends())
		c := newChain(t, Options{Stall: 4 * time.Second}, large, small())
		body, at := flushedAt(c)
		require.Equal(t, 4500*ms, at, "the stall, a look more, and the error event")
		require.Contains(t, body, `"code":"timeout"`)
		require.EqualValues(t, 1, c.Stats()[0].Failed)
	})
}

func TestHedgesAreFewWhenTheFirstIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		small := small()
		c := newChain(t, Options{HedgeAfter: 40 * ms}, does("large", takes(20*ms), says("x"), takes(time.Second), ends()), small)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { _ = ask(t.Context(), c, &haiku.Request{}) })
		}
		all.Wait()
		runs, _ := small.count()
		require.Zero(t, runs)
		require.EqualValues(t, 100, c.Stats()[0].OK, fmt.Sprintf("%+v", c.Stats()))
	})
}

// TestTimersRestWhenNothingIsLeftToTry is about times that have passed when there
// is nothing to do about them: a timer that came back at once would keep this test,
// and a processor, from ever ending.
func TestTimersRestWhenNothingIsLeftToTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the client has left, and the model does not listen
		c := newChain(t, Options{}, does("large", hears(time.Minute), ends()), small())
		ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
		defer cancel()
		a, _, _ := timed(ctx, c, &haiku.Request{})
		require.ErrorIs(t, a.err, context.DeadlineExceeded)
		runs, _ := c.members[1].model.(*script).count()
		require.Zero(t, runs)
	})
	synctest.Test(t, func(t *testing.T) { // a model that is judged after another has begun to answer
		c := newChain(t, Options{HedgeAfter: 20 * ms}, does("a", errs(errBroken)), does("b", hangs()), does("c", takes(10*ms), says("x"), takes(time.Second), ends()))
		c.members[1].stats.overtaken.Store(judgedEach - 1)
		a, first, _ := timed(haiku.WithLogger(t.Context(), discard), c, &haiku.Request{})
		require.NoError(t, a.err)
		require.Equal(t, 30*ms, first)
		require.EqualValues(t, 1, c.Stats()[1].Failed)
	})
}

// rude is a model that panics where nobody expects it.
type rude struct{ *script }

func (rude) TakesExtensions(*haiku.Request) error { panic("rude") }

func TestWhatPanicsBesideGenerateIsAFailureToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		second := small()
		c := newChain(t, Options{HedgeAfter: 10 * ms}, &able{script: does("large", takes(50*ms), says("x"), ends())}, rude{second}, &able{script: small()})
		a, first, _ := timed(t.Context(), c, &haiku.Request{Extensions: calling})
		require.NoError(t, a.err)
		require.Equal(t, 10*ms, first)
		runs, _ := second.count()
		require.Zero(t, runs)
	})
	synctest.Test(t, func(t *testing.T) {
		c := newChain(t, Options{
			Breaker: BreakerOptions{OpenFor: time.Second, Policies: []Policy{Consecutive{Failures: 1}}},
			Observe: func(context.Context, string) (context.Context, func(Attempt)) { panic("rude") },
		}, does("large", ends()))
		fail(t, c.Breaker(0), 1)
		elapse(time.Second)
		for range 3 {
			var p *haiku.PanicError
			require.ErrorAs(t, ask(t.Context(), c, &haiku.Request{}).err, &p)
			require.Equal(t, HalfOpen, c.Breaker(0).Status().State, "and the permit is back")
		}
	})
}

// pensive is a model that takes its time to say what it takes.
type pensive struct {
	*script
	takes time.Duration
}

func (p pensive) TakesExtensions(*haiku.Request) error {
	elapse(p.takes)
	return nil
}

func TestWhoIsReadyTooLateIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		second := small()
		c := newChain(t, Options{HedgeAfter: 40 * ms, Breaker: BreakerOptions{Policies: []Policy{Consecutive{Failures: 1}}}}, &able{script: does("large", takes(45*ms), says("x"), takes(time.Second), ends())}, pensive{second, 10 * ms})
		fail(t, c.Breaker(1), 1)
		elapse(5 * time.Minute)
		a, _, _ := timed(t.Context(), c, &haiku.Request{Extensions: calling})
		require.Equal(t, "x", a.text)
		runs, _ := second.count()
		require.Zero(t, runs)
		require.Equal(t, HalfOpen, c.Breaker(1).Status().State)
		must(t, c.Breaker(1)) // the permit is back
	})
}

func TestOneModelIsPreparedWhileAnotherFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		third := small()
		c := newChain(t, Options{}, &able{script: does("large", takes(125*ms), errs(errBroken))}, pensive{does("second", says("x"), ends()), 10 * ms}, &able{script: third})
		a, first, _ := timed(haiku.WithLogger(t.Context(), discard), c, &haiku.Request{Extensions: calling})
		require.NoError(t, a.err)
		require.Equal(t, "second", a.model)
		require.Equal(t, 130*ms, first)
		runs, _ := third.count()
		require.Zero(t, runs, "the second is on its way")
	})
}

func TestWhatTheFirstSaysOfTheRequestHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		small := does("small", takes(time.Second), says("x"), ends())
		c := newChain(t, Options{HedgeAfter: 40 * ms}, does("large", takes(60*ms), errs(haiku.ErrInvalidRequest)), small)
		a, _, last := timed(t.Context(), c, &haiku.Request{})
		require.ErrorIs(t, a.err, haiku.ErrInvalidRequest)
		require.Equal(t, 60*ms, last)
		_, err := small.last()
		require.ErrorIs(t, err, context.Canceled)
	})
	synctest.Test(t, func(t *testing.T) { // and what another says does not hold against it
		c := newChain(t, Options{HedgeAfter: 40 * ms}, does("large", takes(60*ms), says("x"), ends()), does("small", errs(haiku.ErrInvalidRequest)))
		a, _, _ := timed(t.Context(), c, &haiku.Request{})
		require.NoError(t, a.err)
		require.Equal(t, "x", a.text)
	})
}

func TestAModelThatEndsItsGoroutineIsFollowedByTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(t, Options{}, does("large", hangs()), does("second", also(runtime.Goexit)), small())
		a, first, _ := timed(haiku.WithLogger(t.Context(), discard), c, &haiku.Request{})
		require.NoError(t, a.err)
		require.Equal(t, "small", a.model)
		require.Equal(t, 120*ms, first)
	})
}

func TestARefusalForTheClientsHurryCountsForNobody(t *testing.T) {
	for objective, want := range map[time.Duration]Class{0: Rejected, 10 * ms: Neutral, time.Second: Rejected} {
		var seen attempts
		c := newChain(t, Options{Observe: seen.observe}, does("large", errs(haiku.ErrTooBusy)), small())
		_ = ask(t.Context(), c, &haiku.Request{Objective: haiku.Objective{TTFT: objective}})
		require.Equal(t, want, seen.all[0].Outcome.Class)
	}
}
