package lora

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/intelliparadigm/haiku/internal/safetensors"
)

// peftConfig is what matters of PEFT's adapter_config.json.
type peftConfig struct {
	Type         string             `json:"peft_type"`
	Rank         int                `json:"r"`
	Alpha        *float64           `json:"lora_alpha"`
	RankStable   bool               `json:"use_rslora"`
	RankPattern  map[string]int     `json:"rank_pattern"`
	AlphaPattern map[string]float64 `json:"alpha_pattern"`

	// What would change the result and is not supported.
	DoRA          bool     `json:"use_dora"`
	FanInFanOut   bool     `json:"fan_in_fan_out"`
	Bias          string   `json:"bias"`
	SaveModules   []string `json:"modules_to_save"`
	Replication   any      `json:"layer_replication"`
	MegatronCore  any      `json:"megatron_config"`
	TargetsTokens any      `json:"trainable_token_indices"`
	Invocation    any      `json:"alora_invocation_tokens"`
}

func openPEFT(path, dir string) (*File, error) {
	config, err := os.ReadFile(filepath.Join(dir, "adapter_config.json"))
	if err != nil {
		return nil, err
	}
	file, err := safetensors.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	defer file.Close()
	return FromPEFT(file, config)
}

// FromPEFT reads an adapter as Hugging Face's PEFT writes it for models of the
// Llama family, config being its adapter_config.json. Nothing of file is kept.
// Errors match [ErrFormat]. The keys of rank_pattern and alpha_pattern are taken
// for the ends of modules' names, of which the longest counts; regular
// expressions are refused.
func FromPEFT(file *safetensors.File, config []byte) (*File, error) {
	var cfg peftConfig
	if err := json.Unmarshal(config, &cfg); err != nil {
		return nil, fmt.Errorf("%w: adapter_config.json: %w", ErrFormat, err)
	}
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("%w: adapter_config.json: %w", ErrFormat, err)
	}
	modules := make(map[string]string) // by tensor
	parts := newAssembly(func(tensor string, rank int) (float32, error) { return cfg.scale(modules[tensor], rank) })
	for _, t := range file.Tensors() {
		module, tensor, isA, err := peftName(t.Name)
		if err != nil {
			return nil, err
		}
		if len(t.Shape) != 2 {
			return nil, fmt.Errorf("%w: tensor %s is %v, want a matrix", ErrFormat, t.Name, t.Shape)
		}
		floats, err := t.Floats()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFormat, err)
		}
		modules[tensor] = module
		if err := parts.add(tensor, isA, half{t.Shape[0], t.Shape[1], floats}); err != nil {
			return nil, err
		}
	}
	pairs, err := parts.pairs()
	return &File{HalvesRotated: true, Pairs: pairs}, err
}

func (c *peftConfig) check() error {
	switch {
	case c.Type != "LORA":
		return fmt.Errorf("peft_type is %q, want LORA", c.Type)
	case c.DoRA:
		return fmt.Errorf("use_dora is not supported")
	case c.FanInFanOut:
		return fmt.Errorf("fan_in_fan_out is not supported")
	case c.Bias != "" && c.Bias != "none":
		return fmt.Errorf("bias %q is not supported", c.Bias)
	case len(c.SaveModules) > 0:
		return fmt.Errorf("modules_to_save is not supported")
	case c.Replication != nil || c.MegatronCore != nil || c.TargetsTokens != nil || c.Invocation != nil:
		return fmt.Errorf("layer_replication, megatron_config, trainable_token_indices and alora_invocation_tokens are not supported")
	case c.Alpha == nil:
		return fmt.Errorf("lora_alpha is missing")
	}
	for _, pattern := range slices.Concat(slices.Collect(maps.Keys(c.RankPattern)), slices.Collect(maps.Keys(c.AlphaPattern))) {
		if strings.ContainsAny(strings.TrimPrefix(pattern, "^"), `\*+?[](){}|^$`) {
			return fmt.Errorf("the pattern %.80q is a regular expression, which is not supported", pattern)
		}
	}
	return nil
}

// scale is alpha/rank, or alpha/√rank (Kalajdzievski 2023).
func (c *peftConfig) scale(module string, rank int) (float32, error) {
	alpha, longest, want := *c.Alpha, -1, c.Rank
	for pattern, a := range c.AlphaPattern {
		if matches(pattern, module) && len(pattern) > longest {
			alpha, longest = a, len(pattern)
		}
	}
	longest = -1
	for pattern, r := range c.RankPattern {
		if matches(pattern, module) && len(pattern) > longest {
			want, longest = r, len(pattern)
		}
	}
	if want != rank {
		return 0, fmt.Errorf("%w: %s has rank %d, adapter_config.json says %d", ErrFormat, module, rank, want)
	}
	if c.RankStable {
		return finite(alpha/math.Sqrt(float64(rank)), "lora_alpha")
	}
	return finite(alpha/float64(rank), "lora_alpha")
}

// matches reports whether a key of a pattern is the end of a module's name.
func matches(pattern, module string) bool {
	pattern = strings.TrimPrefix(pattern, "^")
	return module == pattern || strings.HasSuffix(module, "."+pattern)
}

// peftModules are the modules of a decoder layer and what GGUF calls them.
var peftModules = map[string]string{
	"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
	"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}

// peftName splits a name such as
// base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight into the
// module, the base tensor's name in GGUF, and which half it is.
func peftName(name string) (module, tensor string, isA bool, err error) {
	rest, found := strings.CutPrefix(name, "base_model.model.")
	module, half, isLora := strings.Cut(rest, ".lora_")
	if found && isLora && (half == "A.weight" || half == "B.weight") {
		if in, inLayer := strings.CutPrefix(module, "model.layers."); inLayer {
			number, part, _ := strings.Cut(in, ".")
			layer, err := strconv.ParseUint(number, 10, 16)
			if gguf, known := peftModules[part]; err == nil && known {
				return module, fmt.Sprintf("blk.%d.%s.weight", layer, gguf), half == "A.weight", nil
			}
		}
	}
	return "", "", false, fmt.Errorf("%w: tensor %s is not a low-rank update of a matrix in a decoder layer", ErrFormat, name)
}
