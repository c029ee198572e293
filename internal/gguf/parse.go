package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// Limits that no real file comes near. They bound what the file's own tables
// take in memory, which is several times their size in the file.
const (
	maxPairs         = 1 << 16
	maxTensors       = 1 << 18
	maxKeyBytes      = 1 << 16
	maxNameBytes     = 1 << 10
	maxDims          = 4
	maxAlignment     = 1 << 20
	defaultAlignment = 32
)

// decoder reads a file from front to back.
type decoder struct {
	data []byte
	at   int
}

func (d *decoder) left() uint64 { return uint64(len(d.data) - d.at) }

func (d *decoder) fail(field, reason string, args ...any) error {
	return &FormatError{Offset: int64(d.at), Field: field, Reason: fmt.Sprintf(reason, args...)}
}

// bytes returns the next n bytes as a view of the file.
func (d *decoder) bytes(field string, n uint64) ([]byte, error) {
	if n > d.left() {
		return nil, d.fail(field, "needs %d bytes and %d are left", n, d.left())
	}
	b := d.data[d.at : d.at+int(n) : d.at+int(n)]
	d.at += int(n)
	return b, nil
}

func (d *decoder) uint32(field string) (uint32, error) {
	b, err := d.bytes(field, 4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (d *decoder) uint64(field string) (uint64, error) {
	b, err := d.bytes(field, 8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// str returns a length-prefixed string as a view of the file.
func (d *decoder) str(field string, longest uint64) ([]byte, error) {
	start := d.at
	n, err := d.uint64(field + ": length")
	if err != nil {
		return nil, err
	}
	if n > longest || n > d.left() {
		left := d.left()
		d.at = start
		return nil, d.fail(field+": length", "%d bytes, of which %d are left and %d allowed", n, left, longest)
	}
	return d.bytes(field, n)
}

// parse reads everything but the tensors' data, and checks where that lies.
func (f *File) parse() error {
	d := &decoder{data: f.data}
	tensors, pairs, err := d.header()
	if err != nil {
		return err
	}
	if err := f.parseMetadata(d, pairs); err != nil {
		return err
	}
	alignment, err := f.alignment()
	if err != nil {
		return err
	}
	placements, err := f.parseTensors(d, tensors)
	if err != nil {
		return err
	}
	return f.placeTensors(d, placements, alignment)
}

// Least sizes in a file: a pair has a key length, a type and a byte; a tensor
// a name length, a dimension count, one dimension, a type and an offset.
const (
	minPairBytes   = 8 + 4 + 1
	minTensorBytes = 8 + 4 + 8 + 4 + 8
)

func (d *decoder) header() (tensors, pairs uint64, err error) {
	magic, err := d.bytes("magic", 4)
	if err != nil {
		return 0, 0, err
	}
	if string(magic) != "GGUF" {
		d.at = 0
		return 0, 0, d.fail("magic", "%q is not \"GGUF\"", magic)
	}
	version, err := d.uint32("version")
	if err != nil {
		return 0, 0, err
	}
	if version != 2 && version != 3 {
		d.at -= 4
		if v := bits.ReverseBytes32(version); v >= 1 && v <= 3 {
			return 0, 0, d.fail("version", "the file is big-endian, which is not supported")
		}
		return 0, 0, d.fail("version", "%d is not supported, want 2 or 3", version)
	}
	if tensors, err = d.count("tensor count", minTensorBytes, maxTensors); err != nil {
		return 0, 0, err
	}
	pairs, err = d.count("metadata count", minPairBytes, maxPairs)
	return tensors, pairs, err
}

// count reads the number of things that take at least so many bytes each.
func (d *decoder) count(field string, leastBytes, most uint64) (uint64, error) {
	n, err := d.uint64(field)
	if err != nil {
		return 0, err
	}
	if n > d.left()/leastBytes || n > most {
		d.at -= 8
		return 0, d.fail(field, "%d do not fit in the %d bytes left, or are more than %d", n, d.left()-8, most)
	}
	return n, nil
}

// ahead is how many entries of a table are made room for before the first is
// read: no more than a file too small for its count could cost.
func ahead(count uint64) int { return int(min(count, 1024)) }

func (f *File) parseMetadata(d *decoder, pairs uint64) error {
	f.values = make(map[string]value, ahead(pairs))
	f.keys = make([]string, 0, ahead(pairs))
	for i := range pairs {
		start := d.at
		raw, err := d.str(fmt.Sprintf("key %d", i), maxKeyBytes)
		if err != nil {
			return err
		}
		key := string(raw)
		_, twice := f.values[key]
		if key == "" || twice {
			d.at = start
			return d.fail(fmt.Sprintf("key %d", i), "%q is empty or given twice", key)
		}
		v, err := d.value("metadata " + key)
		if err != nil {
			return err
		}
		f.values[key] = v
		f.keys = append(f.keys, key)
	}
	return nil
}

// value reads one metadata value, as a view.
func (d *decoder) value(field string) (value, error) {
	kind, err := d.uint32(field + ": type")
	if err != nil {
		return value{}, err
	}
	v := value{kind: valueType(kind), at: d.at}
	switch v.kind {
	case typeArray:
		return d.array(field)
	case typeString:
		v.raw, err = d.str(field, math.MaxInt64)
		return v, err
	}
	size, known := minBytes[v.kind]
	if !known {
		d.at -= 4
		return v, d.fail(field+": type", "%d is unknown", kind)
	}
	v.raw, err = d.bytes(field, size)
	if err == nil && v.kind == typeBool && v.raw[0] > 1 {
		d.at--
		return v, d.fail(field, "%d is not a boolean", v.raw[0])
	}
	return v, err
}

// array reads an array of numbers, booleans or strings. Arrays of arrays,
// which the format allows and no model uses, are refused.
func (d *decoder) array(field string) (value, error) {
	kind, err := d.uint32(field + ": element type")
	if err != nil {
		return value{}, err
	}
	v := value{kind: typeArray, element: valueType(kind), at: d.at}
	size, known := minBytes[v.element]
	if !known {
		d.at -= 4
		return v, d.fail(field+": element type", "%d is unknown or an array", kind)
	}
	n, err := d.count(field+": count", size, math.MaxInt64)
	if err != nil {
		return v, err
	}
	v.count = int(n)
	if v.element != typeString {
		v.raw, err = d.bytes(field, n*size)
		return v, err
	}
	start := d.at
	for i := range n {
		// As str does, which would name every one of many thousand elements.
		if d.left() < 8 || binary.LittleEndian.Uint64(d.data[d.at:]) > d.left()-8 {
			_, err := d.str(fmt.Sprintf("%s[%d]", field, i), math.MaxInt64)
			return v, err
		}
		d.at += 8 + int(binary.LittleEndian.Uint64(d.data[d.at:]))
	}
	v.raw = d.data[start:d.at:d.at]
	return v, nil
}

func (f *File) alignment() (uint64, error) {
	const key = "general.alignment"
	v, ok := f.values[key]
	if !ok {
		return defaultAlignment, nil
	}
	n, err := f.Int(key)
	if err != nil {
		return 0, &FormatError{Offset: int64(v.at), Field: key, Reason: err.Error()}
	}
	if n < 1 || n > maxAlignment || n&(n-1) != 0 {
		return 0, &FormatError{Offset: int64(v.at), Field: key, Reason: fmt.Sprintf("%d is not a power of two up to %d", n, maxAlignment)}
	}
	return uint64(n), nil
}

// placement is where a tensor begins in the data section, and where in the file
// that is said.
type placement struct {
	offset uint64
	at     int
}

// parseTensors reads the descriptions and returns where the tensors begin.
func (f *File) parseTensors(d *decoder, count uint64) ([]placement, error) {
	f.tensors = make([]*Tensor, 0, ahead(count))
	f.byName = make(map[string]*Tensor, ahead(count))
	offsets := make([]placement, 0, ahead(count))
	for i := range count {
		start := d.at
		raw, err := d.str(fmt.Sprintf("tensor %d: name", i), maxNameBytes)
		if err != nil {
			return nil, err
		}
		t := &Tensor{Name: string(raw)}
		if _, twice := f.byName[t.Name]; twice || t.Name == "" {
			d.at = start
			return nil, d.fail(fmt.Sprintf("tensor %d: name", i), "%q is empty or given twice", t.Name)
		}
		field := fmt.Sprintf("tensor %q", t.Name)
		if err := d.shape(field, t); err != nil {
			return nil, err
		}
		at := d.at
		offset, err := d.uint64(field + ": offset")
		if err != nil {
			return nil, err
		}
		offsets = append(offsets, placement{offset, at})
		f.tensors = append(f.tensors, t)
		f.byName[t.Name] = t
	}
	return offsets, nil
}

// shape reads dimensions and type, and computes the tensor's size.
func (d *decoder) shape(field string, t *Tensor) error {
	n, err := d.uint32(field + ": dimension count")
	if err != nil {
		return err
	}
	if n < 1 || n > maxDims {
		d.at -= 4
		return d.fail(field+": dimension count", "%d is not between 1 and %d", n, maxDims)
	}
	elements := uint64(1)
	for i := range n {
		dim, err := d.uint64(fmt.Sprintf("%s: dimension %d", field, i))
		if err != nil {
			return err
		}
		high, low := bits.Mul64(elements, dim)
		// An element takes no less than a sixteenth of a byte in any type.
		if dim == 0 || high != 0 || low > min(16*uint64(len(d.data)), math.MaxInt) {
			d.at -= 8
			return d.fail(fmt.Sprintf("%s: dimension %d", field, i), "%d makes a tensor larger than the file, or empty", dim)
		}
		elements = low
		t.Dims = append(t.Dims, int(dim))
	}
	kind, err := d.uint32(field + ": type")
	if err != nil {
		return err
	}
	t.Type = Type(kind)
	block := t.Type.BlockElements()
	if block == 0 {
		d.at -= 4
		return d.fail(field+": type", "%s is not supported", t.Type)
	}
	if t.Dims[0]%block != 0 {
		d.at -= 4
		return d.fail(field+": type", "rows of %d elements do not divide into blocks of %d (%s)", t.Dims[0], block, t.Type)
	}
	return nil
}

// placeTensors finds each tensor's bytes. Tensors may overlap: they are only
// read.
func (f *File) placeTensors(d *decoder, placements []placement, alignment uint64) error {
	start := (uint64(d.at) + alignment - 1) &^ (alignment - 1)
	size := uint64(len(f.data))
	for i, t := range f.tensors {
		field := fmt.Sprintf("tensor %q: offset", t.Name)
		bytes := uint64(t.Rows()) * uint64(t.RowBytes())
		offset := placements[i].offset
		d.at = placements[i].at
		switch {
		case offset%alignment != 0:
			return d.fail(field, "%d is not a multiple of the alignment %d", offset, alignment)
		case start > size || offset > size-start || bytes > size-start-offset:
			return d.fail(field, "%d bytes at offset %d of the data section do not lie within the file", bytes, offset)
		}
		from := start + offset
		t.Data = f.data[from : from+bytes : from+bytes]
	}
	return nil
}
