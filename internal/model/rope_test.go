package model

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/internal/gguf"
	"github.com/intelliparadigm/haiku/internal/simd"
)

func TestRotationsAreStretchedAsTheFileSays(t *testing.T) {
	plain := []float64{1, 0.1, 0.01, 0.001}
	for name, c := range map[string]struct {
		pairs     map[string]any
		want      []float64
		magnitude float32
	}{
		"plain":           {nil, plain, 1},
		"factor alone":    {map[string]any{"factor": float32(4)}, []float64{0.25, 0.025, 0.0025, 0.00025}, 1},
		"none":            {map[string]any{"type": "none", "factor": float32(4)}, plain, 1},
		"linear":          {map[string]any{"type": "linear", "factor": float32(2)}, []float64{0.5, 0.05, 0.005, 0.0005}, 1},
		"other magnitude": {map[string]any{"attn_factor": float32(1.5)}, plain, 1.5},
		// Of 64 positions pair 0 makes 10.2 turns, pair 1 1.02 and the others
		// less than one. The ramp goes from ⌊-0.49⌋, not below 0, to
		// ⌈1.0087⌉ = 2: pair 0 stays, pair 1 is half stretched, the others whole.
		// The magnitude is 1 + ln(4)/10.
		"yarn": {
			map[string]any{"type": "yarn", "factor": float32(4), "original_context_length": uint32(64)},
			[]float64{1, 0.1*0.5 + 0.025*0.5, 0.0025, 0.00025}, 1.1386294,
		},
		"yarn with a share of the ramp": {
			map[string]any{
				"type": "yarn", "factor": float32(4), "original_context_length": uint32(64),
				"yarn_ext_factor": float32(0.5), "yarn_attn_factor": float32(2), "attn_factor": float32(3),
			},
			[]float64{0.5 + 0.125, 0.1*0.25 + 0.025*0.75, 0.0025, 0.00025}, 6 * 1.1386294,
		},
		"yarn with ends of its own": { // pairs from 1 to 3
			map[string]any{
				"type": "yarn", "factor": float32(2), "original_context_length": uint32(640),
				"yarn_beta_fast": float32(10), "yarn_beta_slow": float32(0.5),
			},
			[]float64{1, 0.1, 0.01*0.5 + 0.005*0.5, 0.0005}, 1.0693147,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDraft()
			d.pairs["llama.rope.freq_base"] = float32(10000)
			for key, v := range c.pairs {
				d.pairs["llama.rope.scaling."+key] = v
			}
			m, err := d.load(t)
			require.NoError(t, err)
			require.Len(t, m.Rotations, 1)
			require.InDeltaSlice(t, c.want, m.Rotations[0].Frequencies, 1e-9)
			require.InDelta(t, c.magnitude, m.Rotations[0].Magnitude, 1e-6)
		})
	}
}

func TestFrequencyFactorsDivide(t *testing.T) {
	w, err := Synthetic(smallSynthetic())
	require.NoError(t, err)
	cfg := smallSynthetic()
	factors := make([]float32, cfg.Dim/cfg.Heads/2)
	for i := range factors {
		factors[i] = float32(i + 1)
	}
	plain := parsed(t, w)
	w.AddTensor("rope_freqs.weight", gguf.F32, []int{len(factors)}, simd.Encode(simd.F32, nil, factors))
	scaled := parsed(t, w)
	for i, f := range factors {
		require.Equal(t, plain.Rotations[0].Frequencies[i]/float64(f), scaled.Rotations[0].Frequencies[i])
	}
}
