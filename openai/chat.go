package openai

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/intelliparadigm/haiku"
)

// ChatCompletionRequest is the body of POST /v1/chat/completions.
type ChatCompletionRequest struct {
	Params
	Messages            []Message `json:"messages"`
	MaxCompletionTokens *int      `json:"max_completion_tokens,omitzero"`
	Logprobs            bool      `json:"logprobs,omitzero"`
	TopLogprobs         *int      `json:"top_logprobs,omitzero"` // 0 to 20
	chatFeatures
}

// chatFeatures are parameters that are refused if they say anything.
type chatFeatures struct {
	Tools            jsontext.Value `json:"tools,omitzero"`
	ToolChoice       jsontext.Value `json:"tool_choice,omitzero"`
	Functions        jsontext.Value `json:"functions,omitzero"`
	FunctionCall     jsontext.Value `json:"function_call,omitzero"`
	ResponseFormat   jsontext.Value `json:"response_format,omitzero"`
	Modalities       jsontext.Value `json:"modalities,omitzero"`
	Audio            jsontext.Value `json:"audio,omitzero"`
	Prediction       jsontext.Value `json:"prediction,omitzero"`
	WebSearchOptions jsontext.Value `json:"web_search_options,omitzero"`
	ReasoningEffort  jsontext.Value `json:"reasoning_effort,omitzero"`
	Verbosity        jsontext.Value `json:"verbosity,omitzero"`
	Store            jsontext.Value `json:"store,omitzero"`
}

// Message is one turn of a conversation.
type Message struct {
	Role    string  `json:"role"`
	Name    string  `json:"name,omitzero"`
	Content Content `json:"content"`

	ToolCalls    jsontext.Value `json:"tool_calls,omitzero"`
	FunctionCall jsontext.Value `json:"function_call,omitzero"`
	Audio        jsontext.Value `json:"audio,omitzero"`
}

// UnmarshalJSONFrom knows a message without content from one whose content is
// empty.
func (m *Message) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type fields Message // without this method
	*m = Message{Content: Content{missing: true}}
	return json.UnmarshalDecode(dec, (*fields)(m))
}

// UnmarshalJSON does for encoding/json what UnmarshalJSONFrom does.
func (m *Message) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, m) }

// UserMessage is a user's turn.
func UserMessage(text string) Message { return Message{Role: "user", Content: Content{Text: text}} }

// SystemMessage is an instruction to the model.
func SystemMessage(text string) Message { return Message{Role: "system", Content: Content{Text: text}} }

// AssistantMessage is an earlier answer.
func AssistantMessage(text string) Message {
	return Message{Role: "assistant", Content: Content{Text: text}}
}

// Content is a message's text, on the wire a string or an array of parts.
type Content struct {
	Text  string
	Parts []ContentPart // instead of Text when not nil

	missing bool // the wire had none, or null
}

// ContentPart is a part of a message. Only parts of type "text" are supported.
type ContentPart struct {
	Type string  `json:"type"`
	Text *string `json:"text,omitzero"`
}

// UnmarshalJSONFrom accepts a string, an array of parts and null.
func (c *Content) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*c = Content{}
	switch dec.PeekKind() {
	case 'n':
		c.missing = true
		return dec.SkipValue()
	case '[':
		c.Parts = []ContentPart{}
		return json.UnmarshalDecode(dec, &c.Parts)
	default:
		return json.UnmarshalDecode(dec, &c.Text)
	}
}

// MarshalJSONTo writes the form that was given.
func (c Content) MarshalJSONTo(enc *jsontext.Encoder) error {
	switch {
	case c.missing:
		return enc.WriteToken(jsontext.Null)
	case c.Parts != nil:
		return json.MarshalEncode(enc, c.Parts)
	default:
		return enc.WriteToken(jsontext.String(c.Text))
	}
}

// UnmarshalJSON does for encoding/json what UnmarshalJSONFrom does.
func (c *Content) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, c) }

// MarshalJSON does for encoding/json what MarshalJSONTo does.
func (c Content) MarshalJSON() ([]byte, error) { return json.Marshal(c) }

// InferenceRequest checks the request and translates it. Its error is a
// haiku.Error with status 400 that names the parameter.
func (r *ChatCompletionRequest) InferenceRequest() (*haiku.Request, error) {
	if err := r.refuse(); err != nil {
		return nil, err
	}
	req := &haiku.Request{ID: newID("chatcmpl-")}
	if err := r.apply(req); err != nil {
		return nil, err
	}
	if err := r.applyMaxTokens(req); err != nil {
		return nil, err
	}
	if err := r.applyLogprobs(req); err != nil {
		return nil, err
	}
	var err error
	if req.Messages, err = translate(r.Messages); err != nil {
		return nil, err
	}
	req.Encoder = newChatEncoder(r, req)
	return req, nil
}

// refuse names the first feature that is asked for and not there.
func (r *ChatCompletionRequest) refuse() error {
	f := &r.chatFeatures
	if err := refuse(
		feature{"tools", f.Tools}, feature{"functions", f.Functions}, feature{"audio", f.Audio},
		feature{"prediction", f.Prediction}, feature{"web_search_options", f.WebSearchOptions},
		feature{"reasoning_effort", f.ReasoningEffort}, feature{"verbosity", f.Verbosity}, feature{"store", f.Store},
	); err != nil {
		return err
	}
	for _, c := range []feature{{"tool_choice", f.ToolChoice}, {"function_call", f.FunctionCall}} {
		if given(c.value) && string(c.value) != `"none"` && string(c.value) != `"auto"` {
			return unsupported(c.param, "%s is not supported", c.param)
		}
	}
	if given(f.Modalities) {
		var list []string
		if err := json.Unmarshal(f.Modalities, &list); err != nil || len(list) != 1 || list[0] != "text" {
			return unsupported("modalities", `modalities other than ["text"] are not supported`)
		}
	}
	if given(f.ResponseFormat) {
		var format struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(f.ResponseFormat, &format); err != nil || format.Type != "text" {
			return unsupported("response_format", `a response_format other than {"type":"text"} is not supported`)
		}
	}
	return nil
}

func (r *ChatCompletionRequest) applyMaxTokens(req *haiku.Request) error {
	n := r.MaxCompletionTokens
	if n == nil {
		return nil
	}
	if err := checkMaxTokens("max_completion_tokens", *n); err != nil {
		return err
	}
	if r.MaxTokens != nil && *r.MaxTokens != *n {
		return invalid("max_tokens", "max_tokens and max_completion_tokens contradict each other")
	}
	req.MaxTokens = *n
	return nil
}

func (r *ChatCompletionRequest) applyLogprobs(req *haiku.Request) error {
	req.Logprobs = r.Logprobs
	if r.TopLogprobs == nil {
		return nil
	}
	if *r.TopLogprobs < 0 || *r.TopLogprobs > maxTopLogprob {
		return invalid("top_logprobs", "top_logprobs must lie from 0 to %d", maxTopLogprob)
	}
	if *r.TopLogprobs > 0 && !r.Logprobs {
		return invalid("top_logprobs", "top_logprobs needs logprobs to be true")
	}
	req.TopLogprobs = *r.TopLogprobs
	return nil
}

// roles translates the wire's roles. A developer is who a system was before.
var roles = map[string]haiku.Role{
	"system": haiku.RoleSystem, "developer": haiku.RoleSystem, "user": haiku.RoleUser, "assistant": haiku.RoleAssistant,
}

func translate(messages []Message) ([]haiku.Message, error) {
	if len(messages) == 0 {
		return nil, invalid("messages", "messages must hold at least one message")
	}
	if len(messages) > maxMessages {
		return nil, invalid("messages", "at most %d messages are allowed", maxMessages)
	}
	list := make([]haiku.Message, len(messages))
	for i := range messages {
		m := &messages[i]
		role, known := roles[m.Role]
		if m.Role == "tool" || m.Role == "function" {
			return nil, unsupported(paramOf(i, "role"), "messages of role %s are not supported", m.Role)
		}
		if !known {
			return nil, invalid(paramOf(i, "role"), "the role must be system, developer, user or assistant")
		}
		text, err := m.text(i)
		if err != nil {
			return nil, err
		}
		list[i] = haiku.Message{Role: role, Name: m.Name, Content: text}
	}
	return list, nil
}

// paramOf names a field of message i.
func paramOf(i int, field string) string { return fmt.Sprintf("messages[%d].%s", i, field) }

// text joins the text parts of message i by line breaks.
func (m *Message) text(i int) (string, error) {
	for _, f := range [...]feature{{"tool_calls", m.ToolCalls}, {"function_call", m.FunctionCall}, {"audio", m.Audio}} {
		if given(f.value) {
			return "", refuse(feature{paramOf(i, f.param), f.value})
		}
	}
	c := &m.Content
	if c.missing {
		return "", invalid(paramOf(i, "content"), "a message needs a content: a string or an array of parts")
	}
	if c.Parts == nil {
		return c.Text, nil
	}
	if len(c.Parts) == 0 {
		return "", invalid(paramOf(i, "content"), "the content has no parts")
	}
	texts := make([]string, len(c.Parts))
	for j, p := range c.Parts {
		if p.Type != "text" {
			return "", unsupported(paramOf(i, fmt.Sprintf("content[%d].type", j)), "content parts other than text are not supported")
		}
		if p.Text == nil {
			return "", invalid(paramOf(i, fmt.Sprintf("content[%d].text", j)), "a text part needs a text")
		}
		texts[j] = *p.Text
	}
	return strings.Join(texts, "\n"), nil
}
