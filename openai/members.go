package openai

import (
	"bytes"
	"cmp"
	"iter"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// merged is what the deltas of one choice say beside its text, put together as
// it stands in a whole answer: strings that come in pieces are joined, tool calls
// are merged by their index, and of every other member the last value counts.
type merged struct {
	fields
	calls   []toolCall
	byIndex map[int64]int // where in calls one is
}

// toolCall is a call, and the index that its deltas had.
type toolCall struct {
	index int64
	fields
}

// fields are the members of an object while it grows, in the order in which they
// came.
type fields struct {
	list   []field
	byName map[string]int // where in list one is
}

// field is a member. Its name is JSON, and so is its value, unless inner holds
// that of an object whose strings come in pieces.
type field struct {
	name, value []byte
	inner       *fields
}

// add merges the members of a delta.
func (m *merged) add(delta []byte) {
	for name, value := range members(delta) {
		switch string(name) {
		case `"tool_calls"`:
			m.addCalls(name, value)
		case `"reasoning_content"`, `"reasoning"`, `"refusal"`:
			m.field(name).join(value)
		case `"function_call"`:
			m.field(name).mergeCalled(value)
		default:
			m.field(name).replace(value)
		}
	}
}

// addCalls merges an array of pieces of tool calls. What is none is a member
// like another.
func (m *merged) addCalls(name, value []byte) {
	if value[0] == 'n' {
		return
	}
	if !areObjects(value) {
		m.field(name).replace(value)
		return
	}
	for piece := range values(inside(value)) {
		m.addCall(piece)
	}
}

// addCall merges a piece into its call: of the function it is for, the name is
// the first that is given, and the arguments are joined.
func (m *merged) addCall(piece []byte) {
	call := m.callOf(piece)
	for name, value := range members(inside(piece)) {
		switch string(name) {
		case `"index"`:
		case `"function"`, `"custom"`:
			call.field(name).mergeCalled(value)
		default:
			call.field(name).keep(value)
		}
	}
}

// callOf returns the call to which a piece belongs. One without an index, which
// some engines send, belongs to the last call, unless it has an id of its own.
func (m *merged) callOf(piece []byte) *toolCall {
	var index int64
	var id []byte
	indexed := false
	for name, value := range members(inside(piece)) {
		switch string(name) {
		case `"index"`:
			n, err := strconv.ParseInt(string(value), 10, 64)
			index, indexed = n, err == nil
		case `"id"`:
			id = value
		}
	}
	if !indexed && len(m.calls) > 0 {
		last := &m.calls[len(m.calls)-1]
		if len(id) <= len(`""`) || string(id) == "null" || bytes.Equal(id, last.field([]byte(`"id"`)).value) {
			return last
		}
		index = last.index + 1
	}
	at, ok := m.byIndex[index]
	if !ok {
		if m.byIndex == nil {
			m.byIndex = make(map[int64]int)
		}
		at = len(m.calls)
		m.byIndex[index] = at
		m.calls = append(m.calls, toolCall{index: index})
	}
	return &m.calls[at]
}

// appendTo appends the members of a message, each after a comma, of which it has
// a refusal in any case.
func (m *merged) appendTo(dst []byte) []byte {
	refusal := m.field([]byte(`"refusal"`))
	if refusal.value == nil {
		refusal.replace([]byte("null"))
	}
	for i := range m.list {
		if len(m.calls) == 0 || string(m.list[i].name) != `"tool_calls"` { // which would be none
			dst = m.list[i].appendTo(append(dst, ','))
		}
	}
	if len(m.calls) == 0 {
		return dst
	}
	slices.SortStableFunc(m.calls, func(a, b toolCall) int { return cmp.Compare(a.index, b.index) })
	dst = append(dst, `,"tool_calls":[`...)
	for i := range m.calls {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = m.calls[i].appendTo(dst)
	}
	return append(dst, ']')
}

// field returns the member of a name, which may be new.
func (f *fields) field(name []byte) *field {
	at, ok := f.byName[string(name)]
	if !ok {
		if f.byName == nil {
			f.byName = make(map[string]int)
		}
		at = len(f.list)
		f.byName[string(name)] = at
		f.list = append(f.list, field{name: bytes.Clone(name)})
	}
	return &f.list[at]
}

func (f *fields) appendTo(dst []byte) []byte {
	dst = append(dst, '{')
	for i := range f.list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = f.list[i].appendTo(dst)
	}
	return append(dst, '}')
}

func (f *field) appendTo(dst []byte) []byte {
	dst = append(append(dst, f.name...), ':')
	if f.inner != nil {
		return f.inner.appendTo(dst)
	}
	return append(dst, f.value...)
}

func (f *field) replace(value []byte) { f.value = append(f.value[:0], value...) }

// keep takes a value if there is none yet that says anything.
func (f *field) keep(value []byte) {
	if len(f.value) == 0 || string(f.value) == "null" || string(f.value) == `""` {
		f.replace(value)
	}
}

// join adds a string to the one that is there. Both are JSON, and so is what
// they make together, also if a character was cut between them.
func (f *field) join(value []byte) {
	switch {
	case value[0] != '"' || len(f.value) == 0 || f.value[0] != '"':
		f.keep(value)
	default:
		f.value = append(f.value[:len(f.value)-1], value[1:]...)
	}
}

// mergeCalled merges a piece of what is called, with its arguments or its input.
func (f *field) mergeCalled(value []byte) {
	if value[0] != '{' {
		if f.inner == nil {
			f.keep(value)
		}
		return
	}
	if f.inner == nil {
		f.inner = new(fields)
	}
	for name, value := range members(inside(value)) {
		if string(name) == `"arguments"` || string(name) == `"input"` {
			f.inner.field(name).join(value)
		} else {
			f.inner.field(name).keep(value)
		}
	}
}

// members yields the names and values, as JSON, of the inside of an object that
// is valid JSON. Both are parts of it, but for names with escapes, which are
// written plainly.
func members(text []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		var name []byte
		for v := range values(text) {
			if name == nil {
				name = plain(v)
				continue
			}
			if !yield(name, v) {
				return
			}
			name = nil
		}
	}
}

// values yields what stands between the commas, and the colons, of the inside of
// an array or an object that is valid JSON.
func values(text []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for rest := text; ; {
			rest = bytes.TrimLeft(rest, " \t\r\n,:")
			if len(rest) == 0 {
				return
			}
			n := valueBytes(rest)
			if !yield(rest[:n:n]) {
				return
			}
			rest = rest[n:]
		}
	}
}

// inside is what stands between the brackets of an array or an object.
func inside(v []byte) []byte { return v[min(1, len(v)):max(len(v)-1, min(1, len(v)))] }

// valueBytes is the length of the JSON value that b begins with.
func valueBytes(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; i < len(b)-1 && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		default:
			if depth > 0 {
				continue
			}
			if end := bytes.IndexAny(b[i:], " \t\r\n,:]}"); end > 0 { // a number or a word
				return i + end
			}
			return len(b)
		}
		if depth <= 0 {
			return min(i+1, len(b))
		}
	}
	return len(b)
}

// plain is a JSON string in the one spelling by which names are told apart here.
func plain(name []byte) []byte {
	if bytes.IndexByte(name, '\\') < 0 {
		return name
	}
	text, _ := jsontext.AppendUnquote(nil, name) // half a character becomes U+FFFD
	return appendJSON(nil, string(text))
}
