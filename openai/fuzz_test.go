package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

func FuzzChatCompletionRequest(f *testing.F) {
	for _, s := range []string{
		`{` + hi + `}`,
		`{` + hi + `,"stop":["a"],"n":2,"logit_bias":{"1":2},"stream":true,"stream_options":{"include_usage":true}}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"logprobs":true,"top_logprobs":3}`,
		`{"messages":[{"role":"user","content":null}]}`, `{"messages":[{}]}`, `{}`, `[`, "\xff",
		`{` + hi + `,"max_tokens":1.5}`, `{` + hi + `,"seed":9223372036854775808}`, `{` + hi + `,"top_p":1e-400,"min_p":0.5}`,
		`{` + hi + `,"tools":[{"type":"function"}],"tool_choice":"none","response_format":{"type":"json_object"},"parallel_tool_calls":false}`,
		`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"a"}]},{"role":"tool","tool_call_id":"a","content":"x"}],"reasoning_effort":"low"}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"x"}, {"type":"image_url","image_url":{"url":"u"}}]}]}`,
		`{` + hi + `,"tools":[ ],"response_format":{"type":"text"},"modalities":["text"],"tool_choice":"auto"}`,
	} {
		f.Add(s)
	}
	fuzz(f, chatPath)
}

func FuzzCompletionRequest(f *testing.F) {
	for _, s := range []string{
		`{"prompt":"x"}`, `{"prompt":[1,2]}`, `{"prompt":[["x"]]}`, `{"prompt":[ ]}`, `{"prompt":[[1],[2]]}`, `{"prompt":["x"]}`,
		`{"prompt":"x","stream":true,"logprobs":1}`, `{"prompt":[1,null]}`, `{"prompt":"x","best_of":2,"n":2,"echo":false}`, `{"prompt":"x","best_of":3,"echo":true,"suffix":"y"}`,
	} {
		f.Add(s)
	}
	fuzz(f, completionPath)
}

// fuzz posts anything: the answer is good and what the model gets is within the
// documented bounds, or it is a refusal with a body that says why. A model that
// takes extensions gets them as they stand in the body, and refuses nothing that
// another takes.
func fuzz(f *testing.F, path string) {
	var sent string
	model := haiku.ModelFunc(func(_ context.Context, w *haiku.StreamWriter, r *haiku.Request) error {
		for i := range max(r.Choices, 1) {
			w.Finish(i, haiku.FinishStop)
		}
		return errors.Join(outOfBounds(r), notAsSent(r, sent))
	})
	f.Fuzz(func(t *testing.T, body string) {
		sent = body
		status := requireAnswered(t, model, path, body)
		if more := requireAnswered(t, extended{model}, path, body); status == 200 {
			require.Equal(t, 200, more, "%q", body)
		}
	})
}

func requireAnswered(t *testing.T, model haiku.Model, path, body string) (status int) {
	status, text := post(t, model, path, body)
	if status == 200 {
		require.NotContains(t, text, `"error"`, "%q", body)
		return status
	}
	require.GreaterOrEqual(t, status, 400)
	require.Less(t, status, 500, "%q → %s", body, text)
	var r refusal
	require.NoError(t, json.Unmarshal([]byte(text), &r), "%q → %s", body, text)
	require.NotEmpty(t, r.Error.Message)
	return status
}

// notAsSent names an extension that is no JSON or is not in the body.
func notAsSent(r *haiku.Request, body string) error {
	all := slices.Clone(r.Extensions)
	for _, m := range r.Messages {
		all = append(all, m.Extensions...)
	}
	for _, e := range all {
		if !json.Valid(e.Value) || string(e.Value) != "null" && !strings.Contains(body, string(e.Value)) {
			return fmt.Errorf("%s is %q in %q", e.Name, e.Value, body)
		}
	}
	return nil
}

// outOfBounds names the documented bounds that an accepted request breaks. It
// is written from the documentation, not from the checks.
func outOfBounds(r *haiku.Request) error {
	s := &r.Sampling
	within := func(v, low, high float64) bool { return v >= low && v <= high } // false for NaN
	text := func(s string, most int) bool { return s != "" && len(s) <= most && utf8.ValidString(s) }
	bounds := map[string]bool{
		"n":                  r.Choices >= 0 && r.Choices <= 128,
		"max_tokens":         r.MaxTokens >= 0 && r.MaxTokens <= math.MaxInt32,
		"temperature":        within(s.Temperature, 0, 2),
		"top_p":              within(s.TopP, 0, 1),
		"top_k":              s.TopK >= 0 && s.TopK <= math.MaxInt32,
		"min_p":              within(s.MinP, 0, 1),
		"typical_p":          within(s.TypicalP, 0, 1),
		"presence_penalty":   within(s.PresencePenalty, -2, 2),
		"frequency_penalty":  within(s.FrequencyPenalty, -2, 2),
		"repetition_penalty": within(s.RepetitionPenalty, 0, 10),
		"adapter_scale":      r.AdapterScale == nil || within(*r.AdapterScale, -10, 10),
		"top_logprobs":       r.TopLogprobs >= 0 && r.TopLogprobs <= 20 && (r.Logprobs || r.TopLogprobs == 0),
		"logit_bias":         len(s.LogitBias) <= 1024,
		"stop":               len(r.Stop) <= 4 && !slices.ContainsFunc(r.Stop, func(s string) bool { return !text(s, 1024) }),
		"one of the inputs":  count(len(r.Messages) > 0, r.Prompt != "", len(r.PromptTokens) > 0) == 1,
		"messages":           len(r.Messages) <= 4096,
		"prompt":             len(r.PromptTokens) == 0 || slices.Min(r.PromptTokens) >= 0,
	}
	for id, bias := range s.LogitBias {
		bounds[fmt.Sprintf("logit_bias[%d]", id)] = id >= 0 && within(float64(bias), -100, 100)
	}
	for i, m := range r.Messages {
		known := m.Role == haiku.RoleSystem || m.Role == haiku.RoleUser || m.Role == haiku.RoleAssistant || m.Role == haiku.RoleTool
		bounds[fmt.Sprintf("messages[%d]", i)] = known && utf8.ValidString(m.Content) && utf8.ValidString(m.Name)
	}
	var broken []string
	for name, ok := range bounds {
		if !ok {
			broken = append(broken, name)
		}
	}
	if broken == nil {
		return nil
	}
	return fmt.Errorf("out of bounds: %s in %+v", strings.Join(broken, ", "), *r)
}

func count(conditions ...bool) (n int) {
	for _, c := range conditions {
		if c {
			n++
		}
	}
	return n
}
