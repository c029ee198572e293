package haikutest

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
	"github.com/intelliparadigm/haiku/infer"
)

func TestAnEngineOverTheFakeKeepsTheModelsContract(t *testing.T) {
	seed := uint64(7)
	chat := &haiku.Request{
		Messages: []haiku.Message{{Role: haiku.RoleUser, Content: "count"}}, Choices: 2, Stop: []string{"four"},
		Sampling: haiku.Sampling{Seed: &seed, Temperature: 1, LogitBias: map[int32]float32{5: -1}},
	}
	plain := &haiku.Request{PromptTokens: []int32{bosToken, 40, answerToken}}
	for name, req := range map[string]*haiku.Request{"chat": chat, "plain": plain} {
		t.Run(name, func(t *testing.T) {
			TestModel(t, func(t *testing.T) haiku.Model { return NewModel(t, "one ", "two ", "three") },
				req, &haiku.Request{Prompt: "x", MaxTokens: 1 << 20})
		})
	}
}

// unwilling is a good model: it says two words, slowly, and refuses the model
// name "refuse".
func unwilling(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
	if req.Model == "refuse" {
		return haiku.ErrModelNotFound
	}
	w.SetUsage(haiku.Usage{PromptTokens: 1, CompletionTokens: 1})
	if err := say(ctx, w, "a", ""); err != nil {
		return err
	}
	if err := wait(ctx, time.Second); err != nil {
		return err
	}
	w.SetUsage(haiku.Usage{PromptTokens: 1, CompletionTokens: 2})
	return say(ctx, w, "b", haiku.FinishStop)
}

func say(ctx context.Context, w *haiku.StreamWriter, text string, finish haiku.FinishReason) error {
	_, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: text, Finish: finish})
	return err
}

func TestTheSuiteIsContentWithAModelThatIsNoEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := CheckModel(t.Context(), haiku.ModelFunc(unwilling), &haiku.Request{Prompt: "x"}, &haiku.Request{Model: "refuse"})
		require.NoError(t, err)
	})
}

func TestTheSuiteFindsEachBrokenModel(t *testing.T) {
	for _, c := range []struct {
		name, says string
		model      haiku.ModelFunc
	}{
		{
			"has no end", "every choice has one finish reason and usage is set: ",
			func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
				return say(ctx, w, "a", "")
			},
		},
		{
			"says too little", "the request yields 1 tokens, too few for this suite",
			func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
				w.SetUsage(haiku.Usage{PromptTokens: 1, CompletionTokens: 1})
				return say(ctx, w, "a", haiku.FinishStop)
			},
		},
		{
			"does not count", "usage is set: usage is {PromptTokens:0 CompletionTokens:0 CachedTokens:0}",
			func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
				err := unwilling(ctx, w, req)
				w.SetUsage(haiku.Usage{})
				return err
			},
		},
		{
			"counts only what is complete", "what was used is counted: usage is {PromptTokens:0 CompletionTokens:0 CachedTokens:0} after a token",
			func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
				err := unwilling(ctx, w, req)
				if err != nil {
					w.SetUsage(haiku.Usage{})
				}
				return err
			},
		},
		{
			"changes the request", "the request is left as it was: it was &{",
			func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
				req.Prompt += "!"
				return unwilling(ctx, w, req)
			},
		},
		{
			"changes what the request points to", "the request is left as it was: it was &{",
			func() haiku.ModelFunc {
				var calls atomic.Int32 // the second is alone, so that the change is no race
				return func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
					if calls.Add(1) == 2 {
						req.Stop[0] += "!"
					}
					return unwilling(ctx, w, req)
				}
			}(),
		},
		{
			"serves one at a time", "many may call at once: busy",
			func() haiku.ModelFunc {
				var mu sync.Mutex
				return func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
					if !mu.TryLock() {
						return errors.New("busy")
					}
					defer mu.Unlock()
					return unwilling(ctx, w, req)
				}
			}(),
		},
		{
			"does not hear of a cancel", "leaving the loop ends the generation and what was used is counted: it has not ended after 1m0s",
			func(_ context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
				if err := unwilling(context.Background(), w, req); err != nil {
					<-time.After(time.Hour)
				}
				return nil
			},
		},
		{
			"has its own word for cancelled", "a context that ends while tokens come ends the generation with its error: Generate returns interrupted, want an error that matches context canceled",
			func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
				err := unwilling(ctx, w, req)
				if ctx.Err() != nil {
					err = errors.New("interrupted")
				}
				return err
			},
		},
		{
			"takes a cancel for success", "Generate returns <nil>, want an error that matches context canceled",
			func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
				err := unwilling(ctx, w, req)
				if ctx.Err() != nil {
					err = nil
				}
				return err
			},
		},
		{
			"takes a deadline for a cancel", "a context that has ended before ends the generation with its error: Generate returns context canceled, want an error that matches context deadline exceeded",
			func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
				if ctx.Err() != nil {
					return context.Canceled
				}
				return unwilling(ctx, w, req)
			},
		},
		{
			"refuses with any error", "a refusal is a haiku.Error before the first token: after 0 tokens Generate returns no",
			func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
				if req.Model == "refuse" {
					return errors.New("no")
				}
				return unwilling(ctx, w, req)
			},
		},
		{
			"refuses in the middle", "a refusal is a haiku.Error before the first token: after 1 tokens Generate returns haiku: the model does not exist",
			func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
				if req.Model == "refuse" {
					return errors.Join(say(ctx, w, "a", ""), haiku.ErrModelNotFound)
				}
				return unwilling(ctx, w, req)
			},
		},
		{
			"refuses with a status of success", "after 0 tokens Generate returns haiku: fine",
			func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
				if req.Model == "refuse" {
					return &haiku.Error{Status: 200, Message: "fine"}
				}
				return unwilling(ctx, w, req)
			},
		},
		{
			"does not refuse", "after 2 tokens Generate returns <nil>",
			func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
				return unwilling(ctx, w, &haiku.Request{})
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				req := &haiku.Request{Prompt: "x", Stop: []string{"stop"}}
				err := CheckModel(t.Context(), c.model, req, &haiku.Request{Model: "refuse"})
				require.ErrorContains(t, err, c.says)
				<-time.After(24 * time.Hour) // for the deaf to end as well
			})
		})
	}
}

func TestTheSuiteDoesNotTouchTheRequestItIsGiven(t *testing.T) {
	seed := uint64(1)
	request := func() *haiku.Request {
		return &haiku.Request{
			PromptTokens: []int32{bosToken, answerToken}, Stop: []string{"x"},
			Sampling: haiku.Sampling{Seed: &seed, LogitBias: map[int32]float32{9: 1}},
		}
	}
	req := request()
	require.NoError(t, CheckModel(t.Context(), NewModel(t, "a", "b"), req, nil))
	require.Equal(t, request(), req)
}

func TestAbilitiesAreSeenThroughTheWitness(t *testing.T) {
	engine := NewModel(t)
	found, ok := haiku.ModelAs[*infer.Engine](&witness{Model: engine})
	require.True(t, ok)
	require.Same(t, engine, found)
}

// knowing is a Model that is content to recall what it is told to.
type knowing struct {
	haiku.ModelFunc
	tokens []haiku.Token
	usage  haiku.Usage
}

func (k knowing) Recall(_ context.Context, w *haiku.StreamWriter, req *haiku.Request) ([]haiku.Token, bool) {
	w.SetUsage(k.usage)
	return k.tokens, req.Model == ""
}

func TestTheSuiteLooksAtWhatIsRecalled(t *testing.T) {
	usage := haiku.Usage{PromptTokens: 1, CompletionTokens: 2}
	whole := []haiku.Token{{Text: "a"}, {Text: "b", Finish: haiku.FinishStop}}
	for _, c := range []struct {
		name, says string
		model      knowing
	}{
		{"is good", "", knowing{unwilling, whole, usage}},
		{"has no end", "an answer that is recalled keeps these rules too: ", knowing{unwilling, whole[:1], usage}},
		{"does not count", "usage is {PromptTokens:0", knowing{unwilling, whole, haiku.Usage{}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := haiku.WithLogger(t.Context(), slog.New(slog.DiscardHandler))
				err := CheckModel(ctx, c.model, &haiku.Request{Prompt: "x"}, &haiku.Request{Model: "refuse"})
				if c.says == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, c.says)
				}
			})
		})
	}
}
