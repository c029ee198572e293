package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// patched writes a value over the first place where the bytes of what stand.
func patched(data []byte, what string, offset int, value ...byte) []byte {
	b := bytes.Clone(data)
	at := bytes.Index(b, []byte(what))
	copy(b[at+len(what)+offset:], value)
	return b
}

func le64(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }
func le32(n uint32) []byte { return binary.LittleEndian.AppendUint32(nil, n) }

// header makes the beginning of a file.
func header(version uint32, tensors, pairs uint64) []byte {
	b := append([]byte("GGUF"), le32(version)...)
	return append(append(b, le64(tensors)...), le64(pairs)...)
}

func key(name string, kind uint32, rest ...byte) []byte {
	b := append(le64(uint64(len(name))), name...)
	return append(append(b, le32(kind)...), rest...)
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func tensorBytes(name string, dims []uint64, kind uint32, offset uint64) []byte {
	b := append(le64(uint64(len(name))), name...)
	b = append(b, le32(uint32(len(dims)))...)
	for _, d := range dims {
		b = append(b, le64(d)...)
	}
	return append(append(b, le32(kind)...), le64(offset)...)
}

func TestHostileFilesCostNothingAndNameTheField(t *testing.T) {
	good := encoded(t, small())
	pad := make([]byte, 4096)
	one := func(dims []uint64, kind uint32, offset uint64) []byte {
		return join(header(3, 1, 0), tensorBytes("w", dims, kind, offset), pad)
	}
	for name, c := range map[string]struct {
		data  []byte
		field string
	}{
		"nothing":                        {nil, "magic"},
		"the magic alone":                {[]byte("GGUF"), "version"},
		"another magic":                  {append([]byte("GGML"), good[4:]...), "magic"},
		"magic and version":              {good[:8], "tensor count"},
		"version 0":                      {header(0, 0, 0), "version"},
		"version 1":                      {header(1, 0, 0), "version"},
		"version 4":                      {header(4, 0, 0), "version"},
		"version −1":                     {header(math.MaxUint32, 0, 0), "version"},
		"big-endian":                     {header(3<<24, 0, 0), "version"},
		"2^62 tensors":                   {header(3, 1<<62, 0), "tensor count"},
		"2^63 pairs":                     {header(3, 0, 1<<63), "metadata count"},
		"one pair too many":              {header(3, 0, 1), "metadata count"},
		"a key of 2^62 bytes":            {join(header(3, 0, 1), le64(1<<62), pad), "key 0"},
		"a key of length 0":              {join(header(3, 0, 1), key("", 4, 1, 0, 0, 0), pad), "key 0"},
		"a key twice":                    {join(header(3, 0, 2), key("k", 4, 1, 0, 0, 0), key("k", 4, 2, 0, 0, 0), pad), "key 1"},
		"a value of type 99":             {join(header(3, 0, 1), key("k", 99), pad), "metadata k: type"},
		"a boolean that is 7":            {join(header(3, 0, 1), key("k", 7, 7), pad), "metadata k"},
		"a string of 2^63 bytes":         {join(header(3, 0, 1), key("k", 8, le64(1<<63)...), pad), "metadata k"},
		"an array of 2^40 booleans":      {join(header(3, 0, 1), key("k", 9, join(le32(7), le64(1<<40))...), pad), "metadata k: count"},
		"an array of strings that lie":   {join(header(3, 0, 1), key("k", 9, join(le32(8), le64(2), le64(1<<61))...), pad), "metadata k[0]"},
		"an array in an array":           {join(header(3, 0, 1), key("k", 9, join(le32(9), le64(1))...), pad), "metadata k: element type"},
		"an array of type 99":            {join(header(3, 0, 1), key("k", 9, join(le32(99), le64(1))...), pad), "metadata k: element type"},
		"alignment 0":                    {join(header(3, 0, 1), key("general.alignment", 4, 0, 0, 0, 0), pad), "general.alignment"},
		"alignment 3":                    {join(header(3, 0, 1), key("general.alignment", 4, 3, 0, 0, 0), pad), "general.alignment"},
		"alignment 2^30":                 {join(header(3, 0, 1), key("general.alignment", 4, 0, 0, 0, 0x40), pad), "general.alignment"},
		"alignment as text":              {join(header(3, 0, 1), key("general.alignment", 8, join(le64(2), []byte("32"))...), pad), "general.alignment"},
		"no dimensions":                  {one(nil, 0, 0), `tensor "w": dimension count`},
		"five dimensions":                {one([]uint64{1, 1, 1, 1, 1}, 0, 0), `tensor "w": dimension count`},
		"255 dimensions":                 {join(header(3, 1, 0), le64(1), []byte("w"), le32(255), pad), `tensor "w": dimension count`},
		"a dimension of 0":               {one([]uint64{4, 0}, 0, 0), `tensor "w": dimension 1`},
		"2^63−1 × 3":                     {one([]uint64{1<<63 - 1, 3}, 0, 0), `tensor "w": dimension 0`},
		"2^32 × 2^32":                    {one([]uint64{1 << 32, 1 << 32}, 0, 0), `tensor "w": dimension 0`},
		"a product that wraps":           {one([]uint64{3, 1 << 63, 2}, 0, 0), `tensor "w": dimension 1`},
		"2^40+1 × 2^24":                  {one([]uint64{1<<40 + 1, 1 << 24}, 0, 0), `tensor "w": dimension 0`},
		"a withdrawn type":               {one([]uint64{4}, 4, 0), `tensor "w": type`},
		"an unknown type":                {one([]uint64{4}, 999, 0), `tensor "w": type`},
		"more pairs than any model has":  {join(header(3, 0, 1<<16+1), make([]byte, 13<<16+13)), "metadata count"},
		"a row of no whole blocks":       {one([]uint64{33}, 8, 0), `tensor "w": type`},
		"an offset beyond the file":      {one([]uint64{4}, 0, 1<<30), `tensor "w": offset`},
		"an offset that wraps":           {one([]uint64{4}, 0, math.MaxUint64-31), `tensor "w": offset`},
		"an offset that is not aligned":  {one([]uint64{4}, 0, 4), `tensor "w": offset`},
		"a tensor over the end":          {one([]uint64{1024}, 0, 32), `tensor "w": offset`},
		"a tensor twice":                 {join(header(3, 2, 0), tensorBytes("w", []uint64{4}, 0, 0), tensorBytes("w", []uint64{4}, 0, 32), pad), "tensor 1: name"},
		"a tensor without a name":        {join(header(3, 1, 0), tensorBytes("", []uint64{4}, 0, 0), pad), "tensor 0: name"},
		"a tensor with a name of 1 TiB":  {join(header(3, 1, 0), le64(1<<40), pad), "tensor 0: name"},
		"the last tensor's offset moved": {patched(good, "\x01\x00\x00\x00\x00\x00\x00\x00b", 4+16+4, le64(1<<30)...), `tensor "b": offset`},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Parse(c.data)
			runtime.ReadMemStats(&after)
			require.ErrorIs(t, err, ErrFormat)
			var e *FormatError
			require.ErrorAs(t, err, &e)
			require.Contains(t, e.Field, c.field, err)
			require.LessOrEqual(t, e.Offset, int64(len(c.data)))
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
		})
	}
}

func TestAnErrorSaysWhatAndWhere(t *testing.T) {
	for want, data := range map[string][]byte{
		`gguf: magic at byte 0: "GGML" is not "GGUF"`:                                                   append([]byte("GGML"), make([]byte, 20)...),
		`gguf: version at byte 4: the file is big-endian, which is not supported`:                       header(2<<24, 0, 0),
		`gguf: tensor "w": type at byte 45: Q4_2 (withdrawn) is not supported`:                          join(header(3, 1, 0), tensorBytes("w", []uint64{4}, 4, 0)),
		`gguf: tensor "w": type at byte 45: type 99 is not supported`:                                   join(header(3, 1, 0), tensorBytes("w", []uint64{4}, 99, 0)),
		`gguf: tensor "w": offset at byte 49: 4 is not a multiple of the alignment 32`:                  join(header(3, 1, 0), tensorBytes("w", []uint64{4}, 0, 4), make([]byte, 99)),
		`gguf: general.alignment at byte 53: 3 is not a power of two up to 1048576`:                     join(header(3, 0, 1), key("general.alignment", 4, le32(3)...)),
		`gguf: metadata k: type at byte 33: 99 is unknown`:                                              join(header(3, 0, 1), key("k", 99, 0)),
		`gguf: tensor "w": type at byte 45: rows of 33 elements do not divide into blocks of 32 (Q8_0)`: join(header(3, 1, 0), tensorBytes("w", []uint64{33}, 8, 0)),
	} {
		_, err := Parse(data)
		require.EqualError(t, err, want)
	}
}

// TestCountsCostNothingInAHugeFile opens a file whose size makes its counts
// possible. It is sparse, so it takes no room on a disk.
func TestCountsCostNothingInAHugeFile(t *testing.T) {
	for name, head := range map[string][]byte{
		"tensors":  header(3, maxTensors, 0),
		"pairs":    header(3, 0, maxPairs),
		"too many": header(3, 1<<30, 1<<30),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "sparse.gguf")
			require.NoError(t, os.WriteFile(path, head, 0o600))
			if err := os.Truncate(path, 64<<30); err != nil {
				t.Skip("no sparse files here: ", err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Open(path)
			runtime.ReadMemStats(&after)
			require.ErrorIs(t, err, ErrFormat)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
		})
	}
}

func TestTheTinyModelCutAnywhereIsAnError(t *testing.T) {
	good, err := os.ReadFile("../../tinymodel/haiku-tiny.q8_0.gguf")
	require.NoError(t, err)
	const tables = 48 << 10 // bytes, at least; in the data after them fewer cuts do
	for n := 0; n+defaultAlignment <= len(good); {
		_, err := Parse(good[:n])
		if !errors.Is(err, ErrFormat) {
			t.Fatalf("cut to %d of %d bytes: %v", n, len(good), err)
		}
		if n += 64; n > tables {
			n += 64 * 31
		}
	}
}

func TestTheAlignmentMovesTheData(t *testing.T) {
	b := join(header(3, 2, 1), key("general.alignment", 4, le32(64)...),
		tensorBytes("a", []uint64{2}, 0, 0), tensorBytes("b", []uint64{1}, 0, 64))
	b = append(b, make([]byte, -len(b)&63)...)
	b = append(b, floats(1, 2)...)
	b = append(b, make([]byte, 56)...)
	f, err := Parse(append(b, floats(3)...))
	require.NoError(t, err)
	require.Equal(t, []*Tensor{
		{Name: "a", Type: F32, Dims: []int{2}, Data: floats(1, 2)},
		{Name: "b", Type: F32, Dims: []int{1}, Data: floats(3)},
	}, f.Tensors())
	require.Panics(t, func() { _ = f.Tensors()[0].Data[:9] }, "a tensor's capacity ends with it")
}

func TestAFileCutAnywhereIsAnError(t *testing.T) {
	good := encoded(t, small())
	end := len(good)
	for end > 0 && good[end-1] == 0 { // the padding at the end may be missing
		end--
	}
	for n := range end {
		_, err := Parse(good[:n])
		require.ErrorIs(t, err, ErrFormat, "cut to %d bytes", n)
	}
}

func TestTheDataSectionMayEndWithTheFileOrGoOn(t *testing.T) {
	w := NewWriter()
	w.AddTensor("w", F32, []int{8}, make([]byte, 32))
	exact := encoded(t, w)
	_, err := Parse(exact)
	require.NoError(t, err)
	_, err = Parse(append(bytes.Clone(exact), make([]byte, 1<<20)...))
	require.NoError(t, err, "bytes after the last tensor are ignored")
	_, err = Parse(exact[:len(exact)-1])
	require.ErrorIs(t, err, ErrFormat)
}

func FuzzParse(f *testing.F) {
	f.Add(encoded(f, small()))
	f.Add(header(3, 0, 0))
	f.Add(join(header(3, 0, 1), key("k", 9, join(le32(8), le64(2), le64(0), le64(1), []byte("x"))...), make([]byte, 64)))
	f.Add(join(header(2, 1, 0), tensorBytes("w", []uint64{32, 2}, 8, 0), make([]byte, 256)))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse(data)
		if err != nil {
			return
		}
		for _, k := range file.Keys() { // none of these may panic
			_, _ = file.String(k)
			_, _ = file.Int(k)
			_, _ = file.Float(k)
			_, _ = file.Bool(k)
			_, _ = file.Strings(k)
			_, _ = file.Ints(k)
			_, _ = file.Floats(k)
			_, found := file.Value(k)
			require.True(t, found)
		}
		for _, tensor := range file.Tensors() {
			require.Len(t, tensor.Data, tensor.Rows()*tensor.RowBytes())
		}
	})
}
