package tinymodel_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/cpu"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/internal/gguf"
	"github.com/intelliparadigm/haiku/tinymodel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// thousands writes n as the note does.
func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func TestTheModelIsTheOneWhoseProvenanceIsWritten(t *testing.T) {
	note, err := os.ReadFile("PROVENANCE.md")
	require.NoError(t, err)
	sum := sha256.Sum256(tinymodel.GGUF())
	require.Contains(t, string(note), hex.EncodeToString(sum[:]))
	require.Contains(t, string(note), thousands(len(tinymodel.GGUF()))+" bytes")

	file, err := gguf.Parse(tinymodel.GGUF())
	require.NoError(t, err)
	require.Contains(t, string(note), thousands(parameters(file))+" parameters")
	require.Equal(t, "llama", file.Architecture())
	for key, said := range map[string]string{
		"embedding_length":        "dimension %d,",
		"block_count":             " %d layers",
		"attention.head_count":    " %d heads",
		"attention.head_count_kv": "(%d for keys and values)",
		"feed_forward_length":     "feed-forward %d,",
		"context_length":          "context %d,",
	} {
		n, err := file.Int("llama." + key)
		require.NoError(t, err)
		require.Contains(t, string(note), fmt.Sprintf(said, n))
	}
	words, err := file.Strings("tokenizer.ggml.tokens")
	require.NoError(t, err)
	require.Contains(t, string(note), fmt.Sprintf("vocabulary %d,", len(words)))
}

func parameters(file *gguf.File) int {
	all := 0
	for _, tensor := range file.Tensors() {
		all += tensor.Elements()
	}
	return all
}

func open(t *testing.T) *infer.Engine {
	t.Helper()
	engine, err := infer.OpenBytes(tinymodel.GGUF(), cpu.New())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	return engine
}

func ask(engine *infer.Engine, content string) (string, error) {
	return haiku.NewStream(context.Background(), engine, &haiku.Request{
		Messages: []haiku.Message{{Role: haiku.RoleUser, Content: content}}, MaxTokens: 128,
	}).Text()
}

func TestItWritesAHaikuAboutEachTopicOfTheNote(t *testing.T) {
	note, err := os.ReadFile("PROVENANCE.md")
	require.NoError(t, err)
	_, list, found := strings.Cut(strings.ReplaceAll(string(note), "\n", " "), "three lines that name it: ")
	require.True(t, found)
	list, _, found = strings.Cut(list, ".")
	require.True(t, found)
	topics := strings.Split(list, ", ")
	require.Len(t, topics, 12)
	engine := open(t)
	for _, topic := range topics {
		got, err := ask(engine, "Write a haiku about "+topic+".")
		require.NoError(t, err)
		require.Len(t, strings.Split(got, "\n"), 3, "%s: %q", topic, got)
	}
}

func TestUseLeavesTheBytesAsTheyAre(t *testing.T) {
	before := bytes.Clone(tinymodel.GGUF())
	engine := open(t)
	_, err := ask(engine, "Haiku: tea")
	require.NoError(t, err)
	require.NoError(t, engine.Close())
	require.True(t, bytes.Equal(before, tinymodel.GGUF()))
}

// The processor is an executor like any other.
func TestTheCPUKeepsTheExecutorsContract(t *testing.T) {
	file, err := gguf.Parse(tinymodel.GGUF())
	require.NoError(t, err)
	for _, options := range []cpu.Options{
		{},
		{Threads: 1},
		{Threads: 3, BlockTokens: 32, MaxBatchTokens: 64, ContextTokens: 40},
	} {
		t.Run(fmt.Sprintf("%+v", options), func(t *testing.T) {
			haikutest.TestExecutor(t, func(t *testing.T) infer.Executor {
				exec, err := options.New().Load(t.Context(), file)
				require.NoError(t, err)
				return exec
			})
		})
	}
}

func Example() {
	engine, err := infer.OpenBytes(tinymodel.GGUF(), cpu.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()
	poem, err := haiku.NewStream(context.Background(), engine, &haiku.Request{
		Messages: []haiku.Message{{Role: haiku.RoleUser, Content: "Write a haiku about autumn."}},
	}).Text()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(poem)
	// Output:
	// autumn wind and moon
	// the wind carries autumn wind
	// autumn wind and moon
}
