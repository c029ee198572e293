package kserve

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku/upstream"
)

// say feeds a choice with what a server sends and returns what is handed on,
// the end included.
func say(how Answer, prompt string, sent []string) (string, error) {
	c := choice{}
	if how.Echo && !how.Cumulative {
		c.echo = prompt
	}
	var out strings.Builder
	for _, text := range sent {
		fresh, err := c.fresh([]byte(text), &how, prompt)
		if err != nil {
			return out.String(), err
		}
		out.Write(fresh)
	}
	out.Write(c.held)
	return out.String(), nil
}

// tokens draws a text and how it is cut into tokens, which do not respect
// characters.
func tokens(t *rapid.T) (text string, pieces []string) {
	alphabet := rapid.SampledFrom([]string{"a", "b", " ", "é", "你", "😀", "\uFFFD", "\n"})
	text = strings.Join(rapid.SliceOf(alphabet).Draw(t, "text"), "")
	for rest := text; rest != ""; {
		n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
		pieces, rest = append(pieces, rest[:n]), rest[n:]
	}
	return text, pieces
}

// decoded is what a tokenizer makes of bytes of which the last character may
// not be whole.
func decoded(b string) string { return strings.ToValidUTF8(b, replacement) }

// However a server gives a text, in parts or from its beginning each time, with
// the prompt before it or without, the same is handed on.
func TestAllWaysToSendATextGiveTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, pieces := tokens(t)
		prompt := rapid.SampledFrom([]string{"p", "What? ", "你好"}).Draw(t, "prompt")
		var whole, echoed []string
		sofar := ""
		for _, piece := range pieces {
			sofar += piece
			whole = append(whole, decoded(sofar))
			echoed = append(echoed, prompt+decoded(sofar))
		}
		cut := rapid.IntRange(0, len(prompt)).Draw(t, "cut of the prompt")
		for _, way := range []struct {
			name string
			how  Answer
			sent []string
		}{
			{"parts", Answer{}, pieces},
			{"parts after the prompt", Answer{Echo: true}, append([]string{prompt}, pieces...)},
			{"parts after a prompt in parts", Answer{Echo: true}, append([]string{prompt[:cut], "", prompt[cut:]}, pieces...)},
			{"the first part with the prompt", Answer{Echo: true}, append([]string{prompt + text}, "")},
			{"all each time", Answer{Cumulative: true}, append([]string{""}, whole...)},
			{"all each time, and nothing at the end", Answer{Cumulative: true}, append(whole, "")},
			{"all each time after the prompt", Answer{Cumulative: true, Echo: true}, append([]string{prompt[:cut], prompt}, echoed...)},
		} {
			got, err := say(way.how, prompt, way.sent)
			require.NoError(t, err, way.name)
			require.Equal(t, text, got, way.name)
		}
	})
}

// A character that is not whole yet reaches nobody as a replacement character.
func TestWhatIsHandedOnIsNeverTakenBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, pieces := tokens(t)
		c, sofar, out := choice{}, "", ""
		for _, piece := range pieces {
			sofar += piece
			fresh, err := c.fresh([]byte(decoded(sofar)), &Answer{Cumulative: true}, "")
			require.NoError(t, err)
			out += string(fresh)
			require.True(t, strings.HasPrefix(text, out), "%q of %q", out, text)
		}
	})
}

func TestATextThatContradictsItselfIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		how  Answer
		sent []string
	}{
		"it changes":              {Answer{Cumulative: true}, []string{"a .", "a."}},
		"it shrinks":              {Answer{Cumulative: true}, []string{"ab", "a"}},
		"another prompt":          {Answer{Echo: true}, []string{"<s> prompt and text"}},
		"another prompt, later":   {Answer{Echo: true}, []string{"pro", "test"}},
		"another prompt, whole":   {Answer{Cumulative: true, Echo: true}, []string{"<s> prompt and text"}},
		"no prompt the next time": {Answer{Cumulative: true, Echo: true}, []string{"prompt a", "a b"}},
	} {
		got, err := say(c.how, "prompt", c.sent)
		require.ErrorIs(t, err, upstream.ErrMalformed, name)
		require.NotContains(t, got, "pro", name)
	}
}
