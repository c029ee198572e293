package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/internal/gguf"
	"github.com/intelliparadigm/haiku/internal/lora"
	"github.com/intelliparadigm/haiku/internal/model"
	"github.com/intelliparadigm/haiku/internal/simd"
)

// randomAdapter changes every matrix of e's model that can be changed.
func randomAdapter(e infer.Executor, rank int, seed uint64) *infer.AdapterFile {
	s := e.(*executor).shape
	rng := rand.New(rand.NewPCG(seed, 0))
	random := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(rng.NormFloat64()) / 8
		}
		return v
	}
	file := &infer.AdapterFile{Architecture: s.Architecture}
	for layer := range s.LayerCount {
		for target := range targetCount {
			if s.Experts > 0 && target >= targetGate {
				continue
			}
			rows, cols := s.matrix(target)
			file.Pairs = append(file.Pairs, lora.Pair{
				Tensor: fmt.Sprintf("blk.%d.%s.weight", layer, targetNames[target]),
				Rank:   rank, In: cols, Out: rows, Scale: 2, A: random(rank * cols), B: random(rows * rank),
			})
		}
	}
	return file
}

// loadAdapters gives files the ids from 1 on.
func loadAdapters(t require.TestingT, e infer.Executor, files []*infer.AdapterFile) {
	for i, file := range files {
		require.NoError(t, e.(infer.AdapterExecutor).LoadAdapter(ctx, infer.AdapterID(i+1), file))
	}
}

// adapted returns the logits after tokens with an adapter.
func adapted(t testing.TB, e infer.Executor, tokens []int32, id infer.AdapterID, scale float32) []float32 {
	t.Helper()
	logits := make([]float32, e.Spec().VocabSize)
	step(t, e, infer.Item{
		Seq: 1, Tokens: tokens, Blocks: blocks(e.Spec(), 0, len(tokens)), Logits: logits, Adapter: id, AdapterScale: scale,
	})
	return logits
}

// merged adds scale·B·A of every pair to the weights of a model in F32.
func merged(t testing.TB, file *gguf.File, pairs []lora.Pair, scale float32) *gguf.File {
	t.Helper()
	updates := make(map[string]lora.Pair)
	for _, p := range pairs {
		updates[p.Tensor] = p
	}
	return rewritten(t, file, func(w *gguf.Writer, tensor *gguf.Tensor) bool {
		p, found := updates[tensor.Name]
		if !found {
			return false
		}
		m, err := simd.NewMatrix(simd.F32, p.Out, p.In, tensor.Data)
		require.NoError(t, err)
		sum := make([]float32, p.Out*p.In)
		for r := range p.Out {
			row := sum[r*p.In : (r+1)*p.In]
			simd.Portable.Row(row, &m, r)
			for k := range p.Rank {
				for c := range row {
					row[c] += scale * p.Scale * p.B[r*p.Rank+k] * p.A[k*p.In+c]
				}
			}
		}
		w.AddTensor(tensor.Name, gguf.F32, tensor.Dims, simd.Encode(simd.F32, nil, sum))
		return true
	})
}

func TestAnAdapterEqualsItsMerge(t *testing.T) {
	cfg := smallConfig
	cfg.Architecture = "qwen3"
	file := synthetic(t, cfg, nil)
	tokens := text(2, 60, cfg.Vocab)
	for _, level := range levels() {
		e := load(t, at(level, Options{Threads: 2}), file)
		e.(*executor).shareMACs = 1
		loadAdapters(t, e, []*infer.AdapterFile{randomAdapter(e, 4, 3)})
		base := logitsOf(t, e, tokens)
		for _, scale := range []float32{1, -0.75} {
			want := logitsOf(t, load(t, at(level, Options{}), merged(t, file, randomAdapter(e, 4, 3).Pairs, scale)), tokens)
			got := adapted(t, e, tokens, 1, scale)
			require.InDeltaSlice(t, want, got, 2e-3)
			require.Greater(t, distance(base, got), 0.5, "the adapter changes the model")
		}
		require.Equal(t, base, adapted(t, e, tokens, 1, 0), "a scale of 0 is the base model")
		require.Equal(t, base, adapted(t, e, tokens, 0, 1))
	}
}

func distance(a, b []float32) (most float64) {
	for i := range a {
		most = max(most, math.Abs(float64(a[i]-b[i])))
	}
	return most
}

func TestAdaptersThatDoNotFitAreNamed(t *testing.T) {
	e := load(t, New(), synthetic(t, smallConfig, nil)).(infer.AdapterExecutor)
	good := randomAdapter(e, 2, 1)
	require.NoError(t, e.LoadAdapter(ctx, 7, good))
	require.ErrorContains(t, e.LoadAdapter(ctx, 7, good), "adapter id 7 is in use")
	require.ErrorContains(t, e.LoadAdapter(ctx, 0, good), "adapter id 0")
	for says, edit := range map[string]func(*infer.AdapterFile){
		"blk.9.attn_q.weight":  func(f *infer.AdapterFile) { f.Pairs[0].Tensor = "blk.9.attn_q.weight" },
		"blk.01.attn_q.weight": func(f *infer.AdapterFile) { f.Pairs[0].Tensor = "blk.01.attn_q.weight" },
		"token_embd.weight":    func(f *infer.AdapterFile) { f.Pairs[0].Tensor = "token_embd.weight" },
		"blk.0.attn_q.weight":  func(f *infer.AdapterFile) { f.Pairs[0].Out = 12 },
		`"qwen2"`:              func(f *infer.AdapterFile) { f.Architecture = "qwen2" },
	} {
		bad := randomAdapter(e, 2, 1)
		edit(bad)
		err := e.LoadAdapter(ctx, 8, bad)
		require.ErrorIs(t, err, infer.ErrUnsupportedModel)
		require.ErrorContains(t, err, says)
	}
	mixture := load(t, New(), synthetic(t, mixtureConfig, nil)).(infer.AdapterExecutor)
	bad := randomAdapter(mixture, 2, 1)
	bad.Pairs[0].Tensor = "blk.0.ffn_gate_exps.weight"
	require.ErrorContains(t, mixture.LoadAdapter(ctx, 1, bad), "blk.0.ffn_gate_exps.weight")
}

func TestUnknownAdaptersAndScalesFailTheirItemAlone(t *testing.T) {
	e := load(t, New(), synthetic(t, smallConfig, nil)).(infer.AdapterExecutor)
	require.NoError(t, e.LoadAdapter(ctx, 1, randomAdapter(e, 2, 1)))
	want := logitsOf(t, e, []int32{5})
	got := make([]float32, len(want))
	item := func(block int32, id infer.AdapterID, scale float32) infer.Item {
		return infer.Item{Seq: infer.SeqID(block), Tokens: []int32{5}, Blocks: []int32{block}, Logits: make([]float32, len(want)), Adapter: id, AdapterScale: scale}
	}
	b := &infer.Batch{Items: []infer.Item{
		item(1, 2, 1), item(2, 1, float32(math.NaN())), item(3, 1, float32(math.Inf(1))), item(4, 1, 1), item(5, 0, 1),
	}}
	b.Items[4].Logits = got
	require.NoError(t, e.Step(ctx, b))
	require.ErrorContains(t, b.Items[0].Err, "adapter 2 is not loaded")
	require.ErrorContains(t, b.Items[1].Err, "scale is NaN")
	require.ErrorContains(t, b.Items[2].Err, "scale is +Inf")
	require.NoError(t, b.Items[3].Err)
	require.Equal(t, want, got)
	e.UnloadAdapter(1)
	e.UnloadAdapter(1)
	b = &infer.Batch{Items: []infer.Item{item(1, 1, 1)}}
	require.NoError(t, e.Step(ctx, b))
	require.ErrorContains(t, b.Items[0].Err, "adapter 1 is not loaded")
	require.NoError(t, e.LoadAdapter(ctx, 1, randomAdapter(e, 2, 1)), "a free id can be used again")
	require.NoError(t, e.Close())
	require.ErrorIs(t, e.LoadAdapter(ctx, 2, randomAdapter(e, 2, 1)), infer.ErrClosed)
}

func TestAdaptersComeAndGoWhileStepsRun(t *testing.T) {
	e := load(t, Options{Threads: 2}.New(), synthetic(t, smallConfig, nil)).(infer.AdapterExecutor)
	file := randomAdapter(e, 2, 1)
	require.NoError(t, e.LoadAdapter(ctx, 1, file))
	want := adapted(t, e, text(1, 40, 301), 1, 1)
	done := make(chan error)
	go func() {
		for id := infer.AdapterID(2); id < 40; id++ {
			if err := e.LoadAdapter(ctx, id, file); err != nil {
				done <- err
				return
			}
			e.UnloadAdapter(id)
		}
		done <- nil
	}()
	for range 20 {
		require.Equal(t, want, adapted(t, e, text(1, 40, 301), 1, 1))
	}
	require.NoError(t, <-done)
}

func TestAdaptedDecodeAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, cfg := range []model.SyntheticConfig{smallConfig, mixtureConfig} {
		e := load(t, Options{Threads: 2}.New(), synthetic(t, cfg, nil))
		e.(*executor).shareMACs = 1
		loadAdapters(t, e, []*infer.AdapterFile{randomAdapter(e, 3, 1), randomAdapter(e, 5, 2)})
		b := &infer.Batch{Items: make([]infer.Item, 4)}
		for i := range b.Items {
			b.Items[i] = infer.Item{
				Tokens: []int32{int32(i)}, Blocks: blocks(e.Spec(), i, 1), Logits: make([]float32, cfg.Vocab),
				Hidden: make([]float32, cfg.Dim), Adapter: infer.AdapterID(i % 3), AdapterScale: 1,
			}
		}
		require.Zero(t, testing.AllocsPerRun(50, func() {
			if err := e.Step(ctx, b); err != nil {
				t.Error(err)
			}
		}))
	}
}
