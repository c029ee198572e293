//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/cpu"
	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/internal/model"
	"github.com/intelliparadigm/haiku/internal/simd"
	"github.com/intelliparadigm/haiku/openai"
	"github.com/intelliparadigm/haiku/tinymodel"
)

// subject is a model under measurement.
type subject struct {
	name string
	open func(infer.Options, infer.Backend) (*infer.Engine, error)
	// prefill and decode are the tokens to measure.
	prefill, decode int
}

func tiny() subject {
	return subject{"haiku-tiny Q8_0", func(o infer.Options, b infer.Backend) (*infer.Engine, error) {
		return o.OpenBytes(tinymodel.GGUF(), b)
	}, 200, 200}
}

// modelFormats are what a model's file may hold.
var modelFormats = []simd.Format{
	simd.F32, simd.F16, simd.BF16, simd.Q8_0, simd.Q6_K, simd.Q5_K, simd.Q5_1, simd.Q5_0, simd.Q4_K, simd.Q4_1, simd.Q4_0,
}

// syntheticFile writes the 100M-parameter model in a format, once.
func syntheticFile(format simd.Format, dir string) (path string, err error) {
	path = filepath.Join(dir, "synthetic-100m-"+format.String()+".gguf")
	return path, writeModel(path, model.Synthetic100M(format))
}

func writeModel(path string, cfg model.SyntheticConfig) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := model.WriteSynthetic(file, cfg); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

// synthetic is the 100M-parameter model in a format.
func synthetic(format simd.Format, dir string) (subject, error) {
	path, err := syntheticFile(format, dir)
	return opened("synthetic 100M "+format.String(), path), err
}

func opened(name, path string) subject {
	open := func(o infer.Options, b infer.Backend) (*infer.Engine, error) { return o.Open(path, b) }
	return subject{name, open, 512, 128}
}

// mixture is a model of experts, of which a token uses a quarter: 36 million of
// its 94 million parameters.
func mixture(dir string) (subject, error) {
	cfg := model.Synthetic100M(simd.Q8_0)
	cfg.Layers, cfg.FFN, cfg.Experts, cfg.ExpertsUsed = 6, 512, 8, 2
	path := filepath.Join(dir, "synthetic-mixture.gguf")
	return opened("mixture of 8 experts, 2 used, Q8_0", path), writeModel(path, cfg)
}

func cpuTable(s settings) error {
	dir, clean, err := s.directory()
	if err != nil {
		return err
	}
	defer clean()
	subjects := []subject{tiny()}
	for _, format := range modelFormats {
		sub, err := synthetic(format, dir)
		if err != nil {
			return err
		}
		subjects = append(subjects, sub)
	}
	experts, err := mixture(dir)
	if err != nil {
		return err
	}
	subjects = append(subjects, experts)
	fmt.Printf("| model | prefill, 1 / 2 threads | decode, 1 / 2 threads | decode of 16 sequences, 2 threads |\n| --- | ---: | ---: | ---: |\n")
	for _, sub := range subjects {
		if err := cpuRow(s, sub, cpu.Options{}); err != nil {
			return err
		}
		if sub.name == "synthetic 100M F32" {
			sub.name += ", kept in FP8 E4M3"
			if err := cpuRow(s, sub, cpu.Options{Weights: cpu.WeightsFP8E4M3}); err != nil {
				return err
			}
		}
	}
	return nil
}

func cpuRow(s settings, sub subject, options cpu.Options) error {
	var prefill, decode [2]float64
	var batched float64
	for i, threads := range []int{1, 2} {
		options.Threads = threads
		engine, err := sub.open(infer.Options{MaxBatchTokens: 512, NoPrefixCache: true}, options.New())
		if err != nil {
			return err
		}
		prefill[i] = best(s, func() (float64, error) { return prefillRate(engine, sub.prefill) })
		decode[i] = best(s, func() (float64, error) { return decodeRate(engine, 1, sub.decode) })
		if threads == 2 {
			batched = best(s, func() (float64, error) { return decodeRate(engine, 16, sub.decode) })
		}
		if err := engine.Close(); err != nil {
			return err
		}
	}
	fmt.Printf("| %s | %.0f / %.0f | %.1f / %.1f | %.0f |\n", sub.name, prefill[0], prefill[1], decode[0], decode[1], batched)
	return nil
}

// directory is where synthetic models are kept.
func (s settings) directory() (dir string, clean func(), err error) {
	if s.modelAt != "" {
		return s.modelAt, func() {}, os.MkdirAll(s.modelAt, 0o755)
	}
	dir, err = os.MkdirTemp("", "haiku-bench")
	return dir, func() { os.RemoveAll(dir) }, err
}

// best is the highest of a few measurements: what disturbs only slows down.
func best(s settings, measure func() (float64, error)) float64 {
	top := 0.0
	for range min(s.rounds, 3) {
		rate, err := measure()
		exit(err)
		top = max(top, rate)
	}
	return top
}

func prefillRate(engine *infer.Engine, tokens int) (float64, error) {
	prompt := make([]int32, tokens)
	for i := range prompt {
		prompt[i] = int32(300 + i%100)
	}
	start := time.Now()
	_, err := haiku.NewStream(context.Background(), engine, &haiku.Request{PromptTokens: prompt, MaxTokens: 1}).Text()
	return float64(tokens) / time.Since(start).Seconds(), err
}

// endless is a request that makes exactly that many tokens: the end-of-sequence
// token is forbidden.
func endless(tokens int) *haiku.Request {
	return &haiku.Request{
		PromptTokens: []int32{1, 300, 301}, MaxTokens: tokens,
		Sampling: haiku.Sampling{LogitBias: map[int32]float32{1: -100, 2: -100}},
	}
}

// decodeRate is the tokens per second of all sequences together.
func decodeRate(engine *infer.Engine, sequences, tokens int) (float64, error) {
	errs := make([]error, sequences)
	start := time.Now()
	var wg sync.WaitGroup
	for i := range sequences {
		wg.Go(func() {
			for _, err := range haiku.NewStream(context.Background(), engine, endless(tokens)).Tokens() {
				if err != nil {
					errs[i] = err
				}
			}
		})
	}
	wg.Wait()
	rate := float64(sequences*tokens) / time.Since(start).Seconds()
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return rate, nil
}

// httpTable compares the same requests inside the process and over HTTP, whose
// clients are another process on the same processors.
func httpTable(s settings) error {
	dir, clean, err := s.directory()
	if err != nil {
		return err
	}
	defer clean()
	large, err := synthetic(simd.Q8_0, dir)
	if err != nil {
		return err
	}
	fmt.Printf("| model | clients | inside, tokens/s | over HTTP, tokens/s | share |\n| --- | ---: | ---: | ---: | ---: |\n")
	plot := chart{title: large.name + " on the CPU", xLabel: "streams", yLabel: "tokens per second"}
	for _, sub := range []subject{tiny(), large} {
		plot.series = []series{{name: "in the engine"}, {name: "over HTTP"}} // of the last
		engine, err := sub.open(infer.Options{NoPrefixCache: true}, cpu.New())
		if err != nil {
			return err
		}
		for _, clients := range []int{1, 4, 16} {
			inside, outside, err := httpShare(s, sub, engine, clients)
			if err != nil {
				return err
			}
			for i, y := range []float64{inside, outside} {
				plot.series[i].x, plot.series[i].y = append(plot.series[i].x, float64(clients)), append(plot.series[i].y, y)
			}
		}
		if err := engine.Close(); err != nil {
			return err
		}
	}
	return s.plot("streams", plot)
}

func httpShare(s settings, sub subject, engine *infer.Engine, clients int) (inside, outside float64, err error) {
	url, stop, err := listen(openai.Handler(engine))
	if err != nil {
		return 0, 0, err
	}
	defer stop()
	requests := 1
	if strings.HasPrefix(sub.name, "haiku-tiny") {
		requests = 10
	}
	l := load{
		URL: strings.Replace(url, "/chat", "", 1), Conns: clients, Requests: requests,
		Body: fmt.Sprintf(`{"stream":true,"prompt":[1,300,301],"max_tokens":%d,"temperature":0,"logit_bias":{"1":-100,"2":-100}}`, sub.decode),
	}
	var ins, outs, share []float64
	for range min(s.rounds, 5) {
		in := 0.0
		for range requests {
			rate, err := decodeRate(engine, clients, sub.decode)
			if err != nil {
				return 0, 0, err
			}
			in += rate / float64(requests)
		}
		r, err := drive(l)
		if err != nil {
			return 0, 0, err
		}
		out := float64(clients*requests*sub.decode) / r.Seconds
		ins, outs, share = append(ins, in), append(outs, out), append(share, out/in)
	}
	inside, outside = median(ins), median(outs)
	fmt.Printf("| %s | %d | %.0f | %.0f | %.0f%% |\n", sub.name, clients, inside, outside, 100*median(share))
	return inside, outside, nil
}
