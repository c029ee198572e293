package lora

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku/internal/gguf"
	"github.com/intelliparadigm/haiku/internal/safetensors"
	"github.com/intelliparadigm/haiku/internal/simd"
)

// toy is an adapter of two matrices for a model of 8, with 2 heads of 4 and 1
// key head.
func toy() []Pair {
	count := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(i + 1)
		}
		return v
	}
	return []Pair{
		{Tensor: "blk.0.attn_k.weight", Rank: 2, In: 8, Out: 4, A: count(16), B: count(8), Scale: 2},
		{Tensor: "blk.1.ffn_up.weight", Rank: 2, In: 8, Out: 12, A: count(16), B: count(24), Scale: 2},
	}
}

var toyBase = Base{
	Architecture: "llama", Heads: 2, KVHeads: 1, HeadDim: 4, Interleaved: true,
	Shape: func(tensor string) (rows, cols int, ok bool) {
		rows = map[string]int{"blk.0.attn_q.weight": 8, "blk.0.attn_k.weight": 4, "blk.1.ffn_up.weight": 12}[tensor]
		return rows, 8, rows > 0
	},
}

// ggufOf writes pairs as llama.cpp does.
func ggufOf(t testing.TB, pairs []Pair, edit func(*gguf.Writer)) []byte {
	t.Helper()
	w := gguf.NewWriter()
	w.SetString("general.architecture", "llama")
	w.SetString("general.type", "adapter")
	w.SetString("general.name", "toy")
	w.SetString("adapter.type", "lora")
	w.SetFloat32("adapter.lora.alpha", 4)
	for _, p := range pairs {
		w.AddTensor(p.Tensor+".lora_a", gguf.F32, []int{p.In, p.Rank}, simd.Encode(simd.F32, nil, p.A))
		w.AddTensor(p.Tensor+".lora_b", gguf.F32, []int{p.Rank, p.Out}, simd.Encode(simd.F32, nil, p.B))
	}
	if edit != nil {
		edit(w)
	}
	var b bytes.Buffer
	_, err := w.WriteTo(&b)
	require.NoError(t, err)
	return b.Bytes()
}

// parse reads a GGUF adapter from memory.
func parse(data []byte) (*File, error) {
	file, err := gguf.Parse(data)
	if err != nil {
		return nil, err
	}
	return FromGGUF(file)
}

const toyConfig = `{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "bias": "none", "target_modules": ["k_proj", "up_proj"]}`

// peftOf writes pairs as PEFT does, rows of queries and keys of heads of
// headDim in its order.
func peftOf(t testing.TB, pairs []Pair, headDim int) []*safetensors.Tensor {
	t.Helper()
	var tensors []*safetensors.Tensor
	floats := func(name string, rows, cols int, v []float32) {
		tensors = append(tensors, &safetensors.Tensor{Name: name, Type: "F32", Shape: []int{rows, cols}, Data: simd.Encode(simd.F32, nil, v)})
	}
	for _, p := range pairs {
		var layer int
		var kind string
		_, err := fmt.Sscanf(strings.ReplaceAll(p.Tensor, ".", " "), "blk %d %s weight", &layer, &kind)
		require.NoError(t, err)
		for module, gguf := range peftModules {
			if gguf == kind {
				name := fmt.Sprintf("base_model.model.model.layers.%d.%s.lora_", layer, module)
				b := p.B
				if kind == "attn_q" || kind == "attn_k" {
					b = separate(b, headDim, p.Rank)
				}
				floats(name+"A.weight", p.Rank, p.In, p.A)
				floats(name+"B.weight", p.Out, p.Rank, b)
			}
		}
	}
	return tensors
}

// separate is the inverse of interleave.
func separate(rows []float32, headDim, cols int) []float32 {
	out := make([]float32, len(rows))
	for i := range len(rows) / cols {
		head, at := i/headDim*headDim, i%headDim
		copy(out[(head+at%2*headDim/2+at/2)*cols:], rows[i*cols:(i+1)*cols])
	}
	return out
}

func fromPEFT(t testing.TB, config string, tensors ...*safetensors.Tensor) (*File, error) {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, safetensors.Write(&b, nil, tensors...))
	file, err := safetensors.Parse(b.Bytes())
	require.NoError(t, err)
	return FromPEFT(file, []byte(config))
}

func TestAnAdapterIsTheSameInBothFormats(t *testing.T) {
	fromGGUF, err := parse(ggufOf(t, toy(), nil))
	require.NoError(t, err)
	require.Equal(t, &File{Name: "toy", Architecture: "llama", Pairs: toy()}, fromGGUF)
	peft, err := fromPEFT(t, toyConfig, peftOf(t, toy(), 4)...)
	require.NoError(t, err)
	require.NotEqual(t, toy(), peft.Pairs, "rows are in another order")
	for _, f := range []*File{fromGGUF, peft} {
		bound, err := f.Bind(toyBase)
		require.NoError(t, err)
		require.Equal(t, toy(), bound)
	}
	halves := toyBase
	halves.Interleaved = false
	bound, err := peft.Bind(halves)
	require.NoError(t, err)
	require.Equal(t, peft.Pairs, bound, "such a model has Hugging Face's order")
}

func TestOpenTakesFilesAndFolders(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "toy.gguf"), ggufOf(t, toy(), nil), 0o600))
	_, err := Open(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "adapter_config.json")
	var b bytes.Buffer
	require.NoError(t, safetensors.Write(&b, nil, peftOf(t, toy(), 4)...))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "adapter_model.safetensors"), b.Bytes(), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte(toyConfig), 0o600))
	for _, path := range []string{"toy.gguf", "adapter_model.safetensors", "."} {
		f, err := Open(filepath.Join(dir, path))
		require.NoError(t, err)
		bound, err := f.Bind(toyBase)
		require.NoError(t, err)
		require.Equal(t, toy(), bound)
	}
	_, err = Open(filepath.Join(dir, "absent.gguf"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Open(filepath.Join(dir, "adapter_config.json"))
	require.ErrorIs(t, err, ErrFormat)
}

// TestTheSharedAdaptersAreRead also writes them as PEFT would and finds the
// same pairs.
func TestTheSharedAdaptersAreRead(t *testing.T) {
	for path, headDim := range map[string]int{"stories260K/stories260K-lora-r4.gguf": 8, "tiny/haiku-tiny-sea.lora.gguf": 32} {
		path = "../../../shared/models/" + path
		if _, err := os.Stat(path); err != nil {
			t.Skip("the shared models are not here: ", err)
		}
		want, err := Open(path)
		require.NoError(t, err)
		require.NotEmpty(t, want.Pairs)
		p := want.Pairs[0]
		config := fmt.Sprintf(`{"peft_type": "LORA", "r": %d, "lora_alpha": %v}`, p.Rank, p.Scale*float32(p.Rank))
		peft, err := fromPEFT(t, config, peftOf(t, want.Pairs, headDim)...)
		require.NoError(t, err)
		base := Base{Architecture: "llama", HeadDim: headDim, Interleaved: true, Shape: func(tensor string) (int, int, bool) {
			i := slices.IndexFunc(want.Pairs, func(p Pair) bool { return p.Tensor == tensor })
			if i < 0 {
				return headDim, 0, false
			}
			return want.Pairs[i].Out, want.Pairs[i].In, true
		}}
		rows := func(tensor string) int { out, _, _ := base.Shape(tensor); return out }
		base.Heads, base.KVHeads = rows("blk.0.attn_q.weight")/headDim, rows("blk.0.attn_k.weight")/headDim
		bound, err := peft.Bind(base)
		require.NoError(t, err)
		require.Equal(t, want.Pairs, bound)
	}
}

func TestScalesFollowTheConfig(t *testing.T) {
	for config, want := range map[string][2]float32{
		`"r": 2, "lora_alpha": 3`:                                                                  {1.5, 1.5},
		`"r": 2, "lora_alpha": 2, "use_rslora": true`:                                              {float32(math.Sqrt2), float32(math.Sqrt2)},
		`"r": 9, "lora_alpha": 2, "rank_pattern": {"k_proj": 2, "up_proj": 2}`:                     {1, 1},
		`"r": 2, "lora_alpha": 2, "alpha_pattern": {"k_proj": 8, "model.layers.1.mlp.up_proj": 6}`: {4, 3},
		`"r": 2, "lora_alpha": 2, "alpha_pattern": {"up_proj": 8, "layers.1.mlp.up_proj": 4}`:      {1, 2},
		`"r": 2, "lora_alpha": 2, "alpha_pattern": {"p_proj": 8}`:                                  {1, 1},
	} {
		f, err := fromPEFT(t, `{"peft_type": "LORA", `+config+`}`, peftOf(t, toy(), 4)...)
		require.NoError(t, err)
		require.Equal(t, want, [2]float32{f.Pairs[0].Scale, f.Pairs[1].Scale}, config)
	}
	f, err := parse(ggufOf(t, toy(), nil))
	require.NoError(t, err)
	require.Equal(t, float32(2), f.Pairs[0].Scale, "4/2")
}

func TestAnUnusablePEFTAdapterIsNamed(t *testing.T) {
	for says, config := range map[string]string{
		"peft_type":                              `{"peft_type": "IA3", "lora_alpha": 1, "r": 2}`,
		"use_dora":                               `{"peft_type": "LORA", "lora_alpha": 1, "r": 2, "use_dora": true}`,
		"fan_in_fan_out":                         `{"peft_type": "LORA", "lora_alpha": 1, "r": 2, "fan_in_fan_out": true}`,
		`bias "all"`:                             `{"peft_type": "LORA", "lora_alpha": 1, "r": 2, "bias": "all"}`,
		"modules_to_save":                        `{"peft_type": "LORA", "lora_alpha": 1, "r": 2, "modules_to_save": ["lm_head"]}`,
		"layer_replication":                      `{"peft_type": "LORA", "lora_alpha": 1, "r": 2, "layer_replication": [[0, 1]]}`,
		"lora_alpha is missing":                  `{"peft_type": "LORA", "r": 2}`,
		"has rank 2, adapter_config.json says 3": `{"peft_type": "LORA", "lora_alpha": 1, "r": 3}`,
		"a scale of 5e+307":                      `{"peft_type": "LORA", "lora_alpha": 1e308, "r": 2}`,
		"adapter_config.json: ":                  `{"peft_type": 7}`,
	} {
		_, err := fromPEFT(t, config, peftOf(t, toy(), 4)...)
		require.ErrorIs(t, err, ErrFormat)
		require.ErrorContains(t, err, says)
	}
	for _, name := range []string{
		"lm_head.weight", "base_model.model.lm_head.lora_A.weight", "base_model.model.model.layers.0.self_attn.q_proj.lora_C.weight",
		"base_model.model.model.layers.-1.self_attn.q_proj.lora_A.weight", "base_model.model.model.layers.0.self_attn.qkv_proj.lora_A.weight",
		"base_model.model.model.embed_tokens.lora_embedding_A", "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector",
	} {
		tensor := &safetensors.Tensor{Name: name, Type: "F32", Shape: []int{1, 1}, Data: make([]byte, 4)}
		_, err := fromPEFT(t, toyConfig, tensor)
		require.ErrorIs(t, err, ErrFormat)
		require.ErrorContains(t, err, name)
	}
}

func TestAnUnusableGGUFAdapterIsNamed(t *testing.T) {
	nan := toy()
	nan[1].B[3] = float32(math.NaN())
	zeros := make([]byte, 64)
	for says, data := range map[string][]byte{
		"it updates nothing":          ggufOf(t, nil, nil),
		"tensor x is neither":         ggufOf(t, toy(), func(w *gguf.Writer) { w.AddTensor("x", gguf.F32, []int{2, 8}, zeros) }),
		"has an A and no B":           ggufOf(t, toy(), func(w *gguf.Writer) { w.AddTensor("x.lora_a", gguf.F32, []int{8, 2}, zeros) }),
		"has a B and no A":            ggufOf(t, toy(), func(w *gguf.Writer) { w.AddTensor("x.lora_b", gguf.F32, []int{8, 2}, zeros) }),
		"tensor x.lora_a is F32 [16]": ggufOf(t, toy(), func(w *gguf.Writer) { w.AddTensor("x.lora_a", gguf.F32, []int{16}, zeros) }),
		"tensor x.lora_a is Q4_0":     ggufOf(t, toy(), func(w *gguf.Writer) { w.AddTensor("x.lora_a", gguf.Q4_0, []int{32, 2}, zeros[:36]) }),
		"an A of rank 2 and a B of rank 8": ggufOf(t, nil, func(w *gguf.Writer) {
			w.AddTensor("x.lora_a", gguf.F32, []int{8, 2}, zeros)
			w.AddTensor("x.lora_b", gguf.F32, []int{8, 2}, zeros)
		}),
		"adapter.alora.invocation_tokens":   ggufOf(t, toy(), func(w *gguf.Writer) { w.SetString("adapter.alora.invocation_tokens", "x") }),
		"blk.1.ffn_up.weight is not finite": ggufOf(t, nan, nil),
		`general.type is ""`:                ggufWithout(t, "general.type"),
		"adapter.lora.alpha":                ggufWithout(t, "adapter.lora.alpha"),
		`adapter.type is ""`:                ggufWithout(t, "adapter.type"),
	} {
		t.Run(says, func(t *testing.T) {
			_, err := parse(data)
			require.ErrorIs(t, err, ErrFormat)
			require.ErrorContains(t, err, says)
		})
	}
}

// ggufWithout writes the toy adapter without a key, by giving it another name.
func ggufWithout(t testing.TB, key string) []byte {
	return bytes.Replace(ggufOf(t, toy(), nil), []byte(key), append([]byte("X"), key[1:]...), 1)
}

func TestAnAdapterThatDoesNotFitIsNamed(t *testing.T) {
	for says, edit := range map[string]func(*File){
		`it is for "qwen2", the model is "llama"`:                  func(f *File) { f.Architecture = "qwen2" },
		"no matrix blk.9.attn_q.weight":                            func(f *File) { f.Pairs[0].Tensor = "blk.9.attn_q.weight" },
		"update of blk.0.attn_q.weight is [4 8], the tensor [8 8]": func(f *File) { f.Pairs[0].Tensor = "blk.0.attn_q.weight" },
	} {
		f := &File{Pairs: toy()}
		edit(f)
		_, err := f.Bind(toyBase)
		require.ErrorIs(t, err, ErrMismatch)
		require.ErrorContains(t, err, says)
	}
}

// Reordering rows of B reorders rows of B·A, and back again gives them back.
func TestInterleaveUndoesSeparate(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		heads, headDim, cols := rapid.IntRange(1, 4).Draw(r, "heads"), 2*rapid.IntRange(1, 8).Draw(r, "half"), rapid.IntRange(1, 5).Draw(r, "cols")
		rows := rapid.SliceOfN(rapid.Float32(), heads*headDim*cols, heads*headDim*cols).Draw(r, "rows")
		require.Equal(r, rows, interleave(separate(rows, headDim, cols), heads, headDim, cols))
	})
	require.Equal(t, []float32{1, 3, 2, 4, 5, 7, 6, 8}, interleave([]float32{1, 2, 3, 4, 5, 6, 7, 8}, 2, 4, 1))
}

func FuzzFromGGUF(f *testing.F) {
	f.Add(ggufOf(f, toy(), nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := gguf.Parse(data)
		if err != nil {
			return
		}
		adapter, err := FromGGUF(file)
		if err != nil {
			require.ErrorIs(t, err, ErrFormat)
			return
		}
		_, _ = adapter.Bind(toyBase)
	})
}

func FuzzFromPEFT(f *testing.F) {
	var b bytes.Buffer
	require.NoError(f, safetensors.Write(&b, nil, peftOf(f, toy(), 4)...))
	f.Add(b.Bytes(), []byte(toyConfig))
	f.Add(binary.LittleEndian.AppendUint64(nil, 2), []byte("{}"))
	f.Fuzz(func(t *testing.T, data, config []byte) {
		file, err := safetensors.Parse(data)
		if err != nil {
			return
		}
		adapter, err := FromPEFT(file, config)
		if err != nil {
			require.ErrorIs(t, err, ErrFormat)
			return
		}
		_, _ = adapter.Bind(toyBase)
	})
}

func TestHeadsOfAnOddSizeAreRefused(t *testing.T) {
	base := toyBase
	base.HeadDim = 5
	_, err := (&File{HalvesRotated: true, Pairs: toy()}).Bind(base)
	require.ErrorIs(t, err, ErrMismatch)
}

func TestPatternsThatAreExpressionsAreRefused(t *testing.T) {
	for _, extra := range []string{
		`"alpha_pattern": {"layers\\.0\\.self_attn\\.q_proj": 32}`, `"rank_pattern": {".*q_proj": 2}`,
		`"alora_invocation_tokens": [1, 2]`,
	} {
		_, err := fromPEFT(t, `{"peft_type": "LORA", "r": 2, "lora_alpha": 4, `+extra+`}`, peftOf(t, toy(), 4)...)
		require.ErrorIs(t, err, ErrFormat, extra)
	}
	_, err := fromPEFT(t, `{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "alora_invocation_tokens": null}`, peftOf(t, toy(), 4)...)
	require.NoError(t, err)
}
