package haiku_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// answered serves one request with h and returns the response.
func answered(h haiku.InferenceHandler, target string) *httptest.ResponseRecorder {
	mux := quietMux()
	mux.Register("/", h)
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, httptest.NewRequest("POST", target, strings.NewReader("{}")))
	return rec
}

const overloadedBody = `{"error":{"message":"the server is overloaded, try again later","type":"overloaded_error","param":null,"code":"overloaded"}}`

func TestStreamAsEvents(t *testing.T) {
	rec := answered(streaming(pieces("a\"", "\xe4", "\xbd\xa0"), haiku.Request{ID: "id", Model: "m"}), "/")
	require.Equal(t, 200, rec.Code)
	require.Equal(t, http.Header{
		"Content-Type":      {"text/event-stream; charset=utf-8"},
		"Cache-Control":     {"no-cache"},
		"X-Accel-Buffering": {"no"},
	}, rec.Header())
	require.Equal(t, `data: begin id m

data: 0 "a\""

data: 0 "你"

data: 0 "" stop

data: end 3+3

`, rec.Body.String())
}

func TestStreamAsOneBody(t *testing.T) {
	rec := answered(streaming(pieces("a\"", "\xe4", "\xbd\xa0"), haiku.Request{}), "/?form=json")
	require.Equal(t, 200, rec.Code)
	require.Equal(t, http.Header{"Content-Type": {"application/json"}, "Content-Length": {"28"}}, rec.Header())
	require.Equal(t, `{"text":"a\"你","tokens":3}`, rec.Body.String())
}

func TestALongAnswerAsOneBody(t *testing.T) {
	texts := strings.Split(strings.Repeat("x", 40<<10), "")
	rec := answered(streaming(pieces(texts...), haiku.Request{}), "/?form=json")
	require.Equal(t, 200, rec.Code)
	require.Equal(t, `{"text":"`+strings.Repeat("x", 40<<10)+`","tokens":40960}`, rec.Body.String())
}

func TestHeadersThatOthersLeftDoNotFrameTheStream(t *testing.T) {
	rec := answered(haiku.HandlerFunc(func(c *haiku.Context) {
		h := c.Writer.Header()
		for k, v := range map[string]string{
			"Content-Length": "12", "Content-Encoding": "gzip", "Transfer-Encoding": "chunked", "Connection": "close",
			"X-Accel-Buffering": "yes", "Cache-Control": "public", "X-Own": "kept",
		} {
			h.Add(k, v)
			h.Add(k, v)
		}
		streaming(pieces("a"), haiku.Request{}).ServeInference(c)
	}), "/")
	require.Equal(t, http.Header{
		"Content-Type":      {"text/event-stream; charset=utf-8"},
		"Cache-Control":     {"no-cache"},
		"X-Accel-Buffering": {"no"},
		"X-Own":             {"kept", "kept"},
	}, rec.Header())
}

func TestAnErrorBeforeTheFirstToken(t *testing.T) {
	for _, form := range []string{"sse", "json"} {
		t.Run(form, func(t *testing.T) {
			e := haiku.ErrOverloaded.With("", "%s", haiku.ErrOverloaded.Message)
			e.RetryAfter = 1500 * time.Millisecond
			rec := answered(streaming(failing(e), haiku.Request{}), "/?form="+form)
			require.Equal(t, 503, rec.Code)
			require.Equal(t, overloadedBody, rec.Body.String())
			require.Equal(t, "application/json", rec.Header().Get("Content-Type"))
			require.Equal(t, "2", rec.Header().Get("Retry-After"))
			require.Equal(t, "1500", rec.Header().Get("Retry-After-Ms"))
		})
	}
}

func TestAnErrorAfterTheFirstToken(t *testing.T) {
	turn := make(chan struct{})
	m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		_, _ = w.Push(ctx, haiku.Piece{ID: -1, Text: "a"})
		<-turn // the token has been flushed
		return haiku.ErrOverloaded
	})
	mux := quietMux()
	mux.Register("/", streaming(m, haiku.Request{ID: "id"}))
	rec := &flushRecorder{ResponseRecorder: httptest.NewRecorder(), onFlush: func(n int) {
		if n == 1 {
			close(turn)
		}
	}}
	mux.ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
	require.Equal(t, 200, rec.Code)
	require.Equal(t, []string{
		"data: begin id \n\ndata: 0 \"a\"\n\n",
		"data: " + overloadedBody + "\n\n",
	}, rec.flushes)
}

func TestAnErrorAfterTheFirstTokenOfOneBody(t *testing.T) {
	rec := answered(streaming(failing(haiku.ErrOverloaded, "a", "b"), haiku.Request{}), "/?form=json")
	require.Equal(t, 503, rec.Code)
	require.Equal(t, overloadedBody, rec.Body.String(), "nothing of the answer is left")
}

// flushRecorder keeps what each flush sent.
type flushRecorder struct {
	*httptest.ResponseRecorder
	flushes []string
	sent    int
	onFlush func(n int)
}

func (r *flushRecorder) FlushError() error {
	r.flushes = append(r.flushes, r.Body.String()[r.sent:])
	r.sent = r.Body.Len()
	if r.onFlush != nil {
		r.onFlush(len(r.flushes))
	}
	return nil
}

func TestReadyTokensLeaveInOneFlushAndALoneTokenAtOnce(t *testing.T) {
	turns := make(chan struct{}, 4)
	ready := make(chan struct{})
	m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		push := func(text string) { w.TryPush(haiku.Piece{ID: -1, Text: text}) }
		push("lone")
		<-turns
		push("first")
		<-ready // the reader is in a flush
		for _, text := range []string{"a", "b", "c", "d"} {
			push(text)
		}
		ready <- struct{}{}
		<-turns
		<-turns
		w.Finish(0, haiku.FinishStop)
		return nil
	})
	rec := &flushRecorder{ResponseRecorder: httptest.NewRecorder(), onFlush: func(n int) {
		if n == 2 {
			ready <- struct{}{}
			<-ready
		}
		turns <- struct{}{}
	}}
	mux := quietMux()
	mux.Register("/", haiku.HandlerFunc(func(c *haiku.Context) {
		require.NoError(t, c.Stream(haiku.NewStream(c.Context(), m, &haiku.Request{})))
	}))
	mux.ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
	require.Equal(t, []string{
		"data: \"lone\"\n\n",
		"data: \"first\"\n\n",
		"data: \"a\"\n\ndata: \"b\"\n\ndata: \"c\"\n\ndata: \"d\"\n\n",
		"data: [DONE]\n\n",
	}, rec.flushes)
}

func TestStreamReturnsWhatWentWrong(t *testing.T) {
	for _, target := range []string{"/", "/?form=json"} {
		for _, tt := range []struct {
			m    haiku.Model
			want error
		}{{pieces("a"), nil}, {failing(haiku.ErrOverloaded), haiku.ErrOverloaded}, {failing(haiku.ErrOverloaded, "a"), haiku.ErrOverloaded}} {
			var err error
			var aborted bool
			answered(haiku.HandlerFunc(func(c *haiku.Context) {
				enc := &wordEncoder{events: target == "/"}
				err = c.Stream(haiku.NewStream(c.Context(), tt.m, &haiku.Request{Encoder: enc}))
				aborted = c.IsAborted()
			}), target)
			require.Equal(t, tt.want, err)
			require.Equal(t, tt.want != nil, aborted)
		}
	}
}

func TestAWriterThatCannotFlushIsRefusedBeforeTheModelStarts(t *testing.T) {
	started := false
	m := haiku.ModelFunc(func(context.Context, *haiku.StreamWriter, *haiku.Request) error {
		started = true
		return errors.New("should not run")
	})
	mux := quietMux()
	mux.Register("/", streaming(m, haiku.Request{}))
	rec := httptest.NewRecorder()
	http.TimeoutHandler(mux, time.Minute, "").ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
	require.False(t, started)
	require.Equal(t, 500, rec.Code)
	require.Equal(t, string(haiku.AppendError(nil, haiku.ErrCannotFlush)), rec.Body.String())
	require.Contains(t, rec.Body.String(), "TimeoutHandler")

	whole := quietMux()
	whole.Register("/", streaming(pieces("a"), haiku.Request{}))
	rec = httptest.NewRecorder()
	http.TimeoutHandler(whole, time.Minute, "").ServeHTTP(rec, httptest.NewRequest("GET", "/?form=json", nil))
	require.Equal(t, `{"text":"a","tokens":1}`, rec.Body.String(), "one body needs no flush")
}

func TestNothingIsWrittenTwice(t *testing.T) {
	type use func(c *haiku.Context) error
	stream := func(c *haiku.Context) error {
		return c.Stream(haiku.NewStream(c.Context(), pieces("a"), &haiku.Request{Encoder: &wordEncoder{}}))
	}
	json := func(c *haiku.Context) error { return c.JSON(201, 1) }
	abort := func(c *haiku.Context) error { c.AbortWithStatus(403); return nil }
	failed := func(c *haiku.Context) error {
		return c.Stream(haiku.NewStream(c.Context(), failing(haiku.ErrOverloaded), &haiku.Request{Encoder: &wordEncoder{events: true}}))
	}
	forbidden := `{"error":{"message":"access is denied","type":"permission_error","param":null,"code":"forbidden"}}`
	firsts := []struct {
		use
		status int
		body   string
	}{{stream, 200, `{"text":"a","tokens":1}`}, {json, 201, "1"}, {abort, 403, forbidden}, {failed, 503, overloadedBody}}
	for _, first := range firsts {
		for i, second := range []use{stream, json, abort, failed} {
			w := &strictWriter{ResponseRecorder: httptest.NewRecorder()}
			mux := quietMux()
			mux.Register("/", haiku.HandlerFunc(func(c *haiku.Context) {
				_ = first.use(c)
				if err := second(c); i != 2 {
					require.Error(t, err)
				}
			}))
			mux.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			require.Equal(t, first.status, w.Code)
			require.Equal(t, first.body, w.Body.String())
			require.Equal(t, 1, w.headers)
		}
	}
}

// strictWriter counts the calls of WriteHeader.
type strictWriter struct {
	*httptest.ResponseRecorder
	headers int
}

func (w *strictWriter) WriteHeader(status int) {
	w.headers++
	w.ResponseRecorder.WriteHeader(status)
}

func TestAStreamThatHasBeenReadIsNotAnAnswer(t *testing.T) {
	rec := answered(haiku.HandlerFunc(func(c *haiku.Context) {
		req, err := (&haiku.Request{Stop: []string{"b"}}).InferenceRequest()
		require.NoError(t, err)
		s := haiku.NewStream(c.Context(), pieces("a", "b"), req)
		text, err := s.Text()
		require.NoError(t, err)
		require.Equal(t, "a", text)
		require.EqualError(t, c.Stream(s), "haiku: a stream can be read only once")
	}), "/")
	require.Equal(t, 500, rec.Code)
	require.Equal(t, internalBody, rec.Body.String())
}

func TestAClientThatCannotBeWrittenToEndsTheModel(t *testing.T) {
	ended := make(chan error, 1)
	gone := errors.New("connection reset")
	mux := quietMux()
	mux.Register("/", haiku.HandlerFunc(func(c *haiku.Context) {
		err := c.Stream(haiku.NewStream(c.Context(), waiting(ended, "a"), &haiku.Request{}))
		require.ErrorIs(t, err, gone)
	}))
	mux.ServeHTTP(resetWriter{httptest.NewRecorder(), gone}, httptest.NewRequest("GET", "/", nil))
	require.Equal(t, context.Canceled, <-ended)
}

// resetWriter fails each write.
type resetWriter struct {
	*httptest.ResponseRecorder
	err error
}

func (w resetWriter) Write([]byte) (int, error) { return 0, w.err }
