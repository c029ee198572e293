package haiku_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku"
)

// wire answers from m over HTTP with the default encoder and returns the text
// of the events, put together.
func wire(t require.TestingT, m haiku.Model, stop ...string) string {
	mux := quietMux()
	mux.Register("/", haiku.HandlerFunc(func(c *haiku.Context) {
		_ = c.Stream(haiku.NewStream(c.Context(), m, &haiku.Request{Stop: stop}))
	}))
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
	var b strings.Builder
	events := strings.Split(strings.TrimSuffix(rec.Body.String(), "\n\n"), "\n\n")
	require.Equal(t, "data: [DONE]", events[len(events)-1])
	for _, event := range events[:len(events)-1] {
		var delta string
		require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(event, "data: ")), &delta), event)
		b.WriteString(delta)
	}
	return b.String()
}

// cut cuts text before each of the given positions.
func cut(text string, at ...int) []string {
	var parts []string
	last := 0
	for _, i := range at {
		parts, last = append(parts, text[last:i]), i
	}
	return append(parts, text[last:])
}

func TestCharactersSplitOverTokensArriveWhole(t *testing.T) {
	const text = "😀 你e\u0301"
	splits := [][]string{{"\xf0\x9f", "\x98", "\x80 ", "\xe4", "\xbd\xa0", "e\xcc", "\x81"}}
	for i := range len(text) + 1 {
		splits = append(splits, cut(text, i))
		for j := i; j <= len(text); j++ {
			splits = append(splits, cut(text, i, j))
		}
	}
	splits = append(splits, strings.Split(text, ""))
	var bytewise []string
	for _, b := range []byte(text) {
		bytewise = append(bytewise, string([]byte{b}))
	}
	splits = append(splits, bytewise)
	for _, split := range splits {
		for form, m := range map[string]haiku.Model{"text": pieces(split...), "vocabulary": vocabularyPieces(split...)} {
			a := read(haiku.NewStream(t.Context(), m, &haiku.Request{}))
			require.NoError(t, a.err)
			require.Equal(t, text, a.text(0), "%s %q", form, split)
			require.Equal(t, haiku.FinishStop, a.finish(0))
			for _, tok := range a.tokens {
				require.True(t, utf8.ValidString(tok.Text), "%s %q gave %q", form, split, tok.Text)
			}
			require.Equal(t, text, wire(t, m), "%s %q", form, split)
		}
	}
}

func TestAHeldPieceDelaysNothingButItself(t *testing.T) {
	a := read(haiku.NewStream(t.Context(), pieces("\xf0\x9f", "\x98", "\x80 ", "\xe4", "\xbd\xa0", "e\xcc", "\x81"), &haiku.Request{}))
	var deltas []string
	for _, tok := range a.tokens {
		deltas = append(deltas, tok.Text)
	}
	require.Equal(t, []string{"", "", "😀 ", "", "你", "e", "\u0301", ""}, deltas)
}

func TestBytesThatAreNoTextBecomeReplacementCharacters(t *testing.T) {
	for _, tt := range []struct {
		name   string
		pieces []string
		want   string
	}{
		{"continuation alone", []string{"a", "\x98", "b"}, "a\uFFFDb"},
		{"cut short by ASCII", []string{"\xf0\x9f", "a"}, "\uFFFD\uFFFDa"},
		{"cut short by the end", []string{"a\xf0\x9f", "\x98"}, "a\uFFFD\uFFFD\uFFFD"},
		{"never valid", []string{"\xff", "\xfe\xc0\xaf"}, "\uFFFD\uFFFD\uFFFD\uFFFD"},
		{"surrogate half", []string{"\xed\xa0", "\x80"}, "\uFFFD\uFFFD\uFFFD"},
		{"one character cut short by another", []string{"\xe4\xbd", "\xe4\xbd\xa0"}, "\uFFFD\uFFFD你"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, m := range []haiku.Model{pieces(tt.pieces...), vocabularyPieces(tt.pieces...)} {
				got, err := haiku.NewStream(t.Context(), m, &haiku.Request{}).Text()
				require.NoError(t, err)
				require.Equal(t, tt.want, got)
				require.Equal(t, tt.want, wire(t, m))
			}
		})
	}
}

func TestStopStrings(t *testing.T) {
	for _, tt := range []struct {
		name   string
		pieces []string
		stop   []string
		want   string
		pushed int // pieces the model could push before it was told to stop
	}{
		{"over several tokens", []string{"A", "BC", "D", "EF", "GH", "I"}, []string{"DEFG"}, "ABC", 5},
		{"near miss", []string{"xEND", "ING", "!"}, []string{"ENDED"}, "xENDING!", 3},
		{"the earliest of a pair", []string{"a", "\n", "\nUser:", "b"}, []string{"\n\n", "\n\nUser:"}, "a", 3},
		{"the shorter as soon as it is there", []string{"a", "\n\n", "User:", "b"}, []string{"\n\nUser:", "\n\n"}, "a", 2},
		{"begins inside a character's token", []string{"x\xe4", "\xbd", "\xa0ST", "OP", "y"}, []string{"你STOP"}, "x", 4},
		{"begins after a character's last byte", []string{"\xe4\xbd", "\xa0ST", "OP", "y"}, []string{"STOP"}, "你", 3},
		{"inside one token", []string{"abSTOPcd", "e"}, []string{"STOP"}, "ab", 1},
		{"at the very start", []string{"STOP", "e"}, []string{"STOP"}, "", 1},
		{"held at the end", []string{"a", "ST"}, []string{"STOP"}, "aST", 2},
		{"a match that begins in a failed one", []string{"aab", "aab", "aac", "d"}, []string{"aabaac"}, "aab", 3},
		{"one character, repeated", []string{"\n", "x"}, []string{"\n"}, "", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pushed := 0
			counted := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, r *haiku.Request) error {
				for _, text := range tt.pieces {
					pushed++
					if got, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: text}); err != nil || got == haiku.Stopped {
						return err
					}
				}
				w.Finish(0, haiku.FinishStop)
				return nil
			})
			a := read(haiku.NewStream(t.Context(), counted, &haiku.Request{Stop: tt.stop}))
			require.NoError(t, a.err)
			require.Equal(t, tt.want, a.text(0))
			require.Equal(t, haiku.FinishStop, a.finish(0))
			require.Equal(t, tt.pushed, pushed)
			require.Equal(t, tt.want, wire(t, counted, tt.stop...))
			require.Equal(t, tt.want, wire(t, vocabularyPieces(tt.pieces...), tt.stop...))
		})
	}
}

func TestNothingComesAfterAStop(t *testing.T) {
	deaf := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		var results []haiku.PushResult
		for _, text := range []string{"ab", "X", "cd"} {
			r, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: text})
			require.NoError(t, err)
			results = append(results, r)
		}
		w.Finish(0, haiku.FinishLength)
		require.Equal(t, []haiku.PushResult{haiku.Pushed, haiku.Stopped, haiku.Stopped}, results)
		return nil
	})
	require.Equal(t, answer{tokens: []haiku.Token{
		{ID: haiku.NoToken, Text: "ab"},
		{ID: haiku.NoToken, Finish: haiku.FinishStop},
	}}, read(haiku.NewStream(t.Context(), deaf, &haiku.Request{Stop: []string{"X"}})))
}

// cutAtStop is what a reader must see of pieces: the text up to the stop
// string that begins first among those complete when the first one is.
func cutAtStop(pieces, stops []string) string {
	text := ""
	for _, p := range pieces {
		text += p
		at := -1
		for _, s := range stops {
			if i := strings.Index(text, s); i >= 0 && (at < 0 || i < at) {
				at = i
			}
		}
		if at >= 0 {
			return text[:at]
		}
	}
	return text
}

func TestAnyCutOfATextGivesTheSameAnswer(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		stops := rapid.SliceOfN(rapid.StringMatching(`[ab你]{1,4}`), 0, 3).Draw(rt, "stops")
		text := rapid.StringMatching(`[abc你😀\n"]{0,24}`).Draw(rt, "text")
		at := rapid.SliceOfN(rapid.IntRange(0, len(text)), 0, 12).Draw(rt, "cuts")
		for i := range at { // in order
			for j := i; j > 0 && at[j-1] > at[j]; j-- {
				at[j-1], at[j] = at[j], at[j-1]
			}
		}
		split := cut(text, at...)
		want := cutAtStop(split, stops)
		for _, m := range []haiku.Model{pieces(split...), vocabularyPieces(split...)} {
			a := read(haiku.NewStream(t.Context(), m, &haiku.Request{Stop: stops}))
			require.NoError(rt, a.err)
			require.Equal(rt, want, a.text(0), "%q", split)
			for _, tok := range a.tokens {
				require.True(rt, utf8.ValidString(tok.Text))
			}
			require.Equal(rt, want, wire(rt, m, stops...))
		}
	})
}

func TestBadStopStringsAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		stop []string
		want *haiku.Error
	}{
		"empty":    {[]string{"a", ""}, haiku.ErrInvalidRequest.With("stop[1]", "a stop string must be UTF-8 of 1 to 4096 bytes")},
		"not text": {[]string{"\xff"}, haiku.ErrInvalidRequest.With("stop[0]", "a stop string must be UTF-8 of 1 to 4096 bytes")},
		"too long": {[]string{strings.Repeat("a", 4097)}, haiku.ErrInvalidRequest.With("stop[0]", "a stop string must be UTF-8 of 1 to 4096 bytes")},
		"too many": {make([]string, 10000), haiku.ErrInvalidRequest.With("stop", "at most 128 stop strings can be given")},
	} {
		t.Run(name, func(t *testing.T) {
			a := read(haiku.NewStream(t.Context(), pieces("a"), &haiku.Request{Stop: tt.stop}))
			require.Equal(t, answer{err: tt.want}, a)
		})
	}
}
