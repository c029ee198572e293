package openai

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/intelliparadigm/haiku"
)

// CompletionRequest is the body of POST /v1/completions.
type CompletionRequest struct {
	Params
	Prompt   Prompt `json:"prompt"`
	Logprobs *int   `json:"logprobs,omitempty"` // 0 to 5
	completionFeatures
}

// completionFeatures are parameters that are refused if they say anything.
type completionFeatures struct {
	Suffix jsontext.Value `json:"suffix,omitempty"`
	Echo   jsontext.Value `json:"echo,omitempty"`
	BestOf *int           `json:"best_of,omitempty"`
}

// Prompt is what a completion continues: a text, in which the texts of control
// tokens become those tokens, or a list of token ids. On the wire it may also
// be an array with one of either.
type Prompt struct {
	Text   string
	Tokens []int32 // instead of Text when not nil
	many   bool    // more than one, or none, were given
}

// maxLogprobsLegacy is the completions API's own bound.
const maxLogprobsLegacy = 5

// UnmarshalJSONFrom accepts "text", ["text"], [1,2] and [[1,2]].
func (p *Prompt) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*p = Prompt{}
	if dec.PeekKind() != '[' {
		return json.UnmarshalDecode(dec, &p.Text)
	}
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	raw = raw.Clone()
	switch first(raw) {
	case '"':
		var texts []string
		if err := json.Unmarshal(raw, &texts); err != nil {
			return promptError()
		}
		p.Text, p.many = texts[0], len(texts) != 1
	case '[':
		var lists [][]int32
		if err := json.Unmarshal(raw, &lists); err != nil {
			return promptError()
		}
		p.Tokens, p.many = lists[0], len(lists) != 1
	case ']':
		p.many = true
	default:
		if err := json.Unmarshal(raw, &p.Tokens); err != nil {
			return promptError()
		}
	}
	return nil
}

// first returns the kind of an array's first element, ']' for none.
func first(array jsontext.Value) byte {
	for _, b := range array[1:] {
		switch b {
		case ' ', '\t', '\r', '\n':
		default:
			return b
		}
	}
	return ']'
}

func promptError() error {
	return invalid("prompt", "the prompt must be a string, an array of token ids, or an array with one of either")
}

// MarshalJSONTo writes the form that was given.
func (p Prompt) MarshalJSONTo(enc *jsontext.Encoder) error {
	if p.Tokens != nil {
		return json.MarshalEncode(enc, p.Tokens)
	}
	return json.MarshalEncode(enc, p.Text)
}

// InferenceRequest checks the request and translates it. Its error is a
// haiku.Error with status 400 that names the parameter.
func (r *CompletionRequest) InferenceRequest() (*haiku.Request, error) {
	if err := r.refuse(); err != nil {
		return nil, err
	}
	req := &haiku.Request{ID: newID("cmpl-"), Prompt: r.Prompt.Text, PromptTokens: r.Prompt.Tokens}
	if err := r.apply(req); err != nil {
		return nil, err
	}
	switch {
	case r.Prompt.many:
		return nil, unsupported("prompt", "exactly one prompt per request is supported")
	case r.Prompt.Text == "" && len(r.Prompt.Tokens) == 0:
		return nil, invalid("prompt", "the prompt is empty")
	}
	for i, id := range r.Prompt.Tokens {
		if id < 0 {
			return nil, invalid(fmt.Sprintf("prompt[%d]", i), "a token id is negative")
		}
	}
	if n := r.Logprobs; n != nil {
		if *n < 0 || *n > maxLogprobsLegacy {
			return nil, invalid("logprobs", "logprobs must lie from 0 to %d", maxLogprobsLegacy)
		}
		req.Logprobs, req.TopLogprobs = true, *n
	}
	req.Encoder = newCompletionEncoder(r, req)
	return req, nil
}

func (r *CompletionRequest) refuse() error {
	f := &r.completionFeatures
	switch {
	case given(f.Suffix):
		return unsupported("suffix", "suffix is not supported")
	case given(f.Echo):
		return unsupported("echo", "echo is not supported")
	case f.BestOf != nil && *f.BestOf != 1 && (r.N == nil || *f.BestOf != *r.N):
		return unsupported("best_of", "best_of is not supported")
	}
	return nil
}
