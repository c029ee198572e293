package upstream

import (
	"bytes"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// chunk is what one event of a stream says. Its slices are views of the event
// or of the parser's memory, valid until the next chunk.
type chunk struct {
	model   []byte // the name of the model that answers, nil if it does not say
	choices []delta
	usage   usage
	failure []byte // the value of "error", as JSON; nil for none
	// odd is set if none of the members that are looked for was there.
	odd bool
}

// delta is what a chunk adds to one choice.
type delta struct {
	choice int
	text   []byte
	at     int // where the chunk has the text as it is, 0 for nowhere
	// more are the members of the delta beside its role and content, as JSON
	// without braces: tool calls, reasoning, what engines invent.
	more []byte
	// plain is set if more is one string without escapes, which a stream takes.
	plain bool
	// calls is set if more has tool calls.
	calls bool
	// whole is set if text is all of the answer and not the next piece of it.
	whole    bool
	finish   []byte // the reason, nil for none yet
	logprobs []byte // as JSON, nil for none
}

// usage counts tokens as the API does. known is false where nothing was said.
type usage struct {
	known                              bool
	prompt, completion, cached, totals int
}

// parser reads chunks. It belongs to one stream; what it returns is valid until
// the next call.
type parser struct {
	ch     chunk
	texts  []byte // unescaped ones
	more   []byte
	plain  []byte // a chunk in its plainest form
	object []byte // members in braces
	at     int    // where the string read last is, 0 if it had escapes
	mould  mould
	cast   bool // ch has the form of mould, by refill
}

// mould is what the chunks of an answer have in common: all but their text. A
// chunk that fits is one like the last, with another text.
type mould struct {
	before, after []byte // around the inside of the text; nil for none yet
	choice        int
	model         []byte
}

// fits returns the inside of the text if data has the form of the mould.
func (m *mould) fits(data []byte) (inside []byte, ok bool) {
	if m.before == nil || len(data) < len(m.before)+len(m.after) || !bytes.HasPrefix(data, m.before) || !bytes.HasSuffix(data, m.after) {
		return nil, false
	}
	inside = data[len(m.before) : len(data)-len(m.after)]
	return inside, bytes.IndexByte(inside, '"') < 0
}

// keep makes a mould of a chunk with a text, if there is nothing else in it.
func (m *mould) keep(data []byte, ch *chunk, used int) {
	if len(ch.choices) != 1 || ch.usage.known || ch.failure != nil || used != len(data) {
		return
	}
	d := &ch.choices[0]
	if d.at == 0 || d.more != nil || d.finish != nil || d.logprobs != nil || d.whole {
		return
	}
	m.choice = d.choice
	m.model = append(m.model[:0], ch.model...)
	m.before = append(m.before[:0], data[:d.at]...)
	m.after = append(m.after[:0], data[d.at+len(d.text):]...)
}

// parse reads the chunk that data begins with and returns what follows it:
// proxies exist that lose the blank line between two events. A chunk that is
// written in an unusual way is brought into a plain form first, and ok is false
// for what is no chunk even then.
func (p *parser) parse(data []byte) (rest []byte, ok bool) {
	if inside, ok := p.mould.fits(data); ok && p.refill(inside) {
		return nil, true
	}
	s := scanner{b: data}
	if p.read(&s); !s.bad {
		p.mould.keep(data, &p.ch, s.i)
		return data[s.i:], true
	}
	d := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	value, err := d.ReadValue()
	if err != nil {
		return nil, false
	}
	p.plain, err = jsontext.AppendFormat(p.plain[:0], value, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil, false
	}
	s = scanner{b: p.plain}
	p.read(&s)
	return data[d.InputOffset():], !s.bad
}

// refill makes the chunk one with another text.
func (p *parser) refill(inside []byte) bool {
	if bytes.IndexByte(inside, '\\') >= 0 {
		var ok bool
		if p.texts, ok = unescape(p.texts[:0], inside); !ok {
			return false
		}
		inside = p.texts
	}
	if p.cast { // the last one was like it: only the text is new
		p.ch.choices[0].text = inside
		return true
	}
	p.cast = true
	p.ch = chunk{model: p.mould.model, choices: append(p.ch.choices[:0], delta{choice: p.mould.choice, text: inside})}
	return true
}

// read reads one chunk into p.ch.
func (p *parser) read(s *scanner) {
	p.ch, p.cast = chunk{choices: p.ch.choices[:0], odd: true}, false
	p.texts, p.more = p.texts[:0], p.more[:0]
	s.expect('{')
	for first := true; s.more(&first, '}'); {
		switch string(s.key()) {
		case "choices":
			p.ch.odd = false
			p.readChoices(s)
		case "usage":
			p.ch.odd = false
			readUsage(s, &p.ch.usage)
		case "timings":
			if !p.ch.usage.known {
				readTimings(s, &p.ch.usage)
			} else {
				s.value()
			}
		case "model":
			p.ch.model = p.optional(s)
		case "error":
			if v := s.value(); string(v) != "null" {
				p.ch.failure, p.ch.odd = v, false
			}
		default:
			s.value()
		}
	}
}

func (p *parser) readChoices(s *scanner) {
	if s.null() {
		return
	}
	s.expect('[')
	for first := true; s.more(&first, ']'); {
		p.ch.choices = append(p.ch.choices, delta{})
		p.readChoice(s, &p.ch.choices[len(p.ch.choices)-1])
	}
}

func (p *parser) readChoice(s *scanner, d *delta) {
	s.expect('{')
	for first := true; s.more(&first, '}'); {
		switch string(s.key()) {
		case "index":
			if !s.null() {
				d.choice = s.integer()
			}
		case "delta":
			p.readDelta(s, d)
		case "text":
			if text := p.optional(s); text != nil { // an empty one may stand beside a delta
				d.text, d.at = text, p.at
			}
		case "message":
			p.readMessage(s, d)
		case "finish_reason":
			d.finish = p.optional(s)
		case "logprobs":
			if v := s.value(); string(v) != "null" {
				d.logprobs = v
			}
		case "usage":
			readUsage(s, &p.ch.usage)
		default:
			s.value()
		}
	}
}

// readMessage reads the message of a whole answer, where a stream was asked for.
// One that says nothing may stand beside a delta.
func (p *parser) readMessage(s *scanner, d *delta) {
	m := delta{whole: true}
	if p.readDelta(s, &m); len(m.text)+len(m.more) > 0 {
		d.text, d.at, d.more, d.plain, d.calls, d.whole = m.text, m.at, m.more, m.plain, m.calls, true
	}
}

// readDelta reads the object whose content is the text.
func (p *parser) readDelta(s *scanner, d *delta) {
	if s.null() {
		return
	}
	from := len(p.more)
	s.expect('{')
	for first := true; s.more(&first, '}'); {
		s.peek()
		at := s.i
		switch name := string(s.key()); name {
		case "role":
			s.value()
		case "content":
			d.text, d.at = p.content(s), p.at
		default:
			value := s.value()
			if saysNothing(value) {
				continue
			}
			member := s.b[at:s.i]
			if d.whole && name == "tool_calls" {
				member = append([]byte(`"tool_calls":`), numbered(value)...)
			}
			d.calls = d.calls || name == "tool_calls" || name == "function_call"
			d.plain = len(p.more) == from && isPlain(value)
			p.addMember(s, member, len(p.more) > from)
		}
	}
	d.more = p.more[from:len(p.more):len(p.more)]
}

// saysNothing reports whether a member might as well not be there.
func saysNothing(value []byte) bool {
	switch string(value) {
	case "null", "[]", `""`, "{}":
		return true
	}
	return false
}

// isPlain reports whether a value is a string of one line without escapes.
func isPlain(value []byte) bool {
	return len(value) > 0 && value[0] == '"' && bytes.IndexByte(value, '\\') < 0 && !bytes.ContainsFunc(value, func(r rune) bool { return r < ' ' })
}

// sound reports whether the members are what a stream takes: JSON, each name
// once, not too long. Nesting is bounded by the scanner.
func (p *parser) sound(d *delta) bool {
	if len(d.more) == 0 || d.plain {
		return true
	}
	p.object = append(append(append(p.object[:0], '{'), d.more...), '}')
	return len(d.more) <= maxMoreBytes && jsontext.Value(p.object).IsValid(jsontext.AllowInvalidUTF8(true))
}

// maxMoreBytes is what haiku.Piece takes as a Delta.
const maxMoreBytes = 1 << 20

// addMember keeps a member for the client, in UTF-8: the plain form is.
func (p *parser) addMember(s *scanner, member []byte, comma bool) {
	if !utf8.Valid(member) {
		s.fail()
	}
	if comma {
		p.more = append(p.more, ',')
	}
	p.more = append(p.more, member...)
}

// content consumes the text of a delta: a string, null, or a list of parts of
// which those of type text count.
func (p *parser) content(s *scanner) []byte {
	if s.peek() != '[' {
		return p.optional(s)
	}
	s.expect('[')
	p.at = 0
	from := len(p.texts)
	for first := true; s.more(&first, ']'); {
		s.expect('{')
		for first := true; s.more(&first, '}'); {
			if string(s.key()) == "text" && s.peek() == '"' {
				inside, _ := s.text()
				p.unescape(s, inside)
			} else {
				s.value()
			}
		}
	}
	return p.texts[from:len(p.texts):len(p.texts)]
}

// optional consumes a string or null and returns its text, nil if empty.
func (p *parser) optional(s *scanner) []byte {
	p.at = 0
	if s.null() {
		return nil
	}
	inside, escaped := s.text()
	if len(inside) == 0 {
		return nil
	}
	if !escaped {
		p.at = s.i - 1 - len(inside)
		return inside
	}
	from := len(p.texts)
	p.unescape(s, inside)
	return p.texts[from:len(p.texts):len(p.texts)]
}

// unescape adds the meaning of a string's inside to p.texts.
func (p *parser) unescape(s *scanner, inside []byte) {
	var ok bool
	if p.texts, ok = unescape(p.texts, inside); !ok {
		s.fail()
	}
}

// readUsage reads the object that counts tokens.
func readUsage(s *scanner, u *usage) {
	if s.null() {
		return
	}
	*u = usage{known: true}
	s.expect('{')
	for first := true; s.more(&first, '}'); {
		switch string(s.key()) {
		case "prompt_tokens", "input_tokens": // as OpenAI's other API has it
			u.prompt = max(u.prompt, count(s))
		case "completion_tokens", "output_tokens":
			u.completion = max(u.completion, count(s))
		case "total_tokens":
			u.totals = count(s)
		case "prompt_cache_hit_tokens", "cached_tokens":
			u.cached = count(s)
		case "prompt_tokens_details", "input_tokens_details":
			readDetails(s, u)
		default:
			s.value()
		}
	}
	if u.completion == 0 && u.totals > u.prompt {
		u.completion = u.totals - u.prompt
	}
}

func readDetails(s *scanner, u *usage) {
	if s.null() {
		return
	}
	s.expect('{')
	for first := true; s.more(&first, '}'); {
		if string(s.key()) == "cached_tokens" {
			u.cached = count(s)
		} else {
			s.value()
		}
	}
}

// readTimings reads what llama.cpp says of a request, also where it does not
// send a usage.
func readTimings(s *scanner, u *usage) {
	if s.null() {
		return
	}
	*u = usage{known: true}
	s.expect('{')
	for first := true; s.more(&first, '}'); {
		switch string(s.key()) {
		case "prompt_n":
			u.prompt += count(s)
		case "cache_n":
			u.cached = count(s)
			u.prompt += u.cached
		case "predicted_n":
			u.completion = count(s)
		default:
			s.value()
		}
	}
}

// count consumes a number of tokens, or null. Engines have counted below zero.
func count(s *scanner) int {
	if s.null() {
		return 0
	}
	if s.accept('-') {
		s.integer()
		return 0
	}
	return s.integer()
}
