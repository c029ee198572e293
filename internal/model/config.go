package model

import (
	"errors"
	"fmt"
	"math"

	"github.com/intelliparadigm/haiku/internal/gguf"
)

// Config holds the hyper-parameters of a Llama model.
type Config struct {
	LayerCount int
	Dim        int // length of the residual stream
	Heads      int // query heads
	KVHeads    int // key and value heads; divides Heads
	HeadDim    int // length of a query, key or value vector
	FFN        int // length of the feed-forward layer
	Vocab      int // tokens
	Context    int // positions the model was trained for

	NormEpsilon float32
	RopeDims    int       // leading elements of a head that are rotated, even
	RopeBase    float64   // base of the rotation frequencies
	RopeScale   float64   // positions are multiplied by it; 1 without scaling
	RopeFactors []float32 // [RopeDims/2] divisors of the frequencies, or nil
}

// Frequencies returns the rotation of each pair of a head, in radians per
// position, [RopeDims/2].
func (c *Config) Frequencies() []float64 {
	frequencies := make([]float64, c.RopeDims/2)
	for i := range frequencies {
		exponent := -2 * float64(i) / float64(c.RopeDims)
		frequencies[i] = math.Pow(c.RopeBase, exponent) * c.RopeScale
		if c.RopeFactors != nil {
			frequencies[i] /= float64(c.RopeFactors[i])
		}
	}
	return frequencies
}

// maxDimension bounds every hyper-parameter, so that products of two of them
// cannot overflow; no model comes near it.
const maxDimension = 1 << 28

// reader reads metadata keys below an architecture's name and keeps the first
// error.
type reader struct {
	file *gguf.File
	err  error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) invalid(format string, args ...any) {
	r.fail(fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...))
}

func (r *reader) unsupported(format string, args ...any) {
	r.fail(fmt.Errorf("%w: "+format, append([]any{ErrUnsupported}, args...)...))
}

// missing reports an absent key as false; any other error is kept.
func (r *reader) missing(err error) bool {
	if err != nil && !errors.Is(err, gguf.ErrMissingKey) {
		r.fail(fmt.Errorf("%w: %w", ErrInvalid, err))
	}
	return err != nil
}

// count reads a number from 1 to maxDimension, or returns missing if the key
// is absent and missing is not zero.
func (r *reader) count(key string, missing int) int {
	n, err := r.file.Int(key)
	switch {
	case err != nil && (missing == 0 || !errors.Is(err, gguf.ErrMissingKey)):
		r.fail(fmt.Errorf("%w: %w", ErrInvalid, err))
		return 1
	case err != nil:
		return missing
	case n < 1 || n > maxDimension:
		r.invalid("%s is %d, want 1 to %d", key, n, maxDimension)
		return 1
	}
	return n
}

// perLayer reads a count that may also be an array of layers equal counts.
func (r *reader) perLayer(key string, layers, missing int) int {
	list, err := r.file.Ints(key)
	if err != nil {
		return r.count(key, missing)
	}
	if len(list) != layers {
		r.invalid("%s has %d values for %d layers", key, len(list), layers)
		return 1
	}
	for _, n := range list {
		if n != list[0] {
			r.unsupported("%s differs between layers: %v", key, list[:min(len(list), 8)])
			return 1
		}
	}
	if n := int(list[0]); n >= 1 && n <= maxDimension {
		return n
	}
	r.invalid("%s is %d, want 1 to %d", key, list[0], maxDimension)
	return 1
}

// number reads a finite, positive float; missing stands for an absent key,
// unless it is zero.
func (r *reader) number(key string, missing float64) float64 {
	x, err := r.file.Float(key)
	switch {
	case err != nil && missing != 0 && errors.Is(err, gguf.ErrMissingKey):
		return missing
	case err != nil:
		r.fail(fmt.Errorf("%w: %w", ErrInvalid, err))
		return 1
	case !(x > 0) || math.IsInf(x, 0):
		r.invalid("%s is %g, want a positive number", key, x)
		return 1
	}
	return x
}

// readConfig reads and checks the metadata. Vocab and RopeFactors come from
// tensors and are filled in later.
func readConfig(file *gguf.File) (Config, error) {
	if arch := file.Architecture(); arch != "llama" {
		return Config{}, fmt.Errorf("%w: general.architecture is %q, implemented is \"llama\"", ErrUnsupported, arch)
	}
	r := &reader{file: file}
	var c Config
	c.LayerCount = r.count("llama.block_count", 0)
	if tensors := len(file.Tensors()); r.err == nil && c.LayerCount > tensors {
		r.invalid("llama.block_count is %d but the file holds %d tensors", c.LayerCount, tensors)
	}
	if r.err != nil {
		return Config{}, r.err
	}
	c.Dim = r.count("llama.embedding_length", 0)
	c.Context = r.count("llama.context_length", 0)
	c.FFN = r.perLayer("llama.feed_forward_length", c.LayerCount, 0)
	c.NormEpsilon = float32(r.number("llama.attention.layer_norm_rms_epsilon", 0))
	r.heads(&c)
	r.rope(&c)
	r.refused()
	return c, r.err
}

func (r *reader) heads(c *Config) {
	c.Heads = r.perLayer("llama.attention.head_count", c.LayerCount, 0)
	c.KVHeads = r.perLayer("llama.attention.head_count_kv", c.LayerCount, c.Heads)
	if c.KVHeads > c.Heads || c.Heads%c.KVHeads != 0 {
		r.invalid("llama.attention.head_count_kv is %d, which does not divide head_count %d", c.KVHeads, c.Heads)
	}
	c.HeadDim = r.count("llama.attention.key_length", max(1, c.Dim/c.Heads))
	if _, err := r.file.Int("llama.attention.key_length"); err != nil && c.Dim%c.Heads != 0 {
		r.invalid("llama.embedding_length %d is no multiple of head_count %d and attention.key_length is missing", c.Dim, c.Heads)
	}
	if values := r.count("llama.attention.value_length", c.HeadDim); values != c.HeadDim {
		r.unsupported("llama.attention.value_length %d differs from the key length %d", values, c.HeadDim)
	}
}

func (r *reader) rope(c *Config) {
	c.RopeBase = r.number("llama.rope.freq_base", 10000)
	c.RopeDims = r.count("llama.rope.dimension_count", c.HeadDim)
	if c.RopeDims%2 != 0 || c.RopeDims > c.HeadDim {
		r.invalid("llama.rope.dimension_count is %d, want an even number up to the head's %d", c.RopeDims, c.HeadDim)
	}
	c.RopeScale = 1
	const typeKey, factorKey = "llama.rope.scaling.type", "llama.rope.scaling.factor"
	kind, err := r.file.String(typeKey)
	if r.missing(err) {
		c.RopeScale = 1 / r.number(factorKey, r.number("llama.rope.scale_linear", 1))
		return
	}
	switch kind {
	case "none":
	case "linear":
		c.RopeScale = 1 / r.number(factorKey, 0)
	default:
		r.unsupported("%s is %q, implemented are \"none\" and \"linear\"", typeKey, kind)
	}
}

// refused rejects options that change the computation and are not supported.
func (r *reader) refused() {
	if n, err := r.file.Int("llama.expert_count"); !r.missing(err) && n != 0 {
		r.unsupported("llama.expert_count is %d: mixtures of experts are not supported", n)
	}
	if x, err := r.file.Float("llama.rope.scaling.attn_factor"); !r.missing(err) && x != 1 {
		r.unsupported("llama.rope.scaling.attn_factor is %g, implemented is 1", x)
	}
	if n, err := r.file.Int("llama.attention.sliding_window"); !r.missing(err) && n != 0 {
		r.unsupported("llama.attention.sliding_window is %d: only full attention is implemented", n)
	}
}
