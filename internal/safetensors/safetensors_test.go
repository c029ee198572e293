package safetensors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func written(t testing.TB, metadata map[string]string, tensors ...*Tensor) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Write(&b, metadata, tensors...))
	return b.Bytes()
}

func TestAFileComesBackAsItWasWritten(t *testing.T) {
	want := []*Tensor{
		{Name: "b", Type: "I8", Shape: []int{2, 3}, Data: []byte{1, 2, 3, 4, 5, 6}},
		{Name: "a", Type: "F32", Shape: []int{}, Data: []byte{0, 0, 128, 63}},
		{Name: "none", Type: "F16", Shape: []int{0, 7}, Data: []byte{}},
	}
	path := filepath.Join(t.TempDir(), "model.safetensors")
	require.NoError(t, os.WriteFile(path, written(t, map[string]string{"format": "pt"}, want...), 0o600))
	f, err := Open(path)
	require.NoError(t, err)
	require.Equal(t, want, f.Tensors())
	require.Equal(t, "pt", f.Metadata("format"))
	require.Empty(t, f.Metadata("other"))
	a, found := f.Tensor("a")
	require.True(t, found)
	floats, err := a.Floats()
	require.NoError(t, err)
	require.Equal(t, []float32{1}, floats)
	_, found = f.Tensor("c")
	require.False(t, found)
	b, _ := f.Tensor("b")
	_, err = b.Floats()
	require.ErrorContains(t, err, `tensor "b" has type I8`)
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
	require.Error(t, Write(&bytes.Buffer{}, nil, want[0], want[0]))
	_, err = Open(filepath.Join(t.TempDir(), "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestFloatsOfEveryWidth(t *testing.T) {
	for _, c := range []struct {
		kind string
		data []byte
		want []float32
	}{
		{"F64", binary.LittleEndian.AppendUint64(nil, math.Float64bits(-1.5)), []float32{-1.5}},
		{"BF16", []byte{0xc0, 0x3f, 0x80, 0xff}, []float32{1.5, float32(math.Inf(-1))}},
		{"F16", []byte{0, 0x3e, 1, 0, 0xff, 0x7b, 0, 0xfc, 0, 0x80}, []float32{1.5, 1.0 / (1 << 24), 65504, float32(math.Inf(-1)), float32(math.Copysign(0, -1))}},
	} {
		got, err := (&Tensor{Name: "x", Type: c.kind, Data: c.data}).Floats()
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	require.True(t, math.IsNaN(float64(half(0x7e00))))
}

// file puts a header before data.
func file(header string, data string) []byte {
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), data...)
}

func TestHostileFilesCostNothingAndNameTheTensor(t *testing.T) {
	one := func(fields string) string { return fmt.Sprintf(`{"w":{%s}}`, fields) }
	for says, data := range map[string][]byte{
		"0 bytes are no header length":                   nil,
		"a header of 9223372036854775808 bytes":          binary.LittleEndian.AppendUint64(nil, 1<<63),
		"a header of 3 bytes in a file of 9":             append(binary.LittleEndian.AppendUint64(nil, 3), '{'),
		"a header of 16777217 bytes":                     append(binary.LittleEndian.AppendUint64(nil, maxHeader+1), make([]byte, maxHeader+1)...),
		"does not begin with {":                          file(` {}`, ""),
		"header: ":                                       file(`{"w":`, ""),
		"duplicate":                                      file(`{"w":{},"w":{}}`, ""),
		"exceeded max depth":                             file(`{"w":`+strings.Repeat("[", 20000)+strings.Repeat("]", 20000)+`}`, ""),
		"__metadata__":                                   file(`{"__metadata__":{"a":1}}`, ""),
		`tensor "": it has no name`:                      file(`{"":{"dtype":"I8","shape":[],"data_offsets":[0,1]}}`, "x"),
		`tensor "w": type "F4"`:                          file(one(`"dtype":"F4","shape":[1],"data_offsets":[0,1]`), "x"),
		`tensor "w": type ""`:                            file(one(`"shape":[1],"data_offsets":[0,1]`), "x"),
		`"w": json`:                                      file(one(`"dtype":"I8","shape":[-1],"data_offsets":[0,1]`), "x"),
		"unknown object member":                          file(one(`"dtype":"I8","shape":[1],"data_offsets":[0,1],"x":1`), "x"),
		"9 dimensions":                                   file(one(`"dtype":"I8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]`), "x"),
		"offsets 1 to 0":                                 file(one(`"dtype":"I8","shape":[1],"data_offsets":[1,0]`), "x"),
		"offsets 0 to 2 in data of 1":                    file(one(`"dtype":"I8","shape":[2],"data_offsets":[0,2]`), "x"),
		"offsets 0 to 18446744073709551615":              file(one(`"dtype":"I8","shape":[2],"data_offsets":[0,18446744073709551615]`), "x"),
		"dimension 0 is 9223372036854775807":             file(one(`"dtype":"I8","shape":[9223372036854775807,3],"data_offsets":[0,1]`), "x"),
		"dimension 1 is 2147483647":                      file(one(`"dtype":"F64","shape":[2147483647,2147483647,2147483647],"data_offsets":[0,1]`), "x"),
		"F32 [2] needs 8 bytes, it has 4":                file(one(`"dtype":"F32","shape":[2],"data_offsets":[0,4]`), "xxxx"),
		`tensor "w" begins at 1, what is before it ends`: file(one(`"dtype":"I8","shape":[1],"data_offsets":[1,2]`), "xx"),
		"begins at 0, what is before it ends at 1":       file(`{"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}}`, "xx"),
		"the tensors end at 1, the data at 2":            file(one(`"dtype":"I8","shape":[1],"data_offsets":[0,1]`), "xx"),
	} {
		t.Run(says, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Parse(data)
			runtime.ReadMemStats(&after)
			require.ErrorIs(t, err, ErrFormat)
			require.ErrorContains(t, err, says)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
		})
	}
}

func TestAFileCutAnywhereIsAnError(t *testing.T) {
	good := written(t, nil, &Tensor{Name: "w", Type: "F32", Shape: []int{3}, Data: make([]byte, 12)})
	for n := range good {
		_, err := Parse(good[:n])
		require.ErrorIs(t, err, ErrFormat)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(written(f, map[string]string{"a": "b"}, &Tensor{Name: "w", Type: "F16", Shape: []int{2, 2}, Data: make([]byte, 8)}))
	f.Add(file(`{"w":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}`, "x"))
	f.Add(file(`{}`, ""))
	f.Fuzz(func(t *testing.T, data []byte) {
		parsed, err := Parse(data)
		if err != nil {
			require.ErrorIs(t, err, ErrFormat)
			return
		}
		total := 0
		for _, tensor := range parsed.Tensors() {
			total += len(tensor.Data)
			_, _ = tensor.Floats()
		}
		require.LessOrEqual(t, total, len(data))
	})
}
