package cpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/infer"
)

// Hidden states are those the logits are made of, and asking for them changes
// nothing.
func TestHiddenStatesAreWhatTheLogitsAreMadeOf(t *testing.T) {
	e := load(t, Options{Threads: 2}.New(), synthetic(t, smallConfig, nil))
	spec := e.Spec()
	require.Equal(t, smallConfig.Dim, spec.HiddenSize)
	tokens := text(4, 50, spec.VocabSize)
	hidden, logits := make([]float32, len(tokens)*spec.HiddenSize), make([]float32, spec.VocabSize)
	other := make([]float32, spec.VocabSize)
	step(t, e,
		infer.Item{Seq: 1, Tokens: tokens[:3], Blocks: blocks(spec, 20, 3)},
		infer.Item{Seq: 2, Tokens: tokens, Blocks: blocks(spec, 0, 50), Hidden: hidden, Logits: logits},
		infer.Item{Seq: 3, Tokens: tokens[:9], Blocks: blocks(spec, 30, 9), Logits: other})
	for n := 1; n <= len(tokens); n++ {
		want := make([]float32, spec.VocabSize)
		state := hidden[(n-1)*spec.HiddenSize : n*spec.HiddenSize]
		inner := e.(*executor)
		inner.level.Mul(want, len(want), &inner.model.Output, 0, len(want), state, 1, inner.scratch[0].tile)
		require.Equal(t, want, logitsOf(t, e, tokens[:n]))
		if n == len(tokens) {
			require.Equal(t, want, logits)
		}
		if n == 9 {
			require.Equal(t, want, other)
		}
	}
	b := &infer.Batch{Items: []infer.Item{{Seq: 4, Tokens: tokens, Blocks: blocks(spec, 0, 50), Hidden: hidden[1:]}}}
	require.NoError(t, e.Step(ctx, b))
	require.ErrorContains(t, b.Items[0].Err, "hidden states of 50 tokens have 2400")
}
