package gguf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// Writer makes GGUF files, for tests and for models that are generated. Its
// setters keep the order of calls and do not check for keys given twice.
type Writer struct {
	pairs   []byte
	count   uint64
	tensors []tensorSource
	err     error // of the first tensor that cannot be
}

type tensorSource struct {
	name  string
	typ   Type
	dims  []int
	bytes uint64
	write func(io.Writer) error
}

// NewWriter returns a Writer without pairs or tensors.
func NewWriter() *Writer { return &Writer{} }

func (w *Writer) pair(key string, kind valueType) {
	w.count++
	w.pairs = appendString(w.pairs, key)
	w.pairs = binary.LittleEndian.AppendUint32(w.pairs, uint32(kind))
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// SetString adds a string.
func (w *Writer) SetString(key, s string) {
	w.pair(key, typeString)
	w.pairs = appendString(w.pairs, s)
}

// SetBool adds a boolean.
func (w *Writer) SetBool(key string, b bool) {
	w.pair(key, typeBool)
	if b {
		w.pairs = append(w.pairs, 1)
	} else {
		w.pairs = append(w.pairs, 0)
	}
}

// SetUint32 adds an unsigned integer.
func (w *Writer) SetUint32(key string, n uint32) {
	w.pair(key, typeUint32)
	w.pairs = binary.LittleEndian.AppendUint32(w.pairs, n)
}

// SetFloat32 adds a float.
func (w *Writer) SetFloat32(key string, x float32) {
	w.pair(key, typeFloat32)
	w.pairs = binary.LittleEndian.AppendUint32(w.pairs, math.Float32bits(x))
}

func (w *Writer) array(key string, element valueType, count int) {
	w.pair(key, typeArray)
	w.pairs = binary.LittleEndian.AppendUint32(w.pairs, uint32(element))
	w.pairs = binary.LittleEndian.AppendUint64(w.pairs, uint64(count))
}

// SetStrings adds an array of strings.
func (w *Writer) SetStrings(key string, list []string) {
	w.array(key, typeString, len(list))
	for _, s := range list {
		w.pairs = appendString(w.pairs, s)
	}
}

// SetInts adds an array of 32-bit integers.
func (w *Writer) SetInts(key string, list []int32) {
	w.array(key, typeInt32, len(list))
	for _, n := range list {
		w.pairs = binary.LittleEndian.AppendUint32(w.pairs, uint32(n))
	}
}

// SetFloats adds an array of floats.
func (w *Writer) SetFloats(key string, list []float32) {
	w.array(key, typeFloat32, len(list))
	for _, x := range list {
		w.pairs = binary.LittleEndian.AppendUint32(w.pairs, math.Float32bits(x))
	}
}

// AddTensor adds a tensor whose data lies in memory, [rows][RowBytes].
func (w *Writer) AddTensor(name string, typ Type, dims []int, data []byte) {
	w.AddTensorFunc(name, typ, dims, func(out io.Writer) error {
		_, err := out.Write(data)
		return err
	})
}

// AddTensorFunc adds a tensor whose data is made when the file is written. A
// shape that its type cannot have is an error of WriteTo.
func (w *Writer) AddTensorFunc(name string, typ Type, dims []int, write func(io.Writer) error) {
	t := &Tensor{Type: typ, Dims: dims}
	if block := typ.BlockElements(); w.err == nil && (block == 0 || len(dims) == 0 || len(dims) > maxDims || dims[0]%block != 0) {
		w.err = fmt.Errorf("gguf: tensor %q: %s of shape %v cannot be written", name, typ, dims)
	}
	if w.err != nil {
		return
	}
	w.tensors = append(w.tensors, tensorSource{name, typ, dims, uint64(t.Rows()) * uint64(t.RowBytes()), write})
}

// WriteTo writes the file, version 3 with the default alignment.
func (w *Writer) WriteTo(out io.Writer) (int64, error) {
	if w.err != nil {
		return 0, w.err
	}
	counted := &countingWriter{w: bufio.NewWriterSize(out, 1<<20)}
	head := append([]byte("GGUF"), 3, 0, 0, 0)
	head = binary.LittleEndian.AppendUint64(head, uint64(len(w.tensors)))
	head = binary.LittleEndian.AppendUint64(head, w.count)
	head = append(head, w.pairs...)
	offset := uint64(0)
	for _, t := range w.tensors {
		head = appendString(head, t.name)
		head = binary.LittleEndian.AppendUint32(head, uint32(len(t.dims)))
		for _, d := range t.dims {
			head = binary.LittleEndian.AppendUint64(head, uint64(d))
		}
		head = binary.LittleEndian.AppendUint32(head, uint32(t.typ))
		head = binary.LittleEndian.AppendUint64(head, offset)
		offset += (t.bytes + defaultAlignment - 1) &^ (defaultAlignment - 1)
	}
	if _, err := counted.Write(head); err != nil {
		return counted.n, err
	}
	for _, t := range w.tensors {
		if err := counted.pad(); err != nil {
			return counted.n, err
		}
		before := counted.n
		if err := t.write(counted); err != nil {
			return counted.n, err
		}
		if wrote := uint64(counted.n - before); wrote != t.bytes {
			return counted.n, fmt.Errorf("gguf: tensor %q: %d bytes written, its shape needs %d", t.name, wrote, t.bytes)
		}
	}
	if err := counted.pad(); err != nil {
		return counted.n, err
	}
	return counted.n, counted.w.Flush()
}

type countingWriter struct {
	w *bufio.Writer
	n int64
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// pad writes zeros up to the next multiple of the alignment.
func (c *countingWriter) pad() error {
	var zeros [defaultAlignment]byte
	_, err := c.Write(zeros[:-c.n&(defaultAlignment-1)])
	return err
}
