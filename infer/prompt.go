package infer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/internal/chattemplate"
)

// prompter turns requests into prompts, [tokens]. It is immutable.
type prompter struct {
	text     Text
	vocab    *haiku.Vocabulary
	eos      map[int32]bool
	template *chattemplate.Template // nil: the model has none
	guard    *chattemplate.Guard

	longestToken int // bytes of text that one token can stand for, at most
}

func newPrompter(text Text, vocabSize int) (*prompter, error) {
	if text.Tokenizer == nil {
		return nil, errors.New("infer: an engine needs a tokenizer")
	}
	p := &prompter{
		text:  text,
		vocab: haiku.NewVocabulary(text.Tokenizer.Pieces()),
		eos:   make(map[int32]bool),
	}
	if p.vocab.Len() != vocabSize {
		return nil, fmt.Errorf("%w: the tokenizer has %d tokens and the executor %d logits", ErrUnsupportedModel, p.vocab.Len(), vocabSize)
	}
	for _, id := range text.EOS {
		p.eos[id] = true
	}
	for _, s := range text.Specials {
		if len(s) > maxSpecialBytes { // the guard looks for each of its beginnings and ends
			return nil, fmt.Errorf("%w: a control token is %d bytes long", ErrUnsupportedModel, len(s))
		}
	}
	p.guard = chattemplate.NewGuard(text.Specials)
	p.longestToken = 1
	for _, piece := range text.Tokenizer.Pieces() {
		// A space in a piece may stand for U+2581 in the text, three bytes.
		p.longestToken = max(p.longestToken, 3*len(piece))
	}
	for _, s := range text.Specials {
		p.longestToken = max(p.longestToken, len(s))
	}
	if text.ChatTemplate == "" {
		return p, nil
	}
	var err error
	if p.template, err = chattemplate.Compile(text.ChatTemplate, chattemplate.Limits{}); err != nil {
		return nil, fmt.Errorf("%w: chat template: %w", ErrUnsupportedModel, err)
	}
	return p, nil
}

const maxSpecialBytes = 1 << 10

// prompt returns the ids to continue for a request, and the error the client
// sees if there are none.
func (p *prompter) prompt(ctx context.Context, req *haiku.Request) ([]int32, error) {
	var ids []int32
	var err error
	switch {
	case len(req.PromptTokens) > 0:
		return req.PromptTokens, p.known("prompt", req.PromptTokens)
	case len(req.Messages) > 0:
		ids, err = p.conversation(ctx, req.Messages)
	case req.Prompt != "":
		ids = p.text.Tokenizer.Encode(nil, req.Prompt, true)
	default:
		err = haiku.ErrInvalidRequest.With("prompt", "there is nothing to continue: the prompt is empty")
	}
	if err != nil {
		return nil, err
	}
	return p.withBOS(ids), nil
}

func (p *prompter) withBOS(ids []int32) []int32 {
	bos := p.text.BOS
	if len(bos) == 0 || (len(ids) >= len(bos) && slices.Equal(ids[:len(bos)], bos)) {
		return ids
	}
	return append(append(make([]int32, 0, len(bos)+len(ids)), bos...), ids...)
}

// conversation renders messages through the template. Only the template's own
// text can become control tokens: a speaker can write what it likes.
func (p *prompter) conversation(ctx context.Context, messages []haiku.Message) ([]int32, error) {
	if p.template == nil {
		return nil, haiku.ErrUnsupported.With("messages", "this model has no chat template; it continues plain prompts only")
	}
	vars := chattemplate.Vars{BOS: p.text.BOSText, EOS: p.text.EOSText, AddGenerationPrompt: true}
	for i, m := range messages {
		switch m.Role {
		case haiku.RoleSystem, haiku.RoleUser, haiku.RoleAssistant:
		default:
			return nil, haiku.ErrInvalidRequest.With(fmt.Sprintf("messages[%d].role", i), "the role must be system, user or assistant")
		}
		vars.Messages = append(vars.Messages, chattemplate.Message{
			Role: string(m.Role), Name: p.guard.Mark(m.Name), Content: p.guard.Mark(m.Content),
		})
	}
	rendered, err := p.template.Render(ctx, vars)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, chattemplate.ErrRaised):
		return nil, haiku.ErrInvalidRequest.With("messages", "the model's chat template refuses this conversation: %v", err)
	default:
		return nil, haiku.ErrInvalidRequest.With("messages", "the model's chat template cannot render this conversation").Because(err)
	}
	var ids []int32
	for _, s := range p.guard.Split(rendered) {
		ids = p.text.Tokenizer.Encode(ids, s.Text, s.Special)
	}
	return ids, nil
}

// promptParam is the name of what req's prompt is made from.
func promptParam(req *haiku.Request) string {
	if len(req.PromptTokens) == 0 && len(req.Messages) > 0 {
		return "messages"
	}
	return "prompt"
}

// leastTokens is how many tokens the request's prompt has at the very least,
// found without tokenising it: megabytes that cannot fit are not worth it.
func (p *prompter) leastTokens(req *haiku.Request) int {
	switch {
	case len(req.PromptTokens) > 0:
		return len(req.PromptTokens)
	case len(req.Messages) == 0:
		return len(req.Prompt) / p.longestToken
	}
	bytes := 0
	for _, m := range req.Messages {
		bytes += len(strings.TrimSpace(m.Content)) // templates may trim
	}
	return bytes / p.longestToken
}

// known refuses ids outside the vocabulary.
func (p *prompter) known(param string, ids []int32) error {
	for i, id := range ids {
		if p.vocab.Len() <= int(id) || id < 0 {
			return haiku.ErrInvalidRequest.With(fmt.Sprintf("%s[%d]", param, i), "the token %d is not in the vocabulary of %d", id, p.vocab.Len())
		}
	}
	return nil
}

const minRepetitionPenalty = 0.01

// check refuses sampling options that would fail, or mean nothing, later.
func (p *prompter) check(req *haiku.Request) error {
	s := &req.Sampling
	for _, field := range []struct {
		name      string
		value     float64
		low, high float64
	}{
		{"temperature", s.Temperature, 0, 100},
		{"top_p", s.TopP, 0, 1},
		{"min_p", s.MinP, 0, 1},
		{"typical_p", s.TypicalP, 0, 1},
		{"presence_penalty", s.PresencePenalty, -100, 100},
		{"frequency_penalty", s.FrequencyPenalty, -100, 100},
		{"repetition_penalty", s.RepetitionPenalty, 0, 100},
		{"top_k", float64(s.TopK), 0, math.MaxInt32},
		{"n", float64(req.Choices), 0, 128},
		{"max_tokens", float64(req.MaxTokens), 0, math.MaxInt32},
		{"top_logprobs", float64(req.TopLogprobs), 0, 20},
	} {
		if !(field.value >= field.low && field.value <= field.high) { // also refuses NaN
			return haiku.ErrInvalidRequest.With(field.name, "the value must lie between %v and %v", field.low, field.high)
		}
	}
	if r := s.RepetitionPenalty; r > 0 && r < minRepetitionPenalty { // logits divided by it would not be finite
		return haiku.ErrInvalidRequest.With("repetition_penalty", "the value must be 0 or at least %v", minRepetitionPenalty)
	}
	if s.Mask != nil {
		if want := len(haiku.NewTokenMask(p.vocab.Len())); len(s.Mask) != want {
			return haiku.ErrInvalidRequest.With("mask", "the mask has %d elements, the vocabulary of %d tokens needs %d", len(s.Mask), p.vocab.Len(), want)
		}
		last := len(s.Mask) - 1
		beyond := ^uint64(0) << (p.vocab.Len() - 64*last) // a shift by 64 leaves nothing
		if s.Mask[last]&^beyond == 0 && !slices.ContainsFunc(s.Mask[:last], func(bits uint64) bool { return bits != 0 }) {
			return haiku.ErrInvalidRequest.With("mask", "the mask allows no token")
		}
	}
	for id, bias := range s.LogitBias {
		if id < 0 || int(id) >= p.vocab.Len() {
			return haiku.ErrInvalidRequest.With("logit_bias", "the token %d is not in the vocabulary of %d", id, p.vocab.Len())
		}
		if b := float64(bias); math.IsNaN(b) || math.IsInf(b, 1) {
			return haiku.ErrInvalidRequest.With("logit_bias", "the bias of token %d is not a number", id)
		}
	}
	return nil
}
