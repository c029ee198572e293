package safetensors

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Floats returns a copy of the elements as float32, in order. A type that is no
// floating-point number of 16 to 64 bits is an error that names the tensor.
func (t *Tensor) Floats() ([]float32, error) {
	var at func(i int) float32
	switch t.Type {
	case "F32":
		at = func(i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:])) }
	case "F64":
		at = func(i int) float32 { return float32(math.Float64frombits(binary.LittleEndian.Uint64(t.Data[8*i:]))) }
	case "BF16":
		at = func(i int) float32 {
			return math.Float32frombits(uint32(binary.LittleEndian.Uint16(t.Data[2*i:])) << 16)
		}
	case "F16":
		at = func(i int) float32 { return half(binary.LittleEndian.Uint16(t.Data[2*i:])) }
	default:
		return nil, fmt.Errorf("safetensors: tensor %q has type %s, want F16, BF16, F32 or F64", t.Name, t.Type)
	}
	floats := make([]float32, len(t.Data)/elementBytes[t.Type])
	for i := range floats {
		floats[i] = at(i)
	}
	return floats, nil
}

// half converts an IEEE 754 binary16 number, exactly.
func half(h uint16) float32 {
	sign := 1 - 2*float64(h>>15)
	exponent, fraction := int(h>>10&31), float64(h&0x3ff)
	switch exponent {
	case 0:
		return float32(sign * fraction * (1.0 / (1 << 24)))
	case 31:
		if fraction != 0 {
			return float32(math.NaN())
		}
		return float32(math.Inf(int(sign)))
	}
	return float32(sign * math.Ldexp(1024+fraction, exponent-25))
}
