package kserve

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

func build(t *testing.T, d Dialect, req *haiku.Request, to *Inference) map[string]Tensor {
	if to == nil {
		to = &Inference{Prompt: "p", Stream: true, MaxTokens: 16}
	}
	require.NoError(t, d.Build(to, req))
	inputs := map[string]Tensor{}
	for _, in := range to.Inputs {
		require.NotContains(t, inputs, in.Name)
		inputs[in.Name] = in
		in.Name = ""
	}
	return inputs
}

func sampling() haiku.Sampling {
	return haiku.Sampling{
		Temperature: 0.5, TopK: 40, TopP: 0.25, PresencePenalty: 1, FrequencyPenalty: -1, RepetitionPenalty: 1.5, Seed: new(uint64(math.MaxUint64)),
	}
}

func TestVLLMsInputs(t *testing.T) {
	req := &haiku.Request{Choices: 2, Stop: []string{"a", "<b>"}, Sampling: sampling()}
	req.Sampling.MinP = 0.125
	to := &Inference{Prompt: "p", Stream: true, MaxTokens: 16, Adapter: "poet"}
	in := build(t, VLLM{}, req, to)
	require.Equal(t, Strings("text_input", "p"), in["text_input"])
	for _, flag := range []string{"stream", "exclude_input_in_output", "return_finish_reason", "return_num_input_tokens", "return_num_output_tokens"} {
		require.Equal(t, Bools(flag, true), in[flag])
	}
	require.Len(t, in, 7)
	var got map[string]any
	require.NoError(t, json.Unmarshal(in["sampling_parameters"].Raw[4:], &got))
	require.Equal(t, map[string]any{
		"n": 2., "max_tokens": 16., "temperature": 0.5, "top_k": 40., "top_p": 0.25, "min_p": 0.125, "presence_penalty": 1.,
		"frequency_penalty": -1., "repetition_penalty": 1.5, "seed": float64(math.MaxInt64), "stop": []any{"a", "<b>"}, "lora_name": "poet",
	}, got)
	require.Equal(t, []string{"text_output", "finish_reason", "num_input_tokens", "num_output_tokens"}, to.Outputs)

	in = build(t, VLLM{}, &haiku.Request{}, nil)
	require.Equal(t, Strings("sampling_parameters", `{"max_tokens":16,"temperature":0}`), in["sampling_parameters"], "greedy is said, vLLM's default is 1")
	require.Len(t, build(t, VLLM{Basic: true}, &haiku.Request{}, nil), 4)
	require.Len(t, build(t, VLLM{Full: true}, &haiku.Request{}, nil), 3)
	in = build(t, VLLM{}, &haiku.Request{}, &Inference{MaxTokens: 1})
	require.Equal(t, Bools("stream", false), in["stream"])
}

func TestTensorRTLLMsInputs(t *testing.T) {
	req := &haiku.Request{Choices: 2, Stop: []string{"a", "b"}, Sampling: sampling()}
	to := &Inference{Prompt: "p", Stream: true, MaxTokens: math.MaxInt}
	in := build(t, TensorRTLLM{}, req, to)
	for _, want := range []Tensor{
		Strings("text_input", "p"), Int32s("max_tokens", math.MaxInt32), Bools("stream", true), Strings("stop_words", "a", "b"),
		Float32s("temperature", 0.5), Int32s("top_k", 40), Float32s("top_p", 0.25), Float32s("presence_penalty", 1),
		Float32s("frequency_penalty", -1), Float32s("repetition_penalty", 1.5), Uint64s("seed", math.MaxInt64),
		Int32s("num_return_sequences", 2), Bools("exclude_input_in_output", true),
		Bools("return_num_input_tokens", true), Bools("return_num_output_tokens", true),
	} {
		require.Equal(t, want.Batched(), in[want.Name])
		delete(in, want.Name)
	}
	require.Empty(t, in)
	require.Equal(t, []string{"text_output", "num_input_tokens", "num_output_tokens", "sequence_index"}, to.Outputs)

	in = build(t, TensorRTLLM{Unbatched: true}, &haiku.Request{}, nil)
	require.Equal(t, Int32s("top_k", 1), in["top_k"], "greedy")
	require.NotContains(t, in, "temperature")
	require.NotContains(t, in, "top_p")
	in = build(t, TensorRTLLM{Unbatched: true, Old: true}, &haiku.Request{Sampling: haiku.Sampling{Temperature: 1, TopK: -1, Seed: new(uint64(3))}}, nil)
	require.Equal(t, Int32s("top_k", 0), in["top_k"], "all tokens")
	require.Equal(t, Float32s("top_p", 1), in["top_p"])
	require.Equal(t, Uint64s("random_seed", 3), in["random_seed"])
	require.NotContains(t, in, "return_num_input_tokens")
}

func TestWhatAModelCannotDoIsRefused(t *testing.T) {
	for name, d := range map[string]Dialect{"vLLM": VLLM{}, "TensorRT-LLM": TensorRTLLM{}, "old TensorRT-LLM": TensorRTLLM{Old: true}} {
		for param, req := range map[string]haiku.Request{
			"prompt":        {PromptTokens: []int32{1}},
			"logit_bias":    {Sampling: haiku.Sampling{LogitBias: map[int32]float32{1: 1}}},
			"mask":          {Sampling: haiku.Sampling{Mask: haiku.NewTokenMask(1)}},
			"typical_p":     {Sampling: haiku.Sampling{TypicalP: 0.5}},
			"adapter_scale": {AdapterScale: new(0.5)},
		} {
			err := d.Build(&Inference{MaxTokens: 1}, &req)
			require.ErrorIs(t, err, haiku.ErrUnsupported, "%s: %s", name, param)
			require.Equal(t, param, haiku.ErrorFrom(err).Param)
		}
		err := d.Build(&Inference{MaxTokens: 1}, &haiku.Request{Sampling: haiku.Sampling{Temperature: math.NaN()}})
		require.ErrorIs(t, err, haiku.ErrInvalidRequest)
		whole := haiku.Request{AdapterScale: new(1.0), Sampling: haiku.Sampling{TypicalP: 1}}
		require.NoError(t, d.Build(&Inference{MaxTokens: 1}, &whole))
	}
	require.ErrorIs(t, VLLM{}.Build(&Inference{}, &haiku.Request{Choices: 2}), haiku.ErrUnsupported)
	for _, c := range []struct {
		to  Inference
		req haiku.Request
	}{
		{Inference{Adapter: "poet"}, haiku.Request{}},
		{Inference{}, haiku.Request{Sampling: haiku.Sampling{MinP: 0.1}}},
		{Inference{}, haiku.Request{Choices: 2}},
	} {
		require.ErrorIs(t, TensorRTLLM{Old: true}.Build(&c.to, &c.req), haiku.ErrUnsupported)
	}
}

// renamed is the dialect of a model that its host has written, after the vLLM
// backend.
type renamed struct{ VLLM }

func (d renamed) Build(to *Inference, req *haiku.Request) error {
	if err := d.VLLM.Build(to, req); err != nil {
		return err
	}
	to.Inputs[0].Name = "PROMPT"
	to.Inputs = append(to.Inputs, Int32s("priority", int32(req.Objective.Priority)))
	to.Outputs = nil
	return nil
}

func (renamed) Answer() Answer { return Answer{Text: "TEXT", Cumulative: true} }

func TestAHostsOwnDialect(t *testing.T) {
	s := &triton{answer: func(c *call) error {
		return c.send(new(infer).texts("TEXT", "a").stream(), new(infer).texts("TEXT", "ab").last(true).stream())
	}}
	e := s.start(t, Options{Dialect: renamed{VLLM{Basic: true}}, Count: func(string) int { return 5 }})
	got, err := read(t.Context(), e, &haiku.Request{Prompt: "p", Objective: haiku.Objective{Priority: -2}})
	require.NoError(t, err)
	require.Equal(t, []string{"ab"}, got.texts)
	require.Equal(t, haiku.Usage{PromptTokens: 5, CompletionTokens: 2}, got.stream.Usage())
	r := s.asks()[0].request
	require.Equal(t, "p", r.text("PROMPT"))
	require.Equal(t, []byte{254, 255, 255, 255}, r.raw["priority"])
	require.Equal(t, []int64{1}, r.shapes["priority"])
	require.Equal(t, "INT32", r.datatypes["priority"])
	require.Empty(t, r.outputs)
}
