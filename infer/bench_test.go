package infer_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
)

// constant is an executor that always says the same, at no cost.
type constant struct{ *haikutest.Executor }

func (constant) Step(_ context.Context, b *infer.Batch) error {
	for i := range b.Items {
		if l := b.Items[i].Logits; l != nil {
			clear(l)
			l[100] = 1
		}
	}
	return nil
}

func openConstant(t testing.TB) *infer.Engine {
	t.Helper()
	exec := haikutest.New(haikutest.Config{ContextTokens: 1 << 22, Blocks: 1 << 19})
	engine, err := infer.New(constant{exec}, exec.Text(), infer.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	return engine
}

// BenchmarkDecode is the engine's own cost per token, reader included.
func BenchmarkDecode(b *testing.B) {
	engine := openConstant(b)
	b.ReportAllocs()
	n := 0
	for _, err := range haiku.NewStream(b.Context(), engine, &haiku.Request{Prompt: "x", MaxTokens: 1 << 21}).Tokens() {
		require.NoError(b, err)
		if n++; n == b.N {
			break
		}
	}
}

// TestTheLoopAllocatesNothingPerToken counts over many tokens, so that what a
// request allocates once does not show. The reader's texts of one byte cost
// nothing either.
func TestTheLoopAllocatesNothingPerToken(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	engine := openConstant(t)
	const tokens = 4096
	perToken := testing.AllocsPerRun(3, func() {
		for _, err := range haiku.NewStream(t.Context(), engine, &haiku.Request{Prompt: "x", MaxTokens: tokens}).Tokens() {
			require.NoError(t, err)
		}
	}) / tokens
	require.Less(t, perToken, 0.1)
}
