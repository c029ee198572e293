package haiku_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku"
)

// knowing is a Model that has its answer at hand. Generate pushes what Recall
// returns; unwilling ones cannot recall.
type knowing struct {
	tokens    []haiku.Token
	unwilling bool
	panics    bool
	generated *int
}

func (k knowing) describe(w *haiku.StreamWriter) {
	w.SetModel("the model")
	w.SetHeader("x-answer", "known")
	w.SetUsage(haiku.Usage{PromptTokens: 3, CompletionTokens: len(k.tokens)})
}

func (k knowing) Recall(_ context.Context, w *haiku.StreamWriter, _ *haiku.Request) ([]haiku.Token, bool) {
	if k.panics {
		panic("boom")
	}
	if k.unwilling {
		return nil, false
	}
	k.describe(w)
	return k.tokens, true
}

func (k knowing) Generate(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
	if k.generated != nil {
		*k.generated++
	}
	k.describe(w)
	for _, t := range k.tokens {
		if _, err := w.Push(ctx, haiku.Piece{Choice: t.Choice, ID: haiku.NoToken, Text: t.Text, Finish: t.Finish}); err != nil {
			return err
		}
	}
	return nil
}

func said(texts ...string) (tokens []haiku.Token) {
	for _, text := range texts {
		tokens = append(tokens, haiku.Token{ID: haiku.NoToken, Text: text})
	}
	return append(tokens, haiku.Token{ID: haiku.NoToken, Finish: haiku.FinishStop})
}

// respond answers a request over HTTP with m's stream, in either form.
func respond(ctx context.Context, m haiku.Model, req haiku.Request, form string) *httptest.ResponseRecorder {
	mux := quietMux()
	mux.Register("/", streaming(m, req))
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, "GET", "/?form="+form, nil))
	return rec
}

// Whether an answer is recalled or generated, no reader can tell.
func TestARecalledAnswerReadsLikeAGeneratedOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		choices := rapid.IntRange(1, 3).Draw(t, "choices")
		tokens := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) haiku.Token {
			return haiku.Token{Choice: rapid.IntRange(0, choices-1).Draw(t, "choice"), ID: haiku.NoToken,
				Text: rapid.StringN(1, 400, -1).Draw(t, "text")}
		}), 0, 200).Draw(t, "tokens")
		for i := range choices {
			reason := rapid.SampledFrom([]haiku.FinishReason{haiku.FinishStop, haiku.FinishLength, "something new"}).Draw(t, "finish")
			at := rapid.IntRange(0, len(tokens)).Draw(t, "at") // what comes after it does not count
			tokens = slices.Insert(tokens, at, haiku.Token{Choice: i, ID: haiku.NoToken, Text: "end", Finish: reason})
		}
		generated := 0
		m := knowing{tokens: tokens, generated: &generated}
		req := haiku.Request{ID: "id", Choices: choices}
		got := read(haiku.NewStream(context.Background(), m, &req))
		require.Zero(t, generated)
		require.Equal(t, read(haiku.NewStream(context.Background(), wrapped{m}, &req)), got)
		require.Equal(t, 1, generated, "a Model around it sees every request")
		for _, form := range []string{"sse", "json"} {
			recalled := respond(context.Background(), m, req, form)
			made := respond(context.Background(), wrapped{m}, req, form)
			require.Equal(t, made.Code, recalled.Code)
			require.Equal(t, made.Body.String(), recalled.Body.String())
			if length := recalled.Header().Get("Content-Length"); length != "" { // of what is whole before it leaves
				require.Equal(t, strconv.Itoa(recalled.Body.Len()), length)
			}
			made.Header().Del("Content-Length")
			recalled.Header().Del("Content-Length")
			require.Equal(t, made.Header(), recalled.Header())
			require.Equal(t, "known", recalled.Header().Get("x-answer"))
		}
		require.Equal(t, 3, generated)
	})
}

func TestARecalledAnswerSaysWhoGaveItAndWhatItCost(t *testing.T) {
	s := haiku.NewStream(t.Context(), knowing{tokens: said("a", "b")}, &haiku.Request{Model: "asked"})
	text, err := s.Text()
	require.NoError(t, err)
	require.Equal(t, "ab", text)
	require.Equal(t, "the model", s.Model())
	require.Equal(t, haiku.Usage{PromptTokens: 3, CompletionTokens: 3}, s.Usage())
	_, err = s.Text()
	require.ErrorContains(t, err, "only once")
}

func TestAModelThatCannotRecallGenerates(t *testing.T) {
	generated := 0
	text, err := haiku.NewStream(t.Context(), knowing{tokens: said("a"), unwilling: true, generated: &generated}, &haiku.Request{}).Text()
	require.NoError(t, err)
	require.Equal(t, "a", text)
	require.Equal(t, 1, generated)
}

// What was cut before a stop string when it was made is not cut again.
func TestARecalledAnswerIsNotSearchedForStopStrings(t *testing.T) {
	text, err := haiku.NewStream(t.Context(), knowing{tokens: said("a ST", "OP b")}, &haiku.Request{Stop: []string{"STOP"}}).Text()
	require.NoError(t, err)
	require.Equal(t, "a STOP b", text)
	_, err = haiku.NewStream(t.Context(), knowing{tokens: said("a")}, &haiku.Request{Stop: []string{""}}).Text()
	require.ErrorIs(t, err, haiku.ErrInvalidRequest)
}

func TestWhatIsRecalledIsUTF8(t *testing.T) {
	a := read(haiku.NewStream(t.Context(), knowing{tokens: said("a\xff你")}, &haiku.Request{}))
	require.Equal(t, "a\uFFFD你", a.text(0))
}

func TestWhatIsRecalledHasItsDeltas(t *testing.T) {
	tokens := []haiku.Token{
		{ID: haiku.NoToken, Delta: "\"reasoning_content\":\n\"hm\""}, {ID: haiku.NoToken, Text: "a", Delta: `"x":1`}, {ID: haiku.NoToken, Finish: haiku.FinishStop},
	}
	a := read(haiku.NewStream(t.Context(), knowing{tokens: tokens}, &haiku.Request{}))
	require.NoError(t, a.err)
	require.Equal(t, `"reasoning_content": "hm"`, a.tokens[0].Delta, "on one line")
	require.Equal(t, tokens[1:], a.tokens[1:])

	tokens[1].Delta = `"x":1},"y":{"z":1`
	a = read(haiku.NewStream(quiet(t.Context()), knowing{tokens: tokens}, &haiku.Request{}))
	require.ErrorContains(t, a.err, "not JSON members")
	require.Len(t, a.tokens, 1, "and nothing of what is none")
}

func TestExtensionsAreRefusedBeforeRecall(t *testing.T) {
	_, err := haiku.NewStream(t.Context(), knowing{tokens: said("a")}, &haiku.Request{Extensions: extensions("tools", "[{}]")}).Text()
	require.ErrorIs(t, err, haiku.ErrUnsupported)
}

func TestHowARecallMayFail(t *testing.T) {
	for name, tt := range map[string]struct {
		m    knowing
		text string
		says string
	}{
		"a panic":                      {knowing{panics: true}, "", "boom"},
		"no finish reason":             {knowing{tokens: said("a")[:1]}, "a", "before every choice had a finish reason"},
		"a choice that does not exist": {knowing{tokens: []haiku.Token{{Text: "a"}, {Choice: 1, Text: "b"}}}, "a", "choice 1 of 1"},
		"a choice below none":          {knowing{tokens: []haiku.Token{{Choice: -1, Text: "b"}}}, "", "choice -1 of 1"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			ctx := haiku.WithLogger(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
			a := read(haiku.NewStream(ctx, tt.m, &haiku.Request{}))
			require.Equal(t, tt.text, a.text(0))
			require.ErrorContains(t, a.err, tt.says)
			require.Contains(t, log.String(), tt.says)
			rec := respond(t.Context(), tt.m, haiku.Request{ID: "id"}, "sse")
			require.NotContains(t, rec.Body.String(), tt.says)
			require.Contains(t, rec.Body.String(), `"code":"internal_error"`)
			require.Equal(t, tt.text == "", rec.Code == 500)
			require.Equal(t, 500, respond(t.Context(), tt.m, haiku.Request{ID: "id"}, "json").Code)
		})
	}
}

func TestAReaderOfARecalledAnswerMayLeaveOrEnd(t *testing.T) {
	m := knowing{tokens: said(strings.Split(strings.Repeat("x", 1000), "")...)}
	for range haiku.NewStream(t.Context(), m, &haiku.Request{}).Tokens() {
		break
	}
	ctx, cancel := context.WithCancelCause(quiet(t.Context()))
	defer cancel(nil)
	n := 0
	var failed error
	for _, err := range haiku.NewStream(ctx, m, &haiku.Request{}).Tokens() {
		if n++; n == 2 {
			cancel(haiku.ErrClosed)
		}
		failed = err
	}
	require.ErrorIs(t, failed, haiku.ErrClosed)
	require.Less(t, n, 200)

	generated := 0
	m.generated = &generated
	a := read(haiku.NewStream(ctx, m, &haiku.Request{}))
	require.Equal(t, answer{err: haiku.ErrClosed}, a)
	require.Equal(t, 1, generated, "a context that has ended is the model's to see")
}

// The stream may belong to another context than the request's.
func TestTheEndOfTheRequestEndsARecalledAnswer(t *testing.T) {
	m := knowing{tokens: said(slices.Repeat([]string{strings.Repeat("x", 500)}, 500)...)}
	returned := make(chan error, 1)
	mux := quietMux()
	mux.Register("/", haiku.HandlerFunc(func(c *haiku.Context) {
		ctx, cancel := context.WithTimeout(c.Context(), 0)
		defer cancel()
		c.Request = c.Request.WithContext(ctx)
		returned <- c.Stream(haiku.NewStream(quiet(context.Background()), m, &haiku.Request{}))
	}))
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
	require.ErrorIs(t, <-returned, context.DeadlineExceeded)
	require.Equal(t, 504, rec.Code)
}

func TestAPanicOfTheEncoderEndsARecalledAnswer(t *testing.T) {
	mux := quietMux()
	mux.Register("/", haiku.HandlerFunc(func(c *haiku.Context) {
		_ = c.Stream(haiku.NewStream(c.Context(), knowing{tokens: said("a")}, &haiku.Request{Encoder: brokenEncoder{}}))
	}))
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
	require.Equal(t, 500, rec.Code)
}

// brokenEncoder panics at the first token.
type brokenEncoder struct{}

func (brokenEncoder) ContentType() string                     { return "text/event-stream" }
func (brokenEncoder) Begin(dst []byte, _ haiku.Head) []byte   { return dst }
func (brokenEncoder) Token(dst []byte, _ *haiku.Delta) []byte { panic("encoder") }
func (brokenEncoder) End(d []byte, _ haiku.Usage, e *haiku.Error) []byte {
	return haiku.AppendError(d, e)
}

func TestAClientThatStopsReadingARecalledAnswerIsCut(t *testing.T) {
	m := knowing{tokens: said(slices.Repeat([]string{strings.Repeat("x", 500)}, 20_000)...)}
	type end struct {
		at  time.Duration
		err error
	}
	ends := make(chan end, 1)
	srv := func() *http.Server {
		mux := quietMux()
		start := time.Now()
		mux.Register("/", haiku.HandlerFunc(func(c *haiku.Context) {
			err := c.Stream(haiku.NewStream(c.Context(), m, &haiku.Request{}))
			ends <- end{time.Since(start), err}
		}), haiku.Streaming(haiku.StreamOptions{WriteTimeout: 20 * time.Second}))
		return &http.Server{Handler: mux}
	}
	inBubble(t, srv, func(t *testing.T, s *site) {
		dead, err := s.Get(s.url)
		require.NoError(t, err)
		defer dead.Body.Close()
		<-time.After(time.Minute)
		cut := <-ends
		require.Error(t, cut.err)
		require.Equal(t, 20*time.Second, cut.at.Round(20*time.Second), "at %v", cut.at)
		if dead.ProtoMajor == 1 {
			require.ErrorIs(t, cut.err, haiku.ErrSlowReader)
		}
	})
}

// What leaves in one flush tells its length; what is longer, or ends badly, is
// a stream of chunks like any other.
func TestARecalledAnswerTellsItsLengthIfItIsShort(t *testing.T) {
	var m knowing
	srv := func() *http.Server { return &http.Server{Handler: plain(&m, haiku.StreamOptions{})} }
	inBubble(t, srv, func(t *testing.T, s *site) {
		for _, tt := range []struct {
			tokens []haiku.Token
			length int64
		}{
			{said("a"), int64(len("data: \"a\"\n\ndata: [DONE]\n\n"))},
			{said(slices.Repeat([]string{strings.Repeat("x", 100)}, 500)...), -1},
			{said("a")[:1], -1},
		} {
			m.tokens = tt.tokens
			resp, err := s.Get(s.url)
			require.NoError(t, err)
			require.Equal(t, tt.length, resp.ContentLength)
			require.Contains(t, body(t, resp, nil), "data: ")
		}
		require.EqualValues(t, 1, s.dials.Load(), "all on one connection")
	})
}
