// Package safetensors reads tensor files in the safetensors format: a length, a
// JSON header that names tensors, and their data.
//
// The one idea: nothing the header says is believed before it has been compared
// with the bytes that are there. After [Parse] every tensor's data is a view of
// exactly the bytes its type and shape need, no two overlap, and together they
// are the file.
package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/intelliparadigm/haiku/internal/mmap"
)

// ErrFormat is matched by every error about a file that is not good.
var ErrFormat = errors.New("safetensors: malformed file")

// maxHeader bounds the header: more than enough for a hundred thousand tensors.
const maxHeader = 16 << 20

// maxDims bounds the dimensions of a tensor.
const maxDims = 8

// File is a parsed file. It is immutable and safe for concurrent use until
// Close.
type File struct {
	metadata map[string]string
	tensors  []*Tensor
	byName   map[string]*Tensor

	closing sync.Once
	unmap   func() error
}

// Tensor is one array.
type Tensor struct {
	Name  string
	Type  string // as the format spells it, such as "F32" or "BF16"
	Shape []int  // the longest stride first; empty for a scalar
	Data  []byte // little-endian; a view of the file, valid until it is closed
}

// elementBytes are the types there are.
var elementBytes = map[string]int{
	"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1,
}

// Open maps the file at path, which must not be changed while it is open.
func Open(path string) (*File, error) {
	data, unmap, err := mmap.Open(path)
	if err != nil {
		return nil, err
	}
	f, err := Parse(data)
	if err != nil {
		_ = unmap() // the parse error says more
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f.unmap = unmap
	return f, nil
}

// Parse reads a file that lies in memory. The caller keeps data unchanged as
// long as the File is in use.
func Parse(data []byte) (*File, error) {
	if len(data) < 8 {
		return nil, fmt.Errorf("%w: %d bytes are no header length", ErrFormat, len(data))
	}
	n := binary.LittleEndian.Uint64(data)
	if n > maxHeader || n > uint64(len(data)-8) {
		return nil, fmt.Errorf("%w: a header of %d bytes in a file of %d, at most %d are read", ErrFormat, n, len(data), maxHeader)
	}
	f := &File{byName: make(map[string]*Tensor), unmap: func() error { return nil }}
	if err := f.header(data[8:8+n], data[8+n:]); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return f, nil
}

// entry is what the header says about a tensor.
type entry struct {
	Type    string    `json:"dtype"`
	Shape   []uint64  `json:"shape"`
	Offsets [2]uint64 `json:"data_offsets"`
}

func (f *File) header(header, data []byte) error {
	var entries map[string]jsontext.Value // which refuses names given twice
	if len(header) == 0 || header[0] != '{' {
		return errors.New("the header does not begin with {")
	}
	if err := json.Unmarshal(header, &entries); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	type placed struct {
		*Tensor
		from, to uint64
	}
	var all []placed
	for name, raw := range entries {
		if name == "__metadata__" {
			if err := json.Unmarshal(raw, &f.metadata); err != nil {
				return fmt.Errorf("__metadata__: %w", err)
			}
			continue
		}
		var e entry
		if err := json.Unmarshal(raw, &e, json.RejectUnknownMembers(true)); err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		t, err := e.tensor(name, data)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		all = append(all, placed{t, e.Offsets[0], e.Offsets[1]})
	}
	slices.SortFunc(all, func(a, b placed) int {
		if a.from != b.from {
			return int(a.from) - int(b.from) // both within the file
		}
		return int(a.to) - int(b.to)
	})
	end := uint64(0)
	for _, p := range all {
		if p.from != end {
			return fmt.Errorf("tensor %q begins at %d, what is before it ends at %d", p.Name, p.from, end)
		}
		end = p.to
		f.tensors = append(f.tensors, p.Tensor)
		f.byName[p.Name] = p.Tensor
	}
	if end != uint64(len(data)) {
		return fmt.Errorf("the tensors end at %d, the data at %d", end, len(data))
	}
	return nil
}

// tensor checks what the header says against the data.
func (e *entry) tensor(name string, data []byte) (*Tensor, error) {
	width, known := elementBytes[e.Type]
	from, to := e.Offsets[0], e.Offsets[1]
	switch {
	case name == "":
		return nil, errors.New("it has no name")
	case !known:
		return nil, fmt.Errorf("type %q is not supported", e.Type)
	case len(e.Shape) > maxDims:
		return nil, fmt.Errorf("%d dimensions, at most %d are read", len(e.Shape), maxDims)
	case from > to || to > uint64(len(data)):
		return nil, fmt.Errorf("offsets %d to %d in data of %d bytes", from, to, len(data))
	}
	size, shape := uint64(width), make([]int, len(e.Shape))
	for i, d := range e.Shape {
		if d > math.MaxInt32 || d != 0 && size > math.MaxInt64/d {
			return nil, fmt.Errorf("dimension %d is %d", i, d)
		}
		size *= d
		shape[i] = int(d)
	}
	if size != to-from {
		return nil, fmt.Errorf("%s %v needs %d bytes, it has %d", e.Type, shape, size, to-from)
	}
	return &Tensor{Name: name, Type: e.Type, Shape: shape, Data: data[from:to:to]}, nil
}

// Close unmaps the file; tensors must no longer be in use. It may be called
// more than once.
func (f *File) Close() error {
	var err error
	f.closing.Do(func() { err = f.unmap() })
	return err
}

// Tensors lists the tensors in the order of their data.
func (f *File) Tensors() []*Tensor { return slices.Clone(f.tensors) }

// Tensor returns the tensor of that name.
func (f *File) Tensor(name string) (*Tensor, bool) {
	t, found := f.byName[name]
	return t, found
}

// Metadata returns a value of the header's __metadata__, empty if it has none.
func (f *File) Metadata(key string) string { return f.metadata[key] }
