package kserve

import (
	"encoding/binary"
	"math"
)

// Tensor is one input of an inference, in the protocol's raw form: elements in
// row-major order, numbers little-endian, a BOOL in one byte, and before each
// element of BYTES its length in four bytes. [Strings] and its kin make one.
type Tensor struct {
	Name     string
	Datatype string // as KServe writes it: "BYTES", "BOOL", "INT32", "UINT64", "FP32", …
	Shape    []int64
	Raw      []byte
}

// Strings is a tensor of texts, of shape [len(values)].
func Strings(name string, values ...string) Tensor {
	var raw []byte
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(len(v)))
		raw = append(raw, v...)
	}
	return vector(name, "BYTES", len(values), raw)
}

// Bools is a tensor of truth values, of shape [len(values)].
func Bools(name string, values ...bool) Tensor {
	raw := make([]byte, len(values))
	for i, v := range values {
		if v {
			raw[i] = 1
		}
	}
	return vector(name, "BOOL", len(values), raw)
}

// Int32s is a tensor of integers, of shape [len(values)].
func Int32s(name string, values ...int32) Tensor {
	var raw []byte
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(v))
	}
	return vector(name, "INT32", len(values), raw)
}

// Uint64s is a tensor of integers, of shape [len(values)].
func Uint64s(name string, values ...uint64) Tensor {
	var raw []byte
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint64(raw, v)
	}
	return vector(name, "UINT64", len(values), raw)
}

// Float32s is a tensor of numbers, of shape [len(values)].
func Float32s(name string, values ...float32) Tensor {
	var raw []byte
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return vector(name, "FP32", len(values), raw)
}

func vector(name, datatype string, elements int, raw []byte) Tensor {
	return Tensor{Name: name, Datatype: datatype, Shape: []int64{int64(elements)}, Raw: raw}
}

// Batched is t as the only row of a batch: what a model wants whose
// max_batch_size is not 0.
func (t Tensor) Batched() Tensor {
	t.Shape = append([]int64{1}, t.Shape...)
	return t
}
