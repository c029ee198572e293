package upstream

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/cpu"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/tinymodel"
)

// llamaCpp starts llama.cpp with the tiny model and returns its address.
func llamaCpp(t *testing.T) (url string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node: install Debian's nodejs and npm")
	}
	if _, err := os.Stat("testdata/node/node_modules/@node-llama-cpp"); err != nil {
		t.Skip("no llama.cpp: run npm ci --omit=optional --ignore-scripts in upstream/testdata/node")
	}
	model := filepath.Join(t.TempDir(), "tiny.gguf")
	require.NoError(t, os.WriteFile(model, tinymodel.GGUF(), 0o600))
	cmd := exec.Command(node, "server.mjs", model)
	cmd.Dir, cmd.Stderr = "testdata/node", os.Stderr
	keep, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = keep.Close() // it ends with its standard input
		_ = cmd.Wait()
	})
	url, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err, "the server says where it is")
	return strings.TrimSpace(url)
}

func autumn() *haiku.Request {
	return &haiku.Request{Messages: []haiku.Message{{Role: haiku.RoleUser, Content: "Write a haiku about autumn."}}}
}

// TestARealEngine asks llama.cpp, and compares what it says with what Haiku's
// own executor makes of the same model.
func TestARealEngine(t *testing.T) {
	url := llamaCpp(t)
	e, err := New(url, Options{Dialect: LlamaCpp})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	own, err := infer.OpenBytes(tinymodel.GGUF(), cpu.New())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Close()) })

	t.Run("the same answer", func(t *testing.T) {
		theirs, ours := ask(t.Context(), e, autumn()), ask(t.Context(), own, autumn())
		require.NoError(t, theirs.err)
		require.NoError(t, ours.err)
		require.Contains(t, ours.texts[0], "autumn")
		require.Equal(t, ours.texts[0], theirs.texts[0])
		require.Equal(t, ours.finish, theirs.finish)
		require.Equal(t, ours.usage.PromptTokens, theirs.usage.PromptTokens)
		require.Greater(t, theirs.tokens, 10, "token by token")
		require.Equal(t, "llama.cpp", theirs.model)
	})
	t.Run("passing through", func(t *testing.T) {
		want := ask(t.Context(), e, autumn())
		passing, err := New(url, Options{Dialect: LlamaCpp})
		require.NoError(t, err)
		defer passing.Close()
		outer, _ := serve(t, passingTo(passing).ServeHTTP, Options{Dialect: LlamaCpp})
		got := ask(t.Context(), outer, autumn())
		require.NoError(t, got.err)
		require.Equal(t, want.texts, got.texts)
		require.Equal(t, want.usage, got.usage)
	})
	t.Run("lengths, stops and prompts", func(t *testing.T) {
		req := autumn()
		req.MaxTokens = 3
		a := ask(t.Context(), e, req)
		require.NoError(t, a.err)
		require.Equal(t, haiku.FinishLength, a.finish[0])
		require.Equal(t, 3, a.usage.CompletionTokens)
		req = autumn()
		req.Stop = []string{"nd mo"} // which this server does not heed
		a = ask(t.Context(), e, req)
		require.NoError(t, a.err)
		require.Equal(t, "autumn wind a", a.texts[0])
		for _, req := range []*haiku.Request{{Prompt: "autumn", MaxTokens: 4}, {PromptTokens: []int32{1, 300, 301}, MaxTokens: 4}} {
			theirs, ours := ask(t.Context(), e, req), ask(t.Context(), own, req)
			require.NoError(t, theirs.err)
			require.Equal(t, ours.texts[0], theirs.texts[0])
			require.Equal(t, ours.usage.PromptTokens, theirs.usage.PromptTokens)
		}
	})
	t.Run("a prompt that is too long", func(t *testing.T) {
		req := autumn()
		req.Messages[0].Content = strings.Repeat("autumn wind ", 200)
		a := ask(t.Context(), e, req)
		require.ErrorIs(t, a.err, haiku.ErrContextLength)
		require.Contains(t, haiku.ErrorFrom(a.err).Message, "exceeds the available context size")
	})
	t.Run("embeddings", func(t *testing.T) {
		both, err := e.Embed(t.Context(), texts("autumn wind", "the sea"))
		require.NoError(t, err)
		one, err := e.Embed(t.Context(), texts("the sea"))
		require.NoError(t, err)
		require.Len(t, both.Vectors[0], 128)
		require.InDeltaSlice(t, one.Vectors[0], both.Vectors[1], 1e-3)
		require.Positive(t, one.Usage.PromptTokens)
	})
	t.Run("models", func(t *testing.T) {
		require.NoError(t, e.Refresh(t.Context()))
		require.Equal(t, []haiku.ModelInfo{{ID: "llama.cpp", OwnedBy: "llamacpp", ContextTokens: 256}}, e.Models())
	})
	t.Run("the contract", func(t *testing.T) {
		refused := autumn()
		refused.Sampling.Mask = haiku.NewTokenMask(8)
		haikutest.TestModel(t, func(*testing.T) haiku.Model { return e }, autumn(), refused)
	})
	t.Run("connections that it closes early", func(t *testing.T) {
		strict, err := New(url, Options{Dialect: LlamaCpp, Retry: Retry{Attempts: 1}})
		require.NoError(t, err)
		defer strict.Close()
		for range 50 {
			require.NoError(t, ask(t.Context(), strict, &haiku.Request{Prompt: "autumn", MaxTokens: 1}).err)
		}
	})
	t.Run("it notices who leaves", func(t *testing.T) {
		for range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			for range haiku.NewStream(quiet(ctx), e, autumn()).Tokens() {
				break
			}
			cancel()
		}
		require.Eventually(t, func() bool { return running(t, url) == 0 }, 10e9, 10e6)
		require.NoError(t, ask(t.Context(), e, autumn()).err)
	})
}

// running is how many answers the server is computing.
func running(t *testing.T, url string) int {
	resp, err := http.Get(url + "/stats")
	require.NoError(t, err)
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	var stats struct{ Running int }
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(body, &stats))
	return stats.Running
}
