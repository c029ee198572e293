package upstream

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/intelliparadigm/haiku"
)

// Embed has the engine embed the inputs, in one request. It implements
// haiku.Embedder. As a cache's embedder an engine wants a short
// Options.FirstToken: each question waits for its vector.
func (e *Engine) Embed(ctx context.Context, req *haiku.EmbeddingRequest) (*haiku.Embeddings, error) {
	out, err := e.embed(ctx, req)
	return out, wireError(ctx, req.Model, err)
}

func (e *Engine) embed(ctx context.Context, req *haiku.EmbeddingRequest) (*haiku.Embeddings, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b, err := e.embedBody(req)
	if err != nil {
		return nil, err
	}
	data, err := e.repeat(ctx, &call{method: http.MethodPost, path: pathEmbeddings, body: b})
	if err != nil {
		return nil, err
	}
	return e.vectors(data, req)
}

// repeat makes a call whose answer is no stream, as often as Options.Retry says.
func (e *Engine) repeat(ctx context.Context, c *call) ([]byte, error) {
	id := haiku.IdentityFrom(ctx)
	arrived, objective := time.Now(), haiku.ObjectiveFrom(ctx)
	for n := 1; ; n++ {
		data, err := e.fetch(ctx, c, envelope{id: newRID(), tenant: id.Tenant, objective: objective})
		if err == nil || ctx.Err() != nil || n >= e.opts.Retry.Attempts || !passing(err) {
			return data, err
		}
		wait := e.wait(n, err)
		if time.Since(arrived)+wait > e.budget(ctx, arrived, objective) {
			return nil, err
		}
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// embedBody writes the body. Where one input is tokens all have to be: the API
// has no list of both.
func (e *Engine) embedBody(req *haiku.EmbeddingRequest) ([]byte, error) {
	if len(req.Inputs) == 0 {
		return nil, haiku.ErrInvalidRequest.With("input", "there is nothing to embed")
	}
	b := &body{}
	b.open()
	if name := e.modelName(req.Model); name != "" {
		b.str("model", name)
	}
	b.name("input")
	b.b = append(b.b, '[')
	for i := range req.Inputs {
		in := &req.Inputs[i]
		tokens := len(in.Tokens) > 0
		switch {
		case !tokens && in.Text == "":
			return nil, haiku.ErrInvalidRequest.With(inputName(req, i), "there is nothing to embed: the input is empty")
		case tokens != (len(req.Inputs[0].Tokens) > 0):
			return nil, unsupported(inputName(req, i), "this model's engine takes either texts or token ids")
		case tokens && e.dialect.noTokens:
			return nil, unsupported(inputName(req, i), "this model's engine takes no token ids")
		}
		b.sep(i)
		if tokens {
			b.ids(in.Tokens)
		} else {
			b.text(in.Text)
		}
	}
	b.b = append(b.b, ']')
	if e.dialect.base64 {
		b.str("encoding_format", "base64")
	} else {
		b.str("encoding_format", "float") // not all know both, and some default to the other
	}
	if req.Dimensions > 0 {
		b.int("dimensions", int64(req.Dimensions))
	}
	b.close()
	return b.b, nil
}

func inputName(req *haiku.EmbeddingRequest, i int) string {
	if len(req.Inputs) == 1 {
		return "input"
	}
	return fmt.Sprintf("input[%d]", i)
}

// embeddingsJSON is the answer.
type embeddingsJSON struct {
	Model string `json:"model"`
	Data  []struct {
		Index     *int           `json:"index"`
		Embedding jsontext.Value `json:"embedding"`
	} `json:"data"`
	Usage struct {
		Prompt float64 `json:"prompt_tokens"`
		Total  float64 `json:"total_tokens"`
	} `json:"usage"`
}

// vectors reads the answer: each input's vector exactly once, all of one
// length, which is brought to one.
func (e *Engine) vectors(data []byte, req *haiku.EmbeddingRequest) (*haiku.Embeddings, error) {
	var j embeddingsJSON
	if err := json.Unmarshal(data, &j, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, fmt.Errorf("%w: embeddings: %w", ErrMalformed, err)
	}
	if len(j.Data) == 0 {
		if failed, ok := parseError(data); ok {
			return nil, failed
		}
	}
	if len(j.Data) != len(req.Inputs) {
		return nil, fmt.Errorf("%w: %d embeddings of %d inputs", ErrMalformed, len(j.Data), len(req.Inputs))
	}
	out := &haiku.Embeddings{Model: e.shownName(req.Model, j.Model), Vectors: make([][]float32, len(j.Data))}
	for i := range j.Data {
		at := i
		if j.Data[i].Index != nil {
			at = *j.Data[i].Index
		}
		if at < 0 || at >= len(out.Vectors) || out.Vectors[at] != nil {
			return nil, fmt.Errorf("%w: embeddings are not numbered from 0 to %d", ErrMalformed, len(out.Vectors)-1)
		}
		v, err := readVector(j.Data[i].Embedding)
		if err != nil {
			return nil, err
		}
		out.Vectors[at] = v
	}
	out.Usage.PromptTokens = int(max(j.Usage.Prompt, j.Usage.Total))
	return out, sameLength(out.Vectors, req.Dimensions)
}

func sameLength(vectors [][]float32, asked int) error {
	n := len(vectors[0])
	for _, v := range vectors {
		if len(v) != n || n == 0 {
			return fmt.Errorf("%w: embeddings of %d and %d dimensions", ErrMalformed, n, len(v))
		}
	}
	if asked > 0 && n != asked {
		return unsupported("dimensions", "this model's engine gives vectors of %d dimensions", n)
	}
	return nil
}

// readVector reads a list of numbers or the base64 form of little-endian
// float32 values, and scales it to the length of one.
func readVector(text jsontext.Value) (v []float32, err error) {
	if text.Kind() == '"' {
		raw, err := base64.StdEncoding.DecodeString(stringOf(text))
		if err != nil || len(raw)%4 != 0 {
			return nil, fmt.Errorf("%w: an embedding that is not base64 of float32 values", ErrMalformed)
		}
		v = make([]float32, len(raw)/4)
		for i := range v {
			v[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
	} else if err := json.Unmarshal(text, &v); err != nil {
		return nil, fmt.Errorf("%w: embedding: %w", ErrMalformed, err)
	}
	square := 0.0
	for _, x := range v {
		square += float64(x) * float64(x)
	}
	if math.IsNaN(square) || math.IsInf(square, 0) {
		return nil, fmt.Errorf("%w: an embedding that is not finite", ErrMalformed)
	}
	if length := math.Sqrt(square); length > 0 && math.Abs(length-1) > 1e-6 {
		for i := range v {
			v[i] = float32(float64(v[i]) / length)
		}
	}
	return v, nil
}
