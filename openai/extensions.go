package openai

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/intelliparadigm/haiku"
)

// extension is a member of a body that only some models understand. It becomes
// a haiku.Extension where it says anything.
type extension struct {
	// kinds are those of a value that is well formed, as jsontext.Kind has them,
	// and want says so in words.
	kinds, want string
	// idle reports whether a value asks for what is so anyway, or, with aboutTools,
	// for what is so where there are no tools.
	idle       func(v jsontext.Value) bool
	aboutTools bool
	// check reports whether the inside of a value is well formed.
	check func(v jsontext.Value) bool
	// roles are those whose messages may have it; nil is all.
	roles []haiku.Role
}

var (
	anObject  = extension{kinds: "{", want: "an object"}
	aString   = extension{kinds: `"`, want: "a string"}
	objects   = extension{kinds: "[", want: "an array of objects", check: areObjects}
	toolWords = extension{kinds: `"{`, want: "a string or an object", idle: isNoneOrAuto, aboutTools: true}
)

// chatExtensions are the members of a chat request.
var chatExtensions = map[string]extension{
	"tools":               objects,
	"functions":           objects,
	"tool_choice":         toolWords,
	"function_call":       toolWords,
	"parallel_tool_calls": {kinds: "tf", want: "a boolean", idle: isAny, aboutTools: true},
	"response_format":     {kinds: "{", want: "an object with a type", idle: isPlainText, check: hasType},
	"modalities":          {kinds: "[", want: "an array of strings", idle: isTextAlone, check: areStrings},
	"audio":               anObject,
	"prediction":          anObject,
	"web_search_options":  anObject,
	"reasoning_effort":    aString,
	"verbosity":           aString,
	"store":               {kinds: "t", want: "a boolean"},
}

// messageExtensions are the members of a message.
var messageExtensions = map[string]extension{
	"tool_calls":        objects,
	"function_call":     anObject,
	"audio":             anObject,
	"tool_call_id":      {kinds: `"`, want: "a string", roles: []haiku.Role{haiku.RoleTool}},
	"refusal":           {kinds: `"`, want: "a string", roles: []haiku.Role{haiku.RoleAssistant}},
	"reasoning_content": {kinds: `"`, want: "a string", roles: []haiku.Role{haiku.RoleAssistant}},
}

// completionExtensions are the members of a completion request.
var completionExtensions = map[string]extension{
	"suffix":  aString,
	"echo":    {kinds: "t", want: "a boolean"},
	"best_of": {kinds: "0", want: fmt.Sprintf("a whole number from 1 to %d", maxChoices), check: isCount},
}

// unheeded are members of the API that shape no answer. They go nowhere: some say
// who a user is.
var unheeded = []string{"user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "store"}

// withVendors adds to found the members of more that the API does not have, as
// optional extensions: parameters of an engine that may be behind the model.
func withVendors(found []haiku.Extension, more jsontext.Value, known map[string]extension) []haiku.Extension {
	for quoted, value := range members(inside(bytes.TrimSpace(more))) {
		name := string(quoted[1 : len(quoted)-1])
		if _, own := known[name]; own || value[0] == 'n' || !isParameter(name) || slices.Contains(unheeded, name) {
			continue
		}
		found = append(found, haiku.Extension{Name: name, Value: value, Optional: true})
	}
	return found
}

// isParameter reports whether a name is like those that engines have. What has an
// upper-case letter is a mistake for another name, or meant to be taken for it.
func isParameter(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
}

// extensionsOf returns what of more, an object with the members that have no
// field, is in known and says anything, in the order of the body. Values are
// parts of more. prefix stands before the names in errors.
func extensionsOf(more jsontext.Value, known map[string]extension, prefix string, role haiku.Role) ([]haiku.Extension, error) {
	if len(more) == 0 {
		return nil, nil
	}
	more = bytes.TrimSpace(more)
	if more.Kind() != '{' || !more.IsValid() {
		return nil, invalid(strings.TrimSuffix(prefix, "."), "what is more than the fields must be a JSON object")
	}
	var found []haiku.Extension
	for quoted, value := range members(inside(more)) {
		ext, ok := known[string(quoted[1:len(quoted)-1])]
		if !ok || ext.roles != nil && !slices.Contains(ext.roles, role) || !ext.given(value) {
			continue
		}
		name := string(quoted[1 : len(quoted)-1])
		if !ext.fits(value) {
			return nil, invalid(prefix+name, "%s must be %s", name, ext.want)
		}
		found = append(found, haiku.Extension{Name: name, Value: value})
	}
	return withoutIdle(found, known), nil
}

// given reports whether a value says anything. Of a member that may be false, that
// does.
func (e *extension) given(v jsontext.Value) bool {
	return given(v) || v.Kind() == 'f' && strings.Contains(e.kinds, "f")
}

func (e *extension) fits(v jsontext.Value) bool {
	return strings.IndexByte(e.kinds, byte(v.Kind())) >= 0 && (e.check == nil || e.check(v))
}

// withoutIdle drops what asks for nothing. It returns nil for nothing left.
func withoutIdle(found []haiku.Extension, known map[string]extension) []haiku.Extension {
	tools := slices.ContainsFunc(found, func(e haiku.Extension) bool { return e.Name == "tools" || e.Name == "functions" })
	found = slices.DeleteFunc(found, func(e haiku.Extension) bool {
		ext := known[e.Name]
		return ext.idle != nil && ext.idle(e.Value) && !(ext.aboutTools && tools)
	})
	if len(found) == 0 {
		return nil
	}
	return found
}

// given reports whether a value of any type says something: it is not absent,
// null, false, an empty string or an empty array. An empty object does:
// "web_search_options":{} turns the search on.
func given(v jsontext.Value) bool {
	switch v.Kind() {
	case '"':
		return string(v) != `""`
	case '[':
		_, inside, _ := strings.Cut(string(v), "[")
		return !strings.HasPrefix(strings.TrimLeft(inside, " \t\r\n"), "]")
	case '{', 't', '0':
		return true
	default:
		return false
	}
}

func isAny(jsontext.Value) bool { return true }

func isNoneOrAuto(v jsontext.Value) bool {
	var s string
	return json.Unmarshal(v, &s) == nil && (s == "none" || s == "auto")
}

// areObjects reports whether a value is an array of objects and nothing else.
func areObjects(v jsontext.Value) bool { return holds(v, '{') }

func areStrings(v jsontext.Value) bool { return holds(v, '"') }

// holds reports whether a value is an array of one kind of elements.
func holds(array jsontext.Value, kind byte) bool {
	if len(array) == 0 || array[0] != '[' {
		return false
	}
	for v := range values(inside(array)) {
		if v[0] != kind {
			return false
		}
	}
	return true
}

func isTextAlone(v jsontext.Value) bool {
	var list []string
	return json.Unmarshal(v, &list) == nil && len(list) == 1 && list[0] == "text"
}

// typeOf is an object's type, empty if it has none that is a string.
func typeOf(v jsontext.Value) string {
	var object struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(v, &object) != nil {
		return ""
	}
	return object.Type
}

func hasType(v jsontext.Value) bool     { return typeOf(v) != "" }
func isPlainText(v jsontext.Value) bool { return typeOf(v) == "text" }

func isCount(v jsontext.Value) bool {
	var n int
	return json.Unmarshal(v, &n) == nil && n >= 1 && n <= maxChoices
}
