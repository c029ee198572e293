package upstream

import (
	"encoding/base64"
	"maps"
	"math"
	"slices"
	"strconv"

	"crypto/hmac"
	"crypto/sha256"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/intelliparadigm/haiku"
)

// body writes JSON objects member by member.
type body struct{ b []byte }

func (b *body) open() { b.b = append(b.b, '{') }

func (b *body) close() { b.b = append(b.b, '}') }

// name begins a member.
func (b *body) name(name string) {
	if n := len(b.b); n > 0 && b.b[n-1] != '{' && b.b[n-1] != '[' {
		b.b = append(b.b, ',')
	}
	b.text(name)
	b.b = append(b.b, ':')
}

// text writes a string. What is not UTF-8 is replaced.
func (b *body) text(s string) {
	b.b, _ = jsontext.AppendQuote(b.b, s) // its error is about the UTF-8
}

func (b *body) str(name, value string) {
	b.name(name)
	b.text(value)
}

func (b *body) int(name string, n int64) {
	b.name(name)
	b.b = strconv.AppendInt(b.b, n, 10)
}

func (b *body) float(name string, f float64) {
	b.name(name)
	b.b = strconv.AppendFloat(b.b, f, 'g', -1, 64)
}

func (b *body) raw(name, json string) {
	b.name(name)
	b.b = append(b.b, json...)
}

// sep begins another element of an array.
func (b *body) sep(i int) {
	if i > 0 {
		b.b = append(b.b, ',')
	}
}

// chat reports whether req is a conversation.
func chat(req *haiku.Request) bool { return len(req.Messages) > 0 }

// requestBody writes the body that asks the engine for req, or says what of it
// the engine cannot do.
func (e *Engine) requestBody(req *haiku.Request, rid string) ([]byte, error) {
	if err := e.refuse(req); err != nil {
		return nil, err
	}
	b := &body{b: make([]byte, 0, 1<<10)}
	b.open()
	if name := e.modelName(req.Model); name != "" {
		b.str("model", name)
	}
	if chat(req) {
		b.messages(req)
	} else {
		b.prompt(req)
	}
	b.raw("stream", "true")
	b.raw("stream_options", e.streamOptions())
	if n := max(req.Choices, 1); n > 1 {
		b.int("n", int64(n))
	}
	if req.MaxTokens > 0 {
		b.int(e.maxTokens(req), int64(req.MaxTokens))
	}
	b.stops(req.Stop)
	b.logprobs(req, e.dialect)
	b.sampling(&req.Sampling, e.dialect)
	e.routing(b, req, rid)
	b.extensions(req.Extensions, e.leaves)
	b.close()
	return b.b, nil
}

// modelName is what the engine calls the model, or the adapter of it, that is
// asked for.
func (e *Engine) modelName(asked string) string {
	if e.opts.Model == "" || e.adapter(asked) {
		return asked
	}
	return e.opts.Model
}

// shownName is what clients are told answers a request, of which the engine says
// that it was told.
func (e *Engine) shownName(asked, told string) string {
	switch {
	case e.opts.Name == "":
		return told
	case e.adapter(asked):
		return asked
	default:
		return e.opts.Name
	}
}

func (e *Engine) streamOptions() string {
	if e.opts.ContinuousUsage {
		return `{"include_usage":true,"continuous_usage_stats":true}`
	}
	return `{"include_usage":true}`
}

// maxTokens names the bound: only the chat API has the newer name.
func (e *Engine) maxTokens(req *haiku.Request) string {
	if chat(req) {
		return e.dialect.maxTokens
	}
	return "max_tokens"
}

// refuse names the first thing that the engine cannot do.
func (e *Engine) refuse(req *haiku.Request) error {
	d, s := e.dialect, &req.Sampling
	unless := func(there string, wanted bool, param string) error {
		if there != "" || !wanted {
			return nil
		}
		return unsupported(param, "this model's engine has no %s", param)
	}
	for _, err := range []error{
		unless(d.topK, s.TopK > 0, "top_k"),
		unless(d.minP, s.MinP > 0, "min_p"),
		unless(d.typicalP, s.TypicalP > 0 && s.TypicalP < 1, "typical_p"),
		unless(d.repetition, s.RepetitionPenalty > 0 && s.RepetitionPenalty != 1, "repetition_penalty"),
		unless("", s.Mask != nil, "mask"),
		unless("", req.AdapterScale != nil && *req.AdapterScale != 1, "adapter_scale"),
	} {
		if err != nil {
			return err
		}
	}
	switch {
	case d.oneChoice && req.Choices > 1:
		return unsupported("n", "this model's engine gives one choice")
	case d.noBias && len(s.LogitBias) > 0:
		return unsupported("logit_bias", "this model's engine has no logit_bias")
	case d.noTokens && len(req.PromptTokens) > 0:
		return unsupported("prompt", "this model's engine takes no token ids")
	}
	return e.TakesExtensions(req)
}

func unsupported(param, format string, args ...any) error {
	return haiku.ErrUnsupported.With(param, format, args...)
}

// messages writes the conversation.
func (b *body) messages(req *haiku.Request) {
	b.name("messages")
	b.b = append(b.b, '[')
	for i := range req.Messages {
		m := &req.Messages[i]
		b.sep(i)
		b.open()
		b.str("role", string(m.Role))
		if m.Name != "" {
			b.str("name", m.Name)
		}
		b.content(m)
		b.close()
	}
	b.b = append(b.b, ']')
}

// prompt writes the text or the tokens to continue.
func (b *body) prompt(req *haiku.Request) {
	if len(req.PromptTokens) == 0 {
		b.str("prompt", req.Prompt)
		return
	}
	b.name("prompt")
	b.ids(req.PromptTokens)
}

func (b *body) ids(tokens []int32) {
	b.b = append(b.b, '[')
	for i, id := range tokens {
		b.sep(i)
		b.b = strconv.AppendInt(b.b, int64(id), 10)
	}
	b.b = append(b.b, ']')
}

func (b *body) stops(stops []string) {
	if len(stops) == 0 {
		return
	}
	b.name("stop")
	b.b = append(b.b, '[')
	for i, s := range stops {
		b.sep(i)
		b.text(s)
	}
	b.b = append(b.b, ']')
}

func (b *body) logprobs(req *haiku.Request, d *dialect) {
	if !req.Logprobs {
		return
	}
	top := req.TopLogprobs
	if d.topOne {
		top = max(top, 1)
	}
	if !chat(req) {
		b.int("logprobs", int64(top))
		return
	}
	b.raw("logprobs", "true")
	b.int("top_logprobs", int64(top))
}

// sampling writes every parameter that the engine has, also those that change
// nothing: what is left out, engines fill in from a model's own defaults.
func (b *body) sampling(s *haiku.Sampling, d *dialect) {
	b.float("temperature", s.Temperature)
	b.float("top_p", orOne(s.TopP))
	b.float("presence_penalty", s.PresencePenalty)
	b.float("frequency_penalty", s.FrequencyPenalty)
	if d.topK != "" {
		k := s.TopK
		if k <= 0 {
			k = d.topKAll
		}
		b.int(d.topK, int64(k))
	}
	if d.minP != "" {
		b.float(d.minP, s.MinP)
	}
	if d.typicalP != "" {
		b.float(d.typicalP, orOne(s.TypicalP))
	}
	if d.repetition != "" {
		b.float(d.repetition, orOne(s.RepetitionPenalty))
	}
	if d.penalised != "" {
		b.int(d.penalised, -1)
	}
	if s.Seed != nil {
		b.int("seed", int64(*s.Seed&(1<<d.seedBits-1)))
	}
	if len(s.LogitBias) > 0 {
		b.bias(s.LogitBias)
	}
}

// orOne is p, or 1 where 0 stands for what keeps or changes nothing.
func orOne(p float64) float64 {
	if p == 0 {
		return 1
	}
	return p
}

// bias writes the biases in the order of their tokens: equal requests have
// equal bodies.
func (b *body) bias(bias map[int32]float32) {
	b.name("logit_bias")
	b.open()
	for _, id := range slices.Sorted(maps.Keys(bias)) {
		v := float64(bias[id])
		if math.IsInf(v, 0) { // JSON has none; beyond ±100 engines treat all alike
			v = math.Copysign(100, v)
		}
		b.float(strconv.Itoa(int(id)), v)
	}
	b.close()
}

// routing writes what the engine needs to know of the request beside what is
// asked. It comes from the host and the verified identity alone.
func (e *Engine) routing(b *body, req *haiku.Request, rid string) {
	if e.dialect.salt != "" && req.Tenant != "" {
		b.str(e.dialect.salt, e.salt(req.Tenant))
	}
	// Several choices with a priority have ended vLLM's engine.
	if p := req.Objective.Priority * e.dialect.priority; p != 0 && e.opts.Priority && req.Choices <= 1 {
		b.int("priority", int64(p))
	}
	if e.dialect.request != "" && rid != "" {
		b.str(e.dialect.request, rid)
	}
}

// salt is the name of a tenant's part of the engine's prefix cache. Tenants do
// not find each other's prompts there, not even by timing, and the engine does
// not learn who they are.
func (e *Engine) salt(tenant string) string {
	mac := hmac.New(sha256.New, e.opts.SaltKey)
	mac.Write([]byte("haiku cache salt 1\x00"))
	mac.Write([]byte(tenant))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:24])
}
