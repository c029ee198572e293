package haiku

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Extension is a member of a wire format's body that has no field in [Request]
// or [Message]: what an engine elsewhere may understand and this package only
// passes on, such as tools or a response format.
type Extension struct {
	// Name is the member's name.
	Name string
	// Value is its value, valid JSON, byte for byte as it was written. It is
	// never changed.
	Value []byte
	// Optional says that a Model which does not know the member may answer as if
	// it were not there: it is none of the wire format's own.
	Optional bool
}

// Extended is what a [Model] implements that takes requests with extensions.
// For a Model without it [StreamWriter] refuses them by name, with
// [ErrUnsupported], before Generate: so nothing that was asked for is dropped
// in silence, unless it is Optional. A Model around others answers for the one it
// would pass req to; one with a method Unwrap() Model need not implement it.
type Extended interface {
	// TakesExtensions returns nil if the Model heeds or passes on every
	// extension of req and of its messages that is not Optional, and otherwise
	// an [Error] that names one which it does not. It is called before Generate,
	// possibly often, by many goroutines at once, and does not change req.
	TakesExtensions(req *Request) error
}

// TakesExtensions reports, as an error that names it, what of req goes beyond
// its fields and is not for m: nil if there is nothing of that kind, or if m is
// [Extended] and takes it.
func TakesExtensions(m Model, req *Request) error {
	refused := refusedExtension(req)
	if refused == nil {
		return nil
	}
	if e, ok := ModelAs[Extended](m); ok {
		return e.TakesExtensions(req)
	}
	return refused
}

// refusedExtension names the first extension of req that is not optional, nil if
// it has none, and of several that are about tools the tools. A message from a tool
// is one too: it answers what no plain request can ask.
func refusedExtension(req *Request) error {
	if first := firstNeeded(req.Extensions); first != nil {
		if slices.ContainsFunc(req.Extensions, func(e Extension) bool { return e.Name == "tools" }) {
			return unsupported("tools")
		}
		return unsupported(first.Name)
	}
	for i := range req.Messages {
		m := &req.Messages[i]
		first := firstNeeded(m.Extensions)
		if m.Role != RoleTool && first == nil {
			continue
		}
		param := fmt.Sprintf("messages[%d]", i)
		switch {
		case m.Role == RoleTool:
			return ErrUnsupported.With(param+".role", "messages of role %s are not supported", m.Role)
		case first.Name == "content":
			return unsupportedPart(param+".content", first.Value)
		default:
			return unsupported(param + "." + first.Name)
		}
	}
	return nil
}

// firstNeeded is the first extension that is not optional, nil for none.
func firstNeeded(list []Extension) *Extension {
	for i := range list {
		if !list[i].Optional {
			return &list[i]
		}
	}
	return nil
}

func unsupported(param string) error {
	param = clip(param)
	return ErrUnsupported.With(param, "%s is not supported", param)
}

// unsupportedPart names the first part of a content that is not text.
func unsupportedPart(param string, content []byte) error {
	var parts []struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(content, &parts) // what does not fit has no type
	for i := range parts {
		if parts[i].Type != "text" {
			param = fmt.Sprintf("%s[%d].type", param, i)
			break
		}
	}
	return ErrUnsupported.With(param, "content parts other than text are not supported")
}

// checkExtensions makes sure that a Model may write the extensions of req into
// a body of its own.
func checkExtensions(req *Request) error {
	if err := validExtensions("", req.Extensions); err != nil {
		return err
	}
	for i := range req.Messages {
		if len(req.Messages[i].Extensions) == 0 {
			continue
		}
		if err := validExtensions(fmt.Sprintf("messages[%d].", i), req.Messages[i].Extensions); err != nil {
			return err
		}
	}
	return nil
}

func validExtensions(prefix string, list []Extension) error {
	for i := range list {
		e := &list[i]
		switch {
		case e.Name == "":
			return ErrInvalidRequest.With("", "an extension has no name")
		case jsonDepth(e.Value) > maxJSONDepth || !jsontext.Value(e.Value).IsValid():
			return ErrInvalidRequest.With(prefix+clip(e.Name), "the value of an extension is not JSON of at most %d levels", maxJSONDepth)
		}
	}
	return nil
}
