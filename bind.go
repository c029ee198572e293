package haiku

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	defaultBodyBytes = 4 << 20
	maxJSONDepth     = 128
	trustedBytes     = 16 << 10 // of a body's announced length; the rest of its memory it gets as it comes
)

// Bind decodes the request's JSON body into v. It is stricter than
// encoding/json, so that nothing else reads the body differently: keys match
// in case, duplicate keys, invalid UTF-8, lone surrogates, more than one value
// and a depth over 128 are refused, and the size is bounded by [BodyLimit]
// (4 MiB if not set). It reads the body to its end, which lets the server
// notice a client that leaves.
//
// Its error is an [Error] with status 400, 413 or 415 that names the field, or
// the one that [ErrorFrom] makes of the end of the request's context.
func (c *Context) Bind(v any) error {
	if err := jsonContent(c.Request.Header); err != nil {
		return err
	}
	body, err := c.body()
	if err != nil {
		return err
	}
	if len(body) == 0 {
		return ErrInvalidRequest.With("", "the request has no body")
	}
	if depth := jsonDepth(body); depth > maxJSONDepth {
		return ErrInvalidRequest.With("", "the body is nested more than %d levels deep", maxJSONDepth)
	}
	return bindError(json.Unmarshal(body, v))
}

// jsonContent accepts a body that says it is JSON or says nothing.
func jsonContent(h http.Header) error {
	unsupported := *ErrInvalidRequest
	unsupported.Status = http.StatusUnsupportedMediaType
	if e := h.Get("Content-Encoding"); e != "" && e != "identity" {
		return unsupported.With("", "the content encoding %q is not supported", clip(e))
	}
	content := h.Get("Content-Type")
	if content == "" || content == "application/json" {
		return nil
	}
	kind, _, err := mime.ParseMediaType(content)
	if err != nil || (kind != "application/json" && !strings.HasSuffix(kind, "+json")) {
		return unsupported.With("", "the content type must be application/json, not %q", clip(content))
	}
	return nil
}

func (c *Context) body() ([]byte, error) {
	if c.Request.Body == nil { // not from a server
		return nil, nil
	}
	limit := c.bodyLimit
	if limit <= 0 {
		limit = defaultBodyBytes
	}
	if c.Request.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	var body bytes.Buffer
	body.Grow(int(min(max(c.Request.ContentLength, 0), trustedBytes)) + bytes.MinRead)
	_, err := body.ReadFrom(http.MaxBytesReader(c.Writer, c.Request.Body, limit))
	if ended := c.Context().Err(); err != nil || ended != nil {
		return nil, bodyError(err, ended, limit)
	}
	return body.Bytes(), nil
}

func bodyError(err, ended error, limit int64) error {
	var exceeded *http.MaxBytesError
	switch {
	case errors.As(err, &exceeded):
		return tooLarge(limit)
	case ended != nil:
		return ErrorFrom(ended)
	}
	return ErrInvalidRequest.With("", "the body could not be read").Because(err)
}

func tooLarge(limit int64) error {
	return ErrBodyTooLarge.With("", "the body is larger than %d bytes", limit)
}

// jsonDepth returns how deeply arrays and objects nest in body. It looks at
// nothing else: a decoder that recurses must not see the body before.
func jsonDepth(body []byte) (deepest int) {
	depth, inString := 0, false
	for i := 0; i < len(body); i++ {
		switch b := body[i]; {
		case inString && b == '\\':
			i++
		case b == '"':
			inString = !inString
		case inString:
		case b == '{' || b == '[':
			depth++
			deepest = max(deepest, depth)
		case b == '}' || b == ']':
			depth--
		}
	}
	return deepest
}

// bindError says in the client's words what was wrong with a body.
func bindError(err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	var syntax *jsontext.SyntacticError
	var semantic *json.SemanticError
	switch {
	case errors.As(err, &e): // from a type's own UnmarshalJSONFrom
		return e
	case errors.Is(err, jsontext.ErrDuplicateName):
		param := ""
		if errors.As(err, &syntax) {
			param = paramName(syntax.JSONPointer)
		}
		return ErrInvalidRequest.With(param, "the field is given twice").Because(err)
	case errors.As(err, &syntax):
		return ErrInvalidRequest.With(paramName(syntax.JSONPointer),
			"the body is not valid JSON at byte %d", syntax.ByteOffset).Because(err)
	case errors.As(err, &semantic):
		return ErrInvalidRequest.With(paramName(semantic.JSONPointer),
			"the value has the wrong type: found %s", foundKind(semantic)).Because(err)
	default:
		return ErrInvalidRequest.With("", "the body is not valid").Because(err)
	}
}

func foundKind(e *json.SemanticError) string {
	if len(e.JSONValue) > 0 && e.JSONKind == '0' {
		return "the number " + clip(string(e.JSONValue))
	}
	switch e.JSONKind {
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "something else"
	}
}

// paramName writes a JSON pointer as OpenAI names fields: messages[0].content.
func paramName(p jsontext.Pointer) string {
	var b strings.Builder
	for tok := range p.Tokens() {
		if _, err := strconv.ParseUint(tok, 10, 32); err == nil && b.Len() > 0 {
			fmt.Fprintf(&b, "[%s]", tok)
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(clip(tok))
	}
	return b.String()
}

// clip keeps what a client sent short and printable before it is shown.
func clip(s string) string {
	if len(s) > 64 {
		s = strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}
