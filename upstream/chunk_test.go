package upstream

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// said is a chunk as values.
type said struct {
	model, failure string
	choices        []saidDelta
	usage          usage
	odd            bool
}

type saidDelta struct {
	choice                       int
	text, more, finish, logprobs string
	calls, whole                 bool
}

func (p *parser) said() said {
	s := said{model: string(p.ch.model), failure: string(p.ch.failure), usage: p.ch.usage, odd: p.ch.odd}
	for _, d := range p.ch.choices {
		s.choices = append(s.choices, saidDelta{d.choice, string(d.text), string(d.more), string(d.finish), string(d.logprobs), d.calls, d.whole})
	}
	return s
}

func TestAChunkSaysWhatItsJSONSays(t *testing.T) {
	one := func(d saidDelta) []saidDelta { return []saidDelta{d} }
	for name, tt := range map[string]struct {
		json string
		want said
	}{
		"text":            {`{"model":"m","choices":[{"index":0,"delta":{"content":" a"},"logprobs":null,"finish_reason":null}]}`, said{model: "m", choices: one(saidDelta{text: " a"})}},
		"white space":     {" {\n\"choices\" : [ { \"index\" : 1 , \"delta\" : { \"content\" : \"a\" } } ] } ", said{choices: one(saidDelta{choice: 1, text: "a"})}},
		"escapes":         {`{"choices":[{"delta":{"content":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00\ud83dx\u2028"}}]}`, said{choices: one(saidDelta{text: "\"\\/\b\f\n\r\té😀\uFFFDx\u2028"})}},
		"two choices":     {`{"choices":[{"index":0,"delta":{"content":"a\n"}},{"index":1,"text":"b\n"}]}`, said{choices: []saidDelta{{text: "a\n"}, {choice: 1, text: "b\n"}}}},
		"role and null":   {`{"choices":[{"delta":{"role":"assistant","content":null,"refusal":null,"tool_calls":[]},"finish_reason":""}]}`, said{choices: one(saidDelta{})}},
		"tool calls":      {`{"choices":[{"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{\"a\":\"}\"}"}}],"x": 1}}]}`, said{choices: one(saidDelta{more: `"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{\"a\":\"}\"}"}}],"x": 1`, calls: true})}},
		"reasoning":       {`{"choices":[{"delta":{"reasoning_content":"hm","content":"a"}}]}`, said{choices: one(saidDelta{text: "a", more: `"reasoning_content":"hm"`})}},
		"duplicates":      {`{"choices":[{"delta":{"x":{"a":1,"a":2}}}]}`, said{choices: one(saidDelta{more: `"x":{"a":1,"a":2}`})}},
		"line ends":       {"{\"choices\":[{\"delta\":{\"x\":[1,\n2]}}]}", said{choices: one(saidDelta{more: "\"x\":[1,\n2]"})}},
		"an escaped name": {`{"ch\u006fices":[{"d\u0065lta":{"content":"a"}}]}`, said{choices: one(saidDelta{text: "a"})}},
		"parts":           {`{"choices":[{"delta":{"content":[{"type":"text","text":"a"},{"type":"x","text":null},{"type":"text","text":"\u0062"}]}}]}`, said{choices: one(saidDelta{text: "ab"})}},
		"a whole answer":  {`{"choices":[{"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}`, said{choices: one(saidDelta{text: "a", finish: "stop", whole: true})}},
		"its calls": {`{"choices":[{"message":{"content":null,"x":1,"tool_calls":[{"id":"a\""}, {"id":"b"},{"index":5,"id":"c"},{}]}}]}`,
			said{choices: one(saidDelta{more: `"x":1,"tool_calls":[{"index":0,"id":"a\""},{"index":1,"id":"b"},{"index":5,"id":"c"},{"index":3}]`, calls: true, whole: true})}},
		"calls that are none":      {`{"choices":[{"message":{"tool_calls":[{"id":"a"},7]}}]}`, said{choices: one(saidDelta{more: `"tool_calls":[{"id":"a"},7]`, calls: true, whole: true})}},
		"a null beside a delta":    {`{"choices":[{"delta":{"content":"a"},"message":null,"text":null}]}`, said{choices: one(saidDelta{text: "a"})}},
		"nothing beside a delta":   {`{"choices":[{"delta":{"content":"a"},"message":{"role":"assistant","content":""},"text":""}]}`, said{choices: one(saidDelta{text: "a"})}},
		"usage, in OpenAI's words": {`{"usage":{"input_tokens":3,"output_tokens":4,"total_tokens":7,"input_tokens_details":{"cached_tokens":2}}}`, said{usage: usage{true, 3, 4, 2, 7}}},
		"log-probs":                {`{"choices":[{"delta":{"content":"a"},"logprobs":{"content":[]}}]}`, said{choices: one(saidDelta{text: "a", logprobs: `{"content":[]}`})}},
		"usage":                    {`{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":2,"audio_tokens":0}}}`, said{usage: usage{true, 3, 4, 2, 7}}},
		"usage, in floats":         {`{"usage":{"prompt_tokens":3.0,"completion_tokens":4,"prompt_tokens_details":null}}`, said{usage: usage{true, 3, 4, 0, 0}}},
		"usage by total":           {`{"usage":{"prompt_tokens":3,"total_tokens":7}}`, said{usage: usage{true, 3, 4, 0, 7}}},
		"usage in a choice": {`{"choices":[{"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":3,"completion_tokens":4,"cached_tokens":1}}]}`,
			said{choices: one(saidDelta{finish: "stop"}), usage: usage{true, 3, 4, 1, 0}}},
		"timings":       {`{"choices":[],"timings":{"cache_n":2,"prompt_n":3,"prompt_ms":1.5,"predicted_n":4}}`, said{usage: usage{true, 5, 4, 2, 0}}},
		"below zero":    {`{"choices":[],"usage":{"prompt_tokens":-1,"completion_tokens":2}}`, said{usage: usage{true, 0, 2, 0, 0}}},
		"an error":      {`{"error":{"message":"m","code":400}}`, said{failure: `{"message":"m","code":400}`}},
		"no error":      {`{"choices":null,"error":null}`, said{}},
		"another thing": {`{"type":"ping"}`, said{odd: true}},
	} {
		t.Run(name, func(t *testing.T) {
			var p parser
			for range 2 {
				rest, ok := p.parse([]byte(tt.json))
				require.True(t, ok)
				require.Empty(t, strings.TrimSpace(string(rest)))
				require.Equal(t, tt.want, p.said())
			}
		})
	}
}

func TestWhatIsNoChunkIsRefused(t *testing.T) {
	for _, text := range []string{
		"", "null", "[]", `"a"`, "{", `{"choices":`, `{"choices":{}}`, `{"choices":[1]}`, `{"choices":[{"delta":{"content":5}}]}`,
		`{"choices":[{"index":"0"}]}`, `{"choices":[{"index":-1}]}`, `{"choices":[{"delta":{"content":"a}}]}`, `{"choices":[{"delta":{"content":"\x"}}]}`,
		`{"choices":[{"delta":{"content":"\u12"}}]}`, `{"choices":[] "usage":null}`,
		`{"usage":{"prompt_tokens":99999999999999999999}}`,
	} {
		var p parser
		_, ok := p.parse([]byte(text))
		require.False(t, ok, text)
	}
}

func TestAChunkThatIsCutAnywhereIsRefused(t *testing.T) {
	whole := `{"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":[{"text":"a\n"}],"x":{"y":[1,"z"]}},"logprobs":{"content":[]},"finish_reason":"stop","usage":{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":1}}}],"timings":{"prompt_n":-1},"error":null}`
	for n := range len(whole) {
		var p parser
		_, ok := p.parse([]byte(whole[:n]))
		require.False(t, ok, whole[:n])
	}
	var p parser
	_, ok := p.parse([]byte(whole))
	require.True(t, ok)
}

func TestBytesOfHalfACharacterStay(t *testing.T) {
	var p parser
	_, ok := p.parse([]byte("{\"choices\":[{\"delta\":{\"content\":\"\xF0\x9F\"}}]}"))
	require.True(t, ok)
	require.Equal(t, "\xF0\x9F", p.said().choices[0].text)
	_, ok = p.parse([]byte("{\"choices\":[{\"delta\":{\"x\":\"\xF0\x9F\"}}]}"))
	require.True(t, ok)
	require.Equal(t, "\"x\":\"\uFFFD\uFFFD\"", p.said().choices[0].more, "what goes into a client's frame is UTF-8")
}

func TestTwoChunksInOneEventAreTwo(t *testing.T) {
	var p parser
	rest, ok := p.parse([]byte(`{"choices":[{"text":"a"}]}{"choices":[{"text":"b"}]}`))
	require.True(t, ok)
	require.Equal(t, "a", p.said().choices[0].text)
	rest, ok = p.parse(rest)
	require.True(t, ok)
	require.Empty(t, rest)
	require.Equal(t, "b", p.said().choices[0].text)
}

func TestDeltasThatAStreamWouldNotTakeAreTheEnginesFault(t *testing.T) {
	for name, delta := range map[string]string{
		"no JSON": `"x":tru`, "one name twice": `"x":1,"x":2`, "inside of one": `"x":{"a":1,"a":2}`, "a tail": `"x":"\\q"`,
		"too deep": `"x":` + strings.Repeat("[", 200) + strings.Repeat("]", 200), "too long": `"x":"` + strings.Repeat("\\n", maxMoreBytes/2) + `"`,
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := serve(t, events(choiceChunk(`{"delta":{`+strings.ReplaceAll(delta, `\\`, `\`)+`}}`), stopChunk, doneMark), once)
			a := ask(t.Context(), e, hello())
			require.ErrorIs(t, a.err, ErrMalformed)
			require.Equal(t, 502, haiku.ErrorFrom(a.err).Status)
		})
	}
	for _, delta := range []string{`"x":"\ud83d"`, `"x":[1,{"y":null}],"z":-1.5e3`, `"x":" ü "`, `"x":"a\nb"`} {
		e, _ := serve(t, events(choiceChunk(`{"delta":{`+delta+`}}`), stopChunk, doneMark), once)
		a := ask(t.Context(), e, hello())
		require.NoError(t, a.err)
		require.Len(t, a.deltas, 1)
	}
}

// unusual writes a JSON value in ways that mean the same.
func unusual(t *rapid.T, text string) string {
	var b strings.Builder
	for i, inString := 0, false; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\':
			b.WriteString(text[i : i+2])
			i++
			continue
		case c == '"':
			inString = !inString
		case inString && c >= 'a' && c <= 'z' && rapid.IntRange(0, 20).Draw(t, "escape") == 0:
			b.WriteString(`\u00`)
			b.WriteByte("0123456789abcdef"[c>>4])
			b.WriteByte("0123456789ABCDEF"[c&15])
			continue
		}
		if !inString && strings.IndexByte("{}[],:", c) >= 0 {
			b.WriteString(rapid.SampledFrom([]string{"", "", "", " ", "\n", "\t"}).Draw(t, "space"))
		}
		b.WriteByte(c)
	}
	return b.String()
}

func TestTheFastWayAndTheDecoderAgree(t *testing.T) {
	base := rapid.SampledFrom([]string{
		`{"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"abc\n"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":5}}`,
		`{"choices":[{"index":2,"text":"hello","logprobs":{"tokens":["hello"]},"finish_reason":null,"usage":{"total_tokens":5}}]}`,
		`{"error":{"message":"some thing","code":500},"model":"abc"}`,
	})
	rapid.Check(t, func(t *rapid.T) {
		text := unusual(t, base.Draw(t, "base"))
		var fast, slow parser
		_, ok := fast.parse([]byte(text))
		require.True(t, ok, text)
		plain, err := jsontext.AppendFormat(nil, []byte(text))
		require.NoError(t, err)
		_, ok = slow.parse(plain)
		require.True(t, ok, text)
		a, b := fast.said(), slow.said()
		a.failure, b.failure = compact(a.failure), compact(b.failure)
		for i := range a.choices {
			a.choices[i].logprobs, b.choices[i].logprobs = compact(a.choices[i].logprobs), compact(b.choices[i].logprobs)
		}
		require.Equal(t, b, a, text)
	})
}

func compact(text string) string {
	b, err := jsontext.AppendFormat(nil, []byte(text))
	if err != nil {
		return text
	}
	return string(b)
}

func TestAChunkLikeTheLastIsReadAsIfItWereTheFirst(t *testing.T) {
	text := rapid.SampledFrom([]string{"a", " b", `\"`, `\n`, `\`, `"`, `\u00e9`, `\u12`, "", `x","delta":{"content":"y`, "\xF0", `"},"finish_reason":"stop","x":{"y":"`})
	form := rapid.SampledFrom([]string{
		`{"model":"m","choices":[{"index":0,"delta":{"content":"%"},"finish_reason":null}]}`,
		`{"choices":[{"text":"%","index":1}],"id":"x"}`,
		`{"choices":[{"delta":{"content":"%"},"finish_reason":"length"}]}`,
		`{"choices":[{"delta":{"content":"%","x":"%"}}]}`,
		`{"choices":[{"delta":{"content":"%"}}],"usage":{"prompt_tokens":1}}`,
		` {"choices":[{"delta":{"content":"%"}}]} `,
	})
	rapid.Check(t, func(t *rapid.T) {
		var one parser
		for range rapid.IntRange(1, 8).Draw(t, "chunks") {
			data := []byte(strings.ReplaceAll(form.Draw(t, "form"), "%", text.Draw(t, "text")))
			var fresh parser
			wantRest, want := fresh.parse(data)
			rest, ok := one.parse(data)
			require.Equal(t, want, ok, "%s", data)
			if ok {
				require.Equal(t, fresh.said(), one.said(), "%s", data)
				require.Equal(t, strings.TrimSpace(string(wantRest)), strings.TrimSpace(string(rest)))
			}
		}
	})
}

// FuzzChunk looks for input on which the parser panics, or whose extra members
// are not UTF-8.
func FuzzChunk(f *testing.F) {
	f.Add([]byte(`{"model":"m","choices":[{"index":0,"delta":{"content":"a","tool_calls":[{"a":"b"}]},"finish_reason":null}],"usage":null}`))
	f.Add([]byte(`{"choices":[{"delta":{"x":{"a":1,"a":2},"content":[{"text":"a"}]}}]}{"error":"x"}`))
	f.Add([]byte("{\"choices\":[{\"delta\":{\"x\":[1,\n2]}}]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var p parser
		for range 4 {
			rest, ok := p.parse(data)
			if !ok {
				return
			}
			for _, d := range p.ch.choices {
				require.True(t, utf8.Valid(d.more))
			}
			data = rest
		}
	})
}

const textChunk = `{"id":"chatcmpl-0123456789abcdef01234567","object":"chat.completion.chunk","created":1764592000,` +
	`"model":"bench","choices":[{"index":0,"delta":{"content":" autumn"},"logprobs":null,"finish_reason":null}]}`

func TestAChunkOfTextAllocatesNothing(t *testing.T) {
	var p parser
	data, escaped := []byte(textChunk), []byte(strings.Replace(textChunk, " autumn", `\n\u00e9`, 1))
	p.parse(escaped)
	require.Zero(t, testing.AllocsPerRun(100, func() { p.parse(data); p.parse(escaped) }))
}

func BenchmarkParse(b *testing.B) {
	var p parser
	data := []byte(textChunk)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := p.parse(data); !ok {
			b.Fatal("not parsed")
		}
	}
}
