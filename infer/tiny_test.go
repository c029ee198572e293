package infer_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/cpu"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/tinymodel"
)

func openTiny(t *testing.T, opts infer.Options, backend infer.Backend) *infer.Engine {
	t.Helper()
	engine, err := opts.OpenBytes(tinymodel.GGUF(), backend)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	return engine
}

// golden is one prompt of the file that cpu's tests use too: values made with
// llama.cpp v0.4.0.
type golden struct {
	Prompt    string  `json:"prompt"`
	PromptIDs []int32 `json:"prompt_ids"`
	Greedy    []int32 `json:"greedy"`
	Text      string  `json:"text"`
	Stopped   bool    `json:"stopped"`
}

func goldens(t *testing.T) []golden {
	t.Helper()
	data, err := os.ReadFile("../cpu/testdata/golden_tiny.json")
	require.NoError(t, err)
	var list []golden
	require.NoError(t, json.Unmarshal(data, &list))
	require.NotEmpty(t, list)
	return list
}

func TestTheTinyModelWritesWhatLlamaCppWrites(t *testing.T) {
	engine := openTiny(t, infer.Options{}, cpu.New())
	for _, g := range goldens(t) {
		stream := haiku.NewStream(t.Context(), engine, &haiku.Request{Prompt: g.Prompt, MaxTokens: len(g.Greedy) + 1})
		got, err := stream.Text()
		require.NoError(t, err)
		require.Equal(t, len(g.PromptIDs), stream.Usage().PromptTokens)
		if g.Stopped {
			require.Equal(t, g.Text, got)
		} else {
			require.True(t, strings.HasPrefix(got, g.Text), "%q does not begin with %q", got, g.Text)
		}
	}
}

func TestMessagesMakeThePromptTheTemplateSays(t *testing.T) {
	engine := openTiny(t, infer.Options{}, cpu.New())
	byPrompt, err := text(t.Context(), engine, &haiku.Request{Prompt: "<|user|>\nWrite a haiku about autumn.\n<|assistant|>\n"})
	require.NoError(t, err)
	byMessages, err := text(t.Context(), engine, ask("Write a haiku about autumn."))
	require.NoError(t, err)
	require.Equal(t, byPrompt, byMessages)
	require.Contains(t, byMessages, "autumn")
}

func TestBatchChunksAndThreadsNeverChangeTheText(t *testing.T) {
	topics := []string{"autumn", "the sea", "snow", "a frog", "the moon", "rain"}
	prompt := func(topic string) *haiku.Request { return ask("Write a haiku about " + topic + ".") }
	reference := openTiny(t, infer.Options{MaxSequences: 1}, cpu.Options{Threads: 1}.New())
	want := make(map[string]string)
	for _, topic := range topics {
		got, err := text(t.Context(), reference, prompt(topic))
		require.NoError(t, err)
		want[topic] = got
	}
	for _, c := range []struct{ threads, budget, sequences int }{{1, 4, 2}, {2, 64, 8}, {2, 256, 32}, {3, 5, 2}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			engine := openTiny(t, infer.Options{MaxBatchTokens: c.budget, MaxSequences: c.sequences}, cpu.Options{Threads: c.threads}.New())
			var wg sync.WaitGroup
			for range 3 {
				for _, topic := range topics {
					wg.Go(func() {
						got, err := text(t.Context(), engine, prompt(topic))
						require.NoError(t, err)
						require.Equal(t, want[topic], got)
					})
				}
			}
			wg.Wait()
		})
	}
}

func TestSampledTextIsTheSeedsOwn(t *testing.T) {
	engine := openTiny(t, infer.Options{}, cpu.New())
	sampled := func(seed uint64) *haiku.Request {
		req := ask("Write a haiku about the sea.")
		req.Sampling = haiku.Sampling{Temperature: 1, TopP: 0.95, Seed: &seed}
		return req
	}
	want, err := text(t.Context(), engine, sampled(11))
	require.NoError(t, err)
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			got, err := text(t.Context(), engine, sampled(uint64(11+i%4)))
			require.NoError(t, err)
			if i%4 == 0 {
				require.Equal(t, want, got)
			}
		})
	}
	wg.Wait()
}

func TestAnEngineOverCPUKeepsTheModelsContract(t *testing.T) {
	haikutest.TestModel(t, func(t *testing.T) haiku.Model { return openTiny(t, infer.Options{}, cpu.New()) },
		ask("Write a haiku about snow."), &haiku.Request{Prompt: "x", MaxTokens: 10_000})
}

func TestAModelThatCannotBeOpenedIsAnErrorThatSaysWhy(t *testing.T) {
	data := tinymodel.GGUF()
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"nothing":   {nil, "magic"},
		"a text":    {[]byte("hello, this is no model at all"), "magic"},
		"truncated": {data[:len(data)/2], "tensor"},
		"a header":  {data[:100], "tensor count"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := infer.OpenBytes(c.data, cpu.New())
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := infer.Open("no/such/file.gguf", cpu.New())
	require.ErrorIs(t, err, os.ErrNotExist)
}
