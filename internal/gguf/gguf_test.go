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

// small is a good file with one of everything.
func small() *Writer {
	w := NewWriter()
	w.SetString("general.architecture", "llama")
	w.SetUint32("n", 7)
	w.SetFloat32("x", 0.5)
	w.SetBool("yes", true)
	w.SetStrings("words", []string{"a", "", "bc"})
	w.SetInts("ids", []int32{1, -2})
	w.SetFloats("scores", []float32{-1, 2.5})
	w.AddTensor("a", F32, []int{2, 3}, floats(1, 2, 3, 4, 5, 6))
	w.AddTensor("b", Q8_0, []int{32, 2}, make([]byte, 68))
	return w
}

func floats(xs ...float32) (b []byte) {
	for _, x := range xs {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func encoded(t testing.TB, w *Writer) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := w.WriteTo(&b)
	require.NoError(t, err)
	require.EqualValues(t, b.Len(), n)
	return b.Bytes()
}

func TestAFileComesBackAsItWasWritten(t *testing.T) {
	f, err := Parse(encoded(t, small()))
	require.NoError(t, err)
	require.Equal(t, "llama", f.Architecture())
	require.Equal(t, []string{"general.architecture", "n", "x", "yes", "words", "ids", "scores"}, f.Keys())
	n, err := f.Int("n")
	require.NoError(t, err)
	require.Equal(t, 7, n)
	x, err := f.Float("x")
	require.NoError(t, err)
	require.Equal(t, 0.5, x)
	yes, err := f.Bool("yes")
	require.NoError(t, err)
	require.True(t, yes)
	words, err := f.Strings("words")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "", "bc"}, words)
	ids, err := f.Ints("ids")
	require.NoError(t, err)
	require.Equal(t, []int32{1, -2}, ids)
	scores, err := f.Floats("scores")
	require.NoError(t, err)
	require.Equal(t, []float32{-1, 2.5}, scores)
	a, ok := f.Tensor("a")
	require.True(t, ok)
	require.Equal(t, &Tensor{Name: "a", Type: F32, Dims: []int{2, 3}, Data: floats(1, 2, 3, 4, 5, 6)}, a)
	require.Equal(t, []int{6, 3, 8}, []int{a.Elements(), a.Rows(), a.RowBytes()})
	b, ok := f.Tensor("b")
	require.True(t, ok)
	require.Equal(t, []int{64, 2, 34, 68}, []int{b.Elements(), b.Rows(), b.RowBytes(), len(b.Data)})
	require.Len(t, f.Tensors(), 2)
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
}

func TestAValueOfTheWrongTypeIsNamed(t *testing.T) {
	f, err := Parse(encoded(t, small()))
	require.NoError(t, err)
	for key, get := range map[string]func() error{
		"x":     func() error { _, err := f.Int("x"); return err },
		"n":     func() error { _, err := f.Float("n"); return err },
		"words": func() error { _, err := f.Ints("words"); return err },
		"ids":   func() error { _, err := f.Strings("ids"); return err },
		"yes":   func() error { _, err := f.String("yes"); return err },
	} {
		var e *MetadataError
		require.ErrorAs(t, get(), &e)
		require.Equal(t, key, e.Key)
		require.NotEmpty(t, e.Found)
		require.NotEmpty(t, e.Want)
	}
	_, err = f.Int("missing")
	require.ErrorIs(t, err, ErrMissingKey)
	require.ErrorContains(t, err, "missing")
}

func TestIntegersOfAnyWidthAreRead(t *testing.T) {
	for kind, raw := range map[valueType][]byte{
		typeUint8: {200}, typeInt8: {0xFF}, typeUint16: {1, 2}, typeInt16: {0xFE, 0xFF}, typeUint32: {1, 0, 0, 0x80},
		typeInt32: {0xFF, 0xFF, 0xFF, 0xFF}, typeUint64: {9, 0, 0, 0, 0, 0, 0, 0}, typeInt64: {0xF7, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF},
	} {
		want := map[valueType]int64{
			typeUint8: 200, typeInt8: -1, typeUint16: 513, typeInt16: -2, typeUint32: 1<<31 + 1, typeInt32: -1, typeUint64: 9, typeInt64: -9,
		}[kind]
		w := NewWriter()
		w.pair("n", kind)
		w.pairs = append(w.pairs, raw...)
		w.AddTensor("pad", F32, []int{8}, make([]byte, 32))
		f, err := Parse(encoded(t, w))
		require.NoError(t, err)
		got, err := f.Int("n")
		require.NoError(t, err)
		require.EqualValues(t, want, got)
	}
	w := NewWriter()
	w.pair("n", typeUint64)
	w.pairs = binary.LittleEndian.AppendUint64(w.pairs, 1<<63)
	w.AddTensor("pad", F32, []int{8}, make([]byte, 32))
	f, err := Parse(encoded(t, w))
	require.NoError(t, err)
	_, err = f.Int("n")
	require.Error(t, err)
}

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
		"an unknown type":                {one([]uint64{4}, 4, 0), `tensor "w": type`},
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
			if errors.As(err, &e) {
				require.Contains(t, e.Field, c.field, err)
			} else {
				require.ErrorContains(t, err, c.field)
			}
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
		})
	}
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

func TestAWriterRefusesDataThatDoesNotFitItsShape(t *testing.T) {
	w := NewWriter()
	w.AddTensor("w", F32, []int{8}, make([]byte, 31))
	_, err := w.WriteTo(&bytes.Buffer{})
	require.ErrorContains(t, err, `"w"`)
}

func TestOpenMapsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	require.NoError(t, os.WriteFile(path, encoded(t, small()), 0o600))
	f, err := Open(path)
	require.NoError(t, err)
	require.Equal(t, "llama", f.Architecture())
	require.EqualValues(t, len(encoded(t, small())), f.Size())
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())

	_, err = Open(filepath.Join(t.TempDir(), "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Open(t.TempDir())
	require.Error(t, err)
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	_, err = Open(empty)
	require.ErrorIs(t, err, ErrFormat)
}

func TestRealModelsAreRead(t *testing.T) {
	paths, _ := filepath.Glob("../../../shared/models/*/*.gguf")
	paths = append(paths, "../../tinymodel/haiku-tiny.q8_0.gguf")
	for _, path := range paths {
		f, err := Open(path)
		require.NoError(t, err, path)
		require.Equal(t, "llama", f.Architecture())
		require.NotEmpty(t, f.Tensors())
		require.NoError(t, f.Close())
	}
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
		}
		for _, tensor := range file.Tensors() {
			require.Len(t, tensor.Data, tensor.Rows()*tensor.RowBytes())
		}
	})
}
