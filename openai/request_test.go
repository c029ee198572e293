package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// refusal is what a client learns about a bad request.
type refusal struct {
	Error struct {
		Message, Type string
		Param, Code   *string
	}
}

func requireRefused(t *testing.T, path, body, param string) {
	t.Helper()
	status, text := post(t, scripted(nil, say(0, "a"), stop(0)), path, body)
	require.Equal(t, 400, status, "%.200s → %s", body, text)
	var r refusal
	require.NoError(t, json.Unmarshal([]byte(text), &r), text)
	require.NotEmpty(t, r.Error.Message)
	require.Equal(t, "invalid_request_error", r.Error.Type)
	got := ""
	if r.Error.Param != nil {
		got = *r.Error.Param
	}
	require.Equal(t, param, got, "%.200s → %s", body, text)
}

func TestParametersOutOfBoundsAreNamed(t *testing.T) {
	for param, values := range map[string][]string{
		"n":                  {"0", "-1", "129", "1e6", "1.5", `"2"`},
		"max_tokens":         {"0", "-1", "1.5", "1e18", "9223372036854775808", "9223372036854775807", `"5"`, "true"},
		"temperature":        {"-1", "2.1", "1e308", `"1"`},
		"top_p":              {"0", "1.1", "-0.5", "[]"},
		"top_k":              {"-2", "0.01", "3000000000"},
		"min_p":              {"-0.1", "1.1"},
		"presence_penalty":   {"-2.1", "3"},
		"frequency_penalty":  {"-2.1", "3"},
		"repetition_penalty": {"0", "-1", "11"},
		"typical_p":          {"0", "-0.1", "1.1"},
		"adapter_scale":      {"-10.1", "1e9", "-1e308"},
		"seed":               {"9223372036854775808", "1.5", `"7"`},
		"stop":               {"5", "{}", `["a","b","c","d","e"]`, manyStops()},
		"stop[0]":            {`[""]`, `""`, `"` + strings.Repeat("x", 1025) + `"`, "[7]"},
		"logit_bias":         {`{"-1":1}`, `{"abc":1}`, `{"99999999999":1}`, `{"5":101}`, `{"5":-101}`, "[]", manyBiases(), `{"05":1}`, `{"+5":1}`, `{"-0":1}`, `{"5":1,"05":2}`, `{"":1}`},
		"logit_bias[5]":      {`{"5":"x"}`},
		"stream_options":     {`{"include_usage":true}`, `{}`},
	} {
		for _, v := range values {
			requireRefused(t, chatPath, `{`+hi+`,"`+topLevel(param)+`":`+v+`}`, param)
			requireRefused(t, completionPath, `{"prompt":"x","`+topLevel(param)+`":`+v+`}`, param)
		}
	}
}

// topLevel is the parameter that a path like stop[0] is in.
func topLevel(param string) string {
	return strings.FieldsFunc(param, func(r rune) bool { return r == '[' || r == '.' })[0]
}

func manyStops() string {
	b, _ := json.Marshal(strings.Split(strings.Repeat("x ", 9999)+"x", " "))
	return string(b)
}

func manyBiases() string {
	m := make(map[string]int)
	for i := range 2000 {
		m[fmt.Sprint(i)] = 1
	}
	b, _ := json.Marshal(m)
	return string(b)
}

func TestChatRequestsThatAreRefused(t *testing.T) {
	msg := func(m string) string { return `"messages":[` + m + `]` }
	for param, bodies := range map[string][]string{
		"messages":                    {`"messages":[]`, `"messages":null`, `"model":"x"`, `"messages":"hi"`, `"messages":{}`},
		"messages[0].role":            {msg(`{"role":"root","content":"x"}`), msg(`{"content":"x"}`), msg(`{"role":"tool","content":"x"}`), msg(`{"role":"function","content":"x"}`), msg(`{"role":7,"content":"x"}`)},
		"messages[0].content":         {msg(`{"role":"user","content":null}`), msg(`{"role":"user","content":[]}`), msg(`{"role":"user","content":5}`), msg(`{"role":"user","content":{}}`), msg(`{"role":"user"}`), msg(`{"role":"assistant"}`)},
		"messages[1].content[1].type": {msg(`{"role":"user","content":"x"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"u"}}]}`), msg(`{"role":"user","content":"x"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"what"}]}`)},
		"messages[0].content[0].text": {msg(`{"role":"user","content":[{"type":"text","text":null}]}`), msg(`{"role":"user","content":[{"type":"text"}]}`), msg(`{"role":"user","content":[{"type":"text","text":7}]}`)},
		"messages[0].tool_calls":      {msg(`{"role":"assistant","content":null,"tool_calls":[{}]}`)},
		"messages[0].function_call":   {msg(`{"role":"assistant","function_call":{}}`)},
		"messages[0].audio":           {msg(`{"role":"assistant","content":"x","audio":{"id":"a"}}`)},
		"messages[1].role":            {msg(`{"role":"user","content":"x"},null`)},
		"messages[0].name":            {msg(`{"role":"user","content":"x","name":7}`)},
		"tools":                       {hi + `,"tools":[{"type":"function"}]`},
		"tool_choice":                 {hi + `,"tool_choice":"required"`},
		"functions":                   {hi + `,"functions":[{}]`},
		"response_format":             {hi + `,"response_format":{"type":"json_object"}`, hi + `,"response_format":7`, hi + `,"response_format":{}`, hi + `,"response_format":{"Type":"text"}`},
		"modalities":                  {hi + `,"modalities":["audio"]`},
		"audio":                       {hi + `,"audio":{"voice":"x"}`},
		"prediction":                  {hi + `,"prediction":{"type":"content"}`},
		"web_search_options":          {hi + `,"web_search_options":{"x":1}`, hi + `,"web_search_options":{}`},
		"reasoning_effort":            {hi + `,"reasoning_effort":"low"`},
		"store":                       {hi + `,"store":true`},
		"max_completion_tokens":       {hi + `,"max_completion_tokens":0`},
		"max_tokens":                  {hi + `,"max_tokens":3,"max_completion_tokens":4`},
		"top_logprobs":                {hi + `,"logprobs":true,"top_logprobs":-1`, hi + `,"logprobs":true,"top_logprobs":1000`, hi + `,"top_logprobs":2`},
		"logprobs":                    {hi + `,"logprobs":5`},
		"model":                       {hi + `,"model":7`},
		"stream":                      {hi + `,"stream":"yes"`},
		"messages[0].content[0]":      {msg(`{"role":"user","content":["x"]}`)},
	} {
		for _, b := range bodies {
			requireRefused(t, chatPath, `{`+b+`}`, param)
		}
	}
}

func TestCompletionRequestsThatAreRefused(t *testing.T) {
	for param, bodies := range map[string][]string{
		"prompt": {`{}`, `{"prompt":""}`, `{"prompt":[]}`, `{"prompt":["a","b"]}`, `{"prompt":[[1],[2]]}`, `{"prompt":7}`, `{"prompt":[1,"a"]}`, `{"prompt":[1.5]}`, `{"prompt":[99999999999]}`, `{"prompt":null}`, `{"prompt":[{}]}`, `{"prompt":[[]]}`,
			`{"prompt":[null]}`, `{"prompt":[1,null]}`, `{"prompt":[[1,null]]}`, `{"prompt":[[null]]}`, `{"prompt":["a",null]}`, `{"prompt":[["a"]]}`, `{"prompt":[[[1]]]}`, `{"prompt":[1,[2]]}`, `{"prompt":[true]}`, `{"prompt":true}`, `{"prompt":{}}`},
		"prompt[1]": {`{"prompt":[1,-1]}`},
		"logprobs":  {`{"prompt":"x","logprobs":6}`, `{"prompt":"x","logprobs":-1}`, `{"prompt":"x","logprobs":true}`},
		"suffix":    {`{"prompt":"x","suffix":"y"}`},
		"echo":      {`{"prompt":"x","echo":true}`},
		"best_of":   {`{"prompt":"x","best_of":3}`},
	} {
		for _, b := range bodies {
			requireRefused(t, completionPath, b, param)
		}
	}
}

func TestBodiesThatAreNoGoodJSON(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct{ body, param string }{
		{`{"model":"a","model":"b",` + hi + `}`, "model"},
		{`{` + hi + `,"stream":true,"stream":false}`, "stream"},
		{`{` + hi + `} {}`, ""}, {`{` + hi + `} x`, ""}, {"\uFEFF{" + hi + "}", ""}, {``, ""}, {`[]`, ""}, {`"x"`, ""},
		{`{"messages":[{"role":"user","content":"\ud800"}]}`, "messages[0].content"},
		{"{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}", "messages[0].content"},
		{`{"messages":` + deep(100) + `}`, "messages[0]"},
		{`{"messages":` + deep(9000) + `}`, ""},
		{`{"metadata":` + deep(200) + `,` + hi + `}`, ""},
		{`{"metadata":` + deep(9000) + `,` + hi + `}`, ""},
		{`{"tools":` + deep(200000) + `,` + hi + `}`, ""},
		{`{"temperature":NaN,` + hi + `}`, "temperature"},
	} {
		requireRefused(t, chatPath, c.body, c.param)
	}
	status, _ := post(t, scripted(nil), chatPath, `{"messages":[{"role":"user","content":"`+strings.Repeat("x", 5<<20)+`"}]}`)
	require.Equal(t, 413, status)
}

// decoded decodes a body as the handlers do.
func decoded(t *testing.T, body string) *haiku.Request {
	t.Helper()
	var got *haiku.Request
	status, text := post(t, haiku.ModelFunc(func(_ context.Context, w *haiku.StreamWriter, r *haiku.Request) error {
		got = r
		for i := range max(r.Choices, 1) {
			w.Finish(i, haiku.FinishStop)
		}
		return nil
	}), chatPath, body)
	require.Equal(t, 200, status, text)
	copied := *got
	copied.Encoder, copied.ID = nil, ""
	return &copied
}

func TestARequestIsTranslatedInFull(t *testing.T) {
	seed := uint64(1<<64 - 7)
	require.Equal(t, &haiku.Request{
		Model: "frog", Choices: 2, MaxTokens: 9, Stop: []string{"a", "b"}, Logprobs: true, TopLogprobs: 3,
		Messages: []haiku.Message{{Role: "system", Content: "be brief"}, {Role: "user", Name: "ann", Content: "one\ntwo"}, {Role: "assistant", Content: ""}},
		Sampling: haiku.Sampling{Temperature: 0, TopP: 0.5, TopK: 4, MinP: 0.1, TypicalP: 0.7, Seed: &seed, PresencePenalty: 1, FrequencyPenalty: -1, RepetitionPenalty: 1.1, LogitBias: map[int32]float32{5: -100}},
	}, decoded(t, `{"model":"frog","n":2,"max_completion_tokens":9,"stop":["a","b"],"logprobs":true,"top_logprobs":3,
		"messages":[{"role":"developer","content":"be brief"},{"role":"user","name":"ann","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]},{"role":"assistant","content":""}],
		"temperature":0,"top_p":0.5,"top_k":4,"min_p":0.1,"typical_p":0.7,"seed":-7,"presence_penalty":1,"frequency_penalty":-1,"repetition_penalty":1.1,"logit_bias":{"5":-100}}`))
	half := 0.5
	require.Equal(t, &haiku.Request{
		Model: "poet", AdapterScale: &half, Messages: []haiku.Message{{Role: "user", Content: "hi"}}, Sampling: haiku.Sampling{Temperature: 1},
	}, decoded(t, `{"model":"poet","adapter_scale":0.5,`+hi+`}`))
}

func TestWhatIsAbsentNullOrHarmlessHasTheDefault(t *testing.T) {
	want := &haiku.Request{Messages: []haiku.Message{{Role: "user", Content: "hi"}}, Sampling: haiku.Sampling{Temperature: 1}}
	for _, extra := range []string{
		"",
		`,"n":null,"max_tokens":null,"stop":null,"temperature":null,"top_p":null,"seed":null,"logit_bias":null,"stream":null,"stream_options":null,"logprobs":null,"top_logprobs":null,"model":null,"tools":null,"response_format":null,"user":null`,
		`,"user":"u","metadata":{"a":[1]},"store":false,"service_tier":"auto","parallel_tool_calls":true,"safety_identifier":"s","prompt_cache_key":"k","tools":[],"tool_choice":"none","response_format":{"type":"text"},"modalities":["text"]`,
		`,"tools":[ ],"functions":[
],"tool_choice":"auto","audio":null,"prediction":null,"reasoning_effort":null,"web_search_options":null`,
		`,"metadata":` + strings.Repeat("[", 100) + strings.Repeat("]", 100),
		`,"MAX_TOKENS":"not ours","Temperature":"nor this","\u017ftream":7`,
		`,"top_k":-1,"top_logprobs":0`,
	} {
		require.Equal(t, want, decoded(t, `{`+hi+extra+`}`), extra)
	}
}
