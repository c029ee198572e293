package model

import (
	"math"

	"github.com/intelliparadigm/haiku/internal/gguf"
)

// Config holds the hyper-parameters of a model.
type Config struct {
	Architecture string // as general.architecture spells it
	LayerCount   int
	Dim          int // length of the residual stream
	Heads        int // query heads
	KVHeads      int // key and value heads; divides Heads
	HeadDim      int // length of a query, key or value vector
	FFN          int // length of the feed-forward layer, or of one expert's
	Vocab        int // tokens
	Context      int // positions the model was trained for

	Experts     int // feed-forward layers to choose from, 0 for one that is always used
	ExpertsUsed int // by each token

	NormEpsilon    float32
	EmbeddingScale float32 // embeddings are multiplied by it
	Activation     Activation

	RopeDims   int        // leading elements of a head that are rotated, even
	RopeHalves bool       // pairs are elements i and i+RopeDims/2 of a head, not 2i and 2i+1
	Rotations  []Rotation // one or two; a layer says which is its own

	AttentionScale   float32 // of the product of a query and a key
	AttentionSoftcap float32 // c: scores become c·tanh(score/c); 0 for none
	FinalSoftcap     float32 // the same of logits
}

// windows says which layers look back how far.
type windows struct {
	size   int // positions a query sees, its own included; 0: all
	period int // every period-th layer sees all; 0: none does
}

// of returns the window of a layer, 0 for none.
func (w windows) of(layer int) int {
	if w.period > 0 && layer%w.period == w.period-1 {
		return 0
	}
	return w.size
}

// readConfig reads and checks the metadata. Vocab and the factors of a
// rotation come from tensors and are filled in later.
func readConfig(file *gguf.File) (Config, windows, error) {
	c := Config{Architecture: file.Architecture(), EmbeddingScale: 1}
	arch, err := architectureOf(c.Architecture)
	if err != nil {
		return c, windows{}, err
	}
	r := &reader{file: file, prefix: c.Architecture + "."}
	c.LayerCount = r.count("block_count", 0)
	if tensors := len(file.Tensors()); r.err == nil && c.LayerCount > tensors {
		r.invalid("%sblock_count is %d but the file holds %d tensors", r.prefix, c.LayerCount, tensors)
	}
	if r.err != nil {
		return c, windows{}, r.err
	}
	c.Dim = r.count("embedding_length", 0)
	c.Context = r.count("context_length", 0)
	c.NormEpsilon = float32(r.number("attention.layer_norm_rms_epsilon", 0))
	c.Activation = arch.activation
	if arch.scalesEmbedding {
		c.EmbeddingScale = float32(math.Sqrt(float64(c.Dim)))
	}
	r.heads(&c, arch)
	r.experts(&c, arch)
	w := r.windows(arch)
	r.rope(&c, arch, w)
	c.AttentionSoftcap = r.optional("attn_logit_softcapping", arch.attentionSoftcap)
	c.FinalSoftcap = r.optional("final_logit_softcapping", arch.finalSoftcap)
	r.refused()
	return c, w, r.err
}

func (r *reader) heads(c *Config, arch architecture) {
	c.Heads = r.perLayer("attention.head_count", c.LayerCount, 0)
	c.KVHeads = r.perLayer("attention.head_count_kv", c.LayerCount, c.Heads)
	if c.KVHeads > c.Heads || c.Heads%c.KVHeads != 0 {
		r.invalid("%sattention.head_count_kv is %d, which does not divide head_count %d", r.prefix, c.KVHeads, c.Heads)
	}
	c.HeadDim = r.count("attention.key_length", max(1, c.Dim/c.Heads))
	if _, err := r.file.Int(r.prefix + "attention.key_length"); err != nil && c.Dim%c.Heads != 0 {
		r.invalid("%sembedding_length %d is no multiple of head_count %d and attention.key_length is missing", r.prefix, c.Dim, c.Heads)
	}
	if values := r.count("attention.value_length", c.HeadDim); values != c.HeadDim {
		r.unsupported("%sattention.value_length %d differs from the key length %d", r.prefix, values, c.HeadDim)
	}
	length := float64(c.HeadDim)
	if arch.scaledByDim == c.LayerCount {
		length = float64(c.Dim / c.Heads)
	}
	c.AttentionScale = r.optional("attention.scale", 0)
	if c.AttentionScale == 0 {
		c.AttentionScale = float32(1 / math.Sqrt(length))
	}
}

// experts reads the shape of the feed-forward layer.
func (r *reader) experts(c *Config, arch architecture) {
	n, err := r.file.Int(r.prefix + "expert_count")
	if r.missing(err) || n == 0 {
		c.FFN = r.perLayer("feed_forward_length", c.LayerCount, 0)
		if arch.experts {
			r.invalid("%sexpert_count is missing", r.prefix)
		}
		return
	}
	c.Experts = r.count("expert_count", 0)
	c.ExpertsUsed = r.count("expert_used_count", 0)
	if c.ExpertsUsed > c.Experts {
		r.invalid("%sexpert_used_count is %d, there are %d", r.prefix, c.ExpertsUsed, c.Experts)
	}
	if length, err := r.file.Int(r.prefix + "expert_feed_forward_length"); r.missing(err) || length == 0 {
		c.FFN = r.perLayer("feed_forward_length", c.LayerCount, 0)
	} else {
		c.FFN = r.count("expert_feed_forward_length", 0)
	}
	if gating, err := r.file.Int(r.prefix + "expert_gating_func"); !r.missing(err) && gating > 1 {
		r.unsupported("%sexpert_gating_func is %d, implemented is 1 (softmax)", r.prefix, gating)
	}
	if scale := r.optional("expert_weights_scale", 1); scale != 0 && scale != 1 {
		r.unsupported("%sexpert_weights_scale is %g, implemented is 1", r.prefix, scale)
	}
	if normalised, err := r.file.Bool(r.prefix + "expert_weights_norm"); !r.missing(err) && !normalised {
		r.unsupported("%sexpert_weights_norm is false: the weights of chosen experts are renormalised", r.prefix)
	}
}

func (r *reader) windows(arch architecture) windows {
	w := windows{size: arch.window, period: arch.windowPeriod}
	if n, err := r.file.Int(r.prefix + "attention.sliding_window"); !r.missing(err) {
		w.size = 0
		if n != 0 {
			w.size = r.count("attention.sliding_window", 0)
		}
	}
	if _, err := r.file.Int(r.prefix + "attention.sliding_window_pattern"); !r.missing(err) {
		w.period = r.count("attention.sliding_window_pattern", 0)
	}
	return w
}

// refused rejects options that change the computation and are not supported.
func (r *reader) refused() {
	for _, key := range []string{
		"expert_shared_count", "expert_group_count", "embedding_scale", "residual_scale", "logit_scale",
		"attention.clamp_kqv", "attention.max_alibi_bias", "attention.temperature_scale",
		"rope.scaling.yarn_log_multiplier", "rope.scaling.alpha",
	} {
		if x, err := r.number64(key); !r.missing(err) && x != 0 {
			r.unsupported("%s%s is %g and not supported", r.prefix, key, x)
		}
	}
	if pooling, err := r.file.Int(r.prefix + "pooling_type"); !r.missing(err) && pooling > 1 {
		r.unsupported("%spooling_type is %d, implemented are 0 (none) and 1 (mean)", r.prefix, pooling)
	}
	if causal, err := r.file.Bool(r.prefix + "attention.causal"); !r.missing(err) && !causal {
		r.unsupported("%sattention.causal is false: only causal attention is implemented", r.prefix)
	}
}
