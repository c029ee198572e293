package openai

import (
	"errors"
	"fmt"
	"slices"
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
	// More is a JSON object with the members that have no field here, as they
	// were written. Those of the API that change an answer (tools, tool_choice,
	// parallel_tool_calls, functions, function_call, response_format, modalities,
	// audio, prediction, web_search_options, reasoning_effort, verbosity, store)
	// become the request's extensions, unless they say nothing; those that the
	// API does not have become optional ones; others (user, metadata …) are
	// ignored.
	More jsontext.Value `json:",embed,inline"` // one word is the strict package's, the other that of GOEXPERIMENT=jsonv2 in Go 1.26
}

// UnmarshalJSONFrom reads the request; UnmarshalJSON and MarshalJSON do for
// encoding/json, which knows nothing of More, what the strict JSON package does.
func (r *ChatCompletionRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type fields ChatCompletionRequest // without this method
	return json.UnmarshalDecode(dec, (*fields)(r))
}

// UnmarshalJSON reads the request.
func (r *ChatCompletionRequest) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, r) }

// MarshalJSON writes the request.
func (r ChatCompletionRequest) MarshalJSON() ([]byte, error) {
	type fields ChatCompletionRequest
	return json.Marshal(fields(r))
}

// Message is one turn of a conversation.
type Message struct {
	Role    string  `json:"role"`
	Name    string  `json:"name,omitzero"`
	Content Content `json:"content"`
	// More is a JSON object with the members that have no field here. Those of
	// the API that change an answer (tool_calls, function_call, audio; of a tool
	// tool_call_id, and of an assistant refusal and reasoning_content) become
	// extensions, unless they say nothing; others are ignored.
	More jsontext.Value `json:",embed,inline"`
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

// MarshalJSON does for encoding/json what the strict JSON package does.
func (m Message) MarshalJSON() ([]byte, error) {
	type fields Message
	return json.Marshal(fields(m))
}

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
	Parts []ContentPart  // instead of Text when not nil: parts of type "text"
	Raw   jsontext.Value // instead of both when not nil: an array with parts of other types

	missing bool // the wire had none, or null
}

// ContentPart is a part of a message that is text.
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
		raw, err := dec.ReadValue()
		if err != nil {
			return err
		}
		return c.readParts(raw, dec.StackPointer())
	default:
		return json.UnmarshalDecode(dec, &c.Text)
	}
}

// readParts reads an array of parts, which stands at a place in the body.
func (c *Content) readParts(raw jsontext.Value, at jsontext.Pointer) error {
	c.Parts = []ContentPart{}
	if err := json.Unmarshal(raw, &c.Parts); err != nil {
		var semantic *json.SemanticError
		if errors.As(err, &semantic) {
			semantic.JSONPointer = at + semantic.JSONPointer
		}
		return err
	}
	if slices.ContainsFunc(c.Parts, func(p ContentPart) bool { return p.Type != "text" }) {
		c.Parts, c.Raw = nil, raw.Clone()
	}
	return nil
}

// MarshalJSONTo writes the form that was given.
func (c Content) MarshalJSONTo(enc *jsontext.Encoder) error {
	switch {
	case c.missing:
		return enc.WriteToken(jsontext.Null)
	case c.Raw != nil:
		return enc.WriteValue(c.Raw)
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
	if req.Extensions, err = extensionsOf(r.More, chatExtensions, "", ""); err != nil {
		return nil, err
	}
	req.Extensions = withVendors(req.Extensions, r.More, chatExtensions)
	if req.Messages, err = translate(r.Messages); err != nil {
		return nil, err
	}
	req.Encoder = newChatEncoder(r, req)
	return req, nil
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
	"tool": haiku.RoleTool,
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
		var err error
		if list[i], err = messages[i].translate(i); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// paramOf names a field of message i.
func paramOf(i int, field string) string { return fmt.Sprintf("messages[%d].%s", i, field) }

// translate translates message i.
func (m *Message) translate(i int) (haiku.Message, error) {
	role, known := roles[m.Role]
	if m.Role == "function" {
		return haiku.Message{}, unsupported(paramOf(i, "role"), "messages of role %s are not supported", m.Role)
	}
	if !known {
		return haiku.Message{}, invalid(paramOf(i, "role"), "the role must be system, developer, user, assistant or tool")
	}
	extensions, err := m.extensions(i, role)
	if err != nil {
		return haiku.Message{}, err
	}
	c := &m.Content
	if c.missing && (role != haiku.RoleAssistant || len(extensions) == 0) {
		return haiku.Message{}, invalid(paramOf(i, "content"), "a message needs a content: a string or an array of parts")
	}
	text, err := c.text(i)
	if err != nil {
		return haiku.Message{}, err
	}
	return haiku.Message{Role: role, Name: m.Name, Content: text, Extensions: extensions}, nil
}

// extensions returns what message i says beyond its fields: a content that is not
// text alone first, and a content of null, which stands beside calls, last.
func (m *Message) extensions(i int, role haiku.Role) ([]haiku.Extension, error) {
	var found []haiku.Extension
	if len(m.More) > 0 {
		var err error
		if found, err = extensionsOf(m.More, messageExtensions, paramOf(i, ""), role); err != nil {
			return nil, err
		}
	}
	switch {
	case m.Content.Raw != nil:
		found = slices.Insert(found, 0, haiku.Extension{Name: "content", Value: m.Content.Raw})
	case m.Content.missing && len(found) > 0:
		found = append(found, haiku.Extension{Name: "content", Value: []byte("null")})
	}
	return found, nil
}

// text joins the text parts of message i by line breaks. It is empty where the
// content is not text alone.
func (c *Content) text(i int) (string, error) {
	switch {
	case c.Raw != nil:
		var parts []ContentPart
		if json.Unmarshal(c.Raw, &parts) != nil {
			return "", invalid(paramOf(i, "content"), "the content must be a string or an array of parts")
		}
		_, err := joinParts(i, parts)
		return "", err
	case c.Parts != nil:
		return joinParts(i, c.Parts)
	default:
		return c.Text, nil
	}
}

// joinParts checks the parts of message i and joins their texts.
func joinParts(i int, parts []ContentPart) (string, error) {
	if len(parts) == 0 {
		return "", invalid(paramOf(i, "content"), "the content has no parts")
	}
	texts := make([]string, len(parts))
	for j, p := range parts {
		switch {
		case p.Type == "":
			return "", invalid(paramOf(i, fmt.Sprintf("content[%d].type", j)), "a part needs a type")
		case p.Type == "text" && p.Text == nil:
			return "", invalid(paramOf(i, fmt.Sprintf("content[%d].text", j)), "a text part needs a text")
		case p.Text != nil:
			texts[j] = *p.Text
		}
	}
	return strings.Join(texts, "\n"), nil
}
