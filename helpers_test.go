package haiku_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// quiet is a context whose failures are not logged into the test's output.
func quiet(ctx context.Context) context.Context {
	return haiku.WithLogger(ctx, slog.New(slog.DiscardHandler))
}

// quietMux is a Mux that does not log into the test's output.
func quietMux() *haiku.Mux {
	m := haiku.New()
	m.Use(haiku.Logging(slog.New(slog.DiscardHandler)))
	return m
}

// pieces is a Model that pushes each text as a piece without a token, and ends
// its one choice with FinishStop if no stop string did.
func pieces(texts ...string) haiku.Model {
	return haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		used := haiku.Usage{PromptTokens: 3}
		defer func() { w.SetUsage(used) }()
		for _, text := range texts {
			r, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: text})
			if err != nil {
				return err
			}
			used.CompletionTokens++
			if r == haiku.Stopped {
				return nil
			}
		}
		w.Finish(0, haiku.FinishStop)
		return nil
	})
}

// vocabularyPieces is pieces by way of a Vocabulary: token i is texts[i].
func vocabularyPieces(texts ...string) haiku.Model {
	vocab := make([][]byte, len(texts))
	for i, text := range texts {
		vocab[i] = []byte(text)
	}
	v := haiku.NewVocabulary(vocab)
	return haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		w.SetVocabulary(v)
		for id := range texts {
			r, err := w.Push(ctx, haiku.Piece{ID: int32(id)})
			if err != nil || r == haiku.Stopped {
				return err
			}
		}
		w.Finish(0, haiku.FinishStop)
		return nil
	})
}

// failing is a Model that pushes texts and then returns err.
func failing(err error, texts ...string) haiku.Model {
	return haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		for _, text := range texts {
			if _, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: text}); err != nil {
				return err
			}
		}
		return err
	})
}

// endless is a Model that pushes the same piece until it is stopped.
func endless(text string) haiku.Model {
	return haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		for {
			if _, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: text}); err != nil {
				return err
			}
		}
	})
}

// waiting is a Model that pushes texts and then waits for its context to end.
// It sends on ended what its context ended with.
func waiting(ended chan<- error, texts ...string) haiku.Model {
	return haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		for _, text := range texts {
			if _, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: text}); err != nil {
				break
			}
		}
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	})
}

// answer is all that a reader gets from a stream.
type answer struct {
	tokens []haiku.Token
	err    error
}

func read(s *haiku.StreamWriter) (a answer) {
	for tok, err := range s.Tokens() {
		if err != nil {
			a.err = err
			continue
		}
		a.tokens = append(a.tokens, tok)
	}
	return a
}

func (a answer) text(choice int) string {
	var b strings.Builder
	for _, t := range a.tokens {
		if t.Choice == choice {
			b.WriteString(t.Text)
		}
	}
	return b.String()
}

func (a answer) finish(choice int) (f haiku.FinishReason) {
	for _, t := range a.tokens {
		if t.Choice == choice && t.Finish != "" {
			f = t.Finish
		}
	}
	return f
}

// wordEncoder makes answers easy to compare: one line or event per call. As
// events it writes "data: …", otherwise one JSON object at the end.
type wordEncoder struct {
	events bool
	text   strings.Builder
}

func (e *wordEncoder) ContentType() string {
	if e.events {
		return "text/event-stream; charset=utf-8"
	}
	return "application/json"
}

func (e *wordEncoder) Begin(dst []byte, h haiku.Head) []byte {
	if !e.events {
		return append(dst, "{"...)
	}
	return fmt.Appendf(dst, "data: begin %s %s\n\n", h.ID, h.Model)
}

func (e *wordEncoder) Token(dst []byte, d *haiku.Delta) []byte {
	if !e.events {
		e.text.Write(d.Escaped)
		return append(dst, '.') // what a failure later on must take back
	}
	dst = fmt.Appendf(dst, "data: %d \"%s\"", d.Choice, d.Escaped)
	for _, lp := range d.Logprobs {
		dst = fmt.Appendf(dst, " lp=%q", lp.Bytes)
	}
	if len(d.Members) > 0 {
		dst = fmt.Appendf(dst, " {%s}", d.Members)
	}
	if d.Finish != "" {
		dst = fmt.Appendf(dst, " %s", d.Finish)
	}
	return append(dst, "\n\n"...)
}

func (e *wordEncoder) End(dst []byte, u haiku.Usage, err *haiku.Error) []byte {
	switch {
	case err != nil && e.events:
		return append(haiku.AppendError(append(dst, "data: "...), err), "\n\n"...)
	case err != nil:
		return haiku.AppendError(dst, err)
	case e.events:
		return fmt.Appendf(dst, "data: end %d+%d\n\n", u.PromptTokens, u.CompletionTokens)
	default:
		return append(dst[:0], `{"text":"`+e.text.String()+`","tokens":`+strconv.Itoa(u.CompletionTokens)+`}`...)
	}
}

// streaming is a handler that answers every request from m in events, or in
// one JSON object if the query says form=json.
func streaming(m haiku.Model, req haiku.Request) haiku.HandlerFunc {
	return func(c *haiku.Context) {
		r := req
		r.Encoder = &wordEncoder{events: c.Request.FormValue("form") != "json"}
		_ = c.Stream(haiku.NewStream(c.Context(), m, &r))
	}
}

// body reads a response to its end and closes it.
func body(t *testing.T, resp *http.Response, err error) string {
	t.Helper()
	require.NoError(t, err)
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, errors.Join(err, resp.Body.Close()))
	return string(b)
}
