package openai

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/intelliparadigm/haiku"
)

// maxInputs bounds the inputs of an embeddings request, as the API does.
const maxInputs = 2048

// EmbeddingsRequest is the body of POST /v1/embeddings.
type EmbeddingsRequest struct {
	Model string `json:"model,omitzero"`
	// Input is what to embed.
	Input EmbeddingsInput `json:"input"`
	// EncodingFormat is float or base64; empty is float.
	EncodingFormat string `json:"encoding_format,omitzero"`
	// Dimensions is the wanted length, which the model must have.
	Dimensions *int `json:"dimensions,omitzero"`
}

// EmbeddingsInput is, on the wire, a string, an array of strings, an array of
// token ids, or an array of those.
type EmbeddingsInput []haiku.EmbeddingInput

// UnmarshalJSONFrom accepts all four forms.
func (in *EmbeddingsInput) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*in = nil
	switch dec.PeekKind() {
	case '"':
		*in = EmbeddingsInput{{}}
		return json.UnmarshalDecode(dec, &(*in)[0].Text)
	case '[':
	default:
		return inputError()
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	if dec.PeekKind() == '0' {
		tokens, err := readTokens(dec, inputError)
		*in = EmbeddingsInput{{Tokens: tokens}}
		return err
	}
	for dec.PeekKind() != ']' {
		if len(*in) == maxInputs {
			return invalid("input", "at most %d inputs are allowed", maxInputs)
		}
		one, err := readInput(dec)
		if err != nil {
			return err
		}
		*in = append(*in, one)
	}
	_, err := dec.ReadToken()
	return err
}

// readInput reads one element of an array of inputs.
func readInput(dec *jsontext.Decoder) (in haiku.EmbeddingInput, err error) {
	switch dec.PeekKind() {
	case '"':
		err = json.UnmarshalDecode(dec, &in.Text)
	case '[':
		if _, err = dec.ReadToken(); err == nil {
			in.Tokens, err = readTokens(dec, inputError)
		}
	default:
		err = inputError()
	}
	return in, err
}

func inputError() error {
	return invalid("input", "the input must be a string, an array of strings, an array of token ids, or an array of those")
}

// UnmarshalJSON does for encoding/json what UnmarshalJSONFrom does.
func (in *EmbeddingsInput) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, in) }

// request checks the parameters and translates them.
func (r *EmbeddingsRequest) request() (*haiku.EmbeddingRequest, error) {
	if len(r.Input) == 0 {
		return nil, invalid("input", "there is nothing to embed")
	}
	for i := range r.Input {
		if err := r.check(i); err != nil {
			return nil, err
		}
	}
	switch r.EncodingFormat {
	case "", "float", "base64":
	default:
		return nil, invalid("encoding_format", "encoding_format must be float or base64")
	}
	req := &haiku.EmbeddingRequest{Model: r.Model, Inputs: r.Input}
	if d := r.Dimensions; d != nil {
		if *d < 1 || *d > math.MaxInt32 {
			return nil, invalid("dimensions", "dimensions must be at least 1")
		}
		req.Dimensions = *d
	}
	return req, nil
}

func (r *EmbeddingsRequest) check(i int) error {
	param := "input"
	if len(r.Input) > 1 {
		param = fmt.Sprintf("input[%d]", i)
	}
	in := &r.Input[i]
	if in.Text == "" && len(in.Tokens) == 0 {
		return invalid(param, "there is nothing to embed: the input is empty")
	}
	for _, id := range in.Tokens {
		if id < 0 {
			return invalid(param, "a token id is negative")
		}
	}
	return nil
}

// Embedding is one vector of an answer.
type Embedding struct {
	Object    string `json:"object"` // "embedding"
	Index     int    `json:"index"`
	Embedding Vector `json:"embedding"`
}

// Vector is a vector on the wire: an array of numbers, or the base64 form of
// little-endian float32 values.
type Vector struct {
	Values []float32
	Base64 bool
}

// MarshalJSONTo writes the form that was asked for.
func (v Vector) MarshalJSONTo(enc *jsontext.Encoder) error {
	if !v.Base64 {
		return json.MarshalEncode(enc, v.Values)
	}
	raw := make([]byte, 0, 4*len(v.Values))
	for _, x := range v.Values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	return enc.WriteToken(jsontext.String(base64.StdEncoding.EncodeToString(raw)))
}

// MarshalJSON does for encoding/json what MarshalJSONTo does.
func (v Vector) MarshalJSON() ([]byte, error) { return json.Marshal(v) }

// EmbeddingList is the answer to POST /v1/embeddings.
type EmbeddingList struct {
	Object string          `json:"object"` // "list"
	Data   []Embedding     `json:"data"`
	Model  string          `json:"model"`
	Usage  EmbeddingsUsage `json:"usage"`
}

// EmbeddingsUsage counts the tokens of all inputs.
type EmbeddingsUsage struct {
	PromptTokens int `json:"prompt_tokens"`
	TotalTokens  int `json:"total_tokens"`
}

// Embeddings answers POST /v1/embeddings with the route's model, which has to
// be a [haiku.Embedder], or wrap one.
func Embeddings() haiku.InferenceHandler { return haiku.HandlerFunc(embeddings) }

func embeddings(c *haiku.Context) {
	var body EmbeddingsRequest
	if err := c.Bind(&body); err != nil {
		c.AbortWithError(err)
		return
	}
	req, err := body.request()
	if err != nil {
		c.AbortWithError(err)
		return
	}
	model, ok := haiku.ModelFrom(c.Context())
	if !ok {
		c.AbortWithError(haiku.ErrInternal.With("", "this route has no model"))
		return
	}
	embedder, ok := haiku.ModelAs[haiku.Embedder](model)
	if !ok {
		c.AbortWithError(unsupported("model", "this model makes no embeddings"))
		return
	}
	answer, err := embedder.Embed(c.Context(), req)
	if err != nil {
		c.AbortWithError(err)
		return
	}
	list := EmbeddingList{Object: "list", Data: make([]Embedding, len(answer.Vectors)), Model: answer.Model}
	for i, v := range answer.Vectors {
		list.Data[i] = Embedding{"embedding", i, Vector{v, body.EncodingFormat == "base64"}}
	}
	list.Usage = EmbeddingsUsage{answer.Usage.PromptTokens, answer.Usage.PromptTokens}
	c.JSON(http.StatusOK, list)
}
