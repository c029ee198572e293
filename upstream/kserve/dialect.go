package kserve

import (
	"math"

	"github.com/intelliparadigm/haiku"
)

// Dialect says what a model's tensors are. [VLLM] and [TensorRTLLM] are those
// of the two backends that Triton has for language models; a host whose model
// differs embeds one of them and changes what Build has made, or implements
// both methods. They may be called concurrently.
type Dialect interface {
	// Build fills in Inputs, Parameters and Outputs of an inference for req. It
	// refuses what the model cannot do with a [haiku.Error] such as
	// haiku.ErrUnsupported: what is dropped silently gives another answer. It
	// does not change req or keep it.
	Build(to *Inference, req *haiku.Request) error
	// Answer says how the model's responses are read. It is asked once.
	Answer() Answer
}

// Inference is one request to the server.
type Inference struct {
	// Prompt is the text to continue: the request's own, or its messages as
	// Options.Render has made them one.
	Prompt string
	// Stream asks for a response for each step and not for one at the end.
	Stream bool
	// MaxTokens is the bound of each choice, at least 1.
	MaxTokens int
	// Adapter is the one of Options.Adapters that the request names, or empty.
	Adapter string

	// Inputs are the tensors, filled in by Build.
	Inputs []Tensor
	// Parameters are sent beside the tensors, filled in by Build. Names that
	// begin with "triton_" are the server's.
	Parameters []Parameter
	// Outputs are the names of the outputs that the server is to send, filled in
	// by Build; none asks for all that the model has.
	Outputs []string
}

// Answer says which output tensors a model has and what is in them. A name that
// is empty is not looked for.
type Answer struct {
	// Text is the output with the text, BYTES, one element for each choice.
	Text string
	// Finish has one word for each choice, BYTES: "stop" or "length", and "None"
	// or nothing as long as it goes on. Without it a choice of MaxTokens tokens
	// has ended by its length.
	Finish string
	// Choice is an integer, which of the choices the texts of a response begin
	// with. Without it they begin with the first.
	Choice string
	// PromptTokens is the number of tokens in the prompt, and CompletionTokens
	// that of tokens in one response, for all choices. Without them the tokens of
	// the prompt are estimated and the texts that came are counted.
	PromptTokens, CompletionTokens string
	// Cumulative says that each response has the text from its beginning, and
	// not what is new of it.
	Cumulative bool
	// Echo says that texts begin with the prompt, which is cut off.
	Echo bool
}

// refused is the error for a parameter that a model cannot be given.
func refused(param, backend string) error {
	return haiku.ErrUnsupported.With(param, "the model's engine (Triton with %s) has no parameter for %s", backend, param)
}

// refuse names what no tensor of either backend takes.
func refuse(backend string, req *haiku.Request) error {
	s := &req.Sampling
	for _, one := range []struct {
		param string
		asked bool
	}{
		{"prompt", len(req.PromptTokens) > 0}, // as tokens
		{"logit_bias", len(s.LogitBias) > 0},
		{"mask", s.Mask != nil},
		{"typical_p", s.TypicalP != 0 && s.TypicalP != 1},
		{"adapter_scale", req.AdapterScale != nil && *req.AdapterScale != 1},
	} {
		if one.asked {
			return refused(one.param, backend)
		}
	}
	return finite(s)
}

// finite refuses what is not a number before it meets an engine.
func finite(s *haiku.Sampling) error {
	for _, one := range []struct {
		param string
		value float64
	}{
		{"temperature", s.Temperature},
		{"top_p", s.TopP},
		{"min_p", s.MinP},
		{"presence_penalty", s.PresencePenalty},
		{"frequency_penalty", s.FrequencyPenalty},
		{"repetition_penalty", s.RepetitionPenalty},
	} {
		if math.IsNaN(one.value) || math.Abs(one.value) > math.MaxFloat32 {
			return haiku.ErrInvalidRequest.With(one.param, "%s is not a number", one.param)
		}
	}
	return nil
}

// maxSeed is the largest seed of both backends: their random numbers take 64
// bits with a sign.
const maxSeed = math.MaxInt64
