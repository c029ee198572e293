package haiku_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku"
)

// pushing is a Model that pushes pieces and ends its choices.
func pushing(all ...haiku.Piece) haiku.Model {
	return haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
		for _, p := range all {
			if _, err := w.Push(ctx, p); err != nil {
				return err
			}
		}
		for i := range max(req.Choices, 1) {
			w.Finish(i, haiku.FinishStop)
		}
		return nil
	})
}

func delta(members string) haiku.Piece { return haiku.Piece{ID: haiku.NoToken, Delta: []byte(members)} }

func text(s string) haiku.Piece { return haiku.Piece{ID: haiku.NoToken, Text: s} }

func TestDeltasComeInOrderWithTheText(t *testing.T) {
	both := haiku.Piece{ID: haiku.NoToken, Text: "b", Delta: []byte(`"x":[1]`), Logprob: &haiku.TokenLogprob{Bytes: []byte("b")}}
	last := haiku.Piece{ID: 7, Delta: []byte(`"y":"z"`), Finish: haiku.FinishToolCalls}
	a := read(haiku.NewStream(t.Context(), pushing(delta(`"reasoning_content":"hm"`), text("a"), both, last), &haiku.Request{}))
	require.Equal(t, answer{tokens: []haiku.Token{
		{ID: -1, Delta: `"reasoning_content":"hm"`}, {ID: -1, Text: "a"},
		{ID: -1, Text: "b", Delta: `"x":[1]`, Logprobs: []haiku.TokenLogprob{{Bytes: []byte("b")}}},
		{ID: 7, Delta: `"y":"z"`, Finish: haiku.FinishToolCalls},
	}}, a)
}

// A delta does not wait for text that does, and text goes on waiting.
func TestDeltasPassByWhatWaits(t *testing.T) {
	s := haiku.NewStream(t.Context(), pushing(text("aST"), delta(`"stop":"STOP"`), text("\xf0\x9f"), delta(`"d":1`), text("\x98\x80")), &haiku.Request{Stop: []string{"STOP"}})
	var got []string
	for _, tok := range read(s).tokens {
		got = append(got, tok.Text+"|"+tok.Delta)
	}
	require.Equal(t, []string{"a|", `|"stop":"STOP"`, "ST|", `|"d":1`, "😀|", "|"}, got)
}

func TestAPieceThatCompletesAStopStringKeepsItsDelta(t *testing.T) {
	p := text("aSTOPb")
	p.Delta = []byte(`"d":1`)
	a := read(haiku.NewStream(t.Context(), pushing(p, delta(`"late":1`)), &haiku.Request{Stop: []string{"STOP"}}))
	require.Equal(t, []haiku.Token{{ID: -1, Text: "a", Delta: `"d":1`, Finish: haiku.FinishStop}}, a.tokens)
}

func TestALongDeltaArrivesWhole(t *testing.T) {
	for _, n := range []int{0, 200, 225, 226, 227, 228, 229, 500, 5000, 1<<20 - 6} {
		members := `"x":"` + strings.Repeat("d", n) + `"`
		p := haiku.Piece{ID: 3, Text: strings.Repeat("t", 2000), Delta: []byte(members), Finish: haiku.FinishLength}
		alone := haiku.Piece{ID: 4, Delta: []byte(members)}
		a := read(haiku.NewStream(t.Context(), pushing(alone, text("between"), p), &haiku.Request{}))
		require.NoError(t, a.err)
		var deltas []string
		for i, tok := range a.tokens {
			if tok.Delta != "" {
				deltas = append(deltas, tok.Delta)
			} else {
				require.NotEmpty(t, tok.Text, "token %d", i)
			}
		}
		require.Len(t, deltas, 2)
		require.True(t, deltas[0] == members && deltas[1] == members)
		require.Equal(t, int32(4), a.tokens[0].ID, "a delta by itself is its piece's token")
		require.Equal(t, "between"+strings.Repeat("t", 2000), a.text(0))
		last := a.tokens[len(a.tokens)-1]
		require.Equal(t, []any{int32(3), haiku.FinishLength}, []any{last.ID, last.Finish})
	}
}

func TestWhatIsNotADeltaEndsItsStream(t *testing.T) {
	deep := strings.Repeat("[", 128) + strings.Repeat("]", 128)
	for _, members := range []string{
		"x", `"a"`, `"a":`, `"a":1,`, `,"a":1`, `"a":1}`, `"a":1},{"b":2`, `}{`, `{}`, `"a":1 "b":2`, `"a":01`, `"a":NaN`, `a:1`, `'a':1`,
		`"a":1,"a":2`, "\"a\":\"\n\"", "\"a\":\"\xff\"", "\"a\xff\":1", `"a":` + deep, `"a":"` + strings.Repeat("x", 1<<20) + `"`,
		`"content":"x"`, `"role":"user"`, `"a":1,"cont\u0065nt":"x"`, "\x00", `"a":1/**/`,
	} {
		for name, push := range map[string]func(context.Context, *haiku.StreamWriter, haiku.Piece) (haiku.PushResult, error){
			"push": func(ctx context.Context, w *haiku.StreamWriter, p haiku.Piece) (haiku.PushResult, error) {
				return w.Push(ctx, p)
			},
			"try": func(ctx context.Context, w *haiku.StreamWriter, p haiku.Piece) (haiku.PushResult, error) {
				return w.TryPush(p), ctx.Err()
			},
		} {
			m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
				if _, err := w.Push(ctx, text("good")); err != nil {
					return err
				}
				result, err := push(ctx, w, delta(members))
				require.Equal(t, haiku.Gone, result)
				require.ErrorIs(t, err, context.Canceled)
				return err
			})
			a := read(haiku.NewStream(quiet(t.Context()), m, &haiku.Request{}))
			require.ErrorIs(t, a.err, haiku.ErrInternal, "%s %.100q", name, members)
			require.Equal(t, []haiku.Token{{ID: -1, Text: "good"}}, a.tokens, "%s %.100q", name, members)
		}
	}
}

func TestADeltaMayBeWrittenInAnyWay(t *testing.T) {
	for from, want := range map[string]string{
		``: ``, "  \n": ``, "\n \"a\" :\r\n [1,\n2]\t": "  \"a\" :   [1, 2]\t",
		"\"a\":\"\u2028x\u2029\"": `"a":"\u2028x\u2029"`, "\"\u2028\":1": `"\u2028":1`,
		`"a":"\ud83d"`: `"a":"\ud83d"`, `"a":"é\n\u0000"`: `"a":"é\n\u0000"`, `"contents":1,"Role":2`: `"contents":1,"Role":2`,
		`"a":` + strings.Repeat("[", 127) + strings.Repeat("]", 127): `"a":` + strings.Repeat("[", 127) + strings.Repeat("]", 127),
	} {
		a := read(haiku.NewStream(t.Context(), pushing(delta(from)), &haiku.Request{}))
		require.NoError(t, a.err, from)
		require.Equal(t, want, a.tokens[0].Delta, from)
	}
}

// The Model may use its memory again as soon as a push returns.
func TestADeltaIsCopied(t *testing.T) {
	m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		buf := []byte("\"a\":1\n")
		for i := range byte(9) {
			buf[4] = '1' + i
			before := string(buf)
			if _, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Delta: buf}); err != nil {
				return err
			}
			require.Equal(t, before, string(buf), "and does not find it changed")
		}
		w.Finish(0, haiku.FinishStop)
		return nil
	})
	var got []string
	for _, tok := range read(haiku.NewStream(t.Context(), m, &haiku.Request{})).tokens {
		got = append(got, tok.Delta)
	}
	require.Equal(t, `"a":1 "a":2 "a":3 "a":4 "a":5 "a":6 "a":7 "a":8 "a":9`, strings.Join(strings.Fields(strings.Join(got, " ")), " "))
}

// A delta is the first of an answer as a text is: it opens the stream.
func TestADeltaIsTheFirstToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
			<-time.After(time.Second)
			if _, err := w.Push(ctx, delta(`"reasoning_content":"…"`)); err != nil {
				return err
			}
			<-time.After(time.Second)
			return haiku.ErrOverloaded
		})
		rec := httptest.NewRecorder()
		mux := quietMux()
		mux.Register("/", streaming(m, haiku.Request{ID: "r", Model: "m"}))
		mux.ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
		require.Equal(t, 200, rec.Code)
		require.Equal(t, "data: begin r m\n\ndata: 0 \"\" {\"reasoning_content\":\"…\"}\n\n"+
			`data: {"error":{"message":"the server is overloaded, try again later","type":"overloaded_error","param":null,"code":"overloaded"}}`+"\n\n", rec.Body.String())

		rec = httptest.NewRecorder()
		mux = quietMux()
		mux.Register("/", haiku.HandlerFunc(func(c *haiku.Context) {
			_ = c.Stream(haiku.NewStream(c.Context(), pushing(delta(`"d":1`), text("t")), &haiku.Request{}))
		}))
		mux.ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
		require.Equal(t, "data: \"t\"\n\ndata: [DONE]\n\n", rec.Body.String(), "a stream of text alone has no place for it")
	})
}

func TestDeltasPauseWithASlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pushed := 0
		m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
			for {
				if _, err := w.Push(ctx, delta(`"x":"`+strings.Repeat("y", 3000)+`"`)); err != nil {
					return err
				}
				pushed++
			}
		})
		for tok, err := range haiku.NewStream(t.Context(), m, &haiku.Request{}).Tokens() {
			require.NoError(t, err)
			require.Len(t, tok.Delta, 3006)
			synctest.Wait()
			require.LessOrEqual(t, pushed, 3, "4 KiB of arena hold less than two")
			break
		}
	})
}

func TestADeltaTooLongForTryPush(t *testing.T) {
	for n, want := range map[int]haiku.PushResult{240: haiku.Pushed, 241: haiku.Gone} {
		m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
			lp := &haiku.TokenLogprob{Bytes: []byte(strings.Repeat("l", 300)), Top: []haiku.TokenLogprob{{Bytes: []byte("top")}}}
			p := haiku.Piece{ID: haiku.NoToken, Text: strings.Repeat("t", 512), Logprob: lp, Delta: []byte(`"x":"` + strings.Repeat("d", n-6) + `"`)}
			require.Equal(t, want, w.TryPush(p))
			w.Finish(0, haiku.FinishStop)
			return ctx.Err()
		})
		a := read(haiku.NewStream(quiet(t.Context()), m, &haiku.Request{}))
		require.Equal(t, want == haiku.Pushed, a.err == nil, "%v", a.err)
	}
}

// Whatever a model pushes in whatever pieces, its reader gets all of it, in the
// order of each kind, and every delta whole.
func TestAnyMixtureOfTextsAndDeltas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const choices = 3
		type said struct {
			text   string
			deltas []string
		}
		var want [choices]said
		all := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) haiku.Piece {
			p := haiku.Piece{ID: haiku.NoToken, Choice: rapid.IntRange(0, choices-1).Draw(t, "choice")}
			c := &want[p.Choice]
			if rapid.Bool().Draw(t, "has text") {
				p.Text = rapid.StringN(0, 40, 1200).Draw(t, "text")
				c.text += p.Text
			}
			if rapid.Bool().Draw(t, "has delta") {
				value := strings.Repeat("d", rapid.SampledFrom([]int{0, 3, 220, 240, 300, 520, 1100, 5000}).Draw(t, "size"))
				p.Delta = fmt.Appendf(nil, `"n%d":"%s"`, len(c.deltas), value)
				c.deltas = append(c.deltas, string(p.Delta))
			}
			if rapid.Bool().Draw(t, "has logprob") {
				p.Logprob = &haiku.TokenLogprob{Bytes: []byte(p.Text)}
			}
			return p
		}), 0, 30).Draw(t, "pieces")
		var got [choices]said
		for tok, err := range haiku.NewStream(context.Background(), pushing(all...), &haiku.Request{Choices: choices}).Tokens() {
			require.NoError(t, err)
			c := &got[tok.Choice]
			c.text += tok.Text
			if tok.Delta != "" {
				c.deltas = append(c.deltas, tok.Delta)
			}
		}
		require.Equal(t, want, got)
	})
}
