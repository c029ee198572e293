package haiku_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// extended is a Model that takes extensions as taken says.
type extended struct {
	haiku.Model
	taken func(*haiku.Request) error
}

func (e extended) TakesExtensions(req *haiku.Request) error { return e.taken(req) }

func extensions(nameValues ...string) (list []haiku.Extension) {
	for i := 0; i < len(nameValues); i += 2 {
		list = append(list, haiku.Extension{Name: nameValues[i], Value: []byte(nameValues[i+1])})
	}
	return list
}

// never is a Model that must not be called.
func never(t *testing.T) haiku.Model {
	return haiku.ModelFunc(func(context.Context, *haiku.StreamWriter, *haiku.Request) error {
		t.Error("the model was called")
		return nil
	})
}

// refusals are requests that go beyond what every model takes, and the field
// that a refusal names.
func refusals() map[string]*haiku.Request {
	message := func(m haiku.Message) *haiku.Request {
		return &haiku.Request{Messages: []haiku.Message{{Role: haiku.RoleUser, Content: "hi"}, m}}
	}
	return map[string]*haiku.Request{
		"tools":                       {Prompt: "hi", Extensions: extensions("tool_choice", `"auto"`, "tools", "[{}]")},
		"reasoning_effort":            {Prompt: "hi", Extensions: extensions("reasoning_effort", `"low"`, "store", "true")},
		"messages[1].tool_calls":      message(haiku.Message{Role: haiku.RoleAssistant, Extensions: extensions("tool_calls", "[{}]")}),
		"messages[1].role":            message(haiku.Message{Role: haiku.RoleTool, Content: "7"}),
		"messages[1].content[1].type": message(haiku.Message{Role: haiku.RoleUser, Extensions: extensions("content", `[{"type":"text","text":"x"},{"type":"image_url"}]`)}),
		"messages[1].content":         message(haiku.Message{Role: haiku.RoleUser, Extensions: extensions("content", `"x"`)}),
	}
}

func TestAModelThatIsNotExtendedNeverSeesExtensions(t *testing.T) {
	for param, req := range refusals() {
		s := haiku.NewStream(t.Context(), wrapped{never(t)}, req)
		_, err := s.Text()
		require.ErrorIs(t, err, haiku.ErrUnsupported, param)
		require.Equal(t, param, haiku.ErrorFrom(err).Param)

		rec := httptest.NewRecorder()
		mux := quietMux()
		mux.Register("/", streaming(never(t), *req))
		mux.ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
		require.Equal(t, 400, rec.Code, param)
		require.Contains(t, rec.Body.String(), `"code":"unsupported_parameter"`)
	}
}

func TestAModelMayIgnoreWhatIsOptional(t *testing.T) {
	optional := extensions("guided_json", "{}", "tools", "[{}]")
	for i := range optional {
		optional[i].Optional = true
	}
	message := haiku.Message{Role: haiku.RoleUser, Content: "hi", Extensions: optional}
	text, err := haiku.NewStream(t.Context(), wrapped{pieces("ok")}, &haiku.Request{Messages: []haiku.Message{message}, Extensions: optional}).Text()
	require.NoError(t, err)
	require.Equal(t, "ok", text)

	needed := append(optional, extensions("store", "true")...)
	_, err = haiku.NewStream(t.Context(), never(t), &haiku.Request{Prompt: "hi", Extensions: needed[1:]}).Text()
	require.Equal(t, "tools", haiku.ErrorFrom(err).Param, "of several the tools")
	_, err = haiku.NewStream(t.Context(), never(t), &haiku.Request{Prompt: "hi", Extensions: append(optional[:1:1], needed[2])}).Text()
	require.Equal(t, "store", haiku.ErrorFrom(err).Param)
	optional[0].Value = []byte("{")
	_, err = haiku.NewStream(t.Context(), never(t), &haiku.Request{Prompt: "hi", Extensions: optional[:1]}).Text()
	require.ErrorIs(t, err, haiku.ErrInvalidRequest, "it has to be JSON all the same")
}

func TestAnExtendedModelSaysWhatItTakes(t *testing.T) {
	for param, req := range refusals() {
		asked := 0
		takes := extended{pieces("ok"), func(got *haiku.Request) error {
			asked++
			require.Equal(t, req.Extensions, got.Extensions)
			return nil
		}}
		text, err := haiku.NewStream(t.Context(), wrapped{wrapped{takes}}, req).Text()
		require.NoError(t, err, param)
		require.Equal(t, "ok", text)
		require.Equal(t, 1, asked)

		no := haiku.ErrUnsupported.With(param, "not this one")
		_, err = haiku.NewStream(t.Context(), wrapped{extended{never(t), func(*haiku.Request) error { return no }}}, req).Text()
		require.Equal(t, no, err)
	}
	plain := &haiku.Request{Messages: []haiku.Message{{Role: haiku.RoleUser, Content: "hi"}}}
	_, err := haiku.NewStream(t.Context(), extended{pieces("ok"), func(*haiku.Request) error { return haiku.ErrUnsupported }}, plain).Text()
	require.NoError(t, err, "a request without extensions is not asked about")
}

// What a Model splices into a body of its own has to be JSON.
func TestExtensionsThatAreNotJSONAreRefused(t *testing.T) {
	takes := extended{never(t), func(*haiku.Request) error { return nil }}
	for _, value := range []string{"", "{", `{"a":1,"a":2}`, "1 2", "\"\xff\"", strings.Repeat("[", 200) + strings.Repeat("]", 200)} {
		list := extensions("tools", value)
		for param, req := range map[string]*haiku.Request{
			"tools":             {Prompt: "x", Extensions: list},
			"messages[0].tools": {Messages: []haiku.Message{{Role: haiku.RoleUser, Extensions: list}}},
		} {
			_, err := haiku.NewStream(t.Context(), takes, req).Text()
			require.ErrorIs(t, err, haiku.ErrInvalidRequest, value)
			require.Equal(t, param, haiku.ErrorFrom(err).Param)
		}
	}
	_, err := haiku.NewStream(t.Context(), takes, &haiku.Request{Extensions: extensions("", "1")}).Text()
	require.ErrorIs(t, err, haiku.ErrInvalidRequest)
}
