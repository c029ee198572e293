package cpu

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/internal/gguf"
	"github.com/intelliparadigm/haiku/internal/model"
	"github.com/intelliparadigm/haiku/internal/simd"
)

// benchThreads are the numbers of threads measured.
var benchThreads = []int{1, 2}

func BenchmarkTiny(b *testing.B) {
	benchmarkModel(b, open(b, tinyModel), 128)
}

// Benchmark100M measures a synthetic model of 100 million parameters.
func Benchmark100M(b *testing.B) {
	for _, format := range []simd.Format{simd.F16, simd.Q8_0, simd.Q4_0} {
		b.Run(format.String(), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "model.gguf")
			out, err := os.Create(path)
			require.NoError(b, err)
			require.NoError(b, model.WriteSynthetic(out, model.Synthetic100M(format)))
			require.NoError(b, out.Close())
			benchmarkModel(b, open(b, path), 512)
		})
	}
}

// benchmarkModel measures prefill of a prompt with the logits after it, and
// decode for one and for 16 sequences from position 64 on.
func benchmarkModel(b *testing.B, file *gguf.File, prompt int) {
	for _, threads := range benchThreads {
		e := load(b, Options{Threads: threads}.New(), file)
		b.Run(fmt.Sprintf("prefill%d/threads%d", prompt, threads), func(b *testing.B) {
			spec := e.Spec()
			item := infer.Item{Tokens: text(1, prompt, spec.VocabSize), Blocks: blocks(spec, 0, prompt), Logits: make([]float32, spec.VocabSize)}
			for b.Loop() {
				step(b, e, item)
			}
			reportTokens(b, prompt)
		})
		for _, sequences := range []int{1, 16} {
			b.Run(fmt.Sprintf("decode%d/threads%d", sequences, threads), func(b *testing.B) {
				benchmarkDecode(b, e, sequences)
			})
		}
	}
}

func benchmarkDecode(b *testing.B, e infer.Executor, sequences int) {
	const first, last = 64, 192
	spec := e.Spec()
	items := make([]infer.Item, sequences)
	for i := range items {
		items[i] = infer.Item{Seq: infer.SeqID(i), Tokens: []int32{int32(i)}, Logits: make([]float32, spec.VocabSize)}
		items[i].Blocks = blocks(spec, i*len(blocks(spec, 0, last)), last)
	}
	position := first
	for b.Loop() {
		for i := range items {
			items[i].Start = position
		}
		step(b, e, items...)
		if position++; position == last {
			position = first
		}
	}
	reportTokens(b, sequences)
}

func reportTokens(b *testing.B, perStep int) {
	b.ReportMetric(float64(perStep)*float64(b.N)/b.Elapsed().Seconds(), "tok/s")
}
