package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// architecture is what sets one family of models apart from the others. All of
// them are decoders with RMS norms, rotary embeddings and a gated feed-forward
// layer; a field says where one departs from Llama.
type architecture struct {
	rotatesHalves   bool       // a rotation pairs elements i and i+RopeDims/2 of a head, not 2i and 2i+1
	normsHeads      bool       // queries and keys are normalised head by head before they are rotated
	normsOutputs    bool       // attention and feed-forward layer are normalised once more before they are added
	scalesEmbedding bool       // embeddings are multiplied by √Dim
	experts         bool       // the feed-forward layer is always a mixture of experts
	activation      Activation // of the gate

	// Where a sliding window is given, every windowPeriod-th layer looks past
	// it; 0 means that none does. Layers with a window may have a rotation base
	// of their own, of localRopeBase unless the file says otherwise.
	windowPeriod  int
	window        int     // where the file does not say
	localRopeBase float64 // 0: that of the other layers

	// Scores and logits are bound softly where these are not zero and the file
	// does not say otherwise.
	attentionSoftcap, finalSoftcap float64

	// Models of this many layers divide scores by √(Dim/Heads), whatever the
	// length of a head.
	scaledByDim int
}

// architectures are the supported ones by the name in general.architecture.
// Mistral and Mixtral files call themselves llama.
var architectures = map[string]architecture{
	"llama":    {},
	"qwen2":    {rotatesHalves: true},
	"qwen3":    {rotatesHalves: true, normsHeads: true},
	"qwen3moe": {rotatesHalves: true, normsHeads: true, experts: true},
	"gemma":    {rotatesHalves: true, scalesEmbedding: true, activation: GELU},
	"gemma2": {
		rotatesHalves: true, scalesEmbedding: true, activation: GELU, normsOutputs: true,
		windowPeriod: 2, window: 4096, attentionSoftcap: 50, finalSoftcap: 30, scaledByDim: 46,
	},
	"gemma3": {
		rotatesHalves: true, scalesEmbedding: true, activation: GELU, normsOutputs: true, normsHeads: true,
		windowPeriod: 6, localRopeBase: 10000, scaledByDim: 62,
	},
}

// Activation is the function of the feed-forward layer's gate.
type Activation uint8

const (
	// SiLU is x·σ(x).
	SiLU Activation = iota
	// GELU is x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))).
	GELU
)

func architectureOf(name string) (architecture, error) {
	a, known := architectures[name]
	if !known {
		names := strings.Join(slices.Sorted(maps.Keys(architectures)), ", ")
		return a, fmt.Errorf("%w: general.architecture is %q, implemented are %s", ErrUnsupported, name, names)
	}
	return a, nil
}
