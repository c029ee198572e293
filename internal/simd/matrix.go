package simd

import "fmt"

// Format is how a row of weights is stored.
type Format uint8

// The formats, each in GGUF's own layout save the last, which no file has.
const (
	F32  Format = iota // little-endian float32
	F16                // little-endian binary16
	BF16               // the upper half of a little-endian float32
	Q8_0               // blocks of 32: scale, 32 × int8
	Q4_0               // blocks of 32: scale, 32 × 4 bits, offset 8
	Q4_1               // blocks of 32: scale, least, 32 × 4 bits
	Q5_0               // blocks of 32: scale, 32 × 5 bits, offset 16
	Q5_1               // blocks of 32: scale, least, 32 × 5 bits
	//lint:ignore ST1003 the name is GGUF's
	Q4_K // blocks of 256: two scales, 8 × 6 bits of scale and of least, 256 × 4 bits
	//lint:ignore ST1003 the name is GGUF's
	Q5_K // blocks of 256: two scales, 8 × 6 bits of scale and of least, 256 × 5 bits
	//lint:ignore ST1003 the name is GGUF's
	Q6_K   // blocks of 256: 256 × 6 bits, offset 32, 16 × 8 bits of scale, scale
	F8E4M3 // blocks of 128, the last of a row shorter: float32 scale, E4M3 values
)

// smallBlock is the number of weights in a block of the formats without a K.
const smallBlock = 32

// layout is all that a format is: its block and how one is read and written.
type layout struct {
	name  string
	block int // weights
	bytes int // of a block
	// decode writes whole blocks of src to dst; encode appends those of src.
	decode func(dst []float32, src []byte)
	encode func(dst []byte, src []float32) []byte
}

// layouts are indexed by Format.
var layouts = [...]layout{
	F32:    {"F32", 1, 4, decodeF32, encodeF32},
	F16:    {"F16", 1, 2, decodeHalf, encodeHalf},
	BF16:   {"BF16", 1, 2, decodeBF16, encodeBF16},
	Q8_0:   {"Q8_0", 32, 34, decodeQ80, encodeQ80},
	Q4_0:   {"Q4_0", 32, 18, decodeQ40, encodeQ40},
	Q4_1:   {"Q4_1", 32, 20, decodeQ41, encodeQ41},
	Q5_0:   {"Q5_0", 32, 22, decodeQ50, encodeQ50},
	Q5_1:   {"Q5_1", 32, 24, decodeQ51, encodeQ51},
	Q4_K:   {"Q4_K", 256, 144, decodeQ4K, encodeQ4K},
	Q5_K:   {"Q5_K", 256, 176, decodeQ5K, encodeQ5K},
	Q6_K:   {"Q6_K", 256, 210, decodeQ6K, encodeQ6K},
	F8E4M3: {"F8E4M3", 1, 0, decodeFP8, encodeFP8}, // see RowBytes
}

// String returns the name GGUF tools use.
func (f Format) String() string {
	if int(f) < len(layouts) {
		return layouts[f].name
	}
	return fmt.Sprintf("Format(%d)", uint8(f))
}

// RowBytes is the size of one row of cols weights, or 0 when cols is not a
// whole number of blocks.
func (f Format) RowBytes(cols int) int {
	l := &layouts[f]
	switch {
	case f == F8E4M3:
		return cols + 4*((cols+fp8Block-1)/fp8Block)
	case cols%l.block != 0:
		return 0
	}
	return cols / l.block * l.bytes
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
	if int(f) >= len(layouts) {
		return Matrix{}, fmt.Errorf("simd: %s is no format", f)
	}
	rowBytes := f.RowBytes(max(cols, 0))
	if rows <= 0 || cols <= 0 || rowBytes <= 0 || len(data)%rowBytes != 0 || len(data)/rowBytes != rows {
		return Matrix{}, fmt.Errorf("simd: %d bytes are not a %s matrix of %d×%d", len(data), f, rows, cols)
	}
	return Matrix{Format: f, Rows: rows, Cols: cols, Data: data}, nil
}

// from returns the bytes from row lo to the end.
func (m *Matrix) from(lo int) []byte { return m.Data[lo*m.Format.RowBytes(m.Cols):] }

// decodePortable writes the len(dst) weights of the row at src to dst.
func decodePortable(f Format, dst []float32, src []byte) { layouts[f].decode(dst, src) }

// Encode appends src, one row of weights, to dst in format f. The row must be
// a whole number of blocks. The steps of a block are spread evenly over the
// range of its weights; GGUF's own writers search for better ones in Q4_K, Q5_K
// and Q6_K. A block with weights that are not finite, or so large that its scale
// exceeds binary16, is lost: it may come back as any numbers, or none.
func Encode(f Format, dst []byte, src []float32) []byte { return layouts[f].encode(dst, src) }
