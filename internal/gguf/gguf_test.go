package gguf

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
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

func TestAnyValueIsRead(t *testing.T) {
	f, err := Parse(encoded(t, small()))
	require.NoError(t, err)
	all := map[string]any{}
	for _, k := range f.Keys() {
		all[k], _ = f.Value(k)
	}
	require.Equal(t, map[string]any{
		"general.architecture": "llama", "n": int64(7), "x": 0.5, "yes": true, "words": []string{"a", "", "bc"},
		"ids": []any{int64(1), int64(-2)}, "scores": []any{-1.0, 2.5},
	}, all)
	_, found := f.Value("missing")
	require.False(t, found)
}

func TestEveryGetterTellsAMissingKeyApart(t *testing.T) {
	f, err := Parse(encoded(t, small()))
	require.NoError(t, err)
	get := []func(string) error{
		func(k string) error { _, err := f.String(k); return err }, func(k string) error { _, err := f.Bool(k); return err },
		func(k string) error { _, err := f.Int(k); return err }, func(k string) error { _, err := f.Float(k); return err },
		func(k string) error { _, err := f.Strings(k); return err }, func(k string) error { _, err := f.Ints(k); return err },
		func(k string) error { _, err := f.Floats(k); return err },
	}
	for _, g := range get {
		require.ErrorIs(t, g("missing"), ErrMissingKey)
		wrong := 0
		for _, k := range f.Keys() {
			var e *MetadataError
			if err := g(k); err != nil {
				require.ErrorAs(t, err, &e)
				wrong++
			}
		}
		require.Equal(t, len(f.Keys())-1, wrong, "each getter fits one key of the file")
	}
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

func TestAWriterRefusesDataThatDoesNotFitItsShape(t *testing.T) {
	w := NewWriter()
	w.AddTensor("w", F32, []int{8}, make([]byte, 31))
	_, err := w.WriteTo(&bytes.Buffer{})
	require.ErrorContains(t, err, `"w"`)
	for _, dims := range [][]int{nil, {33}, {1, 1, 1, 1, 1}} {
		w := NewWriter()
		w.AddTensor("odd", Q8_0, dims, nil)
		w.AddTensor("w", F32, []int{1}, floats(1))
		_, err := w.WriteTo(&bytes.Buffer{})
		require.ErrorContains(t, err, `"odd"`)
	}
	w = NewWriter()
	w.AddTensor("w", Type(99), []int{1}, nil)
	_, err = w.WriteTo(&bytes.Buffer{})
	require.ErrorContains(t, err, "type 99")
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

func TestTheEmbeddedModelIsRead(t *testing.T) {
	requireLlama(t, "../../tinymodel/haiku-tiny.q8_0.gguf")
}

func TestTheSharedModelsAreRead(t *testing.T) {
	paths, err := filepath.Glob("../../../shared/models/*/*.gguf")
	require.NoError(t, err)
	if len(paths) == 0 {
		t.Skip("the shared models are not here")
	}
	for _, path := range paths {
		requireLlama(t, path)
	}
}

func requireLlama(t *testing.T, path string) {
	t.Helper()
	f, err := Open(path)
	require.NoError(t, err, path)
	require.Equal(t, "llama", f.Architecture(), path)
	require.NotEmpty(t, f.Tensors(), path)
	require.NoError(t, f.Close(), path)
}
