package openai

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	strict "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku"
)

// encoded drives an encoder without HTTP and returns what it wrote.
func encoded(t testing.TB, p haiku.Payload, h haiku.Head, deltas ...haiku.Delta) string {
	t.Helper()
	req, err := p.InferenceRequest()
	require.NoError(t, err)
	out := req.Encoder.Begin(nil, h)
	for i := range deltas {
		out = req.Encoder.Token(out, &deltas[i])
	}
	return string(req.Encoder.End(out, haiku.Usage{}, nil))
}

// requireEvents checks that a stream is whole frames of one line of JSON each,
// and returns their contents without the end mark.
func requireEvents(t testing.TB, stream string) (events []map[string]any) {
	t.Helper()
	require.True(t, strings.HasSuffix(stream, "\n\n"), "a torn frame: %q", stream)
	for _, frame := range strings.Split(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(frame, "data: ")
		require.True(t, ok, frame)
		require.NotContains(t, data, "\n")
		if data == "[DONE]" {
			continue
		}
		var v map[string]any
		require.NoError(t, json.Unmarshal([]byte(data), &v), frame)
		events = append(events, v)
	}
	return events
}

// firstChoice is choices[0] of a chunk.
func firstChoice(chunk map[string]any) map[string]any {
	return chunk["choices"].([]any)[0].(map[string]any)
}

func chatOf(p Params, logprobs bool) *ChatCompletionRequest {
	return &ChatCompletionRequest{Params: p, Logprobs: logprobs, Messages: []Message{UserMessage("x")}}
}

// What a Model says about itself and its tokens is not trusted to be JSON.
func TestWordsOfAModelNeverTearAFrame(t *testing.T) {
	for name, clean := range map[string]string{
		"a\"b\\c":                 "a\"b\\c",
		"m\xff\xfe":               "m\ufffd\ufffd",
		"line\u2028break\n\nnext": "line\u2028break\n\nnext",
		"\x00\x7f":                "\x00\x7f",
	} {
		deltas := []haiku.Delta{
			{Escaped: []byte("a"), Logprobs: []haiku.TokenLogprob{{Bytes: []byte(name), Top: []haiku.TokenLogprob{{Bytes: []byte(name)}}}}},
			{Finish: haiku.FinishReason(name)},
		}
		two := 2
		for _, stream := range []bool{true, false} {
			for kind, p := range map[string]haiku.Payload{
				"chat":       chatOf(Params{Stream: stream}, true),
				"completion": &CompletionRequest{Params: Params{Stream: stream}, Prompt: Prompt{Text: "x"}, Logprobs: &two},
			} {
				got := encoded(t, p, haiku.Head{ID: name, Model: name}, deltas...)
				require.NotContains(t, got, "\u2028", kind)
				if !stream {
					got = "data: " + got + "\n\n"
				}
				events := requireEvents(t, got)
				last := events[len(events)-1]
				require.Equal(t, []any{clean, clean, clean}, []any{last["id"], last["model"], firstChoice(last)["finish_reason"]}, kind)
			}
		}
	}
}

// JSON has no infinity. OpenAI writes -9999 for what is next to impossible.
func TestLogprobsAreAlwaysNumbers(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct{ from, want float32 }{
		{-inf, -9999}, {float32(math.NaN()), -9999}, {-1e30, -9999}, {-12345, -9999}, {-9998.5, -9998.5},
		{inf, 0}, {1e-7, 0}, {-0.5, -0.5}, {0, 0}, {-1e-30, -1e-30},
	} {
		logged := haiku.TokenLogprob{Bytes: []byte("a"), Logprob: c.from, Top: []haiku.TokenLogprob{{Bytes: []byte("b"), Logprob: c.from}}}
		delta := haiku.Delta{Escaped: []byte("a"), Logprobs: []haiku.TokenLogprob{logged}}
		events := requireEvents(t, encoded(t, chatOf(Params{Stream: true}, true), haiku.Head{}, delta))
		content := firstChoice(events[1])["logprobs"].(map[string]any)["content"].([]any)[0].(map[string]any)
		require.Equal(t, c.want, float32(content["logprob"].(float64)), c.from)
		require.Equal(t, c.want, float32(content["top_logprobs"].([]any)[0].(map[string]any)["logprob"].(float64)), c.from)
	}
}

// A character that several tokens make up together counts once in the offsets,
// which index the answer's text.
func TestTextOffsetsCountCharacters(t *testing.T) {
	logged := func(pieces ...string) (lps []haiku.TokenLogprob) {
		for _, p := range pieces {
			lps = append(lps, haiku.TokenLogprob{Bytes: []byte(p)})
		}
		return lps
	}
	zero := 0
	r := &CompletionRequest{Prompt: Prompt{Text: "x"}, Logprobs: &zero}
	got := encoded(t, r, haiku.Head{},
		haiku.Delta{Escaped: []byte("é"), Logprobs: logged("é")},
		haiku.Delta{Escaped: []byte("😀"), Logprobs: logged("\xf0", "\x9f\x98", "\x80")},
		haiku.Delta{Escaped: []byte("a"), Logprobs: logged("a", "")})
	require.Contains(t, got, `"tokens":["é","bytes:\\xf0","bytes:\\x9f\\x98","bytes:\\x80","a",""]`)
	require.Contains(t, got, `"text_offset":[0,1,2,2,2,3]`)
}

func TestAFinishWithTextIsTwoChunks(t *testing.T) {
	events := requireEvents(t, encoded(t, chatOf(Params{Stream: true}, false), haiku.Head{ID: "i", Model: "m"},
		haiku.Delta{Escaped: []byte("end"), Finish: haiku.FinishLength}))
	var finishes []any
	for _, e := range events {
		finishes = append(finishes, firstChoice(e)["finish_reason"])
	}
	require.Equal(t, []any{nil, nil, "length"}, finishes, "role, text, finish")
}

func TestEachAnswerHasItsOwnID(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		req, err := chatOf(Params{}, false).InferenceRequest()
		require.NoError(t, err)
		require.Regexp(t, `^chatcmpl-[0-9a-f]{24}$`, req.ID)
		require.False(t, seen[req.ID])
		seen[req.ID] = true
	}
}

// Whatever a name consists of, it is what the strict encoder would write.
func TestNamesAreWrittenAsTheStrictEncoderDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"a\u2028b", "\u2029", "\xff", "<&>", "\"\\\n"}),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "name")
		want, err := strict.Marshal(s, jsontext.AllowInvalidUTF8(true), jsontext.EscapeForJS(true))
		require.NoError(t, err)
		require.Equal(t, "x"+string(want), string(appendJSON([]byte("x"), s)))
	})
}
