package haikutest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/infer"
)

func TestTheFakeKeepsTheExecutorsContract(t *testing.T) {
	for name, cfg := range map[string]Config{
		"bare":                {},
		"small blocks":        {BlockTokens: 1, Blocks: 160, ContextTokens: 40},
		"one block":           {BlockTokens: 64, Blocks: 4, MaxBatchTokens: 64},
		"with a script":       Says("one", "two"),
		"with a fault unseen": {Faults: []Fault{{Kind: Panic, Match: func(string) bool { return false }}}},
	} {
		t.Run(name, func(t *testing.T) {
			TestExecutor(t, func(*testing.T) infer.Executor { return New(cfg) })
		})
	}
}

// broken is a fake with one rule of the contract broken.
type broken struct {
	*Executor
	spec    func(infer.Spec) infer.Spec
	step    func(ctx context.Context, b *infer.Batch) error
	close   func() error
	release func(infer.SeqID)
}

func (b *broken) Spec() infer.Spec {
	if b.spec != nil {
		return b.spec(b.Executor.Spec())
	}
	return b.Executor.Spec()
}

func (b *broken) Step(ctx context.Context, batch *infer.Batch) error {
	if b.step != nil {
		return b.step(ctx, batch)
	}
	return b.Executor.Step(ctx, batch)
}

func (b *broken) Close() error {
	if b.close != nil {
		return b.close()
	}
	return b.Executor.Close()
}

func (b *broken) Release(seq infer.SeqID) {
	if b.release != nil {
		b.release(seq)
	}
	b.Executor.Release(seq)
}

// spoilt computes a batch and then spoils its logits.
func (b *broken) spoilt(spoil func(it *infer.Item, step, items int)) {
	steps := 0
	b.step = func(ctx context.Context, batch *infer.Batch) error {
		steps++
		err := b.Executor.Step(ctx, batch)
		for i := range batch.Items {
			if it := &batch.Items[i]; it.Logits != nil && it.Err == nil {
				spoil(it, steps, len(batch.Items))
			}
		}
		return err
	}
}

// Every way to break a rule is found by that rule, which says what it saw.
func TestTheSuiteFindsEachBrokenExecutor(t *testing.T) {
	for _, c := range []struct {
		name, rule, says string
		damage           func(*broken)
	}{
		{"has no name", "the spec has positive sizes", "no name", func(b *broken) {
			b.spec = func(s infer.Spec) infer.Spec { s.Name = ""; return s }
		}},
		{"is too small", "the spec has positive sizes", "too small", func(b *broken) {
			b.spec = func(s infer.Spec) infer.Spec { s.MaxBatchTokens = 63; return s }
		}},
		{"changes its mind", "the spec has positive sizes", "it was", func(b *broken) {
			b.spec = func(s infer.Spec) infer.Spec {
				s.Blocks -= b.Counts().Steps
				return s
			}
		}},
		{"depends on chunks", "how a prompt is cut into chunks", "chunks of 1", func(b *broken) {
			b.spoilt(func(it *infer.Item, _, _ int) { it.Logits[0] += float32(it.Start) })
		}},
		{"depends on the last bit of a sum", "how a prompt is cut into chunks", "to the bit", func(b *broken) {
			b.spoilt(func(it *infer.Item, _, _ int) {
				if it.Start > 0 {
					it.Logits[7] = -it.Logits[7] // 0 and -0 are equal, and differ
				}
			})
		}},
		{"depends on the batch", "the rest of the batch", "sequence of 33 tokens", func(b *broken) {
			b.spoilt(func(it *infer.Item, _, items int) { it.Logits[0] += float32(items) })
		}},
		{"depends on block numbers", "where the blocks lie", "logit 0", func(b *broken) {
			b.spoilt(func(it *infer.Item, _, _ int) { it.Logits[0] += float32(it.Blocks[0] % 10) })
		}},
		{"depends on its history", "a step may be repeated", "logit 0", func(b *broken) {
			b.spoilt(func(it *infer.Item, step, _ int) { it.Logits[0] += float32(step) })
		}},
		{"counts a repeated token twice", "a step may be repeated", "logit 0", func(b *broken) {
			seen := make(map[infer.SeqID]int)
			b.spoilt(func(it *infer.Item, _, _ int) {
				if it.Start+len(it.Tokens) <= seen[it.Seq] {
					it.Logits[0]++
				}
				seen[it.Seq] = it.Start + len(it.Tokens)
			})
		}},
		{"keeps the batch's tokens", "keeps no reference", "logit", func(b *broken) {
			kept := make(map[infer.SeqID][]int32)
			b.spoilt(func(it *infer.Item, _, _ int) {
				for i, id := range kept[it.Seq] {
					if want := (i*i*7+i*13+6*31)%(len(it.Logits)-3) + 3; len(kept[it.Seq]) == 19 && int(id) != want {
						it.Logits[1]++
					}
				}
				kept[it.Seq] = it.Tokens
			})
		}},
		{"keeps the batch's logits", "keeps no reference", "is written", func(b *broken) {
			var kept []float32
			b.spoilt(func(it *infer.Item, _, _ int) {
				if kept != nil {
					kept[3] = 3
				}
				if len(it.Tokens) == 19 {
					kept = it.Logits
				}
			})
		}},
		{"fails all for one", "a bad item fails alone", "the whole step fails", func(b *broken) {
			b.step = func(ctx context.Context, batch *infer.Batch) error {
				err := b.Executor.Step(ctx, batch)
				for i := range batch.Items {
					err = errors.Join(err, batch.Items[i].Err)
				}
				return err
			}
		}},
		{"computes what is not there", "a bad item fails alone", "a token beyond the vocabulary: no error", func(b *broken) {
			b.step = func(ctx context.Context, batch *infer.Batch) error {
				err := b.Executor.Step(ctx, batch)
				for i := range batch.Items {
					batch.Items[i].Err = nil
				}
				return err
			}
		}},
		{"blames the neighbour", "a bad item fails alone", "its neighbour fails", func(b *broken) {
			b.step = func(ctx context.Context, batch *infer.Batch) error {
				err := b.Executor.Step(ctx, batch)
				if batch.Items[0].Err != nil && len(batch.Items) > 1 {
					batch.Items[1].Err = batch.Items[0].Err
				}
				return err
			}
		}},
		{"panics at a bad item", "a bad item fails alone", "panic: out of range", func(b *broken) {
			b.step = func(ctx context.Context, batch *infer.Batch) error {
				if len(batch.Items[0].Tokens) == 0 {
					panic("out of range")
				}
				return b.Executor.Step(ctx, batch)
			}
		}},
		{"remembers the dead", "a released sequence leaves nothing behind", "logit 2", func(b *broken) {
			released := 0
			b.release = func(infer.SeqID) { released++ }
			b.spoilt(func(it *infer.Item, _, _ int) {
				if released > 1 {
					it.Logits[2]++
				}
			})
		}},
		{"panics at an unknown sequence", "a released sequence leaves nothing behind", "panic: who", func(b *broken) {
			b.release = func(seq infer.SeqID) {
				if seq == 77 {
					panic("who")
				}
			}
		}},
		{"has its own word for cancelled", "a step ends with its context", "not the context's", func(b *broken) {
			b.step = func(ctx context.Context, batch *infer.Batch) error {
				if ctx.Err() != nil {
					return errors.New("interrupted")
				}
				return b.Executor.Step(ctx, batch)
			}
		}},
		{"is spoilt by a cancel", "a step ends with its context", "logit 4", func(b *broken) {
			cancelled := false
			b.spoilt(func(it *infer.Item, _, _ int) {
				if cancelled {
					it.Logits[4]++
				}
			})
			step := b.step
			b.step = func(ctx context.Context, batch *infer.Batch) error {
				cancelled = cancelled || ctx.Err() != nil
				return step(ctx, batch)
			}
		}},
		{"closes once", "Close may be called twice", "twice", func(b *broken) {
			closed := false
			b.close = func() error {
				if closed {
					return errors.New("twice")
				}
				closed = true
				return b.Executor.Close()
			}
		}},
		{"knows blocks by their sequence", "a sequence can begin with", "no such sequence", func(b *broken) {
			begun := make(map[infer.SeqID]bool)
			b.step = func(ctx context.Context, batch *infer.Batch) error {
				for i := range batch.Items {
					if it := &batch.Items[i]; it.Start > 0 && !begun[it.Seq] {
						return errors.New("no such sequence")
					}
					begun[batch.Items[i].Seq] = true
				}
				return b.Executor.Step(ctx, batch)
			}
		}},
		{"copies a block too few", "sequences part", "tokens from position", func(b *broken) {
			b.step = func(ctx context.Context, batch *infer.Batch) error {
				for i := range batch.Items {
					batch.Items[i].Copy = false
				}
				return b.Executor.Step(ctx, batch)
			}
		}},
		{"steps after Close", "Close may be called twice", "Step after Close returns <nil>", func(b *broken) {
			b.close = func() error { return nil }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := CheckExecutor(func() (infer.Executor, error) {
				b := &broken{Executor: New(Config{})}
				c.damage(b)
				return b, nil
			})
			require.Error(t, err)
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if strings.Contains(line, c.rule) {
					require.Contains(t, line, c.says)
					return
				}
			}
			require.Fail(t, "the rule is not named", err.Error())
		})
	}
}

func TestAnExecutorThatCannotBeOpenedIsReported(t *testing.T) {
	noDevice := errors.New("no device")
	err := CheckExecutor(func() (infer.Executor, error) { return nil, noDevice })
	require.ErrorIs(t, err, noDevice)
}

func TestTheSuiteIsAGoodEngine(t *testing.T) {
	for _, check := range executorChecks {
		exec := New(Config{})
		require.NoError(t, check.on(exec))
		switch {
		case strings.HasPrefix(check.rule, "a bad item"):
			require.Len(t, exec.Violations(), 10, "each is the engine's fault")
		case strings.HasPrefix(check.rule, "Close"):
			require.Equal(t, []string{"Step after Close"}, exec.Violations())
		default:
			require.Empty(t, exec.Violations(), check.rule)
		}
	}
}
