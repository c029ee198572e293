package fallback

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/openai"
)

var errBroken = errors.New("it is broken")

// small is the model that stands in, in most tests.
func small() *script { return does("small", says("from "), says("small"), ends()) }

// newChain returns a chain that is closed when the test, or its bubble, ends.
func newChain(t *testing.T, o Options, primary haiku.Model, secondary ...haiku.Model) *Chain {
	t.Helper()
	c, err := o.New(primary, secondary...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// chat asks for a chat completion over HTTP.
func chat(t *testing.T, m haiku.Model, stream bool) *haikutest.Recorder {
	t.Helper()
	body := `{"model":"large","messages":[{"role":"user","content":"x"}]`
	if stream {
		body += `,"stream":true`
	}
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(body+"}"))
	r = r.WithContext(haiku.WithLogger(r.Context(), haiku.LoggerFrom(t.Context())))
	w := haikutest.NewRecorder()
	openai.Handler(m).ServeHTTP(w, r)
	return w
}

// chunk is what is looked at in an event.
type chunk struct {
	ID, Model string
	Choices   []struct {
		Delta struct {
			Role    *string
			Content string
		}
		Finish *string `json:"finish_reason"`
	}
	Error *struct{ Code string }
}

// chunks are the events of an answer but [DONE], and whether that came.
func chunks(t *testing.T, w *haikutest.Recorder) (all []chunk, done bool) {
	for _, e := range w.Events() {
		if e.Data == "[DONE]" {
			done = true
			continue
		}
		require.False(t, done)
		var c chunk
		require.NoError(t, json.Unmarshal([]byte(e.Data), &c), e.Data)
		all = append(all, c)
	}
	return all, done
}

// TestACleanStreamFromTheModelThatStandsIn: until the first text the chain moves
// on, and nobody sees that it did.
func TestACleanStreamFromTheModelThatStandsIn(t *testing.T) {
	panics := also(func() { panic("at the disco") })
	for name, primary := range map[string][]step{
		"an error":                    {errs(errBroken)},
		"an HTTP error":               {errs(haiku.ErrOverloaded)},
		"no room":                     {errs(haiku.ErrTooBusy)},
		"a role, then an error":       {says(""), errs(errBroken)},
		"empty content and an error":  {says(""), says(""), takes(time.Millisecond), errs(errBroken)},
		"nothing for the budget":      {hangs()},
		"nothing, and does not hear":  {hears(time.Minute), errs(errBroken)},
		"a role, and nothing more":    {says(""), hangs()},
		"closes after nothing":        {errs(nil)},
		"a panic":                     {panics},
		"a panic after a role":        {says(""), panics},
		"its own timeout":             {errs(context.DeadlineExceeded)},
		"too slow by a little":        {takes(121 * time.Millisecond), says("late"), ends()},
		"empty for long, then speaks": {says(""), takes(121 * time.Millisecond), says("late"), ends()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				large, small := does("large", primary...), small()
				c := newChain(t, Options{}, large, small)
				w := chat(t, c, true)
				require.Equal(t, 200, w.Status())
				require.Equal(t, "small", w.Result().Header.Get("x-haiku-served-by"))
				all, done := chunks(t, w)
				require.True(t, done)
				text, roles := "", 0
				for _, ch := range all {
					require.Equal(t, all[0].ID, ch.ID)
					require.Equal(t, "small", ch.Model)
					require.Nil(t, ch.Error)
					for _, choice := range ch.Choices {
						text += choice.Delta.Content
						if choice.Delta.Role != nil {
							roles++
						}
					}
				}
				require.Equal(t, "from small", text)
				require.Equal(t, 1, roles)
				_, running := large.count()
				require.Zero(t, running, "it is waited for")
				require.NotContains(t, chat(t, c, false).Body(), "late")
			})
		})
	}
}

func TestAfterTheFirstTextNothingBeginsAnew(t *testing.T) {
	for name, tt := range map[string]struct {
		primary []step
		code    string
	}{
		"an error":       {[]step{says("two "), says("tokens"), errs(errBroken)}, "internal_error"},
		"no end":         {[]step{says("two "), says("tokens"), errs(nil)}, "internal_error"},
		"it stalls":      {[]step{says("two "), says("tokens"), hangs()}, "timeout"},
		"no room":        {[]step{says("two "), says("tokens"), errs(haiku.ErrOverloaded)}, "overloaded"},
		"a panic":        {[]step{says("two "), says("tokens"), also(func() { panic("x") })}, "internal_error"},
		"it ends itself": {[]step{says("two "), says("tokens"), also(runtime.Goexit)}, "internal_error"},
		"half of a call": {[]step{calls(`"{\"ci`), says("two "), says("tokens"), errs(errBroken)}, "internal_error"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				small := small()
				w := chat(t, newChain(t, Options{}, does("large", tt.primary...), small), true)
				require.Equal(t, 200, w.Status())
				all, done := chunks(t, w)
				require.False(t, done)
				text := ""
				for _, ch := range all[:len(all)-1] {
					require.Equal(t, "large", ch.Model)
					text += ch.Choices[0].Delta.Content
				}
				require.Equal(t, "two tokens", text)
				require.Equal(t, strings.HasPrefix(name, "half"), strings.Contains(w.Body(), "tool_calls"))
				require.Equal(t, tt.code, all[len(all)-1].Error.Code)
				runs, _ := small.count()
				require.Zero(t, runs)
			})
		})
	}
}

func TestAllFailedIsAProperStatus(t *testing.T) {
	retry := func(e *haiku.Error, after time.Duration) error {
		c := *e
		c.RetryAfter = after
		return &c
	}
	for name, tt := range map[string]struct {
		first, second error
		status        int
		retryAfter    string
	}{
		"both broken":             {errBroken, errBroken, 502, ""},
		"both have no room":       {retry(haiku.ErrTooBusy, time.Second), retry(haiku.ErrTooBusy, 7*time.Second), 429, "7"},
		"one has no room":         {retry(haiku.ErrTooBusy, 3*time.Second), errBroken, 503, "3"},
		"overloaded":              {errBroken, retry(haiku.ErrOverloaded, 2*time.Second), 503, "2"},
		"the longest of both":     {retry(haiku.ErrOverloaded, 9*time.Second), retry(haiku.ErrTooBusy, 2*time.Second), 503, "9"},
		"the second does not fit": {retry(haiku.ErrTooBusy, time.Second), haiku.ErrContextLength, 429, "1"},
		"the client's":            {haiku.ErrInvalidRequest, nil, 400, ""},
		"too long for the first":  {haiku.ErrContextLength, nil, 400, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, stream := range []bool{true, false} {
				c := newChain(t, Options{}, does("large", says(""), errs(tt.first)), does("small", says(""), errs(tt.second)))
				w := chat(t, c, stream)
				require.Equal(t, tt.status, w.Status(), w.Body())
				require.Equal(t, tt.retryAfter, w.Result().Header.Get("Retry-After"))
				require.Contains(t, w.Body(), `"error"`)
				require.NotContains(t, w.Body(), "broken", "why is the operator's to know")
			}
		})
	}
}

func TestTheClientsErrorsCountForNobody(t *testing.T) {
	large, small := does("large", errs(haiku.ErrInvalidRequest)), small()
	c := newChain(t, Options{}, large, small)
	for range 50 {
		a := ask(t.Context(), c, &haiku.Request{})
		require.ErrorIs(t, a.err, haiku.ErrInvalidRequest)
	}
	runs, _ := small.count()
	require.Zero(t, runs)
	require.Equal(t, Closed, c.Breaker(0).Status().State)
	require.EqualValues(t, 50, c.Stats()[0].Neutral)
}

func TestAModelAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(t, Options{}, does("large", errs(errBroken)))
		for range 5 {
			require.ErrorIs(t, ask(t.Context(), c, &haiku.Request{}).err, errBroken)
		}
		w := chat(t, c, true)
		require.Equal(t, 503, w.Status())
		require.Equal(t, "300", w.Result().Header.Get("Retry-After"))
		require.Nil(t, c.Breaker(1))
		require.Nil(t, c.Breaker(-1))
	})
}

func TestAnOpenBreakerGoesStraightToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large, small := does("large", hangs()), small()
		c := newChain(t, Options{}, large, small)
		for i := range 20 {
			start := time.Now()
			require.Equal(t, "from small", ask(t.Context(), c, &haiku.Request{}).text)
			if i >= 2 {
				require.Zero(t, time.Since(start), "it opened for the second late token")
			}
		}
		runs, _ := large.count()
		require.Equal(t, 2, runs)
		require.EqualValues(t, 18, c.Stats()[0].Refused)
		elapse(5 * time.Minute)
		large.steps = small.steps
		require.Equal(t, "from small", ask(t.Context(), c, &haiku.Request{}).text)
		require.Equal(t, 0.1, c.Breaker(0).Status().Share)
	})
}

// TestAModelIsJudgedByTheEndOfItsStreams: what opens well and ends badly is no
// success.
func TestAModelIsJudgedByTheEndOfItsStreams(t *testing.T) {
	for name, steps := range map[string][]step{
		"closes after nothing":  {errs(nil)},
		"closes after three":    {says("a"), says("b"), says("c"), errs(nil)},
		"one token in 20 s":     {says("a"), takes(20 * time.Second), says("b"), takes(20 * time.Second), says("c"), ends()},
		"ends at once":          {says(""), errs(nil)},
		"an error in the midst": {says("a"), errs(errBroken)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newChain(t, Options{Breaker: BreakerOptions{Policies: []Policy{Consecutive{}}}}, does("large", steps...))
				for i := range 5 {
					require.Equal(t, Closed, c.Breaker(0).Status().State)
					require.Error(t, ask(t.Context(), c, &haiku.Request{}).err)
					require.EqualValues(t, i+1, c.Stats()[0].Failed, "one failure each")
				}
				require.Equal(t, Open, c.Breaker(0).Status().State)
			})
		})
	}
}

func TestClientsThatLeaveCountForNobody(t *testing.T) {
	one := []step{says("a"), hangs()}
	for name, leave := range map[string]func(ctx context.Context, c *Chain){
		"after one token": func(ctx context.Context, c *Chain) {
			for range haiku.NewStream(ctx, c, &haiku.Request{}).Tokens() {
				return
			}
		},
		"a deadline of their own": func(ctx context.Context, c *Chain) {
			ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			_ = ask(ctx, c, &haiku.Request{})
		},
		"ended by a sibling of ours": func(ctx context.Context, c *Chain) {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			time.AfterFunc(100*time.Millisecond, func() { cancel(errors.New("somebody else was faster")) })
			_ = ask(ctx, c, &haiku.Request{})
		},
		"in a hurry of their own": func(ctx context.Context, c *Chain) {
			_ = ask(ctx, c, &haiku.Request{Objective: haiku.Objective{TTFT: 2 * time.Millisecond}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				steps := one
				if strings.HasPrefix(name, "in a hurry") {
					steps = []step{takes(50 * time.Millisecond), says("a"), ends()}
				}
				c := newChain(t, Options{Breaker: BreakerOptions{Policies: []Policy{Consecutive{Failures: 1}, ErrorRate{Least: 1}}}}, does("large", steps...), small())
				for range 20 {
					leave(t.Context(), c)
				}
				require.Equal(t, Closed, c.Breaker(0).Status().State)
				s := c.Stats()[0]
				require.EqualValues(t, 20, s.Neutral, "%+v", s)
				require.Zero(t, s.Status.Recent)
			})
		})
	}
}

func TestTheModelsOwnTimeoutsCount(t *testing.T) {
	for name, steps := range map[string][]step{
		"first token": {hangs()},
		"stall":       {says("a"), hangs()},
		"its words":   {says("a"), errs(errors.New("operation was aborted"))},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newChain(t, Options{Breaker: BreakerOptions{Policies: []Policy{Consecutive{Failures: 20}}}}, does("large", steps...), small())
				for range 20 {
					require.Equal(t, Closed, c.Breaker(0).Status().State)
					_ = ask(t.Context(), c, &haiku.Request{})
				}
				require.Equal(t, Open, c.Breaker(0).Status().State)
			})
		})
	}
}

func TestLeavingRightAfterTheEndIsASuccess(t *testing.T) {
	m := does("large", says("a"), ends())
	slowEnd := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
		if err := m.Generate(ctx, w, req); err != nil {
			return err
		}
		<-ctx.Done() // it would tidy up
		return ctx.Err()
	})
	c := newChain(t, Options{}, slowEnd)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for tok := range haiku.NewStream(ctx, c, &haiku.Request{}).Tokens() {
		if tok.Finish != "" {
			cancel()
		}
	}
	require.EqualValues(t, 1, c.Stats()[0].OK)
}

func TestASlowReaderMakesNoModelSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := []step{}
		for range 300 {
			steps = append(steps, takes(time.Millisecond), says("x"))
		}
		c := newChain(t, Options{}, does("large", append(steps, ends())...))
		for _, err := range haiku.NewStream(t.Context(), c, &haiku.Request{}).Tokens() {
			require.NoError(t, err)
			elapse(time.Second)
		}
		require.EqualValues(t, 1, c.Stats()[0].OK, "%+v", c.Stats()[0])
	})
}

func TestHowSlowAnAnswerIs(t *testing.T) {
	for name, tt := range map[string]struct {
		steps []step
		want  Outcome
	}{
		"in time":       {[]step{takes(100 * time.Millisecond), says("a"), takes(200 * time.Millisecond), says("b"), ends()}, Outcome{Class: OK, FirstToken: 100 * time.Millisecond, Gap: 200 * time.Millisecond}},
		"crawling":      {[]step{takes(10 * time.Millisecond), says("a"), takes(300 * time.Millisecond), says("b"), takes(200 * time.Millisecond), says("c"), ends()}, Outcome{Class: Slow, FirstToken: 10 * time.Millisecond, Gap: 250 * time.Millisecond}},
		"late":          {[]step{takes(150 * time.Millisecond), says("a"), ends()}, Outcome{Class: Slow, FirstToken: 150 * time.Millisecond}},
		"empty, by end": {[]step{takes(10 * time.Millisecond), ends()}, Outcome{Class: OK, FirstToken: 10 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got Attempt
				c := newChain(t, Options{Observe: func(ctx context.Context, model string) (context.Context, func(Attempt)) {
					return ctx, func(a Attempt) { got = a }
				}}, does("large", tt.steps...))
				require.NoError(t, ask(t.Context(), c, &haiku.Request{}).err)
				require.Equal(t, tt.want, got.Outcome)
				require.True(t, got.Served)
			})
		})
	}
}

func TestTheModelThatServesIsNamed(t *testing.T) {
	large, small := haikutest.NewModel(t, "a"), small()
	var r infer.Registry
	r.Add("alias", newChain(t, Options{Names: []string{"gpu"}}, large, small))
	w := chatFor(t, &r, "alias")
	require.Equal(t, "gpu", w.Result().Header.Get("x-haiku-served-by"), "as its operator calls it")
	require.Contains(t, w.Body(), `"model":"default"`, "as it calls itself")

	unnamed := haiku.ModelFunc(small.Generate)
	w = chat(t, newChain(t, Options{}, does("large", errs(errBroken)), unnamed), true)
	require.Equal(t, "small", w.Result().Header.Get("x-haiku-served-by"), "what it says itself")
	silent := haiku.ModelFunc(func(_ context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		w.Finish(0, haiku.FinishStop)
		return nil
	})
	w = chat(t, newChain(t, Options{}, does("large", errs(errBroken)), silent), true)
	require.Equal(t, "fallback-1", w.Result().Header.Get("x-haiku-served-by"))
}

func chatFor(t *testing.T, m haiku.Model, name string) *haikutest.Recorder {
	w := haikutest.NewRecorder()
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(`{"model":"`+name+`","stream":true,"messages":[{"role":"user","content":"x"}]}`))
	openai.Handler(m).ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Status(), w.Body())
	return w
}

func TestChainOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for name, o := range map[string]Options{
		"HedgeAfter": {HedgeAfter: -1},
		"Names":      {Names: []string{"a", "b", "c"}},
		"OpenFor":    {Breaker: BreakerOptions{OpenFor: -1}},
	} {
		_, err := o.New(small(), small())
		require.ErrorContains(t, err, name)
	}
}

// discard is a logger of nothing.
var discard = slog.New(slog.DiscardHandler)

// serve answers a chat request on w.
func serve(w http.ResponseWriter, m haiku.Model) {
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(`{"model":"large","stream":true,"messages":[{"role":"user","content":"x"}]}`))
	openai.Handler(m, haiku.Logging(discard)).ServeHTTP(w, r)
}

func TestAnAnswerByAStandInIsDegraded(t *testing.T) {
	for place, primary := range []haiku.Model{small(), does("large", errs(errBroken))} {
		stream := haiku.NewStream(haiku.WithLogger(t.Context(), slog.New(slog.DiscardHandler)), newChain(t, Options{}, primary, small()), &haiku.Request{Prompt: "x"})
		_, err := stream.Text()
		require.NoError(t, err)
		require.Equal(t, place > 0, stream.Degraded())
	}
}
