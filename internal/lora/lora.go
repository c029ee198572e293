// Package lora reads low-rank adapters: small matrices whose product is added
// to a model's weights (Hu et al. 2021).
//
// The one idea: whatever a file is written in, what comes out are pairs of
// float32 matrices under the base model's own tensor names and in the base
// model's own row order, checked against its shapes. An executor needs to know
// nothing else.
package lora

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

var (
	// ErrFormat is matched by errors about a file that is no adapter, or one
	// that asks for what is not supported.
	ErrFormat = errors.New("lora: unusable adapter")
	// ErrMismatch is matched when an adapter does not fit a model.
	ErrMismatch = errors.New("lora: adapter does not fit the model")
)

// Pair is the update of one weight matrix: W + Scale·B·A.
type Pair struct {
	// Tensor is the base tensor's name in GGUF, such as "blk.0.attn_q.weight".
	Tensor        string
	Rank, In, Out int
	A             []float32 // [Rank][In]
	B             []float32 // [Out][Rank]
	// Scale is alpha/rank, or 1 where the file gives no alpha.
	Scale float32
}

// File is a parsed adapter. It is immutable.
type File struct {
	// Name is what the file calls itself, empty if it does not.
	Name string
	// Architecture is the base model's, as GGUF spells it, empty if the file
	// does not say.
	Architecture string
	// HalvesRotated says that rows of queries and keys are in the order of
	// Hugging Face, where a rotation pairs element i of a head with i+HeadDim/2.
	HalvesRotated bool
	// Pairs are the updates, in the order of their tensors' names.
	Pairs []Pair
}

// Bytes is the size of all matrices.
func (f *File) Bytes() (bytes int64) {
	for i := range f.Pairs {
		bytes += 4 * int64(len(f.Pairs[i].A)+len(f.Pairs[i].B))
	}
	return bytes
}

// Open reads a GGUF file, a safetensors file with its adapter_config.json
// beside it, or a directory that PEFT has written. It keeps nothing open.
// Errors match [ErrFormat] or come from the system.
func Open(path string) (*File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	var f *File
	switch {
	case info.IsDir():
		f, err = openPEFT(filepath.Join(path, "adapter_model.safetensors"), path)
	case strings.HasSuffix(path, ".safetensors"):
		f, err = openPEFT(path, filepath.Dir(path))
	default:
		f, err = openGGUF(path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// half is what one tensor of an adapter holds.
type half struct {
	rows, cols int
	floats     []float32 // [rows][cols]
}

// assembly collects the halves of pairs by the base tensor's name.
type assembly struct {
	a, b  map[string]half
	scale func(tensor string, rank int) (float32, error)
}

func newAssembly(scale func(tensor string, rank int) (float32, error)) *assembly {
	return &assembly{a: make(map[string]half), b: make(map[string]half), scale: scale}
}

func (s *assembly) add(tensor string, isA bool, h half) error {
	halves := s.b
	if isA {
		halves = s.a
	}
	if _, twice := halves[tensor]; twice {
		return fmt.Errorf("%w: tensor %s is updated twice", ErrFormat, tensor)
	}
	for _, x := range h.floats {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return fmt.Errorf("%w: the update of %s is not finite", ErrFormat, tensor)
		}
	}
	halves[tensor] = h
	return nil
}

// pairs joins the halves.
func (s *assembly) pairs() ([]Pair, error) {
	var list []Pair
	for tensor := range s.b {
		if _, found := s.a[tensor]; !found {
			return nil, fmt.Errorf("%w: the update of %s has a B and no A", ErrFormat, tensor)
		}
	}
	for tensor, a := range s.a {
		b, found := s.b[tensor]
		switch {
		case !found:
			return nil, fmt.Errorf("%w: the update of %s has an A and no B", ErrFormat, tensor)
		case a.rows != b.cols:
			return nil, fmt.Errorf("%w: the update of %s has an A of rank %d and a B of rank %d", ErrFormat, tensor, a.rows, b.cols)
		case a.rows == 0:
			return nil, fmt.Errorf("%w: the update of %s has rank %d for a matrix of %d×%d", ErrFormat, tensor, a.rows, b.rows, a.cols)
		}
		scale, err := s.scale(tensor, a.rows)
		if err != nil {
			return nil, err
		}
		list = append(list, Pair{Tensor: tensor, Rank: a.rows, In: a.cols, Out: b.rows, A: a.floats, B: b.floats, Scale: scale})
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: it updates nothing", ErrFormat)
	}
	slices.SortFunc(list, func(a, b Pair) int { return strings.Compare(a.Tensor, b.Tensor) })
	return list, nil
}

// finite checks a scale.
func finite(scale float64, what string) (float32, error) {
	if math.IsNaN(scale) || math.IsInf(float64(float32(scale)), 0) {
		return 0, fmt.Errorf("%w: %s gives a scale of %g", ErrFormat, what, scale)
	}
	return float32(scale), nil
}
