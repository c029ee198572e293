package openai_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	official "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"
	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// caller is a model that thinks, and calls two tools at once if it has any; and
// when it has their results, says them. It stands for an engine elsewhere, and
// speaks as those do.
type caller struct{}

func (caller) TakesExtensions(*haiku.Request) error { return nil }

func (caller) Generate(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
	w.SetUsage(haiku.Usage{PromptTokens: 1, CompletionTokens: 1})
	if !slices.ContainsFunc(req.Extensions, func(e haiku.Extension) bool { return e.Name == "tools" && json.Valid(e.Value) }) {
		return haiku.ErrInvalidRequest.With("tools", "there are none")
	}
	reason := haiku.FinishToolCalls
	pieces := []haiku.Piece{
		{Delta: []byte(`"reasoning_content":"Two "`)}, {Delta: []byte(`"reasoning_content":"cities…"`)},
		{Delta: []byte(`"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"weather","arguments":""}}]`)},
		{Delta: []byte(`"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":"}}]`)},
		{Delta: []byte(`"tool_calls":[{"index":0,"function":{"arguments":"\"Kyoto\"}"}}]`)},
		{Delta: []byte(`"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Nara\"}"}}]`)},
	}
	if last := req.Messages[len(req.Messages)-1]; last.Role == haiku.RoleTool {
		text := ""
		for _, m := range req.Messages {
			if m.Role == haiku.RoleTool {
				text += string(m.Extensions[0].Value) + " " + m.Content + ". "
			}
		}
		reason, pieces = haiku.FinishStop, []haiku.Piece{{Text: text}}
	}
	for _, p := range pieces {
		p.ID = haiku.NoToken
		if _, err := w.Push(ctx, p); err != nil {
			return err
		}
	}
	w.Finish(0, reason)
	return nil
}

func weather() official.ChatCompletionNewParams {
	return official.ChatCompletionNewParams{
		Model:    "caller",
		Messages: []official.ChatCompletionMessageParamUnion{official.UserMessage("What is the weather in Kyoto and Nara?")},
		Tools: []official.ChatCompletionToolUnionParam{official.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: "weather", Parameters: shared.FunctionParameters{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}},
		})},
		ToolChoice:        official.ChatCompletionToolChoiceOptionUnionParam{OfAuto: official.String("auto")},
		ParallelToolCalls: official.Bool(true),
	}
}

// requireCalls checks a message that calls both tools.
func requireCalls(t *testing.T, c official.ChatCompletionChoice) {
	t.Helper()
	require.Equal(t, "tool_calls", c.FinishReason)
	require.Empty(t, c.Message.Content)
	var got []string
	for _, call := range c.Message.ToolCalls {
		got = append(got, call.ID, call.Type, call.Function.Name, call.Function.Arguments)
	}
	require.Equal(t, []string{
		"call_a", "function", "weather", `{"city":"Kyoto"}`, "call_b", "function", "weather", `{"city":"Nara"}`,
	}, got)
}

func TestTheOfficialGoClientCallsTools(t *testing.T) {
	c := client(t, serve(t))
	params := weather()
	whole, err := c.Chat.Completions.New(t.Context(), params)
	require.NoError(t, err)
	requireCalls(t, whole.Choices[0])
	require.Equal(t, `"Two cities…"`, whole.Choices[0].Message.JSON.ExtraFields["reasoning_content"].Raw())

	stream := c.Chat.Completions.NewStreaming(t.Context(), params)
	var acc official.ChatCompletionAccumulator
	var finished []string
	reasoning := ""
	for stream.Next() {
		chunk := stream.Current()
		require.True(t, acc.AddChunk(chunk))
		if call, ok := acc.JustFinishedToolCall(); ok {
			finished = append(finished, call.Arguments)
		}
		if len(chunk.Choices) > 0 {
			if f, ok := chunk.Choices[0].Delta.JSON.ExtraFields["reasoning_content"]; ok {
				var piece string
				require.NoError(t, json.Unmarshal([]byte(f.Raw()), &piece))
				reasoning += piece
			}
		}
	}
	require.NoError(t, stream.Err())
	requireCalls(t, acc.Choices[0])
	require.Equal(t, []string{`{"city":"Kyoto"}`, `{"city":"Nara"}`}, finished, "each as soon as it is complete")
	require.Equal(t, "Two cities…", reasoning)

	params.Messages = append(params.Messages, whole.Choices[0].Message.ToParam(),
		official.ToolMessage("rain", "call_a"), official.ToolMessage("sun", "call_b"))
	answer, err := c.Chat.Completions.New(t.Context(), params)
	require.NoError(t, err)
	require.Equal(t, `"call_a" rain. "call_b" sun. `, answer.Choices[0].Message.Content)
}

// The engine in this process has no tools, and says so in the same words to a
// request that is streamed and one that is not.
func TestTheOfficialGoClientLearnsThatThereAreNoTools(t *testing.T) {
	c := client(t, serve(t))
	params := weather()
	params.Model = "haiku-tiny"
	_, err := c.Chat.Completions.New(t.Context(), params)
	requireStatus(t, err, 400, "unsupported_parameter", "tools")
	stream := c.Chat.Completions.NewStreaming(t.Context(), params)
	require.False(t, stream.Next())
	requireStatus(t, stream.Err(), 400, "unsupported_parameter", "tools")
	params.Tools = nil
	params.ToolChoice = official.ChatCompletionToolChoiceOptionUnionParam{}
	params.Messages = append(params.Messages, official.ToolMessage("rain", "call_a"))
	_, err = c.Chat.Completions.New(t.Context(), params)
	requireStatus(t, err, 400, "unsupported_parameter", "messages[1].role")
}
