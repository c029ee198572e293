package model

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/internal/simd"
)

func TestRequantiseConvertsEveryMatrixOfTheLayers(t *testing.T) {
	cfg := smallSynthetic()
	cfg.Format, cfg.Experts, cfg.ExpertsUsed = simd.F32, 3, 2
	w, err := Synthetic(cfg)
	require.NoError(t, err)
	m, before := parsed(t, w), parsed(t, w)
	require.NoError(t, m.Requantise(simd.Q8_0, 3))
	cfg.Format = simd.Q8_0
	w, err = Synthetic(cfg)
	require.NoError(t, err)
	want := parsed(t, w) // the same weights, written in that format
	for i := range want.Layers {
		want.Layers[i].Router = before.Layers[i].Router
	}
	require.Equal(t, want.Layers, m.Layers)
	require.Equal(t, before.Embedding, m.Embedding)
	require.Equal(t, before.Output, m.Output)
}

func TestRequantiseRefusesRowsThatAreNoWholeBlocks(t *testing.T) {
	cfg := smallSynthetic()
	cfg.Format, cfg.FFN = simd.F32, 100
	w, err := Synthetic(cfg)
	require.NoError(t, err)
	m, before := parsed(t, w), parsed(t, w)
	err = m.Requantise(simd.Q8_0, 1)
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "rows of 100 weights, which are no whole blocks of Q8_0")
	require.Equal(t, before.Layers, m.Layers)
}
