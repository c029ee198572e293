package openai

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/intelliparadigm/haiku"
)

// Bounds of what a request may ask for.
const (
	maxChoices    = 128
	maxStops      = 4
	maxStopBytes  = 1 << 10
	maxBiases     = 1 << 10
	maxMessages   = 4 << 10
	maxTopLogprob = 20
	maxTemp       = 2

	maxAdapterScale = 10 // either way
)

// Params are the parameters that both kinds of completion share. A nil pointer
// is an absent or null parameter, which has the API's default.
type Params struct {
	Model             string             `json:"model,omitzero"`
	Stream            bool               `json:"stream,omitzero"`
	StreamOptions     *StreamOptions     `json:"stream_options,omitzero"`
	N                 *int               `json:"n,omitzero"`                  // 1 to 128
	MaxTokens         *int               `json:"max_tokens,omitzero"`         // at least 1
	Stop              Stop               `json:"stop,omitzero"`               // up to 4 of 1 to 1024 bytes
	Temperature       *float64           `json:"temperature,omitzero"`        // 0 to 2, default 1
	TopP              *float64           `json:"top_p,omitzero"`              // above 0, to 1
	TopK              *int               `json:"top_k,omitzero"`              // -1 and 0: all
	MinP              *float64           `json:"min_p,omitzero"`              // 0 to 1
	TypicalP          *float64           `json:"typical_p,omitzero"`          // above 0, to 1
	Seed              *int64             `json:"seed,omitzero"`               // any
	PresencePenalty   *float64           `json:"presence_penalty,omitzero"`   // -2 to 2
	FrequencyPenalty  *float64           `json:"frequency_penalty,omitzero"`  // -2 to 2
	RepetitionPenalty *float64           `json:"repetition_penalty,omitzero"` // above 0, to 10; 1 changes nothing
	LogitBias         map[string]float64 `json:"logit_bias,omitzero"`         // token id → -100 to 100
	// AdapterScale is this API's own: how strongly the adapter that is the
	// model takes effect, -10 to 10, default 1.
	AdapterScale *float64 `json:"adapter_scale,omitzero"`
}

// StreamOptions says what a stream carries besides the answer.
type StreamOptions struct {
	// IncludeUsage asks for a last chunk with the usage.
	IncludeUsage bool `json:"include_usage,omitzero"`
}

// Stop is up to four strings that end an answer, on the wire a string or an
// array of strings.
type Stop []string

// UnmarshalJSONFrom accepts both forms, and null.
func (s *Stop) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() != '"' {
		return json.UnmarshalDecode(dec, (*[]string)(s))
	}
	var one string
	if err := json.UnmarshalDecode(dec, &one); err != nil {
		return err
	}
	*s = Stop{one}
	return nil
}

// UnmarshalJSON does for encoding/json what UnmarshalJSONFrom does.
func (s *Stop) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, s) }

// invalid is a parameter with a value that is not allowed.
func invalid(param, format string, args ...any) error {
	return haiku.ErrInvalidRequest.With(param, format, args...)
}

// unsupported is a feature that is not supported.
func unsupported(param, format string, args ...any) error {
	return haiku.ErrUnsupported.With(param, format, args...)
}

// apply checks the parameters and puts them into req.
func (p *Params) apply(req *haiku.Request) error {
	if p.StreamOptions != nil && !p.Stream {
		return invalid("stream_options", "stream_options is only allowed when stream is true")
	}
	req.Model = p.Model
	if s := p.AdapterScale; s != nil && !(*s >= -maxAdapterScale && *s <= maxAdapterScale) {
		return invalid("adapter_scale", "adapter_scale must lie from -%d to %d", maxAdapterScale, maxAdapterScale)
	}
	req.AdapterScale = p.AdapterScale
	if err := p.applyLimits(req); err != nil {
		return err
	}
	return p.applySampling(&req.Sampling)
}

func (p *Params) applyLimits(req *haiku.Request) error {
	if p.N != nil {
		if *p.N < 1 || *p.N > maxChoices {
			return invalid("n", "n must lie between 1 and %d", maxChoices)
		}
		req.Choices = *p.N
	}
	if p.MaxTokens != nil {
		if err := checkMaxTokens("max_tokens", *p.MaxTokens); err != nil {
			return err
		}
		req.MaxTokens = *p.MaxTokens
	}
	if len(p.Stop) > maxStops {
		return invalid("stop", "at most %d stop strings are allowed", maxStops)
	}
	for i, s := range p.Stop {
		if s == "" || len(s) > maxStopBytes {
			return invalid(fmt.Sprintf("stop[%d]", i), "a stop string must have 1 to %d bytes", maxStopBytes)
		}
	}
	req.Stop = p.Stop
	return nil
}

func checkMaxTokens(param string, n int) error {
	if n < 1 || n > math.MaxInt32 {
		return invalid(param, "%s must be at least 1 and fit in 31 bits", param)
	}
	return nil
}

func (p *Params) applySampling(s *haiku.Sampling) error {
	s.Temperature = 1
	for _, f := range []struct {
		name      string
		from      *float64
		to        *float64
		low, high float64
		above     bool // low itself is not allowed
	}{
		{"temperature", p.Temperature, &s.Temperature, 0, maxTemp, false},
		{"top_p", p.TopP, &s.TopP, 0, 1, true},
		{"min_p", p.MinP, &s.MinP, 0, 1, false},
		{"typical_p", p.TypicalP, &s.TypicalP, 0, 1, true},
		{"presence_penalty", p.PresencePenalty, &s.PresencePenalty, -2, 2, false},
		{"frequency_penalty", p.FrequencyPenalty, &s.FrequencyPenalty, -2, 2, false},
		{"repetition_penalty", p.RepetitionPenalty, &s.RepetitionPenalty, 0, 10, true},
	} {
		if f.from == nil {
			continue
		}
		v := *f.from
		if !(v >= f.low && v <= f.high) || (f.above && v == f.low) {
			bound := "from"
			if f.above {
				bound = "above"
			}
			return invalid(f.name, "%s must lie %s %v to %v", f.name, bound, f.low, f.high)
		}
		*f.to = v
	}
	if p.TopK != nil {
		if *p.TopK < -1 || *p.TopK > math.MaxInt32 {
			return invalid("top_k", "top_k must be -1, 0 or a number of tokens")
		}
		s.TopK = max(*p.TopK, 0)
	}
	if p.Seed != nil {
		seed := uint64(*p.Seed)
		s.Seed = &seed
	}
	return p.applyBias(s)
}

func (p *Params) applyBias(s *haiku.Sampling) error {
	if len(p.LogitBias) == 0 {
		return nil
	}
	if len(p.LogitBias) > maxBiases {
		return invalid("logit_bias", "at most %d tokens may have a bias", maxBiases)
	}
	for _, key := range slices.Sorted(maps.Keys(p.LogitBias)) { // sorted: the same error each time
		bias := p.LogitBias[key]
		id, err := strconv.ParseInt(key, 10, 32)
		// A number with one spelling alone: "05" beside "5" would be a token
		// given twice.
		if err != nil || id < 0 || strconv.FormatInt(id, 10) != key {
			return invalid("logit_bias", "a key of logit_bias is not the number of a token")
		}
		if !(bias >= -100 && bias <= 100) {
			return invalid("logit_bias", "the bias of token %d must lie from -100 to 100", id)
		}
		if s.LogitBias == nil {
			s.LogitBias = make(map[int32]float32, len(p.LogitBias))
		}
		s.LogitBias[int32(id)] = float32(bias)
	}
	return nil
}
