package openai

import (
	stdjson "encoding/json"
	"fmt"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku"
)

// optional draws a pointer that is nil half of the time.
func optional[T any](t *rapid.T, name string, g *rapid.Generator[T]) *T {
	if !rapid.Bool().Draw(t, "has "+name) {
		return nil
	}
	v := g.Draw(t, name)
	return &v
}

// number draws from [low, high], often the ends or 0: they get lost most easily.
func number(low, high float64) *rapid.Generator[float64] {
	return rapid.OneOf(rapid.SampledFrom([]float64{low, max(low, 0), high}), rapid.Float64Range(low, high))
}

func drawParams(t *rapid.T) Params {
	p := Params{
		Model:             rapid.String().Draw(t, "model"),
		Stream:            rapid.Bool().Draw(t, "stream"),
		N:                 optional(t, "n", rapid.IntRange(1, 128)),
		MaxTokens:         optional(t, "max_tokens", rapid.IntRange(1, 1<<31-1)),
		Stop:              rapid.SliceOfN(rapid.StringN(1, 20, 1024), 0, 4).Draw(t, "stop"),
		Temperature:       optional(t, "temperature", number(0, 2)),
		TopP:              optional(t, "top_p", number(1e-9, 1)),
		TopK:              optional(t, "top_k", rapid.IntRange(-1, 100)),
		MinP:              optional(t, "min_p", number(0, 1)),
		TypicalP:          optional(t, "typical_p", number(1e-9, 1)),
		Seed:              optional(t, "seed", rapid.OneOf(rapid.Just(int64(0)), rapid.Int64())),
		PresencePenalty:   optional(t, "presence_penalty", number(-2, 2)),
		FrequencyPenalty:  optional(t, "frequency_penalty", number(-2, 2)),
		RepetitionPenalty: optional(t, "repetition_penalty", number(0.01, 10)),
		AdapterScale:      optional(t, "adapter_scale", number(-10, 10)),
	}
	for id, bias := range rapid.MapOf(rapid.Int32Min(0), number(-100, 100)).Draw(t, "logit_bias") {
		if p.LogitBias == nil {
			p.LogitBias = map[string]float64{}
		}
		p.LogitBias[fmt.Sprint(id)] = bias
	}
	if p.Stream {
		p.StreamOptions = optional(t, "stream_options", rapid.Just(StreamOptions{IncludeUsage: true}))
	}
	return p
}

func drawMessage(t *rapid.T) Message {
	m := Message{
		Role: rapid.SampledFrom([]string{"system", "developer", "user", "assistant"}).Draw(t, "role"),
		Name: rapid.String().Draw(t, "name"),
	}
	if !rapid.Bool().Draw(t, "in parts") {
		m.Content.Text = rapid.String().Draw(t, "text")
		return m
	}
	for _, text := range rapid.SliceOfN(rapid.String(), 1, 3).Draw(t, "texts") {
		m.Content.Parts = append(m.Content.Parts, ContentPart{Type: "text", Text: &text})
	}
	return m
}

// asked is what a payload asks of a model and of its encoder.
type asked struct {
	haiku.Request
	stream, usage bool
}

func meaning(t *rapid.T, p haiku.Payload) asked {
	req, err := p.InferenceRequest()
	require.NoError(t, err)
	e := req.Encoder.(*encoder)
	r := *req
	r.ID, r.Encoder = "", nil
	if len(r.Stop) == 0 {
		r.Stop = nil
	}
	require.NoError(t, outOfBounds(&r))
	return asked{r, e.stream, e.usage}
}

// requireSameOnTheWire writes a request and reads it again, with the strict
// JSON package and the standard one on both sides.
func requireSameOnTheWire[T any](t *rapid.T, from *T) {
	want := meaning(t, any(from).(haiku.Payload))
	strict, err := json.Marshal(from)
	require.NoError(t, err)
	standard, err := stdjson.Marshal(from)
	require.NoError(t, err)
	for _, wire := range [][]byte{strict, standard} {
		var a, b T
		require.NoError(t, json.Unmarshal(wire, &a), "%s", wire)
		require.Equal(t, want, meaning(t, any(&a).(haiku.Payload)), "%s", wire)
		require.NoError(t, stdjson.Unmarshal(wire, &b), "%s", wire)
		require.Equal(t, want, meaning(t, any(&b).(haiku.Payload)), "%s", wire)
	}
}

func TestAChatRequestSurvivesTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &ChatCompletionRequest{Params: drawParams(t), Logprobs: rapid.Bool().Draw(t, "logprobs")}
		for range rapid.IntRange(1, 3).Draw(t, "messages") {
			r.Messages = append(r.Messages, drawMessage(t))
		}
		if r.Logprobs {
			r.TopLogprobs = optional(t, "top_logprobs", rapid.IntRange(0, 20))
		}
		if r.MaxTokens == nil {
			r.MaxCompletionTokens = optional(t, "max_completion_tokens", rapid.IntRange(1, 1<<31-1))
		}
		requireSameOnTheWire(t, r)
	})
}

func TestACompletionRequestSurvivesTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &CompletionRequest{Params: drawParams(t), Logprobs: optional(t, "logprobs", rapid.IntRange(0, 5))}
		if rapid.Bool().Draw(t, "in tokens") {
			r.Prompt.Tokens = rapid.SliceOfN(rapid.Int32Min(0), 1, 20).Draw(t, "prompt")
		} else {
			r.Prompt.Text = rapid.StringN(1, 20, -1).Draw(t, "prompt")
		}
		requireSameOnTheWire(t, r)
	})
}

// A message whose content was missing must not come back with an empty one.
func TestAMissingContentStaysMissing(t *testing.T) {
	for _, wire := range []string{`{"messages":[{"role":"user"}]}`, `{"messages":[{"role":"user","content":null}]}`} {
		for range 2 {
			var strict, standard ChatCompletionRequest
			require.NoError(t, json.Unmarshal([]byte(wire), &strict))
			require.NoError(t, stdjson.Unmarshal([]byte(wire), &standard))
			for _, r := range []*ChatCompletionRequest{&strict, &standard} {
				_, err := r.InferenceRequest()
				require.ErrorIs(t, err, haiku.ErrInvalidRequest)
				require.Equal(t, "messages[0].content", haiku.ErrorFrom(err).Param)
			}
			again, err := json.Marshal(&strict)
			require.NoError(t, err)
			wire = string(again)
		}
	}
}
