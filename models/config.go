package models

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
)

// Config describes the models that a service offers.
type Config struct {
	// Default is the name of the model for requests that name none; empty is the
	// first that is not hidden.
	Default string `json:"default,omitzero"`
	// Models are described in any order.
	Models []Model `json:"models"`
}

// Model describes one model. It is either Local or has Servers.
type Model struct {
	// Name is what clients call it, and Aliases what they may call it too. Each is
	// unique among all names and aliases.
	Name    string   `json:"name"`
	Aliases []string `json:"aliases,omitzero"`
	// Hidden models stand in for others, and cannot be asked for by name.
	Hidden bool `json:"hidden,omitzero"`

	// Local names one of Parts.Models.
	Local string `json:"local,omitzero"`
	// Servers have the same model each. Several are a pool.
	Servers []Server `json:"servers,omitzero"`

	// Fallback names the models that stand in for it, hidden or not, in this
	// order. Those that stand in for them in turn do not. The breaker of each, in
	// logs and among replicas, is called by both names, as in "chat/chat" and
	// "chat/small", and that of a pool's server as in "chat/servers/gpu-0:8000".
	Fallback []string `json:"fallback,omitzero"`
	// FirstToken, HedgeAfter and Stall are those of fallback.Options, and OpenFor
	// is that of its breakers. They mean something with a Fallback only, but for
	// Stall, which is a pool's too. 0 is what Parts say. A FirstToken is also from
	// where on the breakers find an answer slow, unless Parts.Fallback says where.
	FirstToken Duration `json:"first_token,omitzero"`
	HedgeAfter Duration `json:"hedge_after,omitzero"`
	Stall      Duration `json:"stall,omitzero"`
	OpenFor    Duration `json:"open_for,omitzero"`

	// Wrap names what is put around it, of Parts.Wrappers; the first is outermost.
	// It is not around a model where that stands in for another.
	Wrap []string `json:"wrap,omitzero"`
}

// Server describes one server of a model, which speaks OpenAI's HTTP API.
type Server struct {
	// URL is its base URL, such as "http://gpu-0:8000/v1".
	URL string `json:"url"`
	// Name is unique among the model's servers, and the same in every process;
	// empty is the host and port of the URL.
	Name string `json:"name,omitzero"`
	// Dialect is the engine that it runs: "vLLM", "SGLang", "llama.cpp", "Ollama",
	// "OpenAI", or "generic", which empty means.
	Dialect string `json:"dialect,omitzero"`
	// Model is what it calls the model; empty is the model's name here.
	Model string `json:"model,omitzero"`
	// Key names a secret, which Parts.Key knows; empty sends none.
	Key string `json:"key,omitzero"`
	// Metrics and Health are where a server of several tells its load and whether
	// it is well: paths beside the version in its URL, such as "/metrics". Empty is
	// what the engine has by default, for one that has no health check its list of
	// models; "none" is not to ask.
	Metrics string `json:"metrics,omitzero"`
	Health  string `json:"health,omitzero"`
}

// Duration is a time.Duration that is written as text, such as "120ms" or "5m".
type Duration time.Duration

// UnmarshalText reads what time.ParseDuration reads.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is no duration such as \"120ms\" or \"5m\"", text)
	}
	*d = Duration(v)
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// Parse reads a Config from JSON. It is strict: a member that is not known, or is
// there twice, is an error. What a Config means is checked by [Open].
func Parse(data []byte) (Config, error) {
	var c Config
	if err := json.Unmarshal(data, &c, json.RejectUnknownMembers(true)); err != nil {
		return Config{}, fmt.Errorf("models: parse: %w", err)
	}
	return c, nil
}
