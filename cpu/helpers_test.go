package cpu

import (
	"bytes"
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/internal/gguf"
	"github.com/intelliparadigm/haiku/internal/model"
	"github.com/intelliparadigm/haiku/internal/simd"
)

const tinyModel = "../tinymodel/haiku-tiny.q8_0.gguf"

// at returns o's backend at an instruction set.
func at(level simd.Level, o Options) *Backend { return &Backend{options: o, level: level} }

// levels are the instruction sets that long tests run on: under the race
// detector, which slows Go and not assembly, the best one alone.
func levels() []simd.Level {
	if raceEnabled {
		return simd.Levels()[:1]
	}
	return simd.Levels()
}

// load builds an executor that is closed when the test ends.
func load(t testing.TB, b *Backend, file *gguf.File) infer.Executor {
	t.Helper()
	e, err := b.Load(context.Background(), file)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func open(t testing.TB, path string) *gguf.File {
	t.Helper()
	file, err := gguf.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	return file
}

// synthetic parses a synthetic model after edit, if any, has added to it.
func synthetic(t testing.TB, cfg model.SyntheticConfig, edit func(*gguf.Writer)) *gguf.File {
	t.Helper()
	w, err := model.Synthetic(cfg)
	require.NoError(t, err)
	if edit != nil {
		edit(w)
	}
	var out bytes.Buffer
	_, err = w.WriteTo(&out)
	require.NoError(t, err)
	file, err := gguf.Parse(out.Bytes())
	require.NoError(t, err)
	return file
}

// smallConfig has every tail there is: a head of 12, a feed-forward layer of
// 52, two query heads to a key head.
var smallConfig = model.SyntheticConfig{
	Layers: 2, Dim: 48, Heads: 4, KVHeads: 2, FFN: 52, Vocab: 301, Context: 200, Format: simd.F32, Seed: 7,
}

// blocks returns the numbers first, first+1, … that a sequence of tokens needs.
func blocks(spec infer.Spec, first, tokens int) []int32 {
	table := make([]int32, (tokens+spec.BlockTokens-1)/spec.BlockTokens)
	for i := range table {
		table[i] = int32(first + i)
	}
	return table
}

// step runs items that are all expected to succeed.
func step(t testing.TB, e infer.Executor, items ...infer.Item) {
	t.Helper()
	b := &infer.Batch{Items: items}
	require.NoError(t, e.Step(context.Background(), b))
	for i := range b.Items {
		require.NoError(t, b.Items[i].Err)
	}
}

// logitsOf prefills tokens in one step and returns the logits after them.
func logitsOf(t testing.TB, e infer.Executor, tokens []int32) []float32 {
	t.Helper()
	spec := e.Spec()
	logits := make([]float32, spec.VocabSize)
	step(t, e, infer.Item{Seq: 1, Tokens: tokens, Blocks: blocks(spec, 0, len(tokens)), Logits: logits})
	return logits
}

// generate continues prompt greedily with an adapter, calling each with the
// logits of every step until it returns false.
func generate(t testing.TB, e infer.Executor, id infer.AdapterID, prompt []int32, each func(logits []float32, best int32) bool) {
	t.Helper()
	spec := e.Spec()
	table := blocks(spec, 0, spec.ContextTokens)
	logits := make([]float32, spec.VocabSize)
	for start, tokens := 0, prompt; ; {
		step(t, e, infer.Item{Seq: 1, Start: start, Tokens: tokens, Blocks: table, Logits: logits, Adapter: id, AdapterScale: 1})
		best := argmax(logits)
		if !each(logits, best) {
			return
		}
		start, tokens = start+len(tokens), []int32{best}
	}
}

func argmax(logits []float32) int32 {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	return int32(best)
}

func softmax(logits []float32) []float64 {
	largest, sum := float64(logits[argmax(logits)]), 0.0
	p := make([]float64, len(logits))
	for i, v := range logits {
		p[i] = math.Exp(float64(v) - largest)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

// text returns n tokens that depend on seed.
func text(seed, n, vocab int) []int32 {
	tokens := make([]int32, n)
	state := uint32(seed)*2654435761 + 1
	for i := range tokens {
		state = state*1664525 + 1013904223
		tokens[i] = int32(state>>8) % int32(vocab)
	}
	return tokens
}
