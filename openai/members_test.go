package openai

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku"
)

func adds(choice int, members string) haiku.Piece {
	return haiku.Piece{Choice: choice, ID: haiku.NoToken, Delta: []byte(members)}
}

func TestDeltasAreSplicedIntoChunks(t *testing.T) {
	both := say(0, "b")
	both.Delta = []byte(` "x" : [1.0] `)
	calls := haiku.Piece{Finish: haiku.FinishToolCalls}
	model := scripted(nil, adds(0, `"reasoning_content":"h\u006d…"`), say(0, "a"), both,
		adds(0, `"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":""}}]`),
		adds(1, `"tool_calls":[{"index":0,"function":{"arguments":"{\""}}]`), stop(1), calls)
	_, got := post(t, model, chatPath, `{"stream":true,"n":2,`+hi+`}`)
	chunk := func(choice int, delta, finish string) string {
		return head + fmt.Sprintf(`{"index":%d,"delta":{%s},"logprobs":null,"finish_reason":%s}]}`, choice, delta, finish)
	}
	require.Equal(t, lines(
		chunk(0, `"role":"assistant","content":""`, "null"), chunk(0, `"reasoning_content":"h\u006d…"`, "null"), chunk(0, `"content":"a"`, "null"),
		chunk(0, ` "x" : [1.0] `, "null"), chunk(0, `"content":"b"`, "null"),
		chunk(0, `"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":""}}]`, "null"),
		chunk(1, `"role":"assistant","content":""`, "null"), chunk(1, `"tool_calls":[{"index":0,"function":{"arguments":"{\""}}]`, "null"),
		chunk(1, "", `"stop"`), chunk(0, "", `"tool_calls"`), "[DONE]"), got)
}

func TestAToolCallThatIsCutOffIsNotRepaired(t *testing.T) {
	model := scripted(nil, adds(0, `"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{\"a\":"}}]`), haiku.Piece{Finish: haiku.FinishLength})
	_, got := post(t, model, chatPath, `{"stream":true,`+hi+`}`)
	require.Contains(t, got, `"finish_reason":"length"`)
	_, got = post(t, model, chatPath, `{`+hi+`}`)
	require.Contains(t, got, `"message":{"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\"a\":"}}]},"logprobs":null,"finish_reason":"length"`)
}

// The completions API has no place for them.
func TestACompletionHasNoDeltas(t *testing.T) {
	model := scripted(nil, adds(0, `"reasoning_content":"hm"`), say(0, "a"), stop(0))
	for _, stream := range []string{"true", "false"} {
		status, got := post(t, model, completionPath, `{"prompt":"x","stream":`+stream+`}`)
		require.Equal(t, 200, status)
		require.NotContains(t, got, "hm")
		require.Contains(t, got, `"text":"a"`)
	}
}

// message is the message of a whole answer from deltas.
func message(t testing.TB, deltas ...haiku.Delta) string {
	got := encoded(t, chatOf(Params{}, false), haiku.Head{}, deltas...)
	_, rest, _ := strings.Cut(got, `"message":{"role":"assistant",`)
	message, _, found := strings.Cut(rest, `},"logprobs":null`)
	require.True(t, found, got)
	return message
}

func TestDeltasAreMergedInAWholeAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		deltas []string
		want   string
	}{
		"reasoning": {
			[]string{`"reasoning_content":"a\""`, `"reasoning_content":null`, `"reasoning_content":"b\ud83d"`, `"reasoning_content":"\ude00"`},
			`"content":"","reasoning_content":"a\"b\ud83d\ude00","refusal":null`,
		},
		"a refusal":             {[]string{`"refusal":null`, `"refusal":"I "`, `"refusal":"won't"`}, `"content":"","refusal":"I won't"`},
		"others: the last wins": {[]string{`"x":1,"y":{"a":1}`, `"y":{"b":2}`, `"x":null`}, `"content":"","x":null,"y":{"b":2},"refusal":null`},
		"calls": {
			[]string{
				`"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":""}}]`,
				`"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\""}},{"index":1,"function":{"arguments":"{}"}}]`,
				`"tool_calls":[{"index":0,"id":"","type":"function","function":{"name":null,"arguments":":1}"},"extra":{"s":1}}]`, `"tool_calls":null`, `"tool_calls":[]`,
			},
			`"content":null,"refusal":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"},"extra":{"s":1}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]`,
		},
		"a call that cuts a character": {
			[]string{`"tool_calls":[{"index":0,"function":{"arguments":"\ud83d"}}]`, "\"tool_calls\" : [ {\"index\":0 , \"function\" : {\"arguments\":\"\\ude00\\\\\"} } ]"},
			`"content":null,"refusal":null,"tool_calls":[{"function":{"arguments":"\ud83d\ude00\\"}}]`,
		},
		"calls without an index": {
			[]string{
				`"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{"}}]`, `"tool_calls":[{"function":{"arguments":"}"}}]`,
				`"tool_calls":[{"id":"b","function":{"name":"g","arguments":"1"}}]`, `"tool_calls":[{"id":"b","function":{"arguments":"2"}}]`,
			},
			`"content":null,"refusal":null,"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"b","function":{"name":"g","arguments":"12"}}]`,
		},
		"a call of a tool of one's own": {
			[]string{`"tool_calls":[{"index":0,"id":"a","type":"custom","custom":{"name":"f","input":"x"}}]`, `"tool_calls":[{"index":0,"custom":{"input":"y"}}]`},
			`"content":null,"refusal":null,"tool_calls":[{"id":"a","type":"custom","custom":{"name":"f","input":"xy"}}]`,
		},
		"the older kind of call": {
			[]string{`"function_call":{"name":"f","arguments":"{"}`, `"function_call":{"arguments":"}"}`},
			`"content":"","function_call":{"name":"f","arguments":"{}"},"refusal":null`,
		},
		"no calls at all":         {[]string{`"tool_calls":"x"`, `"tool_calls":[7]`}, `"content":"","tool_calls":[7],"refusal":null`},
		"a function that is none": {[]string{`"tool_calls":[{"index":0,"function":7}]`, `"tool_calls":[{"index":0,"function":"x"}]`}, `"content":null,"refusal":null,"tool_calls":[{"function":7}]`},
	} {
		t.Run(name, func(t *testing.T) {
			var deltas []haiku.Delta
			for _, d := range c.deltas {
				deltas = append(deltas, haiku.Delta{Members: []byte(d)})
			}
			require.Equal(t, c.want, message(t, deltas...))
		})
	}
	require.Equal(t, `"content":"text","x":1,"refusal":null`, message(t, haiku.Delta{Members: []byte(`"x":1`), Escaped: []byte("text")}))
}

// Whatever the deltas are, a whole answer is JSON without a name twice.
func TestAnyDeltasMakeAWholeAnswer(t *testing.T) {
	value := rapid.SampledFrom([]string{
		"null", `""`, `"s"`, "7", "{}", "[]", "[{}]", `[{"index":1,"id":"i"}]`, `{"name":"n","arguments":"a"}`,
		`[{"index":0,"function":{"arguments":"b"}}]`, `[{"index":-3,"function":null}]`, `[{"\u0069ndex":7}]`, `[{"index":1e99,"function":{"name":1}}]`,
	})
	name := rapid.SampledFrom([]string{"tool_calls", "reasoning_content", "refusal", "function_call", "x", `re\u0066usal`, `\u0074ool_calls`})
	rapid.Check(t, func(t *rapid.T) {
		req, err := chatOf(Params{}, false).InferenceRequest()
		require.NoError(t, err)
		out := req.Encoder.Begin(nil, haiku.Head{})
		for range rapid.IntRange(0, 8).Draw(t, "deltas") {
			d := haiku.Delta{Members: fmt.Appendf(nil, `"%s":%s`, name.Draw(t, "name"), value.Draw(t, "value"))}
			out = req.Encoder.Token(out, &d)
		}
		out = req.Encoder.End(out, haiku.Usage{}, nil)
		require.True(t, jsontext.Value(out).IsValid(), "%s", out)
	})
}

// What is valid JSON is taken apart as it is written, whatever stands in it.
func TestMembersAreWhatStandsBetweenTheCommas(t *testing.T) {
	space := rapid.SampledFrom([]string{"", " ", "\n\t\r "})
	value := rapid.SampledFrom([]string{
		"0", "-1.5e+3", "true", "null", `""`, `"\\"`, `"\""`, `"]},:{["`, `"\\\""`, "[]", "{}", "[ 1 , [2,\"]\"] ]", `{"a":{"b":"}\\"},"c":[{}]}`, `"é\u2028"`,
	})
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		var want, got []string
		for i := range rapid.IntRange(0, 5).Draw(t, "members") {
			name, v := fmt.Sprintf(`"n%d,:"`, i), value.Draw(t, "value")
			if i > 0 {
				text.WriteByte(',')
			}
			for _, s := range []string{name, ":", v} {
				text.WriteString(space.Draw(t, "space") + s + space.Draw(t, "space"))
			}
			want = append(want, name, v)
		}
		for name, v := range members([]byte(text.String())) {
			got = append(got, string(name), string(v))
		}
		require.Equal(t, want, got, text.String())
	})
}

// FuzzMembers takes anything apart: it ends, and what is JSON yields JSON.
func FuzzMembers(f *testing.F) {
	for _, s := range []string{`"a":1`, `"a":[`, `"`, `"\\`, `]`, ":,", `"a":{"b":"\""},"c":tru`, "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, inside string) {
		valid := jsontext.Value("{" + inside + "}").IsValid()
		for name, v := range members([]byte(inside)) {
			require.NotEmpty(t, v)
			if valid {
				require.True(t, jsontext.Value(name).IsValid() && jsontext.Value(v).IsValid(), "%q: %q %q", inside, name, v)
			}
		}
		new(merged).add([]byte(inside))
	})
}
