//go:build unix

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/cpu"
	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/internal/lora"
	"github.com/intelliparadigm/haiku/internal/model"
	"github.com/intelliparadigm/haiku/internal/simd"
)

// longTable shows what a long context costs in each format of keys and values.
func longTable(s settings) error {
	dir, clean, err := s.directory()
	if err != nil {
		return err
	}
	defer clean()
	cfg := model.Synthetic100M(simd.Q8_0)
	cfg.Context = 8192
	path := filepath.Join(dir, "synthetic-100m-long.gguf")
	if err := writeModel(path, cfg); err != nil {
		return err
	}
	const context4k = 4096
	fmt.Printf("| keys and values | bytes per token | prefill of %d | decode after it |\n| --- | ---: | ---: | ---: |\n", context4k)
	for _, kv := range []struct {
		name   string
		format cpu.KVFormat
		bytes  int
	}{{"F32", cpu.KVF32, 4 * 64}, {"F16", cpu.KVF16, 2 * 64}, {"Q8_0", cpu.KVQ8_0, 2 * 34}} {
		engine, err := infer.Options{MaxBatchTokens: 512, NoPrefixCache: true}.Open(path, cpu.Options{Threads: 2, KV: kv.format, ContextTokens: context4k + 64}.New())
		if err != nil {
			return err
		}
		prompt := make([]int32, context4k)
		for i := range prompt {
			prompt[i] = int32(300 + i%1000)
		}
		var decode float64
		prefill := best(s, func() (float64, error) {
			before, after, err := timed(engine, &haiku.Request{PromptTokens: prompt, MaxTokens: 33, Sampling: endless(1).Sampling})
			decode = max(decode, 32/after.Seconds())
			return context4k / before.Seconds(), err
		})
		fmt.Printf("| %s | %d | %.0f | %.1f |\n", kv.name, 2*cfg.Layers*cfg.KVHeads*kv.bytes, prefill, decode)
		if err := engine.Close(); err != nil {
			return err
		}
	}
	return nil
}

// timed returns the time to the first token and from there to the last.
func timed(engine *infer.Engine, req *haiku.Request) (before, after time.Duration, err error) {
	start := time.Now()
	var first time.Time
	for _, err := range haiku.NewStream(context.Background(), engine, req).Tokens() {
		if err != nil {
			return 0, 0, err
		}
		if first.IsZero() {
			first = time.Now()
		}
	}
	return first.Sub(start), time.Since(first), nil
}

// adapterTable shows what adapters of all matrices cost a batch.
func adapterTable(s settings) error {
	dir, clean, err := s.directory()
	if err != nil {
		return err
	}
	defer clean()
	cfg := model.Synthetic100M(simd.Q8_0)
	path, err := syntheticFile(cfg.Format, dir)
	if err != nil {
		return err
	}
	engine, err := infer.Options{Name: "base", MaxBatchTokens: 512, NoPrefixCache: true}.Open(path, cpu.Options{Threads: 2}.New())
	if err != nil {
		return err
	}
	defer engine.Close()
	names := []string{"a", "b", "c", "d"}
	for i, name := range names {
		if err := engine.AddAdapter(context.Background(), name, randomAdapter(cfg, 16, uint64(i))); err != nil {
			return err
		}
	}
	fmt.Printf("| adapters in the batch | decode | of the base |\n| --- | ---: | ---: |\n")
	base := 0.0
	for _, use := range [][]string{{"base"}, {"a"}, names, {"base", "base", "base", "a"}} {
		rate := best(s, func() (float64, error) { return adaptedRate(engine, use, 64) })
		if base == 0 {
			base = rate
		}
		label := map[string]string{"base": "none", "a": "one for all", "base a": "one for a quarter"}[use[0]]
		switch {
		case len(use) == 4 && use[0] == "a":
			label = "four, one for a quarter each"
		case len(use) == 4:
			label = "one for a quarter"
		}
		fmt.Printf("| %s | %.0f | %.0f%% |\n", label, rate, 100*rate/base)
	}
	return nil
}

// adaptedRate is the tokens per second of 16 sequences that use models in turn.
func adaptedRate(engine *infer.Engine, models []string, tokens int) (float64, error) {
	const sequences = 16
	errs := make([]error, sequences)
	start := time.Now()
	var wg sync.WaitGroup
	for i := range sequences {
		wg.Go(func() {
			req := endless(tokens)
			req.Model = models[i%len(models)]
			_, errs[i] = haiku.NewStream(context.Background(), engine, req).Text()
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return float64(sequences*tokens) / time.Since(start).Seconds(), nil
}

// randomAdapter updates every matrix of a dense model a little.
func randomAdapter(cfg model.SyntheticConfig, rank int, seed uint64) *infer.AdapterFile {
	rng := rand.New(rand.NewPCG(seed, 0))
	random := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(rng.NormFloat64()) / 256
		}
		return v
	}
	headDim := cfg.Dim / cfg.Heads
	file := &infer.AdapterFile{}
	for layer := range cfg.Layers {
		for _, m := range []struct {
			name       string
			rows, cols int
		}{
			{"attn_q", cfg.Dim, cfg.Dim}, {"attn_k", cfg.KVHeads * headDim, cfg.Dim}, {"attn_v", cfg.KVHeads * headDim, cfg.Dim}, {"attn_output", cfg.Dim, cfg.Dim},
			{"ffn_gate", cfg.FFN, cfg.Dim}, {"ffn_up", cfg.FFN, cfg.Dim}, {"ffn_down", cfg.Dim, cfg.FFN},
		} {
			file.Pairs = append(file.Pairs, lora.Pair{
				Tensor: fmt.Sprintf("blk.%d.%s.weight", layer, m.name), Rank: rank, In: m.cols, Out: m.rows, Scale: 1,
				A: random(rank * m.cols), B: random(m.rows * rank),
			})
		}
	}
	return file
}
