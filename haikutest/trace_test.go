package haikutest

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/infer"
)

// The rows are the first of the two traces, which are published as CC-BY-4.0
// (Azure public dataset) and Apache-2.0 (Mooncake).
const (
	azureRows = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
	mooncake  = `{"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [0, 1]}
{"timestamp": 3000, "input_length": 1100, "output_length": 9, "hash_ids": [0, 14, 15]}
`
)

func TestTracesAreRead(t *testing.T) {
	visits, err := ReadAzure(strings.NewReader(azureRows))
	require.NoError(t, err)
	require.Equal(t, []Visit{{PromptTokens: 374, OutputTokens: 44}, {At: 4314579 * time.Microsecond, PromptTokens: 396, OutputTokens: 109}}, visits)
	visits, err = ReadMooncake(strings.NewReader(mooncake))
	require.NoError(t, err)
	require.Equal(t, []Visit{
		{PromptTokens: 700, OutputTokens: 5, Prefix: []int64{0, 1}}, {At: 3 * time.Second, PromptTokens: 1100, OutputTokens: 9, Prefix: []int64{0, 14, 15}},
	}, visits)
	for _, text := range []string{"", "a,b,c\n", "a,b,c\n2023-11-16 18:15:46,1\n", "a,b,c\nyesterday,1,1\n", "a,b,c\n2023-11-16 18:15:46,0,1\n",
		"a,b,c\n2023-11-16 18:15:46,1,1\n2023-11-16 18:15:45,1,1\n", "a,b,c\n\"\n"} {
		_, err := ReadAzure(strings.NewReader(text))
		require.Error(t, err, text)
	}
	for _, text := range []string{"", "{", `{"timestamp": 1, "input_length": 0, "output_length": 5}`, strings.Repeat("x", 2<<20)} {
		_, err := ReadMooncake(strings.NewReader(text))
		require.Error(t, err)
	}
}

func TestVisitsShareWhatTheirTraceSays(t *testing.T) {
	visits, err := ReadMooncake(strings.NewReader(mooncake))
	require.NoError(t, err)
	one, two := visits[0].Request(0), visits[1].Request(1)
	require.Len(t, one.PromptTokens, 700)
	require.Len(t, two.PromptTokens, 1100)
	require.Equal(t, one.PromptTokens[:512], two.PromptTokens[:512])
	require.NotEqual(t, one.PromptTokens[512:600], two.PromptTokens[512:600])
	require.NotEqual(t, Visit{PromptTokens: 20}.Request(1), Visit{PromptTokens: 20}.Request(2))
}

func TestAReplayTakesTheTraceAtItsTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := New(Config{Costs: Costs{Step: 10 * time.Millisecond}})
		engine := NewEngine(t, exec, infer.Options{MaxBatchTokens: 2048})
		visits, err := ReadMooncake(strings.NewReader(mooncake))
		require.NoError(t, err)
		start := time.Now()
		outcomes := Replay(t.Context(), engine, visits)
		require.Equal(t, 3*time.Second+90*time.Millisecond, time.Since(start))
		for i, o := range outcomes {
			require.NoError(t, o.Err)
			require.Equal(t, []int{visits[i].PromptTokens, visits[i].OutputTokens}, []int{o.Usage.PromptTokens, o.Usage.CompletionTokens})
			require.Equal(t, 10*time.Millisecond, o.First)
			require.Equal(t, time.Duration(visits[i].OutputTokens)*10*time.Millisecond, o.Last)
		}
		require.Equal(t, []int{0, 512}, []int{outcomes[0].Usage.CachedTokens, outcomes[1].Usage.CachedTokens})

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		outcomes = Replay(ctx, engine, visits)
		require.NoError(t, outcomes[0].Err)
		require.ErrorIs(t, outcomes[1].Err, context.DeadlineExceeded)
	})
}

// TestAnHourOfTheAzureTrace replays all of it, with real lengths, in virtual
// time.
func TestAnHourOfTheAzureTrace(t *testing.T) {
	file, err := os.Open("../../shared/data/traces/azure_llm_conv.csv")
	if err != nil {
		t.Skip("the shared traces are not here: ", err)
	}
	defer file.Close()
	visits, err := ReadAzure(file)
	require.NoError(t, err)
	if visits = visits[:2000]; testing.Short() {
		visits = visits[:200]
	}
	synctest.Test(t, func(t *testing.T) {
		exec := New(Config{ContextTokens: 16384, Blocks: 1 << 16, Costs: Costs{Step: 8 * time.Millisecond, PrefillToken: 20 * time.Microsecond, DecodeSequence: 50 * time.Microsecond}})
		engine := NewEngine(t, exec, infer.Options{MaxSequences: 64, MaxBatchTokens: 512})
		for i, o := range Replay(t.Context(), engine, visits) {
			require.NoError(t, o.Err)
			require.Equal(t, []int{visits[i].PromptTokens, visits[i].OutputTokens}, []int{o.Usage.PromptTokens, o.Usage.CompletionTokens})
		}
	})
}
