package haiku

import "context"

// Model turns a request into a stream of tokens. It is the interface that
// engines, upstreams, caches, breakers and routers implement and wrap.
//
// An implementation keeps these rules, which haikutest.TestModel checks:
//
//   - Generate may be called by many goroutines at once.
//   - Generate writes to w from one goroutine at a time and has stopped
//     writing when it returns. Its return ends the stream: nil for a complete
//     answer, otherwise the error the reader sees.
//   - It does not change req or keep it after it has returned.
//   - When ctx ends, Generate returns within one step of the model, with an
//     error that matches ctx.Err(); whatever it held is then free.
//   - It gives every choice of the request a finish reason before it returns
//     nil, and reports what was used through [StreamWriter.SetUsage] in
//     every case, so that cancelled work is counted too.
//   - A request it refuses is an [Error] returned before the first token.
//     Extensions it sees only if it is [Extended], beside optional ones, which it
//     may ignore.
//   - A panic is the caller's to recover; it must leave no lock held.
type Model interface {
	Generate(ctx context.Context, w *StreamWriter, req *Request) error
}

// ModelFunc makes a function a [Model].
type ModelFunc func(ctx context.Context, w *StreamWriter, req *Request) error

// Generate calls f.
func (f ModelFunc) Generate(ctx context.Context, w *StreamWriter, req *Request) error {
	return f(ctx, w, req)
}

// Role says who speaks in a [Message].
type Role string

// The roles of a conversation.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool" // the result of a call; see [Extended]
)

// Message is one turn of a conversation.
type Message struct {
	Role    Role
	Name    string // optional name of the speaker
	Content string // valid UTF-8; never interpreted as control tokens
	// Extensions are what the message says beyond these fields, as tool_calls
	// and tool_call_id do, each name once. One named content stands in place of
	// Content, which is then empty: an array of parts that are not all text, or
	// null beside calls.
	Extensions []Extension
}

// Request is everything that shapes an answer. The zero value of each field
// means what its comment says; Models treat a Request as read-only.
type Request struct {
	// ID names the request in logs and on the wire.
	ID string
	// Tenant is the verified identity on whose behalf the request runs. It
	// partitions caches and budgets and never comes from the request body.
	Tenant string
	// Objective is how urgent the request is. Where it is zero, that of the
	// stream's context is taken.
	Objective Objective
	// Model is the name of the model asked for; empty means the default one.
	Model string

	// Messages is a conversation to be continued by the assistant. When it is
	// empty, Prompt is continued as plain text instead.
	Messages []Message
	// Prompt is plain text to continue. Texts of control tokens inside it
	// become control tokens: it is for callers that render their own template.
	Prompt string
	// PromptTokens, when not empty, is continued instead of Prompt, as it is:
	// no begin-of-sequence token is added.
	PromptTokens []int32

	// AdapterScale multiplies the effect of the adapter that Model names; nil
	// means 1. 0 is the base model, and a value below 0 does the opposite of
	// what the adapter was trained for.
	AdapterScale *float64

	// Choices is the number of independent answers; 0 means 1.
	Choices int
	// MaxTokens bounds each choice; 0 means as many as the context holds.
	MaxTokens int
	// Stop ends a choice before the earliest match of any of these strings.
	Stop []string
	// Sampling says how the next token is chosen.
	Sampling Sampling
	// Logprobs asks for the log-probability of each token, and TopLogprobs for
	// that many of the most probable alternatives beside it.
	Logprobs    bool
	TopLogprobs int

	// Extensions are what the request asks for beyond these fields, as tools,
	// tool_choice, response_format and reasoning_effort do, each name once. Only
	// a model that is [Extended] gets a request with extensions that are not
	// optional.
	Extensions []Extension

	// Encoder writes the answer's bytes on an HTTP response. Nil sends the
	// text alone, as server-sent events with one JSON string each.
	Encoder Encoder
}

// InferenceRequest returns r itself, which makes a Request a [Payload].
func (r *Request) InferenceRequest() (*Request, error) { return r, nil }

// Payload is anything that can be understood as a Request: a decoded wire
// format, or a Request itself. Its error is an [Error] for the client.
type Payload interface {
	InferenceRequest() (*Request, error)
}

// Sampling says how a token is chosen from the logits. The zero value is
// greedy decoding: always the most probable token.
//
// The steps are taken in this order: repetition, presence and frequency
// penalty, bias, mask, temperature, top-k, top-p, min-p, typical. Each cut works
// on what the one before it has left, renormalised.
type Sampling struct {
	// Temperature divides the logits; 0 is greedy. OpenAI's default is 1.
	Temperature float64
	// TopK keeps the K most probable tokens; 0 keeps all.
	TopK int
	// TopP keeps the most probable tokens whose probabilities reach P, in
	// (0,1]; 0 keeps all.
	TopP float64
	// MinP drops tokens less probable than MinP times the best; 0 drops none.
	MinP float64
	// TypicalP keeps the tokens whose information content is nearest to the
	// entropy until their probabilities reach P, in (0,1]; 0 and 1 keep all.
	TypicalP float64
	// Seed makes the choice repeatable: a token depends on the seed, the
	// choice's index and the position alone. Nil draws a seed per request.
	Seed *uint64
	// PresencePenalty is subtracted once from the logit of each token already
	// generated, FrequencyPenalty once per occurrence.
	PresencePenalty, FrequencyPenalty float64
	// RepetitionPenalty divides positive and multiplies negative logits of the
	// tokens in prompt and answer; 0 and 1 change nothing.
	RepetitionPenalty float64
	// LogitBias is added to the logits of the given tokens.
	LogitBias map[int32]float32
	// Mask, when not nil, are the only tokens that may be chosen. A token that
	// ends an answer has to be among them, or MaxTokens ends it. It is not
	// changed while the request runs.
	Mask TokenMask
}

// TokenMask is a set of tokens: bit id%64 of element id/64 is token id's.
type TokenMask []uint64

// NewTokenMask returns an empty set for a vocabulary of so many tokens.
func NewTokenMask(vocab int) TokenMask { return make(TokenMask, (vocab+63)/64) }

// Allow adds tokens, which must be in the vocabulary.
func (m TokenMask) Allow(ids ...int32) {
	for _, id := range ids {
		m[id/64] |= 1 << (id % 64)
	}
}

// Allows reports whether a token of the vocabulary is in the set.
func (m TokenMask) Allows(id int32) bool { return m[id/64]>>(id%64)&1 != 0 }

// FinishReason says why a choice ended.
type FinishReason string

// The reasons for the end of a choice.
const (
	// FinishStop: the model ended its answer or a stop string matched.
	FinishStop FinishReason = "stop"
	// FinishLength: MaxTokens or the context's end was reached.
	FinishLength FinishReason = "length"
	// FinishToolCalls: the model asks for tools to be called.
	FinishToolCalls FinishReason = "tool_calls"
	// FinishContentFilter: a filter withheld the rest.
	FinishContentFilter FinishReason = "content_filter"
)

// Token is one step of a stream as its reader sees it.
type Token struct {
	// Choice is the index of the answer the token belongs to.
	Choice int
	// ID is the token's number in the model's vocabulary, or -1 where the
	// model does not tell.
	ID int32
	// Text is what may be shown now: whole UTF-8 characters, and nothing that
	// could still turn out to be part of a stop string. It may be empty, and
	// it may hold text of earlier tokens that had to wait.
	Text string
	// Logprobs are those of the tokens whose text ends here, when asked for.
	Logprobs []TokenLogprob
	// Delta is what the choice's delta says beside its text: JSON members
	// without the braces around them, each name once, on one line, as in
	//
	//	"reasoning_content":"…"
	//	"tool_calls":[{"index":0,"function":{"arguments":"{"}}]
	//
	// It is empty where the model says nothing but text.
	Delta string
	// Finish is set on the last token of a choice, which may have no text.
	Finish FinishReason
}

// TokenLogprob is the log-probability (natural logarithm) of a token and of
// its alternatives in the distribution it was drawn from: after all steps of
// [Sampling], so that tokens which were cut off are not among the alternatives.
// Of greedy decoding it is the distribution after penalties, bias and mask at
// temperature 1.
type TokenLogprob struct {
	Logprob float32
	ID      int32
	Bytes   []byte // the token's own bytes, not always whole characters
	Top     []TokenLogprob
}

// Usage counts tokens.
type Usage struct {
	PromptTokens     int
	CompletionTokens int
	// CachedTokens is the part of PromptTokens that was not computed anew.
	CachedTokens int
}

// ModelInfo describes one model to clients.
type ModelInfo struct {
	ID      string
	Parent  string // the base model of an adapter, else empty
	OwnedBy string
	Created int64 // Unix seconds
	// ContextTokens is the model's context length, 0 when unknown.
	ContextTokens int
}

// Lister is what a [Model] that knows names implements beside Generate.
// Wrapping Models pass it on through Unwrap() Model.
type Lister interface {
	Models() []ModelInfo
}

// ModelsOf returns what m, or a Model that it wraps, lists; nil if none does.
func ModelsOf(m Model) []ModelInfo {
	if l, ok := ModelAs[Lister](m); ok {
		return l.Models()
	}
	return nil
}

// ModelAs looks for T in m and in the Models it wraps, found by following
// methods Unwrap() Model, and reports whether one implements it.
func ModelAs[T any](m Model) (T, bool) {
	for m != nil {
		if t, ok := m.(T); ok {
			return t, true
		}
		u, ok := m.(interface{ Unwrap() Model })
		if !ok {
			break
		}
		m = u.Unwrap()
	}
	var none T
	return none, false
}
