package upstream

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

func encoded(values ...float32) string {
	var raw []byte
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return base64.StdEncoding.EncodeToString(raw)
}

func texts(list ...string) *haiku.EmbeddingRequest {
	req := &haiku.EmbeddingRequest{Model: "e"}
	for _, text := range list {
		req.Inputs = append(req.Inputs, haiku.EmbeddingInput{Text: text})
	}
	return req
}

func TestEmbeddingsComeInTheOrderOfTheInputs(t *testing.T) {
	rec := &recorder{next: failing(200, `{"object":"list","model":"big","data":[{"index":1,"embedding":[0,2,0]},{"index":0,"embedding":"`+encoded(3, 0, 4)+`"}],"usage":{"prompt_tokens":4,"total_tokens":4}}`)}
	e, _ := serve(t, rec.serve, Options{})
	out, err := e.Embed(haiku.WithIdentity(t.Context(), haiku.Identity{Tenant: "acme"}), texts("a", "b"))
	require.NoError(t, err)
	require.Equal(t, &haiku.Embeddings{Model: "big", Vectors: [][]float32{{0.6, 0, 0.8}, {0, 1, 0}}, Usage: haiku.Usage{PromptTokens: 4}}, out, "in either form, of length one")
	path, body, h := rec.last(t)
	require.Equal(t, "POST /v1/embeddings", path)
	require.Equal(t, map[string]any{"model": "e", "input": []any{"a", "b"}, "encoding_format": "float"}, body)
	require.Len(t, h.Get(headerFairness), 32)
}

func TestEmbeddingsOfTokensInAsManyDimensions(t *testing.T) {
	rec := &recorder{next: failing(200, `{"data":[{"index":0,"embedding":"`+encoded(1, 0)+`"}]}`)}
	e, _ := serve(t, rec.serve, Options{Dialect: VLLM, Model: "org/e", Name: "small"})
	req := &haiku.EmbeddingRequest{Inputs: []haiku.EmbeddingInput{{Tokens: []int32{5, 6}}}, Dimensions: 2}
	out, err := e.Embed(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, "small", out.Model)
	_, body, _ := rec.last(t)
	require.Equal(t, map[string]any{"model": "org/e", "input": []any{[]any{5.0, 6.0}}, "encoding_format": "base64", "dimensions": 2.0}, body)
	req.Dimensions = 3
	_, err = e.Embed(t.Context(), req)
	require.ErrorIs(t, err, haiku.ErrUnsupported, "an engine that does not heed dimensions")
	require.Equal(t, "dimensions", haiku.ErrorFrom(err).Param)
}

func TestEmbeddingsThatAreNone(t *testing.T) {
	for name, body := range map[string]string{
		"no JSON":         `<html>`,
		"too few":         `{"data":[{"index":0,"embedding":[1]}]}`,
		"too many":        `{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1]},{"index":2,"embedding":[1]}]}`,
		"one twice":       `{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}`,
		"a wrong index":   `{"data":[{"index":0,"embedding":[1]},{"index":2,"embedding":[1]}]}`,
		"below zero":      `{"data":[{"index":-1,"embedding":[1]},{"index":1,"embedding":[1]}]}`,
		"two lengths":     `{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1,2]}]}`,
		"empty":           `{"data":[{"index":0,"embedding":[]},{"index":1,"embedding":[]}]}`,
		"no base64":       `{"data":[{"index":0,"embedding":"?"},{"index":1,"embedding":"AAA="}]}`,
		"half a float":    `{"data":[{"index":0,"embedding":"AAA="},{"index":1,"embedding":"AAA="}]}`,
		"not finite":      `{"data":[{"index":0,"embedding":"` + encoded(float32(math.NaN())) + `"},{"index":1,"embedding":[1]}]}`,
		"another type":    `{"data":[{"index":0,"embedding":{"a":1}},{"index":1,"embedding":[1]}]}`,
		"nothing at all":  `{}`,
		"too much to say": `{"data":[` + string(make([]byte, 2000)) + `]}`,
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := serve(t, failing(200, body), Options{MaxBodyBytes: 1000})
			_, err := e.Embed(t.Context(), texts("a", "b"))
			require.ErrorIs(t, err, ErrMalformed)
			require.Equal(t, 502, haiku.ErrorFrom(err).Status)
		})
	}
}

func TestInputsThatCannotBeEmbedded(t *testing.T) {
	e, err := New("http://h", Options{Dialect: Ollama})
	require.NoError(t, err)
	defer e.Close()
	for param, req := range map[string]*haiku.EmbeddingRequest{
		"input":    {},
		"input[1]": texts("a", ""),
		"input[2]": {Inputs: []haiku.EmbeddingInput{{Text: "a"}, {Text: "b"}, {Tokens: []int32{1}}}},
	} {
		_, err := e.Embed(t.Context(), req)
		require.Equal(t, param, haiku.ErrorFrom(err).Param)
		require.Equal(t, 400, haiku.ErrorFrom(err).Status)
	}
	_, err = e.Embed(t.Context(), &haiku.EmbeddingRequest{Inputs: []haiku.EmbeddingInput{{Tokens: []int32{1}}}})
	require.ErrorIs(t, err, haiku.ErrUnsupported)
}

func TestEmbeddingsAreTriedAgainAndEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, served := inTurn(failing(503, busyBody), cut, failing(200, `{"data":[{"index":0,"embedding":[1]}]}`))
		e, _ := serve(t, h, Options{})
		_, err := e.Embed(t.Context(), texts("a"))
		require.NoError(t, err)
		require.Equal(t, 3, served())

		slow, network := serve(t, hang, Options{FirstToken: 3 * time.Second})
		began := time.Now()
		_, err = slow.Embed(t.Context(), texts("a"))
		require.ErrorIs(t, err, ErrFirstToken)
		require.Equal(t, 3*time.Second, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = slow.Embed(ctx, texts("a"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		_, open := network.connections()
		require.Zero(t, open)
	})
}

func TestAnErrorInPlaceOfEmbeddings(t *testing.T) {
	e, _ := serve(t, failing(200, `{"error":{"message":"input is longer than the context length","code":400}}`), Options{})
	_, err := e.Embed(t.Context(), texts("a"))
	require.ErrorIs(t, err, haiku.ErrContextLength)
}
