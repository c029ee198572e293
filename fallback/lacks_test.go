package fallback

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
)

// able is a model of some abilities.
type able struct {
	*script
	extensions error
	infos      []haiku.ModelInfo
}

func (a *able) TakesExtensions(*haiku.Request) error { return a.extensions }

func (a *able) Models() []haiku.ModelInfo { return append(a.script.Models(), a.infos...) }

func TestNothingOfARequestIsDropped(t *testing.T) {
	tools := haiku.ErrUnsupported.With("tools", "no tools here")
	mask := haiku.NewTokenMask(10)
	scale := 1.0
	for name, tt := range map[string]struct {
		req    haiku.Request
		second able
		opts   Options
		served bool
	}{
		"anything":           {haiku.Request{Prompt: "x"}, able{}, Options{}, true},
		"an extension":       {haiku.Request{Prompt: "x", Extensions: calling}, able{extensions: tools}, Options{}, false},
		"tokens":             {haiku.Request{PromptTokens: []int32{1}}, able{}, Options{}, false},
		"a bias":             {haiku.Request{Sampling: haiku.Sampling{LogitBias: map[int32]float32{1: 1}}}, able{}, Options{}, false},
		"a mask":             {haiku.Request{Sampling: haiku.Sampling{Mask: mask}}, able{}, Options{}, false},
		"tokens of the same": {haiku.Request{PromptTokens: []int32{1}, Sampling: haiku.Sampling{Mask: mask, LogitBias: map[int32]float32{1: 1}}}, able{}, Options{SameTokens: true}, true},
		"too long":           {haiku.Request{PromptTokens: make([]int32, 90), MaxTokens: 11}, able{infos: nil}, Options{SameTokens: true}, false},
		"just fits":          {haiku.Request{PromptTokens: make([]int32, 90), MaxTokens: 10}, able{}, Options{SameTokens: true}, true},
		"an adapter":         {haiku.Request{Model: "poet"}, able{}, Options{}, false},
		"an adapter, scaled": {haiku.Request{Model: "unlisted", AdapterScale: &scale}, able{}, Options{}, false},
		"an adapter of both": {haiku.Request{Model: "poet"}, able{infos: []haiku.ModelInfo{{ID: "poet", Parent: "small"}}}, Options{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			busy := haiku.ErrTooBusy.With("", "no room")
			large := &able{script: does("large", errs(busy)), infos: []haiku.ModelInfo{{ID: "poet", Parent: "large"}}}
			second := tt.second
			second.script = small()
			c := newChain(t, tt.opts, large, limited{&second})
			a := ask(t.Context(), c, &tt.req)
			runs, _ := second.count()
			if tt.served {
				require.NoError(t, a.err)
				require.Equal(t, "small", a.model)
				require.Equal(t, 1, runs)
				return
			}
			require.ErrorIs(t, a.err, haiku.ErrTooBusy, "the request is good, and the first may answer it later")
			require.Zero(t, runs)
			require.EqualValues(t, 1, c.Stats()[1].Lacking)
		})
	}
}

// calling are extensions that ask for tools.
var calling = []haiku.Extension{{Name: "tools", Value: []byte(`[{"type":"function"}]`)}}

// limited is a model whose context holds 100 tokens.
type limited struct{ *able }

func (l limited) Models() []haiku.ModelInfo {
	all := l.able.Models()
	all[0].ContextTokens = 100
	return all
}

// knows is a model that takes one extension.
type knows struct {
	*script
	name string
}

func (k knows) TakesExtensions(req *haiku.Request) error {
	for _, e := range req.Extensions {
		if e.Name != k.name && !e.Optional {
			return haiku.ErrUnsupported.With(e.Name, "not here")
		}
	}
	return nil
}

// An optional extension that the first model heeds is needed of the others: they
// are no candidates if they would drop it. One that the first ignores is not.
func TestWhatTheFirstHeedsIsNotDroppedByTheNext(t *testing.T) {
	optional := []haiku.Extension{{Name: "other", Value: []byte("1"), Optional: true}, {Name: "guided_json", Value: []byte("{}"), Optional: true}}
	for name, tt := range map[string]struct {
		first, second haiku.Model
		served        bool
	}{
		"heeded by the first alone": {knows{does("large", errs(errBroken)), "guided_json"}, small(), false},
		"heeded by both":            {knows{does("large", errs(errBroken)), "guided_json"}, knows{small(), "guided_json"}, true},
		"heeded by none":            {does("large", errs(errBroken)), small(), true},
		"heeded by the second":      {does("large", errs(errBroken)), knows{small(), "guided_json"}, true},
	} {
		req := &haiku.Request{Prompt: "x", Extensions: optional}
		c := newChain(t, Options{}, tt.first, tt.second)
		require.NoError(t, c.TakesExtensions(req))
		a := ask(t.Context(), c, req)
		require.Equal(t, tt.served, a.err == nil, "%s: %v", name, a.err)
		require.True(t, req.Extensions[0].Optional && req.Extensions[1].Optional, "requests are not changed")
	}
}

func TestWhatTheFirstLacksTheNextMayHave(t *testing.T) {
	none := haiku.ErrUnsupported.With("tools", "no tools here")
	c := newChain(t, Options{}, &able{script: does("large", ends()), extensions: none}, &able{script: small()})
	require.NoError(t, c.TakesExtensions(&haiku.Request{Extensions: calling}))
	require.Equal(t, "small", ask(t.Context(), c, &haiku.Request{Extensions: calling}).model)

	c = newChain(t, Options{}, &able{script: does("large", ends()), extensions: none}, &able{script: small(), extensions: none})
	require.ErrorIs(t, c.TakesExtensions(&haiku.Request{Extensions: calling}), haiku.ErrUnsupported)
	require.ErrorIs(t, ask(t.Context(), c, &haiku.Request{Extensions: calling}).err, haiku.ErrUnsupported)
	require.Equal(t, Closed, c.Breaker(0).Status().State)
}

func TestWhatAModelRefusesItselfIsNoFailureOfIt(t *testing.T) {
	for _, lacks := range []error{haiku.ErrContextLength, haiku.ErrUnsupported, haiku.ErrModelNotFound} {
		last := small()
		c := newChain(t, Options{}, does("large", errs(errBroken)), does("tiny", errs(lacks)), last)
		a := ask(t.Context(), c, &haiku.Request{})
		require.NoError(t, a.err)
		require.Equal(t, "small", a.model)
		require.EqualValues(t, 1, c.Stats()[1].Neutral)
	}
	bad := newChain(t, Options{}, does("large", errs(errBroken)), does("tiny", errs(haiku.ErrInvalidRequest)), small())
	require.ErrorIs(t, ask(t.Context(), bad, &haiku.Request{}).err, haiku.ErrInvalidRequest, "that any model would say")
}

func TestTheNameAskedForIsTheFirstModels(t *testing.T) {
	engine := haikutest.NewEngine(t, haikutest.New(haikutest.Says("small")), infer.Options{Name: "small"})
	c := newChain(t, Options{}, does("large", errs(errBroken)), engine)
	req := &haiku.Request{Model: "large", Messages: []haiku.Message{{Role: haiku.RoleUser, Content: "x"}}}
	a := ask(t.Context(), c, req)
	require.NoError(t, a.err)
	require.Equal(t, "small", a.text)
	require.Equal(t, "large", req.Model)
}

// recalling is a model that may have its answer at hand.
type recalling struct {
	*script
	knows bool
}

func (r *recalling) Recall(context.Context, *haiku.StreamWriter, *haiku.Request) ([]haiku.Token, bool) {
	return []haiku.Token{{ID: haiku.NoToken, Text: "known"}, {ID: haiku.NoToken, Finish: haiku.FinishStop}}, r.knows
}

func TestWhatTheFirstHasAtHandNeedsNoBreaker(t *testing.T) {
	large := &recalling{does("large", errs(errBroken)), true}
	c := newChain(t, Options{}, large, small())
	fail(t, c.Breaker(0), 5)
	w := chat(t, c, true)
	require.Contains(t, w.Body(), "known")
	require.Equal(t, "large", w.Result().Header.Get(HeaderServedBy))
	require.EqualValues(t, 1, c.Stats()[0].Recalled)
	large.knows = false
	require.Equal(t, "small", chat(t, c, true).Result().Header.Get(HeaderServedBy))
	require.EqualValues(t, 1, c.Stats()[0].Recalled)
	require.Contains(t, chat(t, newChain(t, Options{}, small(), large), true).Body(), "from ", "the first has nothing at hand")
}

func TestAbilitiesBesideGenerateAreTheFirstModels(t *testing.T) {
	large := haikutest.NewModel(t, "x")
	c := newChain(t, Options{}, large, small())
	_, ok := haiku.ModelAs[haiku.Embedder](c)
	require.True(t, ok)
	l, ok := haiku.ModelAs[haiku.Lister](c)
	require.True(t, ok)
	require.Equal(t, large.Models(), l.Models())
	require.Same(t, large, c.Unwrap())
}

// TestAChainIsAModel runs the contract of Models over chains in each of their ways.
func TestAChainIsAModel(t *testing.T) {
	req := &haiku.Request{
		Choices: 2, MaxTokens: 20, Stop: []string{"never"},
		Messages: []haiku.Message{{Role: haiku.RoleUser, Content: "x"}},
	}
	refused := &haiku.Request{Messages: req.Messages, Model: "nobody", AdapterScale: new(float64)}
	answers := func(t *testing.T, name string) *infer.Engine {
		return haikutest.NewEngine(t, haikutest.New(haikutest.Says("a", " b", " c", " d")), infer.Options{Name: name})
	}
	fails := func(t *testing.T, kind haikutest.FaultKind) *infer.Engine {
		cfg := haikutest.Says("a", " b", " c", " d")
		cfg.Faults = []haikutest.Fault{{Kind: kind}}
		return haikutest.NewEngine(t, haikutest.New(cfg), infer.Options{Name: "large", Logger: discard})
	}
	never := Options{Breaker: BreakerOptions{Policies: []Policy{}}}
	hedged := Options{HedgeAfter: 1, Breaker: never.Breaker}
	for name, open := range map[string]func(t *testing.T) haiku.Model{
		"the first answers": func(t *testing.T) haiku.Model { return newChain(t, never, answers(t, "large"), answers(t, "small")) },
		"the first fails": func(t *testing.T) haiku.Model {
			return newChain(t, never, fails(t, haikutest.Fail), answers(t, "small"))
		},
		"the first is open": func(t *testing.T) haiku.Model {
			return newChain(t, Options{}, fails(t, haikutest.Fail), answers(t, "small"))
		},
		"the first stalls": func(t *testing.T) haiku.Model {
			return newChain(t, hedged, fails(t, haikutest.Stall), answers(t, "small"))
		},
		"both race": func(t *testing.T) haiku.Model { return newChain(t, hedged, answers(t, "large"), answers(t, "small")) },
		"one alone": func(t *testing.T) haiku.Model { return newChain(t, never, answers(t, "large")) },
		"a chain inside of one": func(t *testing.T) haiku.Model {
			return newChain(t, never, fails(t, haikutest.Fail), newChain(t, never, fails(t, haikutest.Fail), answers(t, "small")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			haikutest.TestModel(t, open, req, refused)
		})
	}
	require.NotNil(t, errors.Join(errBroken))
}
