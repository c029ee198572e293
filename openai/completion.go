package openai

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/intelliparadigm/haiku"
)

// CompletionRequest is the body of POST /v1/completions.
type CompletionRequest struct {
	Params
	Prompt   Prompt `json:"prompt"`
	Logprobs *int   `json:"logprobs,omitzero"` // 0 to 5
	// More is a JSON object with the members that have no field here, as they
	// were written. Of these suffix, echo and best_of become the request's
	// extensions, unless they say nothing; those that the API does not have become
	// optional ones; others are ignored.
	More jsontext.Value `json:",embed,inline"`
}

// UnmarshalJSONFrom reads the request; UnmarshalJSON and MarshalJSON do for
// encoding/json, which knows nothing of More, what the strict JSON package does.
func (r *CompletionRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type fields CompletionRequest // without this method
	return json.UnmarshalDecode(dec, (*fields)(r))
}

// UnmarshalJSON reads the request.
func (r *CompletionRequest) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, r) }

// MarshalJSON writes the request.
func (r CompletionRequest) MarshalJSON() ([]byte, error) {
	type fields CompletionRequest
	return json.Marshal(fields(r))
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
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	switch dec.PeekKind() {
	case '"', '[':
		return p.readOne(dec)
	case ']':
		p.many = true
	}
	var err error
	p.Tokens, err = readTokens(dec, promptError)
	return err
}

// readOne reads the rest of an array that may hold one prompt.
func (p *Prompt) readOne(dec *jsontext.Decoder) error {
	var err error
	for i := 0; dec.PeekKind() != ']'; i++ {
		var one Prompt
		switch dec.PeekKind() {
		case '"':
			err = json.UnmarshalDecode(dec, &one.Text)
		case '[':
			if _, err = dec.ReadToken(); err == nil {
				one.Tokens, err = readTokens(dec, promptError)
			}
		default:
			err = promptError()
		}
		if err != nil {
			return err
		}
		if i == 0 {
			*p = one
		}
		p.many = i > 0
	}
	_, err = dec.ReadToken()
	return err
}

// readTokens reads the rest of an array of token ids; wrong is the error for
// anything else.
func readTokens(dec *jsontext.Decoder, wrong func() error) ([]int32, error) {
	tokens := []int32{}
	for {
		tok, err := dec.ReadToken()
		switch {
		case err != nil:
			return nil, err
		case tok.Kind() == ']':
			return tokens, nil
		case tok.Kind() != '0':
			return nil, wrong()
		}
		id, err := strconv.ParseInt(tok.String(), 10, 32)
		if err != nil {
			return nil, wrong()
		}
		tokens = append(tokens, int32(id))
	}
}

func promptError() error {
	return invalid("prompt", "the prompt must be a string, an array of token ids, or an array with one of either")
}

// MarshalJSONTo writes the form that was given.
func (p Prompt) MarshalJSONTo(enc *jsontext.Encoder) error {
	if p.Tokens != nil {
		return json.MarshalEncode(enc, p.Tokens)
	}
	return enc.WriteToken(jsontext.String(p.Text))
}

// UnmarshalJSON does for encoding/json what UnmarshalJSONFrom does.
func (p *Prompt) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, p) }

// MarshalJSON does for encoding/json what MarshalJSONTo does.
func (p Prompt) MarshalJSON() ([]byte, error) { return json.Marshal(p) }

// InferenceRequest checks the request and translates it. Its error is a
// haiku.Error with status 400 that names the parameter.
func (r *CompletionRequest) InferenceRequest() (*haiku.Request, error) {
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
	var err error
	if req.Extensions, err = r.extensions(); err != nil {
		return nil, err
	}
	req.Encoder = newCompletionEncoder(r, req)
	return req, nil
}

// extensions leaves out a best_of that asks for no more than n.
func (r *CompletionRequest) extensions() ([]haiku.Extension, error) {
	found, err := extensionsOf(r.More, completionExtensions, "", "")
	found = slices.DeleteFunc(found, func(e haiku.Extension) bool {
		best, _ := strconv.Atoi(string(e.Value))
		return e.Name == "best_of" && (best == 1 || r.N != nil && best == *r.N)
	})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		found = nil
	}
	return withVendors(found, r.More, completionExtensions), nil
}
