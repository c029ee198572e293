package kserve

import (
	"math"

	"github.com/intelliparadigm/haiku"
)

// TensorRTLLM is the dialect of the models "ensemble" and "tensorrt_llm_bls" of
// Triton's TensorRT-LLM backend: text_input, max_tokens and a tensor for each
// parameter go in, text_output comes out.
//
// Only the BLS model with accumulate_tokens gives characters whole that are made
// of several tokens; the ensemble turns each token into text alone, and what is
// lost there cannot be mended here.
type TensorRTLLM struct {
	// Unbatched is for models with a max_batch_size of 0, whose tensors have no
	// first dimension for the batch.
	Unbatched bool
	// Old is for versions until the spring of 2025, whose seed is called
	// random_seed and which count no tokens: what an answer used is estimated.
	Old bool
}

// Build makes the inputs of the backend.
func (d TensorRTLLM) Build(to *Inference, req *haiku.Request) error {
	if err := refuse("TensorRT-LLM", req); err != nil {
		return err
	}
	switch {
	case to.Adapter != "":
		return refused("model", "TensorRT-LLM") // its adapters are numbers and weights
	case req.Sampling.MinP != 0:
		return refused("min_p", "TensorRT-LLM")
	case d.Old && req.Choices > 1:
		return refused("n", "TensorRT-LLM")
	}
	to.Inputs = []Tensor{
		Strings("text_input", to.Prompt),
		Int32s("max_tokens", int32(min(to.MaxTokens, math.MaxInt32))),
		Bools("stream", to.Stream),
	}
	to.Outputs = []string{"text_output"}
	if len(req.Stop) > 0 {
		to.Inputs = append(to.Inputs, Strings("stop_words", req.Stop...))
	}
	to.Inputs = append(to.Inputs, d.sampling(&req.Sampling)...)
	if !d.Old {
		d.count(to)
	}
	if req.Choices > 1 {
		to.Inputs = append(to.Inputs, Int32s("num_return_sequences", int32(req.Choices)))
		to.Outputs = append(to.Outputs, "sequence_index")
	}
	if !d.Unbatched {
		for i := range to.Inputs {
			to.Inputs[i] = to.Inputs[i].Batched()
		}
	}
	return nil
}

// count asks for what only later versions have.
func (d TensorRTLLM) count(to *Inference) {
	to.Inputs = append(to.Inputs,
		Bools("exclude_input_in_output", true), Bools("return_num_input_tokens", true), Bools("return_num_output_tokens", true))
	to.Outputs = append(to.Outputs, "num_input_tokens", "num_output_tokens")
}

// sampling makes the tensors that say how a token is drawn. Greedy decoding is a
// top_k of 1 there, and a top_k of 0 with a top_p of 1 keeps all tokens.
func (d TensorRTLLM) sampling(s *haiku.Sampling) []Tensor {
	var inputs []Tensor
	number := func(name string, value float64) {
		if value != 0 {
			inputs = append(inputs, Float32s(name, float32(value)))
		}
	}
	number("presence_penalty", s.PresencePenalty)
	number("frequency_penalty", s.FrequencyPenalty)
	number("repetition_penalty", s.RepetitionPenalty)
	if s.Temperature == 0 {
		return append(inputs, Int32s("top_k", 1))
	}
	number("temperature", s.Temperature)
	inputs = append(inputs, Int32s("top_k", int32(min(max(s.TopK, 0), math.MaxInt32))))
	if s.TopP != 0 {
		number("top_p", s.TopP)
	} else {
		number("top_p", 1)
	}
	if s.Seed != nil {
		inputs = append(inputs, Uint64s(d.seed(), *s.Seed&maxSeed))
	}
	return inputs
}

func (d TensorRTLLM) seed() string {
	if d.Old {
		return "random_seed"
	}
	return "seed"
}

// Answer names the outputs of the backend.
func (d TensorRTLLM) Answer() Answer {
	a := Answer{Text: "text_output", Choice: "sequence_index"}
	if !d.Old {
		a.PromptTokens, a.CompletionTokens = "num_input_tokens", "num_output_tokens"
	}
	return a
}
