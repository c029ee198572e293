package cache

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// thinker is a Model that says more than text, if it is asked for it.
type thinker struct {
	model
	deltas []string
	finish haiku.FinishReason
}

func (*thinker) TakesExtensions(*haiku.Request) error { return nil }

func (m *thinker) Generate(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
	m.runs.Add(1)
	w.SetUsage(haiku.Usage{PromptTokens: 1, CompletionTokens: 1})
	for _, d := range m.deltas {
		if err := pause(ctx, m.step); err != nil {
			return err
		}
		if _, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Delta: []byte(d)}); err != nil {
			return err
		}
	}
	_, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: "pond", Delta: []byte(`"last":1`), Finish: m.finish})
	return err
}

// thought is an answer's text and its deltas, in order.
func thought(t *testing.T, c *Cached, req *haiku.Request) (all []string) {
	t.Helper()
	for tok, err := range haiku.NewStream(t.Context(), c, req).Tokens() {
		require.NoError(t, err)
		for _, s := range []string{tok.Delta, tok.Text} {
			if s != "" {
				all = append(all, s)
			}
		}
	}
	return all
}

func askMore(name, value string) *haiku.Request {
	req := ask("pond?")
	req.Extensions = []haiku.Extension{{Name: name, Value: []byte(value)}}
	return req
}

func TestDeltasAreKeptSharedAndToldToAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newMapShared()
		m := &thinker{model: model{step: time.Millisecond}, deltas: []string{`"reasoning_content":"h"`, `"reasoning_content":"m"`}, finish: haiku.FinishStop}
		open := func(policy Policy) *Cached {
			c := Through(m, tiers(t, Options{Store: newMapStore(), Shared: shared}), policy)
			t.Cleanup(c.Close)
			return c
		}
		c := open(Policy{})
		want := []string{`"reasoning_content":"h"`, `"reasoning_content":"m"`, `"last":1`, "pond"}
		req := askMore("reasoning_effort", `"low"`)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() { require.Equal(t, want, thought(t, c, req)) })
		}
		all.Wait()
		require.Equal(t, want, thought(t, c, req), "recalled")
		require.Equal(t, want, thought(t, open(Policy{}), req), "of another process")
		require.Equal(t, want, thought(t, open(Policy{Pace: time.Second}), req), "replayed")
		require.Equal(t, int64(1), m.runs.Load())
		thought(t, c, askMore("reasoning_effort", `"high"`))
		thought(t, c, ask("pond?"))
		require.Equal(t, int64(3), m.runs.Load(), "asked for in another way")
	})
}

// A call is not made again, whatever word its engine ends it with.
func TestCallsAreNotKept(t *testing.T) {
	for _, finish := range []haiku.FinishReason{haiku.FinishToolCalls, haiku.FinishStop} {
		m := &thinker{deltas: []string{`"tool_calls":[{"index":0,"id":"a"}]`}, finish: finish}
		c := Through(m, tiers(t, Options{}), Policy{})
		for range 2 {
			require.Len(t, thought(t, c, askMore("tools", "[{}]")), 3)
		}
		require.Equal(t, int64(2), m.runs.Load(), finish)
		c.Close()
	}
}

// Where a route leads decides whether what is asked for is there.
func TestExtensionsAreForTheModelThatARouteLeadsTo(t *testing.T) {
	plain, able := &model{}, &thinker{finish: haiku.FinishStop}
	for to, want := range map[string]error{"plain": haiku.ErrUnsupported, "able": nil} {
		table := Table{Version: to, Decide: func(context.Context, *haiku.Request) (Route, error) { return Route{Model: to}, nil }}
		c := Through(named{"plain": plain, "able": able}, tiers(t, Options{}), Policy{Routes: NewRoutes(table)})
		req := askMore("tools", "[{}]")
		req.Model = "any"
		for _, random := range []float64{0, 1} { // kept, and bypassing
			req.Sampling.Temperature = random
			_, err := haiku.NewStream(t.Context(), c, req).Text()
			require.ErrorIs(t, err, want, to)
		}
		c.Close()
	}
	c := Through(plain, tiers(t, Options{}), Policy{})
	defer c.Close()
	_, err := haiku.NewStream(t.Context(), c, askMore("tools", "[{}]")).Text()
	require.ErrorIs(t, err, haiku.ErrUnsupported)
	require.Zero(t, plain.runs.Load())
}

// named passes requests to the model of their name.
type named map[string]haiku.Model

func (n named) TakesExtensions(req *haiku.Request) error {
	return haiku.TakesExtensions(n[req.Model], req)
}

func (n named) Generate(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
	return n[req.Model].Generate(ctx, w, req)
}

func TestAFlightOwnsItsExtensions(t *testing.T) {
	req := askMore("tools", "[1]")
	req.Messages[0].Extensions = []haiku.Extension{{Name: "content", Value: []byte("[2]")}}
	kept := own(req)
	req.Extensions[0].Value[1], req.Messages[0].Extensions[0].Value[1] = '9', '9'
	req.Extensions[0].Name = "x"
	require.Equal(t, []haiku.Extension{{Name: "tools", Value: []byte("[1]")}}, kept.Extensions)
	require.Equal(t, []haiku.Extension{{Name: "content", Value: []byte("[2]")}}, kept.Messages[0].Extensions)
}
