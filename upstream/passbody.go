package upstream

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/intelliparadigm/haiku"
)

// passed is a client's body as far as it is looked at.
type passed struct {
	members []member
	model   string
	stream  bool
	counts  bool // the client asks for the usage at the end of its stream
	choices int
}

// member is a member of the body as it was written.
type member struct{ name, value []byte }

// parameters are those of the APIs that pass through, beside extensions.
var parameters = []string{
	"model", "messages", "prompt", "input", "stream", "stream_options", "n", "max_tokens", "max_completion_tokens", "stop",
	"temperature", "top_p", "top_k", "min_p", "typical_p", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty",
	"repeat_penalty", "repeat_last_n", "logit_bias", "logprobs", "top_logprobs", "encoding_format", "dimensions",
}

// guarded are the members that a client does not decide: they choose what part
// of an engine's cache a request sees, what is served first, and which request
// is meant. They are left out, so that a client that sends them still works.
var guarded = []string{"cache_salt", "priority", "rid"}

// readPassed looks at a body, which is valid JSON with no name given twice.
// What an engine would do with a parameter that is not known here cannot be
// known: it is refused, unless Options.Extensions has it, or "*".
func (e *Engine) readPassed(text jsontext.Value) (*passed, error) {
	p := &passed{choices: 1}
	s := scanner{b: text}
	s.expect('{')
	for first := true; s.more(&first, '}'); {
		s.peek()
		at := s.i
		name, _ := s.text()
		m := member{name: s.b[at:s.i]}
		s.expect(':')
		m.value = s.value()
		if s.bad {
			break
		}
		if err := e.passMember(p, m, string(name)); err != nil {
			return nil, err
		}
	}
	if s.end(); s.bad {
		return nil, haiku.ErrInvalidRequest.With("", "the body must be a JSON object whose names have no escapes")
	}
	return p, nil
}

// passMember takes note of a member, and keeps it unless it is guarded.
func (e *Engine) passMember(p *passed, m member, name string) error {
	switch {
	case slices.Contains(guarded, name):
		return nil
	case !slices.Contains(parameters, name) && !e.lets(name):
		return unsupported(clean(name, maxWordBytes), "%s is not passed on to this model's engine", clean(name, maxWordBytes))
	}
	switch name {
	case "model":
		if m.value[0] != '"' {
			return haiku.ErrInvalidRequest.With("model", "the model must be a string")
		}
		p.model = stringOf(m.value)
	case "stream":
		p.stream = string(m.value) == "true"
		if !p.stream && string(m.value) != "false" && string(m.value) != "null" {
			return haiku.ErrInvalidRequest.With("stream", "stream must be true or false")
		}
	case "stream_options":
		p.counts = includesUsage(m.value)
	case "n":
		s := scanner{b: m.value}
		if !s.null() {
			p.choices = s.integer()
		}
		if s.bad || p.choices < 1 || p.choices > maxPassedChoices {
			return haiku.ErrInvalidRequest.With("n", "n must lie between 1 and %d", maxPassedChoices)
		}
	}
	p.members = append(p.members, m)
	return nil
}

// maxPassedChoices is the API's bound.
const maxPassedChoices = 128

// alike reports whether a name is one of those that matter here but for its
// case: some engines would take it for that one.
func alike(name string) bool {
	same := func(own string) bool { return strings.EqualFold(own, name) }
	return slices.ContainsFunc(guarded, same) || slices.ContainsFunc(parameters, same)
}

// includesUsage reports whether stream options ask for the usage.
func includesUsage(options []byte) bool {
	s := scanner{b: options}
	if s.null() {
		return false
	}
	found := false
	s.expect('{')
	for first := true; s.more(&first, '}'); {
		name := string(s.key())
		value := s.value()
		found = found || name == "include_usage" && string(value) == "true"
	}
	return found && !s.bad
}

// passedBody is the body for the engine: the client's members as they are, but
// for those that this side decides.
func (e *Engine) passedBody(p *passed, env envelope, rid string) []byte {
	b := &body{}
	b.open()
	req := haiku.Request{Tenant: env.tenant, Objective: env.objective, Choices: p.choices}
	if name := e.modelName(p.model); name != "" {
		b.str("model", name)
	}
	e.routing(b, &req, rid)
	if p.stream && !p.counts {
		b.raw("stream_options", e.streamOptions())
	}
	for _, m := range p.members {
		switch string(m.name) {
		case `"model"`:
			continue
		case `"stream_options"`:
			if p.stream && !p.counts {
				continue
			}
		}
		b.sep(len(b.b) - 1)
		b.b = append(append(append(b.b, m.name...), ':'), m.value...)
	}
	b.close()
	return b.b
}
