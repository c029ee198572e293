package cpu

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/internal/gguf"
	"github.com/intelliparadigm/haiku/internal/simd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sequence is one of several that a property test runs together.
type sequence struct {
	tokens  []int32
	done    int
	table   []int32
	adapter infer.AdapterID
	logits  []float32
	hidden  []float32 // [tokens][HiddenSize], or nil
}

// item returns n tokens from start on, with the results that are wanted.
func (s *sequence) item(id, start, n int, table []int32) infer.Item {
	item := infer.Item{
		Seq: infer.SeqID(id), Start: start, Tokens: s.tokens[start : start+n], Blocks: table,
		Adapter: s.adapter, AdapterScale: 0.5,
	}
	if start+n == len(s.tokens) {
		item.Logits = s.logits
	}
	if s.hidden != nil {
		size := len(s.hidden) / len(s.tokens)
		item.Hidden = s.hidden[start*size : (start+n)*size]
	}
	return item
}

// drawChunk returns the next chunk of a sequence, or none.
func (s *sequence) drawChunk(t *rapid.T, id, room int) (infer.Item, bool) {
	left := min(len(s.tokens)-s.done, room)
	if left == 0 || rapid.IntRange(0, 3).Draw(t, "waits") == 0 {
		return infer.Item{}, false
	}
	n := rapid.IntRange(1, left).Draw(t, "chunk")
	item := s.item(id, s.done, n, s.table)
	s.done += n
	return item, true
}

// Chunked = whole, batched = alone, with others' adapters or none, scattered =
// contiguous blocks of any length, and any number of threads, to the last bit.
func TestResultsDependOnTheSequenceAlone(t *testing.T) {
	for name, file := range propertyModels(t) {
		t.Run(name, func(t *testing.T) { checkIndependence(t, file) })
	}
}

// propertyModels are small models of every kind of layer and format.
func propertyModels(t *testing.T) map[string]*gguf.File {
	models := make(map[string]*gguf.File)
	for _, format := range []simd.Format{simd.F32, simd.F16, simd.Q8_0, simd.Q4_0} {
		cfg := smallConfig
		cfg.Format = format
		if format != simd.F32 {
			cfg.Dim, cfg.FFN = 64, 96
		}
		models[format.String()] = synthetic(t, cfg, nil)
	}
	for _, c := range architectureCases() {
		switch c.name {
		case "llama with experts", "qwen3", "gemma2", "gemma3":
			models[c.name] = synthetic(t, c.config, c.edit)
		}
	}
	return models
}

func checkIndependence(t *testing.T, file *gguf.File) {
	type lone struct {
		infer.Executor
		adapters []*infer.AdapterFile
	}
	alone := make(map[simd.Level]lone)
	for _, level := range levels() {
		e := load(t, at(level, Options{Threads: 1}), file)
		adapters := []*infer.AdapterFile{randomAdapter(e, 3, 1), randomAdapter(e, 5, 2)}
		loadAdapters(t, e, adapters)
		alone[level] = lone{e, adapters}
	}
	rapid.Check(t, func(r *rapid.T) {
		level := rapid.SampledFrom(levels()).Draw(r, "level")
		e, err := at(level, Options{
			Threads:        rapid.IntRange(1, 4).Draw(r, "threads"),
			BlockTokens:    rapid.SampledFrom([]int{1, 7, 16, 32, 48, 64}).Draw(r, "block"),
			MaxBatchTokens: rapid.IntRange(3, 90).Draw(r, "batch"),
		}).Load(context.Background(), file)
		require.NoError(r, err)
		defer e.Close()
		one := alone[level]
		loadAdapters(r, e, one.adapters)
		e.(*executor).shareMACs = 1
		runTogether(r, e, drawSequences(r, e.Spec()), func(s *sequence) {
			want := &sequence{tokens: s.tokens, adapter: s.adapter, logits: make([]float32, len(s.logits)), hidden: slices.Clone(s.hidden)}
			step(t, one, want.item(0, 0, len(s.tokens), blocks(one.Spec(), 0, len(s.tokens))))
			require.Equal(r, want.logits, s.logits)
			require.Equal(r, want.hidden, s.hidden)
		})
	})
}

func drawSequences(t *rapid.T, spec infer.Spec) []*sequence {
	numbers := make([]int32, spec.Blocks)
	for i := range numbers {
		numbers[i] = int32(i)
	}
	free := rapid.Permutation(numbers).Draw(t, "blocks")
	sequences := make([]*sequence, rapid.IntRange(1, 4).Draw(t, "sequences"))
	for i := range sequences {
		n := rapid.IntRange(1, 100).Draw(t, "tokens")
		need := (n + spec.BlockTokens - 1) / spec.BlockTokens
		sequences[i] = &sequence{
			tokens: text(i+n, n, spec.VocabSize), table: free[:need], logits: make([]float32, spec.VocabSize),
			adapter: infer.AdapterID(rapid.IntRange(0, 2).Draw(t, "adapter")),
		}
		if rapid.Bool().Draw(t, "hidden") {
			sequences[i].hidden = make([]float32, n*spec.HiddenSize)
		}
		free = free[need:]
	}
	return sequences
}

// runTogether steps until all sequences are done, then calls each for all.
func runTogether(t *rapid.T, e infer.Executor, sequences []*sequence, each func(*sequence)) {
	for remaining := true; remaining; {
		b, room := &infer.Batch{}, e.Spec().MaxBatchTokens
		remaining = false
		for i, s := range sequences {
			if item, ok := s.drawChunk(t, i, room); ok {
				b.Items = append(b.Items, item)
				room -= len(item.Tokens)
			}
			remaining = remaining || s.done < len(s.tokens)
		}
		require.NoError(t, e.Step(context.Background(), b))
		for i := range b.Items {
			require.NoError(t, b.Items[i].Err)
		}
	}
	for _, s := range sequences {
		each(s)
	}
}

func TestStepMayBeRepeated(t *testing.T) {
	e := load(t, New(), synthetic(t, smallConfig, nil))
	tokens := text(1, 50, smallConfig.Vocab)
	first := logitsOf(t, e, tokens)
	require.Equal(t, first, logitsOf(t, e, tokens))
	again := make([]float32, len(first))
	step(t, e, infer.Item{Seq: 1, Start: 49, Tokens: tokens[49:], Blocks: blocks(e.Spec(), 0, 50), Logits: again})
	require.Equal(t, first, again)
}

func TestBadItemsFailAloneAndTheOthersAreRight(t *testing.T) {
	e := load(t, New(), synthetic(t, smallConfig, nil))
	spec := e.Spec()
	tokens := text(1, 40, spec.VocabSize)
	want := logitsOf(t, e, tokens)
	got := make([]float32, spec.VocabSize)
	room := make([]float32, spec.VocabSize)
	table := blocks(spec, 40, 40)
	all := blocks(spec, 0, 200)
	b := &infer.Batch{Items: []infer.Item{
		{Seq: 1, Blocks: table},
		{Seq: 2, Tokens: []int32{1, -1}, Blocks: table, Logits: room},
		{Seq: 3, Tokens: []int32{301}, Blocks: table, Logits: room},
		{Seq: 4, Tokens: tokens, Blocks: table[:1], Logits: room},
		{Seq: 5, Tokens: []int32{1}, Blocks: []int32{-1}, Logits: room},
		{Seq: 6, Tokens: []int32{1}, Blocks: []int32{int32(spec.Blocks)}, Logits: room},
		{Seq: 7, Tokens: []int32{1}, Start: -1, Blocks: table, Logits: room},
		{Seq: 8, Tokens: []int32{1}, Start: 200, Blocks: all, Logits: room},
		{Seq: 9, Tokens: []int32{1}, Start: math.MaxInt, Blocks: all, Logits: room},
		{Seq: 10, Tokens: []int32{1}, Blocks: table, Logits: room[:300]},
		{Seq: 11, Tokens: tokens, Blocks: blocks(spec, 50, 40), Logits: got},
	}}
	require.NoError(t, e.Step(context.Background(), b))
	for i := range 10 {
		require.Error(t, b.Items[i].Err, "item %d", i)
	}
	require.ErrorContains(t, b.Items[1].Err, "token -1 is not in the vocabulary")
	require.ErrorContains(t, b.Items[7].Err, "outside the context of 200")
	require.NoError(t, b.Items[10].Err)
	require.Equal(t, want, got)
	require.Equal(t, make([]float32, spec.VocabSize), room)
}

func TestTheLastPositionOfTheContextWorks(t *testing.T) {
	e := load(t, New(), synthetic(t, smallConfig, nil))
	logits := logitsOf(t, e, text(1, 200, smallConfig.Vocab))
	require.False(t, math.IsNaN(float64(logits[0])))
}

func TestStepRefusesMoreThanTheBatchHolds(t *testing.T) {
	e := load(t, Options{MaxBatchTokens: 10}.New(), synthetic(t, smallConfig, nil))
	require.Equal(t, 10, e.Spec().MaxBatchTokens)
	b := &infer.Batch{Items: []infer.Item{{Tokens: text(1, 11, 300), Blocks: []int32{0}}}}
	require.ErrorContains(t, e.Step(context.Background(), b), "more than 10 tokens")
}

func TestStepHeedsTheContextAndClose(t *testing.T) {
	e := load(t, New(), synthetic(t, smallConfig, nil))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b := &infer.Batch{Items: []infer.Item{{Tokens: []int32{1}, Blocks: []int32{0}}}}
	require.ErrorIs(t, e.Step(ctx, b), context.Canceled)
	require.NoError(t, e.Step(context.Background(), b))
	require.NoError(t, e.Step(context.Background(), &infer.Batch{}))
	e.Release(1)
	require.NoError(t, e.Close())
	require.NoError(t, e.Close())
	require.ErrorIs(t, e.Step(context.Background(), b), infer.ErrClosed)
	require.Equal(t, 301, e.Spec().VocabSize)
	_, err := New().Load(ctx, synthetic(t, smallConfig, nil))
	require.ErrorIs(t, err, context.Canceled)
}

// A weight that is not there stands for any fault inside a computation.
func TestPanicOfAComputationIsAnErrorOfStep(t *testing.T) {
	e := load(t, Options{Threads: 2}.New(), synthetic(t, smallConfig, nil))
	inner := e.(*executor)
	tokens := text(1, 30, smallConfig.Vocab)
	want := logitsOf(t, e, tokens)
	gate := &inner.model.Layers[1].Experts[0].Gate
	data := gate.Data
	gate.Data = nil
	inner.shareMACs = 1
	b := &infer.Batch{Items: []infer.Item{{Tokens: tokens, Blocks: []int32{0}, Logits: make([]float32, 301)}}}
	require.ErrorContains(t, e.Step(context.Background(), b), "panic in a computation")
	gate.Data = data
	require.Equal(t, want, logitsOf(t, e, tokens))
}

func TestDecodeAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	e := load(t, Options{Threads: 2}.New(), synthetic(t, smallConfig, nil))
	e.(*executor).shareMACs = 1
	spec := e.Spec()
	b := &infer.Batch{Items: make([]infer.Item, 3)}
	ctx := context.Background()
	for i := range b.Items {
		b.Items[i] = infer.Item{Tokens: []int32{int32(i)}, Blocks: blocks(spec, i, 1), Logits: make([]float32, spec.VocabSize)}
	}
	require.Zero(t, testing.AllocsPerRun(50, func() {
		if err := e.Step(ctx, b); err != nil {
			t.Error(err)
		}
	}))
}
