package model

import (
	"fmt"
	"strings"

	"github.com/intelliparadigm/haiku/internal/gguf"
	"github.com/intelliparadigm/haiku/internal/simd"
)

// binder looks tensors up by name, checks them and collects what is wrong.
type binder struct {
	file    *gguf.File
	arch    architecture
	bound   map[string]bool // the tensors that were asked for
	missing []string
	err     error // the first fault other than a missing tensor
}

func (b *binder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf(format, args...)
	}
}

// result is the error of everything bound: all missing names, else the first
// fault.
func (b *binder) result() error {
	if len(b.missing) > 0 {
		return fmt.Errorf("%w: missing tensors: %s", ErrInvalid, strings.Join(b.missing, ", "))
	}
	return b.err
}

func (b *binder) has(name string) bool {
	_, found := b.file.Tensor(name)
	return found
}

// refuseOthers reports tensors that nothing has asked for. Tables of rotations
// that old converters wrote repeat what the metadata says.
func (b *binder) refuseOthers() {
	for _, t := range b.file.Tensors() {
		if !b.bound[t.Name] && !strings.HasSuffix(t.Name, ".attn_rot_embd.weight") {
			b.fail("%w: tensor %s has no place in this architecture as it is implemented", ErrUnsupported, t.Name)
			return
		}
	}
}

// tensor returns the tensor of that name and shape, or nil after noting why
// not.
func (b *binder) tensor(name string, dims ...int) *gguf.Tensor {
	t, found := b.file.Tensor(name)
	if !found {
		b.missing = append(b.missing, name)
		return nil
	}
	b.bound[name] = true
	shape := t.Dims
	for len(shape) > len(dims) && shape[len(shape)-1] == 1 {
		shape = shape[:len(shape)-1]
	}
	matches := len(shape) == len(dims)
	for i := 0; matches && i < len(dims); i++ {
		matches = shape[i] == dims[i]
	}
	if !matches {
		b.fail("%w: tensor %s is %v, the metadata asks for %v", ErrInvalid, name, t.Dims, dims)
		return nil
	}
	return t
}

// matrix binds a tensor [rows][cols].
func (b *binder) matrix(name string, rows, cols int) simd.Matrix {
	if t := b.tensor(name, cols, rows); t != nil {
		return b.view(t, rows, cols)
	}
	return simd.Matrix{}
}

// matrices binds a tensor [n][rows][cols] as n matrices, or returns nil.
func (b *binder) matrices(name string, n, rows, cols int) []simd.Matrix {
	t := b.tensor(name, cols, rows, n)
	if t == nil {
		return nil
	}
	whole := b.view(t, n*rows, cols)
	if whole.Data == nil {
		return nil
	}
	parts := make([]simd.Matrix, n)
	size := len(whole.Data) / n
	for i := range parts {
		parts[i] = simd.Matrix{Format: whole.Format, Rows: rows, Cols: cols, Data: whole.Data[i*size : (i+1)*size : (i+1)*size]}
	}
	return parts
}

func (b *binder) view(t *gguf.Tensor, rows, cols int) simd.Matrix {
	format, known := formatOf(t.Type)
	if !known {
		b.fail("%w: tensor %s has type %s, implemented are %s", ErrUnsupported, t.Name, t.Type, formatNames())
		return simd.Matrix{}
	}
	m, err := simd.NewMatrix(format, rows, cols, t.Data)
	if err != nil {
		b.fail("%w: tensor %s: %w", ErrInvalid, t.Name, err)
	}
	return m
}

// linear binds name.weight [rows][cols] and, where there is one, name.bias.
func (b *binder) linear(name string, rows, cols int) Linear {
	l := Linear{Matrix: b.matrix(name+".weight", rows, cols)}
	if b.has(name + ".bias") {
		l.Bias = b.vector(name+".bias", rows)
	}
	return l
}

// vector copies a tensor [n] to float32.
func (b *binder) vector(name string, n int) []float32 {
	t := b.tensor(name, n)
	if t == nil {
		return nil
	}
	format, known := formatOf(t.Type)
	if !known || t.Type.BlockElements() != 1 {
		b.fail("%w: tensor %s has type %s, implemented are F32, F16 and BF16", ErrUnsupported, name, t.Type)
		return nil
	}
	m, err := simd.NewMatrix(format, 1, n, t.Data)
	if err != nil {
		b.fail("%w: tensor %s: %w", ErrInvalid, name, err)
		return nil
	}
	v := make([]float32, n)
	simd.Portable.Row(v, &m, 0)
	return v
}

func (b *binder) positive(name string, v []float32) {
	for i, x := range v {
		if !(x > 0) {
			b.fail("%w: tensor %s: element %d is %g, want a positive number", ErrInvalid, name, i, x)
			return
		}
	}
}

// vocab is the number of rows of the embedding, checked against the metadata
// where it is given.
func (b *binder) vocab(architecture string) int {
	t, found := b.file.Tensor("token_embd.weight")
	if !found || len(t.Dims) < 2 {
		return 1 // matrix reports it
	}
	key := architecture + ".vocab_size"
	if n, err := b.file.Int(key); err == nil && n != t.Dims[1] {
		b.fail("%w: %s is %d but tensor token_embd.weight has %d rows", ErrInvalid, key, n, t.Dims[1])
	}
	return t.Dims[1]
}

// formats are the tensor types that package simd can multiply.
var formats = []struct {
	typ    gguf.Type
	format simd.Format
}{
	{gguf.F32, simd.F32}, {gguf.F16, simd.F16}, {gguf.BF16, simd.BF16},
	{gguf.Q8_0, simd.Q8_0}, {gguf.Q4_0, simd.Q4_0}, {gguf.Q4_1, simd.Q4_1}, {gguf.Q5_0, simd.Q5_0}, {gguf.Q5_1, simd.Q5_1},
	{gguf.Q4_K, simd.Q4_K}, {gguf.Q5_K, simd.Q5_K}, {gguf.Q6_K, simd.Q6_K},
}

// formatOf maps a tensor's type to a format the kernels know.
func formatOf(t gguf.Type) (simd.Format, bool) {
	for _, f := range formats {
		if f.typ == t {
			return f.format, true
		}
	}
	return 0, false
}

// typeOf is the inverse of formatOf.
func typeOf(format simd.Format) (gguf.Type, bool) {
	for _, f := range formats {
		if f.format == format {
			return f.typ, true
		}
	}
	return 0, false
}

func formatNames() string {
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = f.typ.String()
	}
	return strings.Join(names, ", ")
}
