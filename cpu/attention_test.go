package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/internal/gguf"
	"github.com/intelliparadigm/haiku/internal/model"
	"github.com/intelliparadigm/haiku/internal/simd"
)

// attentionCase is one layer of attention without a model around it.
type attentionCase struct {
	heads, kvHeads, headDim int
	window                  int
	softcap                 float32
	kv                      KVFormat
	threads, block          int
	tokens, chunk           int // of the sequence, and of a step
	magnitude               float64
}

func (c attentionCase) config() model.SyntheticConfig {
	return model.SyntheticConfig{
		Layers: 1, Dim: 32, Heads: c.heads, KVHeads: c.kvHeads, HeadDim: c.headDim, FFN: 32, Vocab: 300, Context: max(64, c.tokens), Format: simd.F32,
	}
}

// run fills the cache with random keys and values and returns the attention of
// random queries, [tokens][heads·headDim], with the numbers it was made of.
func (c attentionCase) run(t require.TestingT, w *gguf.File) (out, q, k, v []float32) {
	e, err := at(simd.Best(), Options{Threads: c.threads, BlockTokens: c.block, KV: c.kv, MaxBatchTokens: c.chunk}).Load(ctx, w)
	require.NoError(t, err)
	defer e.Close()
	x := e.(*executor)
	x.shareMACs = 1
	x.model.Layers[0].Window, x.model.AttentionSoftcap = c.window, c.softcap
	rng := rand.New(rand.NewPCG(1, uint64(c.tokens)))
	random := func(n int, scale float64) []float32 {
		s := make([]float32, n)
		for i := range s {
			s[i] = float32(scale * rng.NormFloat64())
		}
		return s
	}
	queries, keys := c.heads*c.headDim, c.kvHeads*c.headDim
	q, k, v = random(c.tokens*queries, c.magnitude), random(c.tokens*keys, c.magnitude), random(c.tokens*keys, 1)
	table := blocks(x.spec, 0, c.tokens)
	rng.Shuffle(len(table), func(i, j int) { table[i], table[j] = table[j], table[i] })
	for start := 0; start < c.tokens; start += c.chunk {
		n := min(c.chunk, c.tokens-start)
		for p := start; p < start+n; p++ {
			x.kv.store(0, table[p/c.block], p%c.block, k[p*keys:(p+1)*keys], v[p*keys:(p+1)*keys])
		}
		copy(x.act.q, q[start*queries:(start+n)*queries])
		x.spans = append(x.spans[:0], span{item: &infer.Item{Blocks: table}, start: start, n: n})
		require.NoError(t, x.attend(0))
		out = append(out, x.act.att[:n*queries]...)
	}
	x.forget()
	return out, q, k, v
}

// plain computes the attention of one query head of one token in float64.
func (c attentionCase) plain(q, k, v []float32, token, head int) []float64 {
	scale := 1 / math.Sqrt(float64(c.headDim))
	from := 0
	if c.window > 0 {
		from = max(0, token+1-c.window)
	}
	row := func(s []float32, heads, token, head int) []float32 {
		return s[(token*heads+head)*c.headDim:][:c.headDim]
	}
	kvHead := head / (c.heads / c.kvHeads)
	var scores []float64
	largest := math.Inf(-1)
	for p := from; p <= token; p++ {
		score := 0.0
		for d, x := range row(q, c.heads, token, head) {
			score += float64(x) * float64(row(k, c.kvHeads, p, kvHead)[d])
		}
		score = softcap(score*scale, c.softcap)
		scores, largest = append(scores, score), max(largest, score)
	}
	total, out := 0.0, make([]float64, c.headDim)
	for i, score := range scores {
		weight := math.Exp(score - largest)
		total += weight
		for d, x := range row(v, c.kvHeads, from+i, kvHead) {
			out[d] += weight * float64(x)
		}
	}
	for d := range out {
		out[d] /= total
	}
	return out
}

func drawAttention(r *rapid.T) attentionCase {
	group := rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(r, "group")
	c := attentionCase{
		kvHeads: rapid.IntRange(1, 3).Draw(r, "key heads"), headDim: 8 * rapid.IntRange(1, 9).Draw(r, "eights"),
		threads: rapid.IntRange(1, 4).Draw(r, "threads"), block: rapid.SampledFrom([]int{3, 16, 32, 50}).Draw(r, "block"),
		chunk: rapid.SampledFrom([]int{1, 7, 64, 300}).Draw(r, "chunk"), magnitude: rapid.SampledFrom([]float64{0, 1, 5}).Draw(r, "magnitude"),
	}
	c.heads = c.kvHeads * group
	segment := segmentKeys * rapid.IntRange(0, 2).Draw(r, "segments")
	c.tokens = max(1, segment+rapid.IntRange(-1, 40).Draw(r, "rest"))
	if rapid.Bool().Draw(r, "windowed") {
		c.window = rapid.IntRange(1, c.tokens+10).Draw(r, "window")
	}
	if rapid.Bool().Draw(r, "capped") {
		c.softcap = 3
	}
	return c
}

func TestAttentionAgreesWithFloat64(t *testing.T) {
	tolerance := map[KVFormat]float64{KVF32: 2e-5, KVF16: 1e-2, KVQ8_0: 0.2}
	rapid.Check(t, func(r *rapid.T) {
		c := drawAttention(r)
		c.kv = rapid.SampledFrom([]KVFormat{KVF32, KVF16, KVQ8_0}).Draw(r, "format")
		if c.kv == KVQ8_0 {
			c.headDim = 32 * ((c.headDim + 31) / 32)
		}
		if c.kv != KVF32 {
			c.magnitude = min(c.magnitude, 1) // rounded keys make other scores
		}
		out, q, k, v := c.run(r, synthetic(t, c.config(), nil))
		for range 20 {
			token, head := rapid.IntRange(0, c.tokens-1).Draw(r, "token"), rapid.IntRange(0, c.heads-1).Draw(r, "head")
			for d, want := range c.plain(q, k, v, token, head) {
				require.InDelta(r, want, out[(token*c.heads+head)*c.headDim+d], tolerance[c.kv], "%+v: token %d head %d", c, token, head)
			}
		}
	})
}

// Chunks, blocks, threads and how the work is split change no bit.
func TestAttentionIsTheSameHoweverItIsSplit(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := drawAttention(r)
		other := c
		c.threads, c.chunk, c.block = 1, c.tokens, 32
		file := synthetic(t, c.config(), nil)
		want, _, _, _ := c.run(r, file)
		got, _, _, _ := other.run(r, file)
		require.Equal(r, want, got, "%+v", other)
	})
}

// A lone decode step over a long context is cut into segments for the threads.
func TestALongDecodeIsSplit(t *testing.T) {
	cfg := smallConfig
	cfg.Context = 2200
	file := synthetic(t, cfg, nil)
	tokens := text(3, 2100, cfg.Vocab)
	decode := func(threads int) ([]float32, int) {
		e := load(t, Options{Threads: threads, MaxBatchTokens: 2100}.New(), file)
		table := blocks(e.Spec(), 0, 2100)
		step(t, e, infer.Item{Tokens: tokens[:2099], Blocks: table})
		if threads > 1 {
			e.(*executor).shareMACs = 1
		}
		logits := make([]float32, cfg.Vocab)
		step(t, e, infer.Item{Start: 2099, Tokens: tokens[2099:], Blocks: table, Logits: logits})
		return logits, e.(*executor).attention.segments
	}
	whole, segments := decode(1)
	require.Zero(t, segments)
	split, segments := decode(4)
	require.Equal(t, 5, segments)
	require.Equal(t, whole, split)
}

func TestStrangeScoresDoNotCrash(t *testing.T) {
	for _, magnitude := range []float64{math.NaN(), math.Inf(1), 1e30, 1e-40} {
		c := attentionCase{heads: 2, kvHeads: 1, headDim: 8, threads: 2, block: 16, tokens: 70, chunk: 70, magnitude: magnitude}
		out, _, _, _ := c.run(t, synthetic(t, c.config(), nil))
		require.Len(t, out, 70*16)
	}
}

func TestKVFormatsTakeTheirSize(t *testing.T) {
	cfg := smallConfig
	cfg.HeadDim = 32
	file := synthetic(t, cfg, nil)
	const budget = 1 << 20
	tokens := map[KVFormat]int{}
	for _, kv := range []KVFormat{KVF32, KVF16, KVQ8_0} {
		spec := load(t, Options{KV: kv, KVBytes: budget, BlockTokens: 1}.New(), file).Spec()
		tokens[kv] = spec.Blocks
	}
	perElement := 2 * 2 * 2 * 32 // layers, keys and values, heads, elements
	require.Equal(t, map[KVFormat]int{
		KVF32: min(16*200, budget/(4*perElement)), KVF16: min(16*200, budget/(2*perElement)), KVQ8_0: min(16*200, budget/(34*perElement/32)),
	}, tokens)
}

func BenchmarkLongContext(b *testing.B) {
	cfg := model.Synthetic100M(simd.Q8_0)
	cfg.Context, cfg.Vocab = 8192, 1000
	file := synthetic(b, cfg, nil)
	for name, kv := range map[string]KVFormat{"F32": KVF32, "F16": KVF16, "Q8_0": KVQ8_0} {
		for _, threads := range benchThreads {
			e := load(b, Options{Threads: threads, KV: kv, ContextTokens: 4200}.New(), file)
			table, tokens := blocks(e.Spec(), 0, 4200), text(1, 4200, cfg.Vocab)
			for start := 0; start < 4096; start += 512 {
				step(b, e, infer.Item{Start: start, Tokens: tokens[start : start+512], Blocks: table})
			}
			logits := make([]float32, cfg.Vocab)
			b.Run("decode at 4096/"+name+"/threads"+string(rune('0'+threads)), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					step(b, e, infer.Item{Start: 4096, Tokens: tokens[4096:4097], Blocks: table, Logits: logits})
				}
				reportTokens(b, 1)
			})
			b.Run("prefill to 4096/"+name+"/threads"+string(rune('0'+threads)), func(b *testing.B) {
				for b.Loop() {
					step(b, e, infer.Item{Start: 3584, Tokens: tokens[3584:4096], Blocks: table})
				}
				reportTokens(b, 512)
			})
		}
	}
}
