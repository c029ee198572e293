package kserve

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku/upstream"
)

// golden reads a message that protoc has written: see testdata/README.md.
func golden(t testing.TB, name string) []byte {
	b, err := os.ReadFile(filepath.Join("testdata", name+".bin"))
	require.NoError(t, err)
	return b
}

func decode(m []byte) *response {
	r := new(streamReply)
	r.unmarshal(mem.BufferSlice{mem.SliceBuffer(m)})
	return &r.response
}

func decodeAlone(m []byte) *response {
	r := new(unaryReply)
	r.unmarshal(mem.BufferSlice{mem.SliceBuffer(m)})
	return &r.response
}

func elements(t require.TestingT, o *output) (values []string) {
	all := o.texts()
	for all.next() {
		values = append(values, string(all.value))
	}
	require.NoError(t, all.end())
	return values
}

func TestARequestIsWrittenAsProtocWritesIt(t *testing.T) {
	seed := Uint64s("seed", math.MaxInt64-1).Batched()
	request := &inferRequest{model: "llm", version: "2", id: "req-1", inference: &Inference{
		Inputs: []Tensor{
			Strings("text_input", "héllo"), Bools("stream", true), seed,
			Int32s("max_tokens", 16, -1).Batched(), Float32s("top_p", 0.5),
		},
		Parameters: []Parameter{{"flag", true}},
		Outputs:    []string{"text_output", "finish_reason"},
	}}
	b, err := request.marshal()
	require.NoError(t, err)
	require.Equal(t, golden(t, "request"), b)
}

func TestParametersHaveTheTypesOfTheProtocol(t *testing.T) {
	for _, c := range []struct {
		value any
		want  message
	}{
		{true, message{}.varint(1, 1)},
		{false, message{}.varint(1, 0)},
		{int64(-1), message{}.varint(2, math.MaxUint64)},
		{"x", message{}.text(3, "x")},
		{1.5, message{4<<3 | 1, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f}},
		{uint64(math.MaxUint64), message{}.varint(5, math.MaxUint64)},
	} {
		got, err := Parameter{"p", c.value}.value()
		require.NoError(t, err)
		require.Equal(t, []byte(c.want), got, "%v", c.value)
	}
	_, err := (&inferRequest{inference: &Inference{Parameters: []Parameter{{"p", 1}}}}).marshal()
	require.ErrorContains(t, err, `parameter "p" is a int`)
}

func TestAResponseIsReadAsProtocWroteIt(t *testing.T) {
	r := decode(golden(t, "response"))
	require.NoError(t, r.bad)
	require.Equal(t, "req-1", string(r.id))
	require.True(t, r.flagged)
	require.True(t, r.final)
	require.Equal(t, []string{"one", ""}, elements(t, r.find("text_output")))
	n, err := r.find("num_output_tokens").sum()
	require.NoError(t, err)
	require.Equal(t, 3, n)
	n, err = r.find("num_input_tokens").sum()
	require.NoError(t, err)
	require.Equal(t, 17, n)
	require.Nil(t, r.find("logprobs"))
	require.Nil(t, r.find(""))
}

func TestTypedContentsAreReadAsProtocWroteThem(t *testing.T) {
	r := decodeAlone(golden(t, "contents"))
	require.NoError(t, r.bad)
	require.False(t, r.flagged)
	require.Equal(t, []string{"one", "two"}, elements(t, r.find("text_output")))
	for name, want := range map[string]int{"num_output_tokens": 3, "num_input_tokens": 17} {
		n, err := r.find(name).sum()
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
}

func TestAnErrorInAStreamIsReadAsProtocWroteIt(t *testing.T) {
	r := decode(golden(t, "failure"))
	require.NoError(t, r.bad)
	require.Equal(t, "Exceeds maximum queue size", string(r.failure))
	require.True(t, r.final)
	require.Empty(t, r.outputs)
}

func TestMetadataIsReadAsProtocWroteIt(t *testing.T) {
	var m metadataReply
	m.unmarshal(mem.BufferSlice{mem.SliceBuffer(golden(t, "metadata"))})
	require.NoError(t, m.err)
	require.Equal(t, ModelMetadata{
		Name: "llm", Platform: "vllm", Versions: []string{"1", "2"},
		Inputs:  []TensorInfo{{"text_input", "BYTES", []int64{1}}},
		Outputs: []TensorInfo{{"text_output", "BYTES", []int64{-1, 3}}},
	}, m.ModelMetadata)
}

// Whatever is written is read again, in a response that was used before and
// with fields around it that nobody knows.
func TestWhatIsWrittenIsRead(t *testing.T) {
	used := new(streamReply)
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOf(rapid.String()).Draw(t, "texts")
		counts := rapid.SliceOf(rapid.Uint32Range(0, 1000)).Draw(t, "counts")
		id := rapid.StringN(0, 20, -1).Draw(t, "id")
		in := says(want...).counts("n", counts...).of(id)
		final := rapid.Bool().Draw(t, "flagged")
		if final {
			in.last(rapid.Bool().Draw(t, "final"))
		}
		m := message{}.varint(9, 3).bytes(10, []byte("unknown"))
		m = append(append(m, in.stream()...), message{}.bytes(77, nil)...)
		used.unmarshal(mem.BufferSlice{mem.SliceBuffer(m[:len(m)/2]), mem.SliceBuffer(m[len(m)/2:])})
		r := &used.response
		require.NoError(t, r.bad)
		require.Equal(t, id, string(r.id))
		require.Equal(t, final, r.flagged)
		if final {
			require.Equal(t, *in.final, r.final)
		}
		require.Equal(t, want, append([]string{}, elements(t, r.find("text_output"))...))
		total := 0
		for _, n := range counts {
			total += int(n)
		}
		n, err := r.find("n").sum()
		require.NoError(t, err)
		require.Equal(t, total, n)
	})
}

func TestMessagesThatLieAreRefused(t *testing.T) {
	output := func(dims ...uint64) message {
		var o message = message{}.text(1, "text_output").text(2, "BYTES")
		for _, n := range dims {
			o = o.varint(3, n) // not packed, which is as good
		}
		return message{}.bytes(2, message{}.bytes(5, o).bytes(6, prefixed("a")))
	}
	require.NoError(t, decode(output(1, 1)).bad)
	many := message{}
	for range maxOutputs + 1 {
		many = many.bytes(5, nil)
	}
	manyRaw := message{}
	for range maxOutputs + 1 {
		manyRaw = manyRaw.bytes(6, nil)
	}
	for name, m := range map[string]message{
		"cut off":             output(1)[:20],
		"no message":          {0xff, 0xff, 0xff},
		"a negative size":     output(math.MaxUint64),
		"a size beyond sense": output(1<<30, 1<<30, 1<<30),
		"too many outputs":    message{}.bytes(2, many),
		"too many contents":   message{}.bytes(2, manyRaw),
		"contents of nothing": message{}.bytes(2, message{}.bytes(6, nil)),
		"a shape that is cut": message{}.bytes(2, message{}.bytes(5, message{}.bytes(3, []byte{0x80}))),
		"a parameter cut":     message{}.bytes(2, message{}.bytes(4, message{}.text(1, "triton_final_response").bytes(2, []byte{8}))),
	} {
		require.ErrorIs(t, decode(m).bad, upstream.ErrMalformed, name)
	}
}

func TestTensorsThatLieAreRefused(t *testing.T) {
	text := func(datatype string, raw []byte, shape ...int64) error {
		o := decode(new(infer).output("t", datatype, raw, shape...).stream()).find("t")
		all := o.texts()
		for all.next() {
			continue
		}
		return all.end()
	}
	require.NoError(t, text("BYTES", prefixed("a", "b"), 2))
	require.NoError(t, text("BYTES", prefixed("a", "b"), 1, 2))
	require.NoError(t, text("BYTES", nil, 0))
	for name, err := range map[string]error{
		"another type":      text("INT32", prefixed("a"), 1),
		"longer than it is": text("BYTES", []byte{2, 0, 0, 0, 'a'}, 1),
		"much longer":       text("BYTES", []byte{255, 255, 255, 255, 'a'}, 1),
		"a prefix cut":      text("BYTES", []byte{1, 0}, 1),
		"no prefix":         text("BYTES", []byte("hello"), 1),
		"fewer than shape":  text("BYTES", prefixed("a"), 2),
		"more than shape":   text("BYTES", prefixed("a", "b"), 1),
	} {
		require.ErrorIs(t, err, upstream.ErrMalformed, name)
	}
	count := func(datatype string, raw []byte) error {
		_, err := decode(new(infer).output("n", datatype, raw).stream()).find("n").sum()
		return err
	}
	require.NoError(t, count("INT64", []byte{1, 0, 0, 0, 0, 0, 0, 0}))
	for name, err := range map[string]error{
		"no integer":   count("FP32", []byte{1, 0, 0, 0}),
		"a part":       count("INT32", []byte{1, 0, 0}),
		"negative":     count("INT32", []byte{255, 255, 255, 255}),
		"around again": count("UINT64", append([]byte{5, 0, 0, 0, 0, 0, 0, 0}, 253, 255, 255, 255, 255, 255, 255, 255)),
		"beyond sense": count("UINT64", []byte{0, 0, 0, 0, 1, 0, 0, 0}),
	} {
		require.ErrorIs(t, err, upstream.ErrMalformed, name)
	}
	typed := func(contents message) error {
		o := message{}.text(1, "n").text(2, "INT32").bytes(5, contents)
		_, err := decodeAlone(message{}.bytes(5, o)).find("n").sum()
		return err
	}
	require.NoError(t, typed(message{}.varint(2, 5).bytes(3, []byte{1, 2}).bytes(8, nil)))
	require.ErrorIs(t, typed(message{}.bytes(2, []byte{0x80})), upstream.ErrMalformed)
	require.ErrorIs(t, typed(message{}.varint(2, math.MaxUint64)), upstream.ErrMalformed)
	require.ErrorIs(t, typed(message{0xff}), upstream.ErrMalformed)
}

func TestReadingAResponseAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	m := mem.BufferSlice{mem.SliceBuffer(says(" token").texts("finish_reason", "None").
		counts("num_input_tokens", 12).counts("num_output_tokens", 1).of("req-1").last(false).stream())}
	in := new(streamReply)
	read := func() {
		in.unmarshal(m)
		texts, reasons := in.find("text_output").texts(), in.find("finish_reason").texts()
		for texts.next() && reasons.next() {
			if len(texts.value) != 6 || word(reasons.value) != "" {
				panic("read wrong")
			}
		}
		if n, err := in.find("num_output_tokens").sum(); n != 1 || err != nil {
			panic(err)
		}
	}
	read()
	require.Zero(t, testing.AllocsPerRun(1000, read))
}

// FuzzDecode reads any bytes as a response and walks over all that it holds.
func FuzzDecode(f *testing.F) {
	for _, name := range []string{"response", "failure"} {
		f.Add(golden(f, name))
	}
	f.Add([]byte(says("a", "b").counts("n", 1, 2).last(true).stream()))
	f.Fuzz(func(t *testing.T, m []byte) {
		for _, r := range []*response{decode(m), decodeAlone(m)} {
			for i := range r.outputs {
				o := &r.outputs[i]
				all := o.texts()
				size := 0
				for all.next() {
					size += len(all.value)
				}
				require.LessOrEqual(t, size, len(m))
				if n, err := o.sum(); err == nil {
					require.LessOrEqual(t, 0, n)
				}
			}
			if r.bad != nil {
				require.ErrorIs(t, r.bad, upstream.ErrMalformed)
			}
		}
	})
}
