package lora

import (
	"fmt"
	"strings"

	"github.com/intelliparadigm/haiku/internal/gguf"
	"github.com/intelliparadigm/haiku/internal/simd"
)

func openGGUF(path string) (*File, error) {
	file, err := gguf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	defer file.Close()
	return FromGGUF(file)
}

// FromGGUF reads an adapter as llama.cpp writes it: general.type adapter,
// adapter.type lora, and tensors that end in .lora_a and .lora_b. Nothing of
// file is kept. Errors match [ErrFormat].
func FromGGUF(file *gguf.File) (*File, error) {
	for key, want := range map[string]string{"general.type": "adapter", "adapter.type": "lora"} {
		if got, err := file.String(key); err != nil || got != want {
			return nil, fmt.Errorf("%w: %s is %q, want %q", ErrFormat, key, got, want)
		}
	}
	for _, key := range file.Keys() {
		if strings.HasPrefix(key, "adapter.") && key != "adapter.type" && key != "adapter.lora.alpha" {
			return nil, fmt.Errorf("%w: %s is not supported", ErrFormat, key)
		}
	}
	alpha, err := file.Float("adapter.lora.alpha")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	parts := newAssembly(func(_ string, rank int) (float32, error) {
		if alpha == 0 {
			return 1, nil
		}
		return finite(alpha/float64(rank), "adapter.lora.alpha")
	})
	for _, t := range file.Tensors() {
		tensor, isA := strings.CutSuffix(t.Name, ".lora_a")
		if !isA {
			var isB bool
			if tensor, isB = strings.CutSuffix(t.Name, ".lora_b"); !isB {
				return nil, fmt.Errorf("%w: tensor %s is neither lora_a nor lora_b", ErrFormat, t.Name)
			}
		}
		h, err := halfOf(t)
		if err != nil {
			return nil, err
		}
		if err := parts.add(tensor, isA, h); err != nil {
			return nil, err
		}
	}
	f := &File{Architecture: file.Architecture()}
	f.Name, _ = file.String("general.name")
	f.Pairs, err = parts.pairs()
	return f, err
}

// halfOf copies a tensor to float32.
func halfOf(t *gguf.Tensor) (half, error) {
	formats := map[gguf.Type]simd.Format{gguf.F32: simd.F32, gguf.F16: simd.F16, gguf.BF16: simd.BF16, gguf.Q8_0: simd.Q8_0}
	format, known := formats[t.Type]
	if !known || len(t.Dims) != 2 {
		return half{}, fmt.Errorf("%w: tensor %s is %s %v, want a matrix of F32, F16, BF16 or Q8_0", ErrFormat, t.Name, t.Type, t.Dims)
	}
	h := half{rows: t.Dims[1], cols: t.Dims[0]}
	m, err := simd.NewMatrix(format, h.rows, h.cols, t.Data)
	if err != nil {
		return half{}, fmt.Errorf("%w: tensor %s: %w", ErrFormat, t.Name, err)
	}
	h.floats = make([]float32, h.rows*h.cols)
	for r := range h.rows {
		simd.Portable.Row(h.floats[r*h.cols:(r+1)*h.cols], &m, r)
	}
	return h, nil
}
