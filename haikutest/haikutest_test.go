package haikutest

import (
	"context"
	"errors"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/infer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheFakeKeepsTheExecutorsContract(t *testing.T) {
	TestExecutor(t, func(*testing.T) infer.Executor { return New(Config{}) })
}

// broken is a fake with one rule of the contract broken.
type broken struct {
	*Executor
	spec  func(infer.Spec) infer.Spec
	step  func(ctx context.Context, b *infer.Batch, good func() error) error
	close func() error
}

func (b *broken) Spec() infer.Spec {
	if b.spec != nil {
		return b.spec(b.Executor.Spec())
	}
	return b.Executor.Spec()
}

func (b *broken) Step(ctx context.Context, batch *infer.Batch) error {
	good := func() error { return b.Executor.Step(ctx, batch) }
	if b.step != nil {
		return b.step(ctx, batch, good)
	}
	return good()
}

func (b *broken) Close() error {
	if b.close != nil {
		return b.close()
	}
	return b.Executor.Close()
}

// after runs a good step and then spoils its logits.
func after(spoil func(it *infer.Item, n int)) func(context.Context, *infer.Batch, func() error) error {
	steps := 0
	return func(_ context.Context, b *infer.Batch, good func() error) error {
		steps++
		err := good()
		for i := range b.Items {
			if b.Items[i].Logits != nil && b.Items[i].Err == nil {
				spoil(&b.Items[i], steps*100+len(b.Items))
			}
		}
		return err
	}
}

func TestTheSuiteFindsEachBrokenRule(t *testing.T) {
	closed := false
	for rule, mend := range map[string]func(*broken){
		"the spec has positive sizes": func(b *broken) {
			b.spec = func(s infer.Spec) infer.Spec { s.Name = ""; return s }
		},
		"how a prompt is cut into chunks": func(b *broken) {
			b.step = after(func(it *infer.Item, _ int) { it.Logits[0] += float32(it.Start) })
		},
		"the rest of the batch": func(b *broken) {
			b.step = after(func(it *infer.Item, n int) { it.Logits[0] += float32(n % 100) })
		},
		"where the blocks lie": func(b *broken) {
			b.step = after(func(it *infer.Item, _ int) { it.Logits[0] += float32(it.Blocks[0] % 10) })
		},
		"a step may be repeated": func(b *broken) {
			b.step = after(func(it *infer.Item, n int) { it.Logits[0] += float32(n / 100) })
		},
		"a bad item fails alone": func(b *broken) {
			b.step = func(_ context.Context, batch *infer.Batch, good func() error) error {
				err := good()
				for i := range batch.Items {
					if batch.Items[i].Err != nil {
						return batch.Items[i].Err
					}
				}
				return err
			}
		},
		"a step ends with its context": func(b *broken) {
			b.step = func(ctx context.Context, _ *infer.Batch, good func() error) error {
				if ctx.Err() != nil {
					return errors.New("something else")
				}
				return good()
			}
		},
		"Close may be called twice": func(b *broken) {
			b.close = func() error {
				if closed {
					return errors.New("twice")
				}
				closed = true
				return nil
			}
		},
	} {
		t.Run(rule, func(t *testing.T) {
			closed = false
			err := CheckExecutor(func() (infer.Executor, error) {
				b := &broken{Executor: New(Config{})}
				mend(b)
				return b, nil
			})
			require.ErrorContains(t, err, rule)
		})
	}
	require.Error(t, CheckExecutor(func() (infer.Executor, error) { return nil, errors.New("no device") }))
}

func talker() Config {
	return Config{
		Pieces: []string{"one ", "two ", "three"},
		Answer: func(string) []string { return []string{"one ", "two ", "three"} },
	}
}

func TestAnEngineOverTheFakeKeepsTheModelsContract(t *testing.T) {
	chat := &haiku.Request{Messages: []haiku.Message{{Role: haiku.RoleUser, Content: "count"}}, Choices: 2}
	TestModel(t, func(t *testing.T) haiku.Model { return NewEngine(t, New(talker()), infer.Options{}) },
		chat, &haiku.Request{Prompt: "x", MaxTokens: 1 << 20})
}

func TestTheSuiteFindsEachBrokenModel(t *testing.T) {
	req := &haiku.Request{Prompt: "x"}
	good := func(w *haiku.StreamWriter) {
		w.SetUsage(haiku.Usage{PromptTokens: 1, CompletionTokens: 2})
		w.TryPush(haiku.Piece{ID: haiku.NoToken, Text: "a"})
		w.TryPush(haiku.Piece{ID: haiku.NoToken, Text: "b", Finish: haiku.FinishStop})
	}
	for rule, m := range map[string]haiku.ModelFunc{
		"every choice has a finish reason": func(_ context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
			w.TryPush(haiku.Piece{ID: haiku.NoToken, Text: "a"})
			return nil
		},
		"usage is set": func(_ context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
			good(w)
			w.SetUsage(haiku.Usage{})
			return nil
		},
		"ends the generation with its error": func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
			w.SetUsage(haiku.Usage{PromptTokens: 1, CompletionTokens: 2})
			w.TryPush(haiku.Piece{ID: haiku.NoToken, Text: "a"})
			if w.Request().Model == "" {
				timer := time.NewTimer(20 * time.Millisecond)
				defer timer.Stop()
				select {
				case <-ctx.Done():
					return errors.New("something else")
				case <-timer.C:
				}
			}
			w.TryPush(haiku.Piece{ID: haiku.NoToken, Text: "b", Finish: haiku.FinishStop})
			return nil
		},
		"a refusal is a haiku.Error": func(_ context.Context, w *haiku.StreamWriter, r *haiku.Request) error {
			if r.Model == "refuse" {
				return errors.New("plain")
			}
			good(w)
			return nil
		},
	} {
		t.Run(rule, func(t *testing.T) {
			err := CheckModel(t.Context(), m, req, &haiku.Request{Model: "refuse"})
			require.ErrorContains(t, err, rule)
		})
	}
}

func TestCostsPassInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := talker()
		cfg.Costs = Costs{Step: time.Second, PrefillToken: time.Millisecond, DecodeSequence: 10 * time.Millisecond}
		engine := NewEngine(t, New(cfg), infer.Options{})
		start := time.Now()
		stream := haiku.NewStream(t.Context(), engine, &haiku.Request{Prompt: "12345678" + AnswerMark})
		_, err := stream.Text()
		require.NoError(t, err)
		// One step for ten tokens of prompt, three for one token each.
		require.Equal(t, 4*time.Second+10*time.Millisecond+30*time.Millisecond, time.Since(start))
	})
}

func TestTheFakeReportsAnEngineThatBreaksTheContract(t *testing.T) {
	exec := New(Config{})
	ctx := t.Context()
	item := func(seq infer.SeqID, start int, blocks ...int32) *infer.Batch {
		return &infer.Batch{Items: []infer.Item{{Seq: seq, Start: start, Tokens: []int32{5}, Blocks: blocks}}}
	}
	require.NoError(t, exec.Step(ctx, item(1, 0, 0)))
	require.NoError(t, exec.Step(ctx, item(2, 0, 0)))
	require.NoError(t, exec.Step(ctx, item(1, 7, 0)))
	require.NoError(t, exec.Close())
	require.ErrorIs(t, exec.Step(ctx, item(1, 0, 0)), infer.ErrClosed)
	require.Equal(t, []string{
		"sequences 1 and 2 share block 0",
		"sequence 1: tokens from position 7 and 1 are computed",
		"Step after Close",
	}, exec.Violations())
}

func TestTheRecorderKeepsFlushesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder()
		start := time.Now()
		flushed := r.Flushed()
		rc := http.NewResponseController(r)
		r.Write([]byte("data: a\n\n: x\n\n"))
		require.Empty(t, r.Flushes())
		require.NoError(t, rc.Flush())
		<-flushed
		<-time.After(time.Second)
		r.Write([]byte("data: b\ndata: c\n\ndata: cut"))
		require.NoError(t, rc.Flush())
		require.Equal(t, []Flush{{start, "data: a\n\n: x\n\n"}, {start.Add(time.Second), "data: b\ndata: c\n\ndata: cut"}}, r.Flushes())
		require.Equal(t, []Event{{Data: "a"}, {Comment: "x"}, {Data: "bc"}}, r.Events())
		require.Equal(t, 200, r.Status())
	})
}

func TestAStalledRecorderFailsAtTheWriteDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder()
		r.Stall()
		require.NoError(t, http.NewResponseController(r).SetWriteDeadline(time.Now().Add(time.Minute)))
		start := time.Now()
		_, err := r.Write([]byte("x"))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(start))
		time.AfterFunc(time.Hour, r.Resume)
		require.NoError(t, http.NewResponseController(r).SetWriteDeadline(time.Time{}))
		_, err = r.Write([]byte("x"))
		require.NoError(t, err)
	})
}
