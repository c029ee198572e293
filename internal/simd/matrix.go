package simd

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Format is how a row of weights is stored.
type Format uint8

// The formats, each in GGUF's own layout.
const (
	F32  Format = iota // little-endian float32
	F16                // little-endian binary16
	Q8_0               // blocks of 32: binary16 scale, 32 × int8
	Q4_0               // blocks of 32: binary16 scale, 16 bytes of nibbles (i and i+16), offset 8
)

// BlockElements is the number of weights a Q8_0 or Q4_0 block holds.
const BlockElements = 32

const (
	q8BlockBytes = 2 + BlockElements
	q4BlockBytes = 2 + BlockElements/2
)

// String returns the name GGUF tools use.
func (f Format) String() string {
	switch f {
	case F32:
		return "F32"
	case F16:
		return "F16"
	case Q8_0:
		return "Q8_0"
	case Q4_0:
		return "Q4_0"
	}
	return fmt.Sprintf("Format(%d)", uint8(f))
}

// RowBytes is the size of one row of cols weights, or 0 when cols is not a
// whole number of blocks.
func (f Format) RowBytes(cols int) int {
	switch {
	case f == F32:
		return 4 * cols
	case f == F16:
		return 2 * cols
	case cols%BlockElements != 0:
		return 0
	case f == Q8_0:
		return cols / BlockElements * q8BlockBytes
	}
	return cols / BlockElements * q4BlockBytes
}

// Matrix is a view of weights [Rows][Cols]. It is read only and may be used by
// any number of goroutines.
type Matrix struct {
	Format     Format
	Rows, Cols int
	// Data holds Rows × Format.RowBytes(Cols) bytes; no alignment is needed.
	Data []byte
}

// NewMatrix checks that data is exactly rows × cols weights of format f.
func NewMatrix(f Format, rows, cols int, data []byte) (Matrix, error) {
	rowBytes := f.RowBytes(cols)
	if rows <= 0 || cols <= 0 || rowBytes <= 0 || len(data)%rowBytes != 0 || len(data)/rowBytes != rows {
		return Matrix{}, fmt.Errorf("simd: %d bytes are not a %s matrix of %d×%d", len(data), f, rows, cols)
	}
	return Matrix{Format: f, Rows: rows, Cols: cols, Data: data}, nil
}

// rows returns the bytes from row lo to the end.
func (m *Matrix) from(lo int) []byte { return m.Data[lo*m.Format.RowBytes(m.Cols):] }

// decodePortable writes the len(dst) weights of the row at src to dst.
func decodePortable(f Format, dst []float32, src []byte) {
	switch f {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case F16:
		for i := range dst {
			dst[i] = Half(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case Q8_0:
		for ; len(dst) >= BlockElements; dst, src = dst[BlockElements:], src[q8BlockBytes:] {
			scale := Half(binary.LittleEndian.Uint16(src))
			for i, q := range src[2:q8BlockBytes] {
				dst[i] = float32(int8(q)) * scale
			}
		}
	case Q4_0:
		for ; len(dst) >= BlockElements; dst, src = dst[BlockElements:], src[q4BlockBytes:] {
			scale := Half(binary.LittleEndian.Uint16(src))
			for i, q := range src[2:q4BlockBytes] {
				dst[i] = float32(int(q&15)-8) * scale
				dst[i+BlockElements/2] = float32(int(q>>4)-8) * scale
			}
		}
	}
}
