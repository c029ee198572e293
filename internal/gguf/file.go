package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/intelliparadigm/haiku/internal/mmap"
)

// File is a parsed model file. It is immutable and safe for concurrent use
// until Close.
type File struct {
	data    []byte
	values  map[string]value
	keys    []string
	tensors []*Tensor
	byName  map[string]*Tensor

	closing sync.Once
	unmap   func() error
}

// Tensor is one array of a model.
type Tensor struct {
	Name string
	Type Type
	Dims []int  // 1 to 4, the length of a row first
	Data []byte // a view of the file, valid until it is closed
}

// Elements is the number of elements.
func (t *Tensor) Elements() int { return t.Dims[0] * t.Rows() }

// Rows is the number of rows of Dims[0] elements.
func (t *Tensor) Rows() int {
	rows := 1
	for _, d := range t.Dims[1:] {
		rows *= d
	}
	return rows
}

// RowBytes is the number of bytes in a row.
func (t *Tensor) RowBytes() int { return t.Dims[0] / t.Type.BlockElements() * t.Type.BlockBytes() }

// Parse reads a model that lies in memory. The caller keeps data unchanged as
// long as the File is in use.
func Parse(data []byte) (*File, error) {
	f := &File{data: data, unmap: func() error { return nil }}
	if err := f.parse(); err != nil {
		return nil, err
	}
	return f, nil
}

// Open maps the file at path into memory, where pages are read when they are
// touched and shared between processes. The file must not be changed while it
// is open.
func Open(path string) (*File, error) {
	data, unmap, err := mmap.Open(path)
	if err != nil {
		return nil, err
	}
	f := &File{data: data, unmap: unmap}
	if err := f.parse(); err != nil {
		_ = unmap() // the parse error says more
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Close unmaps the file; tensors must no longer be in use. It may be called
// more than once.
func (f *File) Close() error {
	var err error
	f.closing.Do(func() { err = f.unmap() })
	return err
}

// Size is the length of the file in bytes.
func (f *File) Size() int64 { return int64(len(f.data)) }

// Architecture is the value of general.architecture, empty if there is none.
func (f *File) Architecture() string {
	name, _ := f.String("general.architecture")
	return name
}

// Keys lists the metadata keys in the order of the file.
func (f *File) Keys() []string { return slices.Clone(f.keys) }

// Tensors lists the tensors in the order of the file.
func (f *File) Tensors() []*Tensor { return slices.Clone(f.tensors) }

// Tensor returns the tensor of that name.
func (f *File) Tensor(name string) (*Tensor, bool) {
	t, ok := f.byName[name]
	return t, ok
}

// value is a metadata value as it lies in the file.
type value struct {
	kind    valueType
	element valueType // of an array
	count   int       // elements of an array
	at      int       // where in the file it begins
	raw     []byte
}

var typeNames = [...]string{"uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "bool", "string", "array", "uint64", "int64", "float64"}

func (v value) typeName() string {
	if v.kind == typeArray {
		return fmt.Sprintf("an array of %d %s", v.count, typeNames[v.element])
	}
	return typeNames[v.kind]
}

func (f *File) lookup(key string) (value, error) {
	v, ok := f.values[key]
	if !ok {
		return v, fmt.Errorf("%w %s", ErrMissingKey, key)
	}
	return v, nil
}

func wrongType(key string, v value, want string) error {
	return &MetadataError{Key: key, Found: v.typeName(), Want: want}
}

// Value returns any value: a bool, int64, uint64 (of that type only), float64
// or string, an array of strings as []string and any other as []any.
func (f *File) Value(key string) (any, bool) {
	v, ok := f.values[key]
	if !ok {
		return nil, false
	}
	if v.kind != typeArray {
		return v.decode(), true
	}
	if v.element == typeString {
		return v.strings(), true
	}
	size := int(minBytes[v.element])
	list := make([]any, v.count)
	for i := range list {
		list[i] = value{kind: v.element, raw: v.raw[i*size : (i+1)*size]}.decode()
	}
	return list, true
}

// decode returns a value that is no array.
func (v value) decode() any {
	switch v.kind {
	case typeString:
		return string(v.raw)
	case typeBool:
		return v.raw[0] == 1
	case typeUint64:
		return binary.LittleEndian.Uint64(v.raw)
	}
	if n, ok := integer(v.kind, v.raw); ok {
		return n
	}
	x, _ := float(v.kind, v.raw)
	return x
}

// String returns a string. It fails with [ErrMissingKey] or a [MetadataError],
// as all the getters do.
func (f *File) String(key string) (string, error) {
	v, err := f.lookup(key)
	if err != nil {
		return "", err
	}
	if v.kind != typeString {
		return "", wrongType(key, v, "a string")
	}
	return string(v.raw), nil
}

// Bool returns a boolean.
func (f *File) Bool(key string) (bool, error) {
	v, err := f.lookup(key)
	if err != nil {
		return false, err
	}
	if v.kind != typeBool {
		return false, wrongType(key, v, "a boolean")
	}
	return v.raw[0] == 1, nil
}

// Int returns an integer of any width. Values beyond int are of the wrong
// type.
func (f *File) Int(key string) (int, error) {
	v, err := f.lookup(key)
	if err != nil {
		return 0, err
	}
	n, ok := integer(v.kind, v.raw)
	if !ok || int64(int(n)) != n {
		return 0, wrongType(key, v, "an integer")
	}
	return int(n), nil
}

// Float returns a floating-point number of either width.
func (f *File) Float(key string) (float64, error) {
	v, err := f.lookup(key)
	if err != nil {
		return 0, err
	}
	x, ok := float(v.kind, v.raw)
	if !ok {
		return 0, wrongType(key, v, "a float")
	}
	return x, nil
}

// Strings returns an array of strings.
func (f *File) Strings(key string) ([]string, error) {
	v, err := f.lookup(key)
	if err != nil {
		return nil, err
	}
	if v.kind != typeArray || v.element != typeString {
		return nil, wrongType(key, v, "an array of strings")
	}
	return v.strings(), nil
}

func (v value) strings() []string {
	list := make([]string, 0, v.count)
	for raw := v.raw; len(raw) > 0; {
		n := binary.LittleEndian.Uint64(raw) // parse has checked it
		list = append(list, string(raw[8:8+n]))
		raw = raw[8+n:]
	}
	return list
}

// Ints returns an array of integers of any width that fit in 32 bits.
func (f *File) Ints(key string) ([]int32, error) {
	return numbers(f, key, "an array of 32-bit integers", func(kind valueType, raw []byte) (int32, bool) {
		n, ok := integer(kind, raw)
		return int32(n), ok && n >= math.MinInt32 && n <= math.MaxInt32
	})
}

// Floats returns an array of floating-point numbers of either width.
func (f *File) Floats(key string) ([]float32, error) {
	return numbers(f, key, "an array of floats", func(kind valueType, raw []byte) (float32, bool) {
		x, ok := float(kind, raw)
		return float32(x), ok
	})
}

func numbers[T any](f *File, key, want string, decode func(valueType, []byte) (T, bool)) ([]T, error) {
	v, err := f.lookup(key)
	if err != nil {
		return nil, err
	}
	if v.kind != typeArray || v.element == typeString {
		return nil, wrongType(key, v, want)
	}
	size := int(minBytes[v.element])
	list := make([]T, v.count)
	for i := range list {
		n, ok := decode(v.element, v.raw[i*size:(i+1)*size])
		if !ok {
			return nil, wrongType(key, v, want)
		}
		list[i] = n
	}
	return list, nil
}

func integer(kind valueType, raw []byte) (int64, bool) {
	switch kind {
	case typeUint8:
		return int64(raw[0]), true
	case typeInt8:
		return int64(int8(raw[0])), true
	case typeUint16:
		return int64(binary.LittleEndian.Uint16(raw)), true
	case typeInt16:
		return int64(int16(binary.LittleEndian.Uint16(raw))), true
	case typeUint32:
		return int64(binary.LittleEndian.Uint32(raw)), true
	case typeInt32:
		return int64(int32(binary.LittleEndian.Uint32(raw))), true
	case typeInt64, typeUint64:
		n := int64(binary.LittleEndian.Uint64(raw))
		return n, kind == typeInt64 || n >= 0
	default:
		return 0, false
	}
}

func float(kind valueType, raw []byte) (float64, bool) {
	switch kind {
	case typeFloat32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))), true
	case typeFloat64:
		return math.Float64frombits(binary.LittleEndian.Uint64(raw)), true
	default:
		return 0, false
	}
}
