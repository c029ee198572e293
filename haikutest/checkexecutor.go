package haikutest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/intelliparadigm/haiku/infer"
)

// TestExecutor runs the contract of infer.Executor as a test. open returns a
// new executor, with room for at least four sequences of 40 positions; the
// suite closes it.
func TestExecutor(t *testing.T, open func(t *testing.T) infer.Executor) {
	t.Helper()
	if err := CheckExecutor(func() (infer.Executor, error) { return open(t), nil }); err != nil {
		t.Error(err)
	}
}

// CheckExecutor returns what is wrong with an executor, nil for a good one.
func CheckExecutor(open func() (infer.Executor, error)) error {
	var all []error
	for _, check := range executorChecks {
		exec, err := open()
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		r := &executorRun{exec: exec, spec: exec.Spec()}
		if err := r.guarded(check.run); err != nil {
			all = append(all, fmt.Errorf("%s: %w", check.rule, err))
		}
		if err := exec.Close(); err != nil {
			all = append(all, fmt.Errorf("%s: close: %w", check.rule, err))
		}
	}
	return errors.Join(all...)
}

var executorChecks = []struct {
	rule string
	run  func(*executorRun) error
}{
	{"the spec has positive sizes", (*executorRun).sizes},
	{"logits do not depend on how a prompt is cut into chunks", (*executorRun).chunks},
	{"logits do not depend on the rest of the batch", (*executorRun).batches},
	{"logits do not depend on where the blocks lie", (*executorRun).scattered},
	{"a step may be repeated", (*executorRun).repeats},
	{"a bad item fails alone", (*executorRun).badItems},
	{"a released sequence leaves nothing behind", (*executorRun).releases},
	{"a step ends with its context", (*executorRun).cancels},
	{"Close may be called twice, and Step not after it", (*executorRun).closes},
}

// executorRun is one check on one executor.
type executorRun struct {
	exec infer.Executor
	spec infer.Spec
}

func (r *executorRun) guarded(check func(*executorRun) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return check(r)
}

// prompt makes n tokens that differ from other prompts' by salt.
func (r *executorRun) prompt(n, salt int) []int32 {
	ids := make([]int32, n)
	low := min(3, r.spec.VocabSize-1) // past the usual control tokens
	for i := range ids {
		ids[i] = int32(low + (i*i*7+i*13+salt*31)%(r.spec.VocabSize-low))
	}
	return ids
}

// table is the block table number n of sequences with up to 40 positions.
func (r *executorRun) table(n int) []int32 {
	per := (40 + r.spec.BlockTokens - 1) / r.spec.BlockTokens
	blocks := make([]int32, per)
	for i := range blocks {
		blocks[i] = int32(n*per + i)
	}
	return blocks
}

// item computes all of tokens from start on, with logits.
func (r *executorRun) item(seq infer.SeqID, start int, tokens, blocks []int32) infer.Item {
	return infer.Item{Seq: seq, Start: start, Tokens: tokens, Blocks: blocks, Logits: make([]float32, r.spec.VocabSize)}
}

func (r *executorRun) step(items ...infer.Item) error {
	b := infer.Batch{Items: items}
	if err := r.exec.Step(context.Background(), &b); err != nil {
		return fmt.Errorf("step: %w", err)
	}
	for i := range items {
		if items[i].Err != nil {
			return fmt.Errorf("item %d: %w", i, items[i].Err)
		}
	}
	return nil
}

// whole returns the logits after tokens, computed in one step and released.
func (r *executorRun) whole(tokens []int32) ([]float32, error) {
	it := r.item(1000, 0, tokens, r.table(0))
	err := r.step(it)
	r.exec.Release(1000)
	return it.Logits, err
}

func same(want, got []float32) error {
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
			return fmt.Errorf("logit %d is %v, want %v to the bit", i, got[i], want[i])
		}
	}
	return nil
}

func (r *executorRun) sizes() error {
	s := r.spec
	if s.Name == "" || s.VocabSize <= 0 || s.ContextTokens <= 0 || s.BlockTokens <= 0 || s.Blocks <= 0 {
		return fmt.Errorf("%+v", s)
	}
	if s.ContextTokens < 40 || s.Blocks < 4*len(r.table(0)) {
		return fmt.Errorf("too small for this suite: %+v", s)
	}
	return nil
}

func (r *executorRun) chunks() error {
	tokens := r.prompt(33, 1)
	want, err := r.whole(tokens)
	if err != nil {
		return err
	}
	for seq, cut := range []int{1, 2, 5, 16, 31} {
		id, last := infer.SeqID(seq), infer.Item{}
		for start := 0; start < len(tokens); start += cut {
			last = r.item(id, start, tokens[start:min(start+cut, len(tokens))], r.table(1))
			if err := r.step(last); err != nil {
				return fmt.Errorf("chunks of %d: %w", cut, err)
			}
		}
		r.exec.Release(id)
		if err := same(want, last.Logits); err != nil {
			return fmt.Errorf("chunks of %d: %w", cut, err)
		}
	}
	return nil
}

func (r *executorRun) batches() error {
	lengths := []int{33, 1, 17, 8}
	var items []infer.Item
	var want [][]float32
	for i, n := range lengths {
		tokens := r.prompt(n, i)
		logits, err := r.whole(tokens)
		if err != nil {
			return err
		}
		want = append(want, logits)
		items = append(items, r.item(infer.SeqID(i), 0, tokens, r.table(i)))
	}
	slices.Reverse(items)
	if err := r.step(items...); err != nil {
		return err
	}
	slices.Reverse(items)
	for i := range items {
		if err := same(want[i], items[i].Logits); err != nil {
			return fmt.Errorf("prompt of %d tokens: %w", lengths[i], err)
		}
	}
	return nil
}

func (r *executorRun) scattered() error {
	tokens := r.prompt(40, 3)
	want, err := r.whole(tokens)
	if err != nil {
		return err
	}
	blocks := r.table(3)
	slices.Reverse(blocks)
	it := r.item(1, 0, tokens, blocks)
	if err := r.step(it); err != nil {
		return err
	}
	return same(want, it.Logits)
}

func (r *executorRun) repeats() error {
	tokens := r.prompt(20, 4)
	first := r.item(1, 0, tokens[:19], r.table(0))
	if err := r.step(first); err != nil {
		return err
	}
	want := r.item(1, 19, tokens[19:], r.table(0))
	if err := r.step(want); err != nil {
		return err
	}
	for range 2 {
		again := r.item(1, 19, tokens[19:], r.table(0))
		if err := r.step(again); err != nil {
			return err
		}
		if err := same(want.Logits, again.Logits); err != nil {
			return err
		}
	}
	return nil
}

func (r *executorRun) badItems() error {
	tokens := r.prompt(8, 5)
	want, err := r.whole(tokens)
	if err != nil {
		return err
	}
	short := r.table(1)
	beyond := slices.Clone(short)
	beyond[0] = int32(r.spec.Blocks)
	for name, bad := range map[string]infer.Item{
		"a token beyond the vocabulary": r.item(2, 0, []int32{int32(r.spec.VocabSize)}, short),
		"a negative token":              r.item(2, 0, []int32{-1}, short),
		"a position beyond the context": r.item(2, r.spec.ContextTokens, tokens[:1], short),
		"a block that is not there":     r.item(2, 0, tokens, beyond),
		"too few blocks":                r.item(2, 0, tokens, nil),
		"no tokens":                     r.item(2, 0, nil, short),
	} {
		good := r.item(1, 0, tokens, r.table(0))
		b := infer.Batch{Items: []infer.Item{bad, good}}
		if err := r.exec.Step(context.Background(), &b); err != nil {
			return fmt.Errorf("%s: the whole step fails: %w", name, err)
		}
		if b.Items[0].Err == nil {
			return fmt.Errorf("%s: no error", name)
		}
		if b.Items[1].Err != nil {
			return fmt.Errorf("%s: its neighbour fails: %w", name, b.Items[1].Err)
		}
		if err := same(want, good.Logits); err != nil {
			return fmt.Errorf("%s: its neighbour changes: %w", name, err)
		}
		r.exec.Release(2)
		r.exec.Release(1)
	}
	return nil
}

func (r *executorRun) releases() error {
	r.exec.Release(77) // unknown
	tokens := r.prompt(12, 6)
	want, err := r.whole(tokens)
	if err != nil {
		return err
	}
	for seq := range infer.SeqID(5) {
		other := r.item(seq, 0, r.prompt(30, int(seq)), r.table(0))
		if err := r.step(other); err != nil {
			return err
		}
		r.exec.Release(seq)
		got, err := r.whole(tokens) // in the same blocks
		if err != nil {
			return err
		}
		if err := same(want, got); err != nil {
			return err
		}
	}
	return nil
}

func (r *executorRun) cancels() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b := infer.Batch{Items: []infer.Item{r.item(1, 0, r.prompt(4, 7), r.table(0))}}
	if err := r.exec.Step(ctx, &b); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("the error is not the context's: %w", err)
	}
	_, err := r.whole(r.prompt(4, 7))
	return err
}

func (r *executorRun) closes() error {
	if err := r.step(r.item(1, 0, r.prompt(4, 8), r.table(0))); err != nil {
		return err
	}
	for range 2 {
		if err := r.exec.Close(); err != nil {
			return err
		}
	}
	err := r.exec.Step(context.Background(), &infer.Batch{Items: []infer.Item{r.item(1, 0, r.prompt(4, 8), r.table(0))}})
	if !errors.Is(err, infer.ErrClosed) {
		return fmt.Errorf("Step after Close returns %v, want infer.ErrClosed", err)
	}
	return nil
}
