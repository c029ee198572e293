package haikutest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/intelliparadigm/haiku/infer"
)

// step computes items and returns the first thing that went wrong.
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

// whole returns the logits after tokens, computed in one step in table 0, and
// releases the sequence.
func (r *executorRun) whole(tokens []int32) ([]float32, error) {
	it := r.item(r.sequence(), 0, tokens, r.table(0))
	err := r.step(it)
	r.exec.Release(it.Seq)
	return it.Logits, err
}

// stepWants computes one item and compares its logits.
func (r *executorRun) stepWants(want []float32, it infer.Item) error {
	if err := r.step(it); err != nil {
		return err
	}
	return same(want, it.Logits)
}

func same(want, got []float32) error {
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
			return fmt.Errorf("logit %d is %v, want %v to the bit", i, got[i], want[i])
		}
	}
	return nil
}

// fixedSpec asks for the spec while a step runs and after Close.
func (r *executorRun) fixedSpec() error {
	during := make(chan infer.Spec, 1)
	go func() { during <- r.exec.Spec() }()
	err := r.step(r.item(r.sequence(), 0, r.prompt(20, 0), r.table(0)))
	specs := []infer.Spec{<-during, r.exec.Spec()}
	if err := errors.Join(err, r.exec.Close()); err != nil {
		return err
	}
	for _, s := range append(specs, r.exec.Spec()) {
		if s != r.spec {
			return fmt.Errorf("it was %+v and is %+v", r.spec, s)
		}
	}
	return nil
}

func (r *executorRun) chunks() error {
	tokens := r.prompt(33, 1)
	want, err := r.whole(tokens)
	if err != nil {
		return err
	}
	for _, cut := range []int{1, 2, 5, 16, 31} {
		if err := r.inChunks(want, tokens, cut); err != nil {
			return fmt.Errorf("chunks of %d: %w", cut, err)
		}
	}
	return nil
}

// inChunks asks for the logits of every other chunk, and of the last.
func (r *executorRun) inChunks(want []float32, tokens []int32, cut int) error {
	seq := r.sequence()
	defer r.exec.Release(seq)
	for start := 0; start < len(tokens); start += cut {
		end := min(start+cut, len(tokens))
		it := r.item(seq, start, tokens[start:end], r.table(1))
		if end == len(tokens) {
			return r.stepWants(want, it)
		}
		if start/cut%2 == 0 {
			it.Logits = nil
		}
		if err := r.step(it); err != nil {
			return err
		}
	}
	return nil
}

// batches mixes prompts of several lengths with the second token of one.
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
		items = append(items, r.item(r.sequence(), 0, tokens, r.table(i)))
	}
	decode := &items[2]
	if err := r.step(r.item(decode.Seq, 0, decode.Tokens[:16], decode.Blocks)); err != nil {
		return err
	}
	decode.Start, decode.Tokens = 16, decode.Tokens[16:]
	slices.Reverse(items)
	if err := r.step(items...); err != nil {
		return err
	}
	slices.Reverse(items)
	for i := range items {
		if err := same(want[i], items[i].Logits); err != nil {
			return fmt.Errorf("sequence of %d tokens: %w", lengths[i], err)
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
	return r.stepWants(want, r.item(r.sequence(), 0, tokens, blocks))
}

// inherits begins sequences where another stands, beside it and after its
// release.
func (r *executorRun) inherits() error {
	tokens := r.prompt(33, 3)
	shared := 20 / r.spec.BlockTokens * r.spec.BlockTokens
	want, err := r.whole(tokens)
	if err != nil {
		return err
	}
	first := r.item(r.sequence(), 0, tokens[:20], r.table(1))
	if err := r.step(first); err != nil {
		return err
	}
	first.Start, first.Tokens = 20, tokens[20:]
	joined := func(n int) infer.Item {
		table := append(r.table(1)[:shared/r.spec.BlockTokens], r.table(n)...)
		return r.item(r.sequence(), shared, tokens[shared:], table[:r.perSequence()])
	}
	second := joined(2)
	if err := r.step(second, first); err != nil {
		return err
	}
	r.exec.Release(first.Seq)
	r.exec.Release(second.Seq)
	for who, got := range map[string]infer.Item{"the first": first, "beside it": second} {
		if err := same(want, got.Logits); err != nil {
			return fmt.Errorf("%s: %w", who, err)
		}
	}
	if err := r.stepWants(want, joined(3)); err != nil {
		return fmt.Errorf("after its release: %w", err)
	}
	return nil
}

// parts lets two sequences with a block in common go on differently.
func (r *executorRun) parts() error {
	if r.spec.BlockTokens == 1 {
		return nil
	}
	common := 20
	if common%r.spec.BlockTokens == 0 {
		common++
	}
	one := r.prompt(common+3, 4)
	two := slices.Clone(one)
	copy(two[common:], r.prompt(3, 9))
	var want [2][]float32
	for i, tokens := range [][]int32{one, two} {
		var err error
		if want[i], err = r.whole(tokens); err != nil {
			return err
		}
	}
	first := r.item(r.sequence(), 0, one[:common], r.table(1))
	if err := r.step(first); err != nil {
		return err
	}
	first.Start, first.Tokens = common, one[common:]
	at := common / r.spec.BlockTokens
	table := append(r.table(1)[:at], r.table(2)...)
	second := r.item(r.sequence(), common, two[common:], table[:r.perSequence()])
	second.Copy, second.CopyFrom = true, first.Blocks[at]
	for range 2 { // a step may be repeated
		if err := r.step(first, second); err != nil {
			return err
		}
		if err := errors.Join(same(want[0], first.Logits), same(want[1], second.Logits)); err != nil {
			return err
		}
	}
	return nil
}

// repeats does what an engine does to find a guilty item: the same batch again,
// and then each item alone. It also computes a sequence anew from its start.
func (r *executorRun) repeats() error {
	one, two := r.prompt(20, 4), r.prompt(12, 5)
	first, second := r.sequence(), r.sequence()
	if err := r.step(r.item(first, 0, one[:19], r.table(0))); err != nil {
		return err
	}
	batch := func() []infer.Item {
		return []infer.Item{r.item(first, 19, one[19:], r.table(0)), r.item(second, 0, two, r.table(1))}
	}
	want, again := batch(), batch()
	if err := r.step(want...); err != nil {
		return err
	}
	if err := r.step(again...); err != nil {
		return err
	}
	for i, alone := range batch() {
		if err := same(want[i].Logits, again[i].Logits); err != nil {
			return err
		}
		if err := r.stepWants(want[i].Logits, alone); err != nil {
			return fmt.Errorf("alone: %w", err)
		}
	}
	if err := r.stepWants(want[0].Logits, r.item(first, 0, one, r.table(0))); err != nil {
		return fmt.Errorf("from the start: %w", err)
	}
	return nil
}

// keepsNothing spoils a batch after its step, as an engine does that uses its
// slices again.
func (r *executorRun) keepsNothing() error {
	tokens := r.prompt(20, 6)
	want, err := r.whole(tokens)
	if err != nil {
		return err
	}
	first := r.item(r.sequence(), 0, slices.Clone(tokens[:19]), r.table(1))
	if err := r.step(first); err != nil {
		return err
	}
	clear(first.Tokens)
	copy(first.Blocks, r.table(2))
	clear(first.Logits)
	if err := r.stepWants(want, r.item(first.Seq, 19, tokens[19:], r.table(1))); err != nil {
		return err
	}
	for i, v := range first.Logits {
		if v != 0 {
			return fmt.Errorf("logit %d of the step before is written", i)
		}
	}
	return nil
}

// badItem is one that no executor can compute.
type badItem struct {
	fault string
	infer.Item
}

func (r *executorRun) bad() []badItem {
	tokens, blocks := r.prompt(8, 7), r.table(1)
	beyond, negative := r.table(1), r.table(1)
	beyond[0], negative[0] = int32(r.spec.Blocks), -1
	copied := r.item(0, 0, tokens, blocks)
	copied.Copy, copied.CopyFrom = true, int32(r.spec.Blocks)
	short := r.item(0, 0, tokens, blocks)
	short.Logits = short.Logits[1:]
	return []badItem{
		{"a token beyond the vocabulary", r.item(0, 0, []int32{int32(r.spec.VocabSize)}, blocks)},
		{"a negative token", r.item(0, 0, []int32{-1}, blocks)},
		{"a position beyond the context", r.item(0, r.spec.ContextTokens, tokens[:1], blocks)},
		{"a negative position", r.item(0, -1, tokens[:1], blocks)},
		{"a block that is not there", r.item(0, 0, tokens, beyond)},
		{"a negative block", r.item(0, 0, tokens, negative)},
		{"a copy of a block that is not there", copied},
		{"too few blocks", r.item(0, 0, tokens, nil)},
		{"no tokens", r.item(0, 0, nil, blocks)},
		{"too little room for logits", short},
	}
}

func (r *executorRun) badItems() error {
	tokens := r.prompt(8, 5)
	want, err := r.whole(tokens)
	if err != nil {
		return err
	}
	for _, bad := range r.bad() {
		bad.Seq = r.sequence()
		good := r.item(r.sequence(), 0, tokens, r.table(0))
		b := infer.Batch{Items: []infer.Item{bad.Item, good}}
		if err := r.exec.Step(context.Background(), &b); err != nil {
			return fmt.Errorf("%s: the whole step fails: %w", bad.fault, err)
		}
		if b.Items[0].Err == nil {
			return fmt.Errorf("%s: no error", bad.fault)
		}
		if b.Items[1].Err != nil {
			return fmt.Errorf("%s: its neighbour fails: %w", bad.fault, b.Items[1].Err)
		}
		if err := same(want, good.Logits); err != nil {
			return fmt.Errorf("%s: its neighbour changes: %w", bad.fault, err)
		}
		r.exec.Release(bad.Seq)
		r.exec.Release(good.Seq)
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
	for salt := range 5 {
		if _, err := r.whole(r.prompt(30, salt)); err != nil {
			return err
		}
		if err := r.stepWants(want, r.item(r.sequence(), 0, tokens, r.table(0))); err != nil { // in the same blocks
			return err
		}
		r.exec.Release(r.last)
		r.exec.Release(r.last) // unknown by now
	}
	return nil
}

// cancels interrupts a sequence and goes on with it.
func (r *executorRun) cancels() error {
	tokens := r.prompt(20, 7)
	want, err := r.whole(tokens)
	if err != nil {
		return err
	}
	seq := r.sequence()
	if err := r.step(r.item(seq, 0, tokens[:9], r.table(0))); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b := infer.Batch{Items: []infer.Item{r.item(seq, 9, tokens[9:], r.table(0))}}
	if err := r.exec.Step(ctx, &b); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("the error is not the context's: %w", err)
	}
	return r.stepWants(want, r.item(seq, 9, tokens[9:], r.table(0)))
}

func (r *executorRun) closes() error {
	first := r.item(r.sequence(), 0, r.prompt(4, 8), r.table(0))
	if err := r.step(first); err != nil {
		return err
	}
	for range 2 {
		if err := r.exec.Close(); err != nil {
			return err
		}
	}
	if err := r.step(first); !errors.Is(err, infer.ErrClosed) {
		return fmt.Errorf("Step after Close returns %v, want infer.ErrClosed", err)
	}
	r.exec.Release(first.Seq)
	return nil
}

// hiddenStates asks for them in one step and in chunks, with logits and
// without, beside another sequence.
func (r *executorRun) hiddenStates() error {
	size := r.spec.HiddenSize
	if size == 0 {
		return nil
	}
	tokens := r.prompt(20, 6)
	want, err := r.whole(tokens)
	if err != nil {
		return err
	}
	states := make([]float32, len(tokens)*size)
	it := r.item(r.sequence(), 0, tokens, r.table(0))
	it.Hidden = states
	if err := r.stepWants(want, it); err != nil {
		return err
	}
	seq, got := r.sequence(), make([]float32, len(states))
	for start := 0; start < len(tokens); start += 7 {
		end := min(start+7, len(tokens))
		chunk := r.item(seq, start, tokens[start:end], r.table(1))
		chunk.Hidden, chunk.Logits = got[start*size:end*size], nil
		other := r.item(r.sequence(), 0, tokens[:3], r.table(2))
		if err := r.step(chunk, other); err != nil {
			return err
		}
		r.exec.Release(other.Seq)
	}
	if err := same(states, got); err != nil {
		return fmt.Errorf("in chunks: %w", err)
	}
	if slices.Equal(states[:size], states[size:2*size]) {
		return errors.New("two tokens have the same state")
	}
	return nil
}
