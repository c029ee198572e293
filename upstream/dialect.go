package upstream

import "fmt"

// Dialect says what an engine's API has beside OpenAI's, and what it lacks. A
// request that asks for what is not there is refused: an engine that drops a
// parameter answers another question.
type Dialect uint8

// The dialects. Dynamo, llm-d, Ray Serve and the model servers behind a Gateway
// speak the one of the engine that they run, mostly VLLM.
const (
	// Generic is a server that has the parameters of OpenAI's API and is not
	// known any better.
	Generic Dialect = iota
	// OpenAI is OpenAI's own API, which wants max_completion_tokens.
	OpenAI
	// VLLM has top_k, min_p, repetition_penalty, cache_salt and, where its
	// scheduler is set up so, priority. It fills in what is left out from the
	// model's generation_config.json, so nothing is.
	VLLM
	// SGLang has what VLLM has; its priorities run the other way. See
	// Options.Abort.
	SGLang
	// LlamaCpp is llama.cpp's server, with samplers that are on by default.
	LlamaCpp
	// Ollama has one choice, no token prompts, and no way to switch off the
	// repetition penalty that a model's file asks for.
	Ollama
)

// dialect is one line of the table. An empty name is a parameter that is not
// there.
type dialect struct {
	name       string
	maxTokens  string
	topK       string
	topKAll    int // what keeps all
	minP       string
	typicalP   string
	repetition string
	penalised  string // how many tokens back the penalties look; -1 is all

	oneChoice bool
	noBias    bool
	noTokens  bool // token ids as a prompt
	topOne    bool // log-probabilities need at least one alternative
	strict    bool // parameters that it does not know are refused
	seedBits  uint

	salt     string
	priority int // 1: lower values first, as here; -1: higher first; 0: none
	request  string
	base64   bool // embeddings
}

var dialects = [...]dialect{
	Generic: {name: "generic", maxTokens: "max_tokens", seedBits: 63},
	OpenAI:  {name: "OpenAI", maxTokens: "max_completion_tokens", seedBits: 63, base64: true, strict: true},
	VLLM: {
		name: "vLLM", maxTokens: "max_tokens", seedBits: 63,
		topK: "top_k", topKAll: -1, minP: "min_p", repetition: "repetition_penalty",
		salt: "cache_salt", priority: 1, base64: true,
	},
	SGLang: {
		name: "SGLang", maxTokens: "max_tokens", seedBits: 63,
		topK: "top_k", topKAll: -1, minP: "min_p", repetition: "repetition_penalty",
		salt: "cache_salt", priority: -1, request: "rid",
	},
	LlamaCpp: {
		name: "llama.cpp", maxTokens: "max_tokens", seedBits: 31,
		topK: "top_k", minP: "min_p", typicalP: "typical_p", repetition: "repeat_penalty", penalised: "repeat_last_n",
		topOne: true,
	},
	Ollama: {name: "Ollama", maxTokens: "max_tokens", seedBits: 31, oneChoice: true, noBias: true, noTokens: true},
}

// String is the engine's name.
func (d Dialect) String() string {
	if int(d) >= len(dialects) {
		return fmt.Sprintf("Dialect(%d)", uint8(d))
	}
	return dialects[d].name
}

// ParseDialect returns the dialect with a name, as String gives it, in any case;
// the empty name is Generic.
func ParseDialect(name string) (Dialect, error) {
	if name == "" {
		return Generic, nil
	}
	for i := range dialects {
		if equalFold(dialects[i].name, name) {
			return Dialect(i), nil
		}
	}
	return 0, fmt.Errorf("upstream: no dialect %q", name)
}
