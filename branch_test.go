package haiku_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// branching is a Model that lets others try, one after the other, until one has
// been granted its claim.
func branching(models ...haiku.Model) haiku.Model {
	return haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) (err error) {
		for _, m := range models {
			claimed := false
			b := w.Branch(func() bool { claimed = true; return true })
			if err = b.Generate(ctx, m, req); claimed {
				w.SetUsage(b.Usage())
				return err
			}
		}
		return err
	})
}

// naming gives a Model a name, a header and empty pieces before what it says.
func naming(name string, m haiku.Model) haiku.Model {
	return haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
		w.SetModel(name)
		w.SetHeader("X-By", name)
		if r, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken}); r != haiku.Pushed || err != nil {
			return errors.New("an empty piece is not taken")
		}
		return m.Generate(ctx, w, req)
	})
}

func TestABranchThatSaysNothingLeavesNoTrace(t *testing.T) {
	empty := naming("first", failing(errors.New("broken"), "", ""))
	s := haiku.NewStream(t.Context(), branching(empty, naming("second", pieces("a", "b"))), &haiku.Request{})
	a := read(s)
	require.NoError(t, a.err)
	require.Equal(t, []haiku.Token{{ID: -1, Text: "a"}, {ID: -1, Text: "b"}, {ID: -1, Finish: haiku.FinishStop}}, a.tokens)
	require.Equal(t, "second", s.Model())
	r := httptest.NewRecorder()
	mux := quietMux()
	mux.Register("/", streaming(branching(empty, naming("second", pieces("a"))), haiku.Request{}))
	mux.ServeHTTP(r, httptest.NewRequest("GET", "/", nil))
	require.Equal(t, []string{"second"}, r.Header()["X-By"])
	require.Equal(t, haiku.Usage{PromptTokens: 3, CompletionTokens: 2}, s.Usage())
}

func TestABranchBringsItsVocabularyAndIsHeldToStopStrings(t *testing.T) {
	first := naming("first", failing(errors.New("broken")))
	m := branching(first, naming("second", vocabularyPieces("one ", "two ", "thr", "ee ", "four")))
	got, err := haiku.NewStream(t.Context(), m, &haiku.Request{Stop: []string{"three"}}).Text()
	require.NoError(t, err)
	require.Equal(t, "one two ", got)
}

func TestABranchInABranch(t *testing.T) {
	inner := branching(naming("a", failing(errors.New("broken"), "")), naming("b", vocabularyPieces("x", "y")))
	s := haiku.NewStream(t.Context(), branching(failing(errors.New("broken")), inner), &haiku.Request{})
	a := read(s)
	require.NoError(t, a.err)
	require.Equal(t, "xy", a.text(0))
	require.Equal(t, "b", s.Model())
}

func TestTextsOfAnyLengthThroughABranch(t *testing.T) {
	long := strings.Repeat("0123456789 你好 😀\n", 3000)
	a := read(haiku.NewStream(t.Context(), branching(pieces("", long, long)), &haiku.Request{}))
	require.NoError(t, a.err)
	require.True(t, a.text(0) == long+long)
}

func TestABranchThatIsDeniedIsGone(t *testing.T) {
	m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
		own, cancel := context.WithCancel(ctx)
		asked := 0
		denied := w.Branch(func() bool { asked++; cancel(); return false })
		err := denied.Generate(own, haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
			_, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: "unheard"})
			require.Equal(t, haiku.Gone, w.TryPush(haiku.Piece{ID: haiku.NoToken}))
			w.Finish(0, haiku.FinishStop)
			return err
		}), req)
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, denied.Complete())
		require.Equal(t, 1, asked)
		b := w.Branch(func() bool { return true })
		return b.Generate(ctx, pieces("heard"), req)
	})
	got, err := haiku.NewStream(t.Context(), m, &haiku.Request{}).Text()
	require.NoError(t, err)
	require.Equal(t, "heard", got)
}

func TestHowABranchEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		model    haiku.Model
		complete bool
		err      string
	}{
		"complete":       {pieces("a"), true, ""},
		"empty, by word": {pieces(), true, ""},
		"no end":         {failing(nil, "a"), false, "before every choice had a finish reason"},
		"nothing":        {failing(nil), false, "before every choice had a finish reason"},
		"an error":       {failing(errors.New("broken"), "a"), false, "broken"},
		"a panic": {haiku.ModelFunc(func(context.Context, *haiku.StreamWriter, *haiku.Request) error {
			panic("at the disco")
		}), false, "panic: at the disco"},
	} {
		t.Run(name, func(t *testing.T) {
			m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
				b := w.Branch(func() bool { return true })
				err := b.Generate(ctx, tt.model, req)
				require.Equal(t, tt.complete, b.Complete())
				return err
			})
			_, err := haiku.NewStream(quiet(t.Context()), m, &haiku.Request{}).Text()
			if tt.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.err)
			}
		})
	}
}

func TestABranchKnowsHowLongTheReaderLetItWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n int
		var delayed time.Duration
		m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
			b := w.Branch(func() bool { return true })
			err := b.Generate(ctx, pieces(strings.Split(strings.Repeat("x,", 200), ",")[:200]...), req)
			n, delayed = b.Pieces()
			progress, waiting := b.Progress()
			require.EqualValues(t, 201, progress)
			require.False(t, waiting)
			return err
		})
		first := true
		for _, err := range haiku.NewStream(t.Context(), m, &haiku.Request{}).Tokens() {
			require.NoError(t, err)
			if first {
				<-time.After(time.Minute)
				first = false
			}
		}
		require.Equal(t, 200, n)
		require.Equal(t, time.Minute, delayed)
	})
}

// flushTimes knows when the last flush was.
type flushTimes struct {
	*httptest.ResponseRecorder
	last time.Time
}

func (f *flushTimes) Flush() { f.last = time.Now() }

func TestAModelMayEndItsAnswerBeforeItReturns(t *testing.T) {
	for name, tt := range map[string]struct {
		say  string
		err  error
		want string
	}{
		"complete":   {"a", nil, "data: 0 \"a\"\n\ndata: 0 \"\" stop\n\ndata: end 0+1\n\n"},
		"an error":   {"a", haiku.ErrOverloaded, "overloaded"},
		"incomplete": {"", nil, "internal_error"},
		"refused":    {"", haiku.ErrOverloaded, "overloaded"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
					if tt.say != "" {
						w.TryPush(haiku.Piece{ID: haiku.NoToken, Text: tt.say})
					}
					if tt.say != "" && tt.err == nil {
						w.Finish(0, haiku.FinishStop)
					}
					w.SetUsage(haiku.Usage{CompletionTokens: 1})
					w.End(tt.err)
					<-time.After(time.Hour)
					return errors.New("for nobody")
				})
				start := time.Now()
				r := &flushTimes{ResponseRecorder: httptest.NewRecorder()}
				mux := quietMux()
				mux.Register("/", streaming(m, haiku.Request{}))
				mux.ServeHTTP(r, httptest.NewRequest("GET", "/", nil))
				require.Contains(t, r.Body.String(), tt.want)
				require.Equal(t, start, r.last, "it has left")
				require.Equal(t, time.Hour, time.Since(start))
			})
		})
	}
	b := branching(haiku.ModelFunc(func(_ context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		w.End(errors.New("not mine to say"))
		w.Finish(0, haiku.FinishStop)
		return nil
	}))
	require.NoError(t, read(haiku.NewStream(t.Context(), b, &haiku.Request{})).err)
}

// TestADeltaIsSomethingToSay has a first attempt fail after a tool call has begun:
// nobody else may begin another.
func TestADeltaIsSomethingToSay(t *testing.T) {
	broken := errors.New("broken")
	calls := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		for _, size := range []int{10, 5000} {
			delta := `"tool_calls":[{"index":0,"function":{"arguments":"` + strings.Repeat("x", size) + `"}}]`
			if _, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Delta: []byte(delta)}); err != nil {
				return err
			}
		}
		return broken
	})
	s := haiku.NewStream(t.Context(), branching(calls, pieces("a")), &haiku.Request{})
	a := read(s)
	require.ErrorIs(t, a.err, broken)
	require.Len(t, a.tokens, 2)
	require.Len(t, a.tokens[1].Delta, 5000+len(`"tool_calls":[{"index":0,"function":{"arguments":""}}]`))
}

// TestABranchThatBreaksARuleEndsAlone is about what ends a stream's Model: of a
// branch it ends the attempt.
func TestABranchThatBreaksARuleEndsAlone(t *testing.T) {
	for name, broken := range map[string]haiku.Piece{
		"a delta that is no JSON": {ID: haiku.NoToken, Delta: []byte(`"a":`)},
		"a text that is too long": {ID: haiku.NoToken, Text: strings.Repeat("x", 5000)},
		"a delta that is":         {ID: haiku.NoToken, Delta: []byte(`"a":"` + strings.Repeat("x", 1000) + `"`)},
		"a choice that is none":   {ID: haiku.NoToken, Text: "x", Choice: 1},
	} {
		t.Run(name, func(t *testing.T) {
			model := func(first string) haiku.Model {
				return haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
					_, _ = w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: first})
					require.Equal(t, haiku.Gone, w.TryPush(broken))
					require.Equal(t, haiku.Gone, w.TryPush(haiku.Piece{ID: haiku.NoToken, Text: "b"}))
					_, err := w.Push(ctx, broken)
					require.Error(t, err)
					w.Finish(0, haiku.FinishStop)
					return err
				})
			}
			before := read(haiku.NewStream(quiet(t.Context()), branching(model(""), pieces("sound")), &haiku.Request{}))
			require.NoError(t, before.err)
			require.Equal(t, "sound", before.text(0))
			after := read(haiku.NewStream(quiet(t.Context()), branching(model("a"), pieces("sound")), &haiku.Request{}))
			require.ErrorIs(t, after.err, haiku.ErrInternal)
			require.Equal(t, "a", after.text(0))
		})
	}
}

// TestAnothersEndIsNotABranchesOwn has a model return without a word when another
// has given the whole answer.
func TestAnothersEndIsNotABranchesOwn(t *testing.T) {
	m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
		silent, speaks := w.Branch(func() bool { return false }), w.Branch(func() bool { return true })
		var all sync.WaitGroup
		all.Go(func() {
			require.ErrorContains(t, silent.Generate(ctx, failing(nil), req), "finish reason")
			require.False(t, silent.Complete())
		})
		require.NoError(t, speaks.Generate(ctx, pieces("a"), req))
		all.Wait()
		require.ErrorContains(t, w.Branch(func() bool { return false }).Generate(ctx, failing(nil), req), "finish reason")
		return nil
	})
	require.NoError(t, read(haiku.NewStream(t.Context(), m, &haiku.Request{})).err)
}

func TestWhatABranchSaysOfItsAnswerIsTheStreams(t *testing.T) {
	degraded := func(m haiku.Model) haiku.Model {
		return haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
			w.SetDegraded()
			return m.Generate(ctx, w, req)
		})
	}
	for _, c := range []struct {
		m    haiku.Model
		want bool
	}{
		{branching(degraded(naming("first", failing(errors.New("broken")))), naming("second", pieces("a"))), false},
		{branching(naming("first", failing(errors.New("broken"))), degraded(naming("second", pieces("a")))), true},
		{branching(branching(degraded(naming("second", pieces("a"))))), true},
	} {
		s := haiku.NewStream(t.Context(), c.m, &haiku.Request{})
		_, err := s.Text()
		require.NoError(t, err)
		require.Equal(t, c.want, s.Degraded())
		require.Equal(t, []string{"X-By", "second"}, s.Headers())
	}
}

func TestABranchThatEndsAChoiceThatIsNoneEndsAlone(t *testing.T) {
	broken := haiku.ModelFunc(func(_ context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		w.Finish(1, haiku.FinishStop)
		return nil
	})
	a := read(haiku.NewStream(quiet(t.Context()), branching(broken, pieces("sound")), &haiku.Request{}))
	require.NoError(t, a.err)
	require.Equal(t, "sound", a.text(0))
}

// TestWhatIsSomethingToSay has a first attempt push one piece and fail: if a reader
// has anything of that piece, nobody else may answer.
func TestWhatIsSomethingToSay(t *testing.T) {
	vocab := haiku.NewVocabulary([][]byte{[]byte("word"), nil})
	for name, tt := range map[string]struct {
		piece haiku.Piece
		says  bool
	}{
		"nothing":              {haiku.Piece{ID: haiku.NoToken}, false},
		"a text":               {haiku.Piece{ID: haiku.NoToken, Text: "x"}, true},
		"a token":              {haiku.Piece{ID: 0}, true},
		"a token without text": {haiku.Piece{ID: 1, Text: "not its"}, false},
		"a log-probability":    {haiku.Piece{ID: haiku.NoToken, Logprob: &haiku.TokenLogprob{}}, true},
		"an end":               {haiku.Piece{ID: haiku.NoToken, Finish: haiku.FinishStop}, true},
	} {
		t.Run(name, func(t *testing.T) {
			broken := errors.New("broken")
			first := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
				w.SetVocabulary(vocab)
				require.Equal(t, haiku.Pushed, w.TryPush(tt.piece))
				return broken
			})
			a := read(haiku.NewStream(quiet(t.Context()), branching(first, pieces("second")), &haiku.Request{}))
			if tt.says {
				require.ErrorIs(t, a.err, broken)
				require.NotContains(t, a.text(0), "second")
			} else {
				require.Equal(t, "second", a.text(0))
			}
		})
	}
}

// TestABranchIsToldOfSpace has a model, as an engine's loop does, wait for the
// reader by the function that it gave to OnSpace.
func TestABranchIsToldOfSpace(t *testing.T) {
	m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		space := make(chan struct{}, 1)
		w.OnSpace(func() {
			select {
			case space <- struct{}{}:
			default:
			}
		})
		for n := 0; n < 1000; {
			switch w.TryPush(haiku.Piece{ID: haiku.NoToken, Text: "x"}) {
			case haiku.Pushed:
				n++
			case haiku.Full:
				<-space
			}
		}
		w.Finish(0, haiku.FinishStop)
		return nil
	})
	synctest.Test(t, func(t *testing.T) {
		got, err := haiku.NewStream(t.Context(), branching(m), &haiku.Request{}).Text()
		require.NoError(t, err)
		require.Equal(t, strings.Repeat("x", 1000), got)
	})
}
