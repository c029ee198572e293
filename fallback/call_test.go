package fallback

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// TestACallThatIsThereAlreadyIsEndedOnEveryPath asks the breaker first, as a pool
// does, and looks at what the call has counted as.
func TestACallThatIsThereAlreadyIsEndedOnEveryPath(t *testing.T) {
	gone := func(ctx context.Context) context.Context {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx
	}
	stay := func(ctx context.Context) context.Context { return ctx }
	tools := &haiku.Request{Prompt: "x", Extensions: []haiku.Extension{{Name: "tools", Value: []byte("[]")}}}
	for name, c := range map[string]struct {
		model haiku.Model
		req   *haiku.Request
		ctx   func(context.Context) context.Context
		err   error
		want  Counts
	}{
		"good":           {model: does("m", takes(ms), says("a"), ends()), ctx: stay, want: Counts{OK: 1}},
		"fails":          {model: does("m", errs(errBroken)), ctx: stay, err: errBroken, want: Counts{Failed: 1}},
		"busy":           {model: does("m", errs(haiku.ErrTooBusy)), ctx: stay, err: haiku.ErrTooBusy, want: Counts{Rejected: 1}},
		"stalls":         {model: does("m", says("a"), hangs()), ctx: stay, err: ErrStalled, want: Counts{Failed: 1}},
		"slow":           {model: does("m", takes(time.Second), says("a"), ends()), ctx: stay, want: Counts{Slow: 1}},
		"panics":         {model: does("m", also(func() { panic("x") })), ctx: stay, want: Counts{Failed: 1}},
		"client's fault": {model: does("m", errs(haiku.ErrContextLength)), ctx: stay, err: haiku.ErrContextLength},
		"lacks tools":    {model: does("m"), req: tools, ctx: stay, err: haiku.ErrUnsupported},
		"client gone":    {model: does("m"), ctx: gone, err: context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				chain, err := Options{Names: []string{"server"}}.New(c.model)
				require.NoError(t, err)
				b := chain.Breaker(0)
				b.mu.Lock()
				b.core.enter(0, HalfOpen, "for the test") // there is one permit
				b.fast.Store(b.core.era << 1)
				b.mu.Unlock()
				call := must(t, b)
				refused(t, b)
				req := c.req
				if req == nil {
					req = &haiku.Request{Prompt: "x"}
				}
				around := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
					return chain.GenerateCall(c.ctx(ctx), w, req, call)
				})
				a := ask(t.Context(), around, &haiku.Request{Prompt: "x"})
				switch {
				case c.err != nil:
					require.ErrorIs(t, a.err, c.err)
				case name == "panics":
					var panicked *haiku.PanicError
					require.True(t, errors.As(a.err, &panicked))
				default:
					require.NoError(t, a.err)
					require.Equal(t, "m", a.model, "the name is the model's own affair")
				}
				if c.want.Total() == 0 {
					again := must(t, b) // the permit is back
					again.Done(Outcome{})
				}
				stats := chain.Stats()[0]
				require.Equal(t, c.want, Counts{OK: stats.OK, Slow: stats.Slow, Failed: stats.Failed, Rejected: stats.Rejected})
				require.Equal(t, c.want.OK == 1, b.Status().Share > 0, "a good probe is one that passed")
				chain.Close()
			})
		})
	}
}

func TestAnAttemptWithoutACallIsNotJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chain, err := Options{Breaker: BreakerOptions{Policies: []Policy{Consecutive{Failures: 1}}}}.New(does("m", errs(errBroken)))
		require.NoError(t, err)
		defer chain.Close()
		around := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
			return chain.GenerateCall(ctx, w, req, Call{})
		})
		require.ErrorIs(t, ask(t.Context(), around, &haiku.Request{Prompt: "x"}).err, errBroken)
		require.Equal(t, Closed, chain.Breaker(0).Status().State)
	})
}

func TestAnAnswerToACallNamesNobody(t *testing.T) {
	chain := newChain(t, Options{Names: []string{"server"}}, does("", says("a"), ends()))
	around := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
		call := must(t, chain.Breaker(0))
		return chain.GenerateCall(ctx, w, req, call)
	})
	w := chat(t, around, true)
	require.Empty(t, w.Result().Header.Get(HeaderServedBy))
	require.NotContains(t, w.Body(), "server")
}
