package openai_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	official "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/cache"
	"github.com/intelliparadigm/haiku/cpu"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/openai"
	"github.com/intelliparadigm/haiku/tinymodel"
)

// serve runs the embedded model, a fake that fails after two tokens under the
// name "faulty", and one that calls tools under the name "caller", on loopback.
func serve(t *testing.T) (baseURL string) {
	t.Helper()
	tiny, err := infer.OpenBytes(tinymodel.GGUF(), cpu.New())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tiny.Close()) })
	fault := haikutest.New(haikutest.Config{
		Pieces: []string{"one ", "two "}, Answer: func(string) []string { return []string{"one ", "two ", "one "} },
		Faults: []haikutest.Fault{{Kind: haikutest.Fail, At: 2}},
	})
	var models infer.Registry
	models.Add("haiku-tiny", tiny)
	models.Add("faulty", haikutest.NewEngine(t, fault, infer.Options{Name: "faulty"}))
	models.Add("caller", caller{})
	server := httptest.NewServer(openai.Handler(&models))
	t.Cleanup(server.Close)
	return server.URL + "/v1/"
}

func client(t *testing.T, baseURL string) official.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return official.NewClient(option.WithBaseURL(baseURL), option.WithAPIKey("none"), option.WithMaxRetries(0),
		option.WithHTTPClient(&http.Client{Transport: transport}))
}

func autumn() official.ChatCompletionNewParams {
	return official.ChatCompletionNewParams{
		Model:       "haiku-tiny",
		Messages:    []official.ChatCompletionMessageParamUnion{official.UserMessage("Write a haiku about autumn.")},
		Temperature: official.Float(0),
	}
}

func TestTheOfficialGoClientChats(t *testing.T) {
	c := client(t, serve(t))
	ctx := t.Context()
	whole, err := c.Chat.Completions.New(ctx, autumn())
	require.NoError(t, err)
	require.Contains(t, whole.Choices[0].Message.Content, "autumn")
	require.Equal(t, "stop", whole.Choices[0].FinishReason)
	require.Equal(t, "haiku-tiny", whole.Model)
	require.EqualValues(t, 12, whole.Usage.PromptTokens)

	params := autumn()
	params.StreamOptions = official.ChatCompletionStreamOptionsParam{IncludeUsage: official.Bool(true)}
	stream := c.Chat.Completions.NewStreaming(ctx, params)
	var acc official.ChatCompletionAccumulator
	chunks := 0
	for stream.Next() {
		require.True(t, acc.AddChunk(stream.Current()))
		chunks++
	}
	require.NoError(t, stream.Err())
	require.Greater(t, chunks, 10, "token by token")
	require.Equal(t, whole.Choices[0].Message.Content, acc.Choices[0].Message.Content, "streamed and whole are the same")
	require.Equal(t, whole.Usage.TotalTokens, acc.Usage.TotalTokens)
}

// What comes out of a cache, with its length told, is a stream to the client.
func TestTheOfficialGoClientReadsAnswersThatWereKept(t *testing.T) {
	tiers, err := cache.New(cache.Options{})
	require.NoError(t, err)
	defer tiers.Close()
	var models infer.Registry
	models.Add("haiku-tiny", haikutest.NewModel(t, "an ", "old ", "silent ", "pond"))
	model := cache.Through(&models, tiers, cache.Policy{})
	defer model.Close()
	server := httptest.NewServer(openai.Handler(model))
	defer server.Close()
	c := client(t, server.URL+"/v1/")
	var texts [2]string
	for i, want := range []string{"miss", "hit"} {
		var resp *http.Response
		params := autumn()
		params.StreamOptions = official.ChatCompletionStreamOptionsParam{IncludeUsage: official.Bool(true)}
		stream := c.Chat.Completions.NewStreaming(t.Context(), params, option.WithResponseInto(&resp))
		var acc official.ChatCompletionAccumulator
		for stream.Next() {
			require.True(t, acc.AddChunk(stream.Current()))
		}
		require.NoError(t, stream.Err())
		require.Equal(t, want, resp.Header.Get("X-Haiku-Cache"))
		require.Equal(t, want == "hit", resp.ContentLength > 0)
		require.Positive(t, acc.Usage.PromptTokens)
		texts[i] = acc.Choices[0].Message.Content
	}
	require.NotEmpty(t, texts[0])
	require.Equal(t, texts[0], texts[1])
}

func TestTheOfficialGoClientUsesEveryParameter(t *testing.T) {
	c := client(t, serve(t))
	params := autumn()
	params.Temperature, params.TopP, params.Seed = official.Float(0.9), official.Float(0.9), official.Int(42)
	params.N = official.Int(3)
	params.MaxCompletionTokens = official.Int(8)
	params.PresencePenalty, params.FrequencyPenalty = official.Float(0.5), official.Float(0.5)
	params.LogitBias = map[string]int64{"5": -100}
	params.Logprobs, params.TopLogprobs = official.Bool(true), official.Int(2)
	params.Stop = official.ChatCompletionNewParamsStopUnion{OfStringArray: []string{"zzz"}}
	extra := []option.RequestOption{option.WithJSONSet("top_k", 40), option.WithJSONSet("min_p", 0.01), option.WithJSONSet("repetition_penalty", 1.1)}
	first, err := c.Chat.Completions.New(t.Context(), params, extra...)
	require.NoError(t, err)
	require.Len(t, first.Choices, 3)
	for _, choice := range first.Choices {
		require.Equal(t, "length", choice.FinishReason)
		require.Len(t, choice.Logprobs.Content, 8)
		require.Len(t, choice.Logprobs.Content[0].TopLogprobs, 2)
		require.Less(t, choice.Logprobs.Content[0].Logprob, 0.0)
	}
	second, err := c.Chat.Completions.New(t.Context(), params, extra...)
	require.NoError(t, err)
	for i := range first.Choices {
		require.Equal(t, first.Choices[i].Message.Content, second.Choices[i].Message.Content, "the seed decides")
	}
}

func TestTheOfficialGoClientStreamsChoicesAndLogprobs(t *testing.T) {
	c := client(t, serve(t))
	params := autumn()
	params.N, params.MaxTokens = official.Int(2), official.Int(5)
	params.Logprobs, params.TopLogprobs = official.Bool(true), official.Int(2)
	whole, err := c.Chat.Completions.New(t.Context(), params)
	require.NoError(t, err)
	stream := c.Chat.Completions.NewStreaming(t.Context(), params)
	var text, tokens, roles [2]string
	var finish [2]string
	for stream.Next() {
		for _, choice := range stream.Current().Choices {
			i := choice.Index
			text[i] += choice.Delta.Content
			roles[i] += choice.Delta.Role
			finish[i] += choice.FinishReason
			for _, lp := range choice.Logprobs.Content {
				require.Len(t, lp.TopLogprobs, 2)
				tokens[i] += lp.Token
			}
		}
	}
	require.NoError(t, stream.Err())
	for i, choice := range whole.Choices {
		require.Equal(t, []string{choice.Message.Content, choice.Message.Content, "assistant", "length"},
			[]string{text[i], tokens[i], roles[i], finish[i]}, "choice %d", i)
	}
}

func TestTheOfficialGoClientCompletes(t *testing.T) {
	c := client(t, serve(t))
	params := official.CompletionNewParams{
		Model: "haiku-tiny", Prompt: official.CompletionNewParamsPromptUnion{OfString: official.String("autumn")},
		MaxTokens: official.Int(6), Temperature: official.Float(0), Logprobs: official.Int(2),
	}
	whole, err := c.Completions.New(t.Context(), params)
	require.NoError(t, err)
	require.Len(t, whole.Choices[0].Logprobs.Tokens, 6)
	require.Equal(t, whole.Choices[0].Text, strings.Join(whole.Choices[0].Logprobs.Tokens, ""))
	params.StreamOptions = official.ChatCompletionStreamOptionsParam{IncludeUsage: official.Bool(true)}
	stream := c.Completions.NewStreaming(t.Context(), params)
	text, usage := "", int64(0)
	for stream.Next() {
		usage = stream.Current().Usage.TotalTokens
		for _, choice := range stream.Current().Choices {
			text += choice.Text
		}
	}
	require.NoError(t, stream.Err())
	require.Equal(t, whole.Choices[0].Text, text)
	require.Equal(t, whole.Usage.TotalTokens, usage, "in the last chunk")
}

func TestTheOfficialGoClientListsModels(t *testing.T) {
	c := client(t, serve(t))
	page, err := c.Models.List(t.Context())
	require.NoError(t, err)
	require.Len(t, page.Data, 3)
	model, err := c.Models.Get(t.Context(), "haiku-tiny")
	require.NoError(t, err)
	require.Equal(t, "haiku-tiny", model.ID)
	_, err = c.Models.Get(t.Context(), "gpt-9")
	requireStatus(t, err, 404, "model_not_found", "model")

	var models infer.Registry
	models.Add("org/tiny", haikutest.NewModel(t, "hi"))
	server := httptest.NewServer(openai.Handler(&models))
	defer server.Close()
	c = client(t, server.URL+"/v1/")
	model, err = c.Models.Get(t.Context(), "org/tiny")
	require.NoError(t, err)
	require.Equal(t, "org/tiny", model.ID)
}

func requireStatus(t *testing.T, err error, status int, code, param string) {
	t.Helper()
	var e *official.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, []any{status, code, param}, []any{e.StatusCode, e.Code, e.Param})
}

func TestTheOfficialGoClientUnderstandsErrors(t *testing.T) {
	c := client(t, serve(t))
	unknown := autumn()
	unknown.Model = "gpt-9"
	_, err := c.Chat.Completions.New(t.Context(), unknown)
	requireStatus(t, err, 404, "model_not_found", "model")

	tools := autumn()
	tools.ResponseFormat = official.ChatCompletionNewParamsResponseFormatUnion{OfJSONObject: &shared.ResponseFormatJSONObjectParam{}}
	_, err = c.Chat.Completions.New(t.Context(), tools)
	requireStatus(t, err, 400, "unsupported_parameter", "response_format")

	long := autumn()
	long.MaxTokens = official.Int(10_000)
	_, err = c.Chat.Completions.New(t.Context(), long)
	requireStatus(t, err, 400, "context_length_exceeded", "max_tokens")

	faulty := autumn()
	faulty.Model = "faulty"
	stream := c.Chat.Completions.NewStreaming(t.Context(), faulty)
	text := ""
	for stream.Next() {
		if choices := stream.Current().Choices; len(choices) > 0 {
			text += choices[0].Delta.Content
		}
	}
	require.ErrorContains(t, stream.Err(), "the server failed to answer")
	require.Equal(t, "one two ", text, "what came before the failure has arrived")
}

func TestAClientThatLeavesFreesItsSequence(t *testing.T) {
	fake := haikutest.New(haikutest.Config{Answer: func(string) []string { return []string{strings.Repeat("x", 3000)} }})
	engine := haikutest.NewEngine(t, fake, infer.Options{})
	ended := make(chan struct{})
	server := httptest.NewServer(openai.Handler(engine, func(next haiku.InferenceHandler) haiku.InferenceHandler {
		return haiku.HandlerFunc(func(c *haiku.Context) {
			next.ServeInference(c)
			close(ended)
		})
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	c := client(t, server.URL+"/v1/")
	params := autumn()
	params.Model = ""
	stream := c.Chat.Completions.NewStreaming(ctx, params)
	require.True(t, stream.Next())
	cancel()
	<-ended
	require.Zero(t, fake.Counts().OpenSequences)
	for stream.Next() { // what had arrived before
	}
	require.True(t, errors.Is(stream.Err(), context.Canceled), "%v", stream.Err())
}

// TestTheOfficialNodeClient runs the npm package's tests in testdata/node.
func TestTheOfficialNodeClient(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not on PATH (Debian: nodejs)")
	}
	dir := filepath.Join("testdata", "node")
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "openai")); err != nil {
		t.Skip("the openai package is not installed: run npm ci in openai/testdata/node, as .ci/run does")
	}
	cmd := exec.CommandContext(t.Context(), node, "--test", "client.test.mjs")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HAIKU_BASE_URL="+serve(t))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestTheOfficialClientEmbeds(t *testing.T) {
	c := client(t, serve(t))
	texts := []string{"autumn wind", "the old pond"}
	embed := func(format official.EmbeddingNewParamsEncodingFormat) *official.CreateEmbeddingResponse {
		out, err := c.Embeddings.New(t.Context(), official.EmbeddingNewParams{
			Model: "haiku-tiny", Input: official.EmbeddingNewParamsInputUnion{OfArrayOfStrings: texts}, EncodingFormat: format,
		})
		require.NoError(t, err)
		return out
	}
	out := embed(official.EmbeddingNewParamsEncodingFormatFloat)
	require.Len(t, out.Data, 2)
	require.Len(t, out.Data[1].Embedding, 128)
	require.EqualValues(t, 1, out.Data[1].Index)
	require.NotEqual(t, out.Data[0].Embedding, out.Data[1].Embedding)
	require.Positive(t, out.Usage.PromptTokens)
	require.Equal(t, "haiku-tiny", out.Model)
	_, err := c.Embeddings.New(t.Context(), official.EmbeddingNewParams{
		Model: "haiku-tiny", Input: official.EmbeddingNewParamsInputUnion{OfString: official.String("x")}, Dimensions: official.Int(7),
	})
	var refused *official.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, http.StatusBadRequest, refused.StatusCode)
	require.Equal(t, "dimensions", refused.Param)
}
