package model

import (
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/intelliparadigm/haiku/internal/gguf"
	"github.com/intelliparadigm/haiku/internal/simd"
)

// SyntheticConfig describes a model with random weights, for tests and
// benchmarks. Every number is needed but HeadDim, which is Dim/Heads if zero.
type SyntheticConfig struct {
	Architecture                              string // "llama" if empty
	Layers, Dim, Heads, KVHeads, HeadDim, FFN int
	Vocab                                     int // at least 259: three control tokens and the bytes
	Context                                   int
	Format                                    simd.Format // of the matrices; norms are F32
	Untied                                    bool        // write an output.weight of its own
	Biases                                    bool        // of queries, keys and values
	Experts, ExpertsUsed                      int         // 0 and 0 for a dense model
	Seed                                      uint64
}

// Synthetic100M is a Llama of about 100 million parameters: 768×12, 12 query
// and 4 key heads, vocabulary 32000.
func Synthetic100M(format simd.Format) SyntheticConfig {
	return SyntheticConfig{
		Layers: 12, Dim: 768, Heads: 12, KVHeads: 4, FFN: 2048,
		Vocab: 32000, Context: 2048, Format: format, Seed: 1,
	}
}

// WriteSynthetic writes a GGUF file with weights that depend on cfg alone. It
// holds a SentencePiece vocabulary with byte fallback and a chat template, so
// that an engine can serve it; what it says is noise.
func WriteSynthetic(w io.Writer, cfg SyntheticConfig) error {
	out, err := Synthetic(cfg)
	if err != nil {
		return err
	}
	_, err = out.WriteTo(w)
	return err
}

// Synthetic returns the writer of [WriteSynthetic], to which a caller may add
// pairs and tensors of its own.
func Synthetic(cfg SyntheticConfig) (*gguf.Writer, error) {
	if cfg.Architecture == "" {
		cfg.Architecture = "llama"
	}
	arch, err := architectureOf(cfg.Architecture)
	if err != nil {
		return nil, err
	}
	kind, storable := typeOf(cfg.Format)
	if !storable {
		return nil, fmt.Errorf("%w: no file has tensors of format %s", ErrInvalid, cfg.Format)
	}
	if cfg.HeadDim == 0 && cfg.Heads > 0 {
		cfg.HeadDim = cfg.Dim / cfg.Heads
	}
	if min(cfg.Layers, cfg.Dim, cfg.Heads, cfg.KVHeads, cfg.HeadDim, cfg.FFN, cfg.Context, cfg.Vocab-firstPiece+1) < 1 {
		return nil, fmt.Errorf("%w: synthetic model %+v", ErrInvalid, cfg)
	}
	if cfg.Format.RowBytes(cfg.Dim) == 0 || cfg.Format.RowBytes(cfg.FFN) == 0 || cfg.Format.RowBytes(cfg.Heads*cfg.HeadDim) == 0 {
		return nil, fmt.Errorf("%w: synthetic model %+v: rows are no whole blocks", ErrInvalid, cfg)
	}
	w := gguf.NewWriter()
	writeHyperParameters(w, cfg)
	writeVocabulary(w, cfg.Vocab)
	s := &synthesizer{w: w, format: cfg.Format, kind: kind, seed: cfg.Seed}
	s.model(cfg, arch)
	return w, nil
}

func writeHyperParameters(w *gguf.Writer, cfg SyntheticConfig) {
	prefix := cfg.Architecture + "."
	w.SetString("general.architecture", cfg.Architecture)
	w.SetString("general.name", "synthetic")
	for _, pair := range []struct {
		key string
		n   int
	}{
		{"block_count", cfg.Layers}, {"embedding_length", cfg.Dim}, {"feed_forward_length", cfg.FFN},
		{"context_length", cfg.Context}, {"attention.head_count", cfg.Heads},
		{"attention.head_count_kv", cfg.KVHeads}, {"attention.key_length", cfg.HeadDim},
		{"attention.value_length", cfg.HeadDim}, {"vocab_size", cfg.Vocab},
	} {
		w.SetUint32(prefix+pair.key, uint32(pair.n))
	}
	if cfg.Experts > 0 {
		w.SetUint32(prefix+"expert_count", uint32(cfg.Experts))
		w.SetUint32(prefix+"expert_used_count", uint32(cfg.ExpertsUsed))
		w.SetUint32(prefix+"expert_feed_forward_length", uint32(cfg.FFN))
	}
	w.SetFloat32(prefix+"attention.layer_norm_rms_epsilon", 1e-5)
	w.SetFloat32(prefix+"rope.freq_base", 10000)
}

// firstPiece is the id after <unk>, <s>, </s> and the 256 bytes.
const firstPiece = 3 + 256

// Token types of a SentencePiece vocabulary in GGUF.
const (
	typeNormal  = 1
	typeUnknown = 2
	typeControl = 3
	typeByte    = 6
)

const chatTemplate = `{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}` +
	`{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}`

func writeVocabulary(w *gguf.Writer, size int) {
	pieces := []string{"<unk>", "<s>", "</s>"}
	types := []int32{typeUnknown, typeControl, typeControl}
	scores := make([]float32, size)
	for b := range 256 {
		pieces = append(pieces, fmt.Sprintf("<0x%02X>", b))
		types = append(types, typeByte)
	}
	for n := range size - firstPiece {
		pieces = append(pieces, piece(n))
		types = append(types, typeNormal)
		scores[firstPiece+n] = -float32(n)
	}
	w.SetString("tokenizer.ggml.model", "llama")
	w.SetStrings("tokenizer.ggml.tokens", pieces)
	w.SetFloats("tokenizer.ggml.scores", scores)
	w.SetInts("tokenizer.ggml.token_type", types)
	w.SetUint32("tokenizer.ggml.unknown_token_id", 0)
	w.SetUint32("tokenizer.ggml.bos_token_id", 1)
	w.SetUint32("tokenizer.ggml.eos_token_id", 2)
	w.SetBool("tokenizer.ggml.add_bos_token", true)
	w.SetBool("tokenizer.ggml.add_eos_token", false)
	w.SetString("tokenizer.chat_template", chatTemplate)
}

// piece is the n-th string over the word mark and the letters, the shorter
// ones first, so that every piece is an earlier one and a single character.
func piece(n int) string {
	alphabet := []rune("▁etaoinshrdlucmfwygpbvkxqjz")
	var reversed []rune
	for n++; n > 0; n = (n - 1) / len(alphabet) {
		reversed = append(reversed, alphabet[(n-1)%len(alphabet)])
	}
	s := make([]rune, len(reversed))
	for i, r := range reversed {
		s[len(s)-1-i] = r
	}
	return string(s)
}

// synthesizer adds tensors whose rows are drawn when the file is written. A
// tensor's weights depend on the seed and its name alone.
type synthesizer struct {
	w      *gguf.Writer
	format simd.Format
	kind   gguf.Type // of format
	seed   uint64
}

func (s *synthesizer) random(name string) *rand.Rand {
	hash := fnv.New64a()
	hash.Write([]byte(name))
	return rand.New(rand.NewPCG(s.seed, hash.Sum64()))
}

func (s *synthesizer) model(cfg SyntheticConfig, arch architecture) {
	s.matrix("token_embd.weight", cfg.Vocab, cfg.Dim)
	s.norm("output_norm.weight", cfg.Dim)
	if cfg.Untied {
		s.matrix("output.weight", cfg.Vocab, cfg.Dim)
	}
	for i := range cfg.Layers {
		s.layer(fmt.Sprintf("blk.%d.", i), cfg, arch)
	}
}

func (s *synthesizer) layer(prefix string, cfg SyntheticConfig, arch architecture) {
	queries, keys := cfg.Heads*cfg.HeadDim, cfg.KVHeads*cfg.HeadDim
	s.norm(prefix+"attn_norm.weight", cfg.Dim)
	s.matrix(prefix+"attn_q.weight", queries, cfg.Dim)
	s.matrix(prefix+"attn_k.weight", keys, cfg.Dim)
	s.matrix(prefix+"attn_v.weight", keys, cfg.Dim)
	s.matrix(prefix+"attn_output.weight", cfg.Dim, queries)
	s.norm(prefix+"ffn_norm.weight", cfg.Dim)
	if cfg.Biases {
		s.norm(prefix+"attn_q.bias", queries)
		s.norm(prefix+"attn_k.bias", keys)
		s.norm(prefix+"attn_v.bias", keys)
	}
	if arch.normsHeads {
		s.norm(prefix+"attn_q_norm.weight", cfg.HeadDim)
		s.norm(prefix+"attn_k_norm.weight", cfg.HeadDim)
	}
	if arch.normsOutputs {
		s.norm(prefix+"post_attention_norm.weight", cfg.Dim)
		s.norm(prefix+"post_ffw_norm.weight", cfg.Dim)
	}
	if cfg.Experts == 0 {
		s.matrix(prefix+"ffn_gate.weight", cfg.FFN, cfg.Dim)
		s.matrix(prefix+"ffn_up.weight", cfg.FFN, cfg.Dim)
		s.matrix(prefix+"ffn_down.weight", cfg.Dim, cfg.FFN)
		return
	}
	s.matrix(prefix+"ffn_gate_inp.weight", cfg.Experts, cfg.Dim)
	s.matrix(prefix+"ffn_gate_exps.weight", cfg.Experts, cfg.FFN, cfg.Dim)
	s.matrix(prefix+"ffn_up_exps.weight", cfg.Experts, cfg.FFN, cfg.Dim)
	s.matrix(prefix+"ffn_down_exps.weight", cfg.Experts, cfg.Dim, cfg.FFN)
}

// matrix adds a tensor [..., cols] of uniform weights with variance 1/cols,
// which keeps activations near one.
func (s *synthesizer) matrix(name string, shape ...int) {
	cols, rows, dims := shape[len(shape)-1], 1, slices.Clone(shape)
	for _, n := range shape[:len(shape)-1] {
		rows *= n
	}
	slices.Reverse(dims)
	limit := float32(math.Sqrt(3 / float64(cols)))
	s.w.AddTensorFunc(name, s.kind, dims, func(out io.Writer) error {
		rng, row := s.random(name), make([]float32, cols)
		var encoded []byte
		for range rows {
			for c := range row {
				row[c] = limit * (2*rng.Float32() - 1)
			}
			encoded = simd.Encode(s.format, encoded[:0], row)
			if _, err := out.Write(encoded); err != nil {
				return err
			}
		}
		return nil
	})
}

// norm adds weights between 0.5 and 1.5.
func (s *synthesizer) norm(name string, n int) {
	s.w.AddTensorFunc(name, gguf.F32, []int{n}, func(out io.Writer) error {
		rng, row := s.random(name), make([]float32, n)
		for i := range row {
			row[i] = 0.5 + rng.Float32()
		}
		_, err := out.Write(simd.Encode(simd.F32, nil, row))
		return err
	})
}
