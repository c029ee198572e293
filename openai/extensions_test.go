package openai

import (
	"context"
	stdjson "encoding/json"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// extended is a model that takes every extension.
type extended struct{ haiku.Model }

func (extended) TakesExtensions(*haiku.Request) error { return nil }

// extensionsIn posts a body to a model that takes all, and returns what is
// beyond the fields of its request, as "name=value" with what it belongs to, and
// a question mark behind what is optional.
func extensionsIn(t testing.TB, path, body string) (found []string) {
	t.Helper()
	model := extended{haiku.ModelFunc(func(_ context.Context, w *haiku.StreamWriter, r *haiku.Request) error {
		for _, e := range r.Extensions {
			optional := ""
			if e.Optional {
				optional = "?"
			}
			found = append(found, e.Name+"="+string(e.Value)+optional)
		}
		for _, m := range r.Messages {
			for _, e := range m.Extensions {
				found = append(found, string(m.Role)+"."+e.Name+"="+string(e.Value))
			}
		}
		for i := range max(r.Choices, 1) {
			w.Finish(i, haiku.FinishStop)
		}
		return nil
	})}
	status, text := post(t, model, path, body)
	require.Equal(t, 200, status, "%s → %s", body, text)
	return found
}

func TestWhatOnlySomeModelsUnderstandIsPassedOnAsItWasWritten(t *testing.T) {
	const tools = "[ {\"type\":\"function\",\r\n\t\"function\":{\"name\":\"f\",\"parameters\":{\"b\":1.0,\"a\":1e2,\"é\":\"\\u00e9<&>\"}}}\n]"
	require.Equal(t, []string{
		"verbosity=\"low\"", "tools=" + tools, `parallel_tool_calls=false`, `tool_choice={"type":"function","function":{"name":"f"}}`,
		`response_format={"type": "json_object"}`, `reasoning_effort="high"`, `modalities=["text","audio"]`, `audio={"voice":"x"}`,
		`prediction={}`, `web_search_options={}`, `store=true`, `functions=[{}]`, `function_call={"name":"f"}`, `unknown=[1]?`,
	}, extensionsIn(t, chatPath, `{"verbosity":"low","tools" : `+tools+` ,"parallel_tool_calls":false,"metadata":{"tools":1},`+hi+`,
		"tool_choice":{"type":"function","function":{"name":"f"}},"response_format":{"type": "json_object"},"unknown":[1],"reasoning_effort":"high",
		"modalities":["text","audio"],"audio":{"voice":"x"},"prediction":{},"web_search_options":{},"store":true,"functions":[{}],"function_call":{"name":"f"}}`))
	require.Equal(t, []string{`echo=true`, `best_of=3`, `suffix="y"`}, extensionsIn(t, completionPath, `{"echo":true,"n":2,"best_of":3,"prompt":"x","suffix":"y"}`))
}

func TestMessagesOfAToolConversation(t *testing.T) {
	const calls = `[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}}]`
	require.Equal(t, []string{
		"assistant.tool_calls=" + calls, `assistant.reasoning_content="hm"`, `assistant.content=null`, `tool.tool_call_id="call_1"`,
		`assistant.refusal="no"`, `assistant.content=null`, `assistant.function_call={"name":"g"}`, `assistant.content=null`, `assistant.audio={"id":"a"}`,
		`user.content=[ {"type":"text","text":"what is"}, {"type":"image_url","image_url":{"url":"u"}}]`,
	}, extensionsIn(t, chatPath, `{"messages":[
		{"role":"user","content":"x","refusal":"not theirs","tool_call_id":"nor this","reasoning_content":"nor that"},
		{"role":"assistant","content":null,"tool_calls":`+calls+`,"reasoning_content":"hm","refusal":null,"annotations":[]},
		{"role":"tool","tool_call_id":"call_1","content":"7"},
		{"role":"assistant","refusal":"no"},{"role":"assistant","function_call":{"name":"g"},"tool_calls":[ ]},
		{"role":"assistant","content":"x","audio":{"id":"a"}},
		{"role":"user","content":[ {"type":"text","text":"what is"}, {"type":"image_url","image_url":{"url":"u"}}]}]}`))
}

func TestWhatIsSoAnywayIsNotPassedOn(t *testing.T) {
	for _, extra := range []string{
		``, `,"tools":null,"tool_choice":null,"response_format":null,"reasoning_effort":"","store":false,"verbosity":null`,
		`,"tools":[],"tool_choice":"auto","parallel_tool_calls":true,"response_format":{"type":"text"},"modalities":["text"]`,
		`,"functions":[],"function_call":"none","parallel_tool_calls":false,"Tools":[{}]`,
	} {
		require.Empty(t, extensionsIn(t, chatPath, `{`+hi+extra+`}`), extra)
	}
	require.Empty(t, extensionsIn(t, completionPath, `{"prompt":"x","suffix":"","echo":false,"best_of":1}`))
	require.Empty(t, extensionsIn(t, completionPath, `{"prompt":"x","n":4,"best_of":4,"suffix":null}`))
	require.Equal(t, []string{`tool_choice="none"`, `parallel_tool_calls=true`, `tools=[{}]`},
		extensionsIn(t, chatPath, `{`+hi+`,"tool_choice":"none","parallel_tool_calls":true,"tools":[{}]}`), "beside tools it says something")
}

// vendorMembers are such as vLLM, SGLang, Dynamo and llama.cpp have.
const vendorMembers = `"chat_template_kwargs":{ "enable_thinking":false },"guided_json":{"type":"object"},"ignore_eos":false,"nvext":{},"min_tokens":0,"mirostat":2`

func TestParametersOfAnEngineBehindTheModelAreOptional(t *testing.T) {
	want := []string{`chat_template_kwargs={ "enable_thinking":false }?`, `guided_json={"type":"object"}?`, `ignore_eos=false?`, `nvext={}?`, `min_tokens=0?`, `mirostat=2?`}
	require.Equal(t, want, extensionsIn(t, chatPath, `{`+hi+`,`+vendorMembers+`}`))
	require.Equal(t, want, extensionsIn(t, completionPath, `{"prompt":"x",`+vendorMembers+`}`))
	require.Equal(t, append([]string{"tools=[{}]"}, want...), extensionsIn(t, chatPath, `{`+vendorMembers+`,"tools":[{}],`+hi+`}`))
	for _, nothing := range []string{
		`"own":null`, `"user":"ann","metadata":{"a":"b"},"service_tier":"flex","safety_identifier":"x","prompt_cache_key":"k","prompt_cache_retention":"24h"`,
		`"Own":1,"OWN":1`, `"":1`, `"a b":1`, `"a\"b":1`, `"\u212aelvin":1`, `"a-b":1`,
	} {
		require.Empty(t, extensionsIn(t, chatPath, `{`+hi+`,`+nothing+`}`), nothing)
	}
	require.Equal(t, []string{`own=1?`}, extensionsIn(t, chatPath, `{`+hi+`,"\u006fwn":1}`), "in one spelling")
	status, text := post(t, scripted(nil, stop(0)), chatPath, `{`+hi+`,`+vendorMembers+`}`)
	require.Equal(t, 200, status, "a model that has no such parameters: %s", text)
}

// What has the wrong shape is no extension: it is refused for every model.
func TestMalformedExtensionsAreRefusedForEveryModel(t *testing.T) {
	body := func(extra string) string { return `{` + hi + `,` + extra + `}` }
	message := func(m string) string { return `{"messages":[` + m + `]}` }
	for param, bodies := range map[string][]string{
		"tools":                       {body(`"tools":7`), body(`"tools":{}`), body(`"tools":"x"`), body(`"tools":[7]`), body(`"tools":[{},null]`)},
		"functions":                   {body(`"functions":["f"]`)},
		"tool_choice":                 {body(`"tool_choice":7`), body(`"tool_choice":["x"]`)},
		"parallel_tool_calls":         {body(`"parallel_tool_calls":"yes","tools":[{}]`)},
		"response_format":             {body(`"response_format":"json"`), body(`"response_format":{}`), body(`"response_format":{"type":7}`)},
		"modalities":                  {body(`"modalities":"text"`), body(`"modalities":[7]`)},
		"audio":                       {body(`"audio":true`)},
		"reasoning_effort":            {body(`"reasoning_effort":3`), body(`"reasoning_effort":{"x":1}`)},
		"store":                       {body(`"store":1`)},
		"messages[0].tool_calls":      {message(`{"role":"assistant","tool_calls":{}}`), message(`{"role":"assistant","content":"x","tool_calls":[7]}`)},
		"messages[0].tool_call_id":    {message(`{"role":"tool","content":"x","tool_call_id":7}`)},
		"messages[0].refusal":         {message(`{"role":"assistant","refusal":[1]}`)},
		"messages[0].content":         {message(`{"role":"tool","tool_call_id":"x"}`), message(`{"role":"user","content":null,"tool_calls":[{}]}`), message(`{"role":"assistant","content":null,"tool_calls":[]}`)},
		"messages[0].content[0].type": {message(`{"role":"user","content":[{}]}`), message(`{"role":"user","content":[{"type":"","text":"x"}]}`), message(`{"role":"user","content":[{"type":7}]}`)},
		"messages[0].content[1].text": {message(`{"role":"user","content":[{"type":"image_url"},{"type":"text"}]}`), message(`{"role":"user","content":[{"type":"x"},{"type":"text","text":7}]}`)},
		"messages[0].content[1]":      {message(`{"role":"user","content":[{"type":"image_url"},7]}`)},
		"messages[0].role":            {message(`{"role":"function","name":"f","content":"x"}`)},
		"tools[0].a":                  {body(`"tools":[{"a":1,"a":2}]`)},
		"messages[0].content[0].a":    {message(`{"role":"user","content":[{"a":1,"a":2}]}`)},
	} {
		for _, b := range bodies {
			status, text := post(t, extended{scripted(nil, stop(0))}, chatPath, b)
			require.Equal(t, 400, status, b)
			require.Contains(t, text, `"param":"`+param+`"`, b)
		}
	}
	for _, v := range []string{`"3"`, "0", "-1", "129", "1.5", "1e400", "true"} {
		status, text := post(t, extended{scripted(nil, stop(0))}, completionPath, `{"prompt":"x","best_of":`+v+`}`)
		require.Equal(t, 400, status, v)
		require.Contains(t, text, `"param":"best_of"`, v)
	}
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	status, _ := post(t, extended{scripted(nil, stop(0))}, chatPath, body(`"tools":[{"x":`+deep+`}]`))
	require.Equal(t, 400, status, "the depth of a body is bounded, and so that of an extension")
}

// A host can make a request with extensions in Go, and with either JSON package.
func TestARequestWithExtensionsSurvivesTheWire(t *testing.T) {
	r := ChatCompletionRequest{
		Params: Params{Model: "m", Stream: true},
		Messages: []Message{
			{Role: "assistant", Content: Content{missing: true}, More: jsontext.Value(`{"tool_calls":[{"id":"1"}]}`)},
			{Role: "user", Content: Content{Raw: jsontext.Value(`[{"type":"image_url","image_url":{"url":"u"}}]`)}},
		},
		More: jsontext.Value(`{"tools":[{"type":"function"}],"user":"u"}`),
	}
	want, err := r.InferenceRequest()
	require.NoError(t, err)
	require.Equal(t, []haiku.Extension{{Name: "tools", Value: []byte(`[{"type":"function"}]`)}}, want.Extensions)
	strict, err := json.Marshal(&r)
	require.NoError(t, err)
	standard, err := stdjson.Marshal(r)
	require.NoError(t, err)
	for _, wire := range [][]byte{strict, standard} {
		var a, b ChatCompletionRequest
		require.NoError(t, json.Unmarshal(wire, &a), "%s", wire)
		require.NoError(t, stdjson.Unmarshal(wire, &b), "%s", wire)
		for _, got := range []ChatCompletionRequest{a, b} {
			req, err := got.InferenceRequest()
			require.NoError(t, err, "%s", wire)
			require.Equal(t, []any{want.Extensions, want.Messages}, []any{req.Extensions, req.Messages}, "%s", wire)
		}
	}
	for _, more := range []string{"[]", "x", `{"tools":`, `{"tools":[{]}`} {
		r.More = jsontext.Value(more)
		_, err := r.InferenceRequest()
		require.ErrorIs(t, err, haiku.ErrInvalidRequest, more)
	}
}
