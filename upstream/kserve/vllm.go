package kserve

import (
	"encoding/json"

	"github.com/intelliparadigm/haiku"
)

// VLLM is the dialect of Triton's vLLM backend: text_input, stream and
// sampling_parameters, which is JSON, go in, text_output comes out.
//
// It refuses several choices without randomness, as vLLM does, and what vLLM's
// sampling parameters lack.
type VLLM struct {
	// Basic is for backends before finish_reason, num_input_tokens and
	// num_output_tokens (Triton 24.12): how an answer ended and what it used are
	// then estimated.
	Basic bool
	// Full is for backends that send the whole text each time, with the prompt
	// before it, as they did until Triton 24.02. It includes Basic.
	Full bool
}

// vllmParameters are those of vLLM's SamplingParams that a request can name, and
// the adapter. What is left out would be vLLM's default, so little is.
type vllmParameters struct {
	N                 int      `json:"n,omitempty"`
	MaxTokens         int      `json:"max_tokens"`
	Temperature       float64  `json:"temperature"`
	TopK              int      `json:"top_k,omitempty"`
	TopP              float64  `json:"top_p,omitempty"`
	MinP              float64  `json:"min_p,omitempty"`
	PresencePenalty   float64  `json:"presence_penalty,omitempty"`
	FrequencyPenalty  float64  `json:"frequency_penalty,omitempty"`
	RepetitionPenalty float64  `json:"repetition_penalty,omitempty"`
	Seed              *uint64  `json:"seed,omitempty"`
	Stop              []string `json:"stop,omitempty"`
	Adapter           string   `json:"lora_name,omitempty"`
}

// Build makes the inputs of the backend.
func (d VLLM) Build(to *Inference, req *haiku.Request) error {
	if err := refuse("vLLM", req); err != nil {
		return err
	}
	if req.Choices > 1 && req.Sampling.Temperature == 0 {
		return haiku.ErrUnsupported.With("n", "the model's engine gives several choices only with a temperature above 0")
	}
	parameters, err := json.Marshal(d.parameters(to, req))
	if err != nil {
		return haiku.ErrInvalidRequest.Because(err)
	}
	to.Inputs = []Tensor{
		Strings("text_input", to.Prompt),
		Bools("stream", to.Stream),
		Strings("sampling_parameters", string(parameters)),
	}
	to.Outputs = []string{"text_output"}
	if !d.Full {
		to.Inputs = append(to.Inputs, Bools("exclude_input_in_output", true))
	}
	if d.Full || d.Basic {
		return nil
	}
	to.Inputs = append(to.Inputs,
		Bools("return_finish_reason", true), Bools("return_num_input_tokens", true), Bools("return_num_output_tokens", true))
	to.Outputs = append(to.Outputs, "finish_reason", "num_input_tokens", "num_output_tokens")
	return nil
}

func (d VLLM) parameters(to *Inference, req *haiku.Request) *vllmParameters {
	s := &req.Sampling
	p := &vllmParameters{
		MaxTokens: to.MaxTokens, Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, MinP: s.MinP,
		PresencePenalty: s.PresencePenalty, FrequencyPenalty: s.FrequencyPenalty, RepetitionPenalty: s.RepetitionPenalty,
		Stop: req.Stop, Adapter: to.Adapter,
	}
	if req.Choices > 1 {
		p.N = req.Choices
	}
	if s.Seed != nil {
		p.Seed = new(*s.Seed & maxSeed)
	}
	return p
}

// Answer names the outputs of the backend.
func (d VLLM) Answer() Answer {
	a := Answer{Text: "text_output", Cumulative: d.Full, Echo: d.Full}
	if !d.Full && !d.Basic {
		a.Finish, a.PromptTokens, a.CompletionTokens = "finish_reason", "num_input_tokens", "num_output_tokens"
	}
	return a
}
