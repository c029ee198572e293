package haiku_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

func TestAStreamIsReadOnce(t *testing.T) {
	s := haiku.NewStream(t.Context(), pieces("a"), &haiku.Request{})
	text, err := s.Text()
	require.NoError(t, err)
	require.Equal(t, "a", text)
	require.Equal(t, haiku.Usage{PromptTokens: 3, CompletionTokens: 1}, s.Usage())
	require.EqualError(t, read(s).err, "haiku: a stream can be read only once")
}

func TestAStreamNobodyReadsHoldsNothing(t *testing.T) {
	called := false
	s := haiku.NewStream(t.Context(), haiku.ModelFunc(func(context.Context, *haiku.StreamWriter, *haiku.Request) error {
		called = true
		return nil
	}), &haiku.Request{Model: "m"})
	require.False(t, called)
	require.Equal(t, "m", s.Model())
	require.Regexp(t, `^req-[0-9a-f]{24}$`, s.Request().ID)
}

func TestTheTenantIsTheVerifiedOne(t *testing.T) {
	ctx := haiku.WithIdentity(t.Context(), haiku.Identity{Subject: "s", Tenant: "verified"})
	given := &haiku.Request{ID: "id", Tenant: "claimed"}
	require.Equal(t, &haiku.Request{ID: "id", Tenant: "verified"}, haiku.NewStream(ctx, pieces(), given).Request())
	require.Equal(t, "claimed", given.Tenant, "the caller's request is not changed")
}

func TestAnEmptyAnswer(t *testing.T) {
	require.Equal(t, answer{tokens: []haiku.Token{{ID: haiku.NoToken, Finish: haiku.FinishStop}}},
		read(haiku.NewStream(t.Context(), pieces(), &haiku.Request{})))
}

func TestChoicesAreKeptApart(t *testing.T) {
	m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
		for _, p := range []haiku.Piece{
			{Choice: 2, ID: -1, Text: "x\xe4"},
			{Choice: 0, ID: -1, Text: "EN"},
			{Choice: 1, ID: -1, Text: "one"},
			{Choice: 2, ID: -1, Text: "\xbd\xa0"},
			{Choice: 1, ID: -1, Text: "!", Finish: haiku.FinishLength},
			{Choice: 0, ID: -1, Text: "D"},
			{Choice: 2, ID: -1, Text: "END", Finish: "something new"},
		} {
			if _, err := w.Push(ctx, p); err != nil {
				return err
			}
		}
		return nil
	})
	require.Equal(t, answer{tokens: []haiku.Token{
		{Choice: 2, ID: -1, Text: "x"},
		{Choice: 0, ID: -1},
		{Choice: 1, ID: -1, Text: "one"},
		{Choice: 2, ID: -1, Text: "你"},
		{Choice: 1, ID: -1, Text: "!", Finish: haiku.FinishLength},
		{Choice: 0, ID: -1, Finish: haiku.FinishStop},
		{Choice: 2, ID: -1, Finish: haiku.FinishStop},
	}}, read(haiku.NewStream(t.Context(), m, &haiku.Request{Choices: 3, Stop: []string{"END"}})))
}

func TestTooManyChoicesAreRefused(t *testing.T) {
	a := read(haiku.NewStream(t.Context(), pieces(), &haiku.Request{Choices: 1e6}))
	require.Equal(t, answer{err: haiku.ErrInvalidRequest.With("n", "at most 1024 choices can be asked for")}, a)
}

func TestHowAModelMayFail(t *testing.T) {
	custom := errors.New("disk full at /secret/path")
	type fail func(context.Context, *haiku.StreamWriter) error
	for _, tt := range []struct {
		name   string
		fail   fail
		want   *haiku.Error // what the client would see
		cause  string
		logged string
	}{
		{"an Error", func(context.Context, *haiku.StreamWriter) error { return fmt.Errorf("admit: %w", haiku.ErrOverloaded) },
			haiku.ErrOverloaded, "", "admit"},
		{"any error", func(context.Context, *haiku.StreamWriter) error { return custom },
			haiku.ErrInternal, "disk full at /secret/path", "disk full"},
		{"a panic", func(context.Context, *haiku.StreamWriter) error { panic("boom") },
			haiku.ErrInternal, "panic: boom", "boom"},
		{"runtime.Goexit", func(context.Context, *haiku.StreamWriter) error { runtime.Goexit(); return nil },
			haiku.ErrInternal, "haiku: the model ended its own goroutine", "ended its own goroutine"},
		{"no finish reason", func(context.Context, *haiku.StreamWriter) error { return nil },
			haiku.ErrInternal, "haiku: the model returned before every choice had a finish reason", "finish reason"},
		{"a choice that does not exist", func(_ context.Context, w *haiku.StreamWriter) error {
			require.Equal(t, haiku.Gone, w.TryPush(haiku.Piece{Choice: 1, ID: -1, Text: "x"}))
			return nil
		}, haiku.ErrInternal, "haiku: the model pushed choice 1 of 1", "choice 1 of 1"},
		{"a nil *Error", func(context.Context, *haiku.StreamWriter) error { var e *haiku.Error; return e },
			haiku.ErrInternal, "", "stream failed"},
		{"a text too long for TryPush", func(_ context.Context, w *haiku.StreamWriter) error {
			require.Equal(t, haiku.Gone, w.TryPush(haiku.Piece{ID: -1, Text: strings.Repeat("x", 5000)}))
			return nil
		}, haiku.ErrInternal, "haiku: the model tried to push a text of 5000 bytes, longer than the stream's arena takes: use Push", "use Push"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			ctx := haiku.WithLogger(t.Context(), slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
			m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
				defer w.SetUsage(haiku.Usage{PromptTokens: 7})
				if _, err := w.Push(ctx, haiku.Piece{ID: -1, Text: "before"}); err != nil {
					return err
				}
				return tt.fail(ctx, w)
			})
			s := haiku.NewStream(ctx, m, &haiku.Request{ID: "the-id", Model: "the-model", Prompt: "the secret prompt"})
			a := read(s)
			require.Equal(t, []haiku.Token{{ID: -1, Text: "before"}}, a.tokens)
			got := haiku.ErrorFrom(a.err)
			require.ErrorIs(t, got, tt.want)
			require.Equal(t, tt.want.Message, got.Message)
			if tt.cause != "" {
				require.ErrorContains(t, got, tt.cause)
			}
			require.Equal(t, haiku.Usage{PromptTokens: 7}, s.Usage())
			require.Contains(t, log.String(), tt.logged)
			require.Contains(t, log.String(), "request=the-id model=the-model")
			require.NotContains(t, log.String(), "secret prompt")
		})
	}
}

func TestAPanicCarriesItsStack(t *testing.T) {
	boom := haiku.ModelFunc(func(context.Context, *haiku.StreamWriter, *haiku.Request) error { panic("boom") })
	_, err := haiku.NewStream(quiet(t.Context()), boom, &haiku.Request{}).Text()
	var p *haiku.PanicError
	require.ErrorAs(t, err, &p)
	require.Equal(t, "boom", p.Value)
	require.Contains(t, string(p.Stack), "TestAPanicCarriesItsStack")
}

func TestFailedStream(t *testing.T) {
	refused := haiku.ErrForbidden.With("model", "not yours")
	require.Equal(t, answer{err: refused}, read(haiku.FailedStream(t.Context(), refused)))
}

func TestLeavingTheLoopCancelsAndWaits(t *testing.T) {
	var running atomic.Int32
	m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) (err error) {
		running.Add(1)
		defer running.Add(-1)
		used := haiku.Usage{}
		defer func() { w.SetUsage(used) }()
		for err == nil {
			_, err = w.Push(ctx, haiku.Piece{ID: -1, Text: "x"})
			used.CompletionTokens++
		}
		if !errors.Is(err, context.Canceled) {
			t.Error("push after the reader left:", err)
		}
		return err
	})
	var wg sync.WaitGroup
	for i := range 400 {
		wg.Go(func() {
			s := haiku.NewStream(t.Context(), m, &haiku.Request{})
			left := i % 100
			for range s.Tokens() {
				if left--; left < 0 {
					break
				}
			}
			if got := s.Usage().CompletionTokens; got < i%100+1 {
				t.Errorf("usage %d after reading %d tokens", got, i%100+1)
			}
		})
	}
	wg.Wait()
	require.Zero(t, running.Load(), "a loop that is left waits for its model")
}

func TestAPanicInTheLoopLeavesNothingRunning(t *testing.T) {
	ended := make(chan error, 1)
	require.PanicsWithValue(t, "reader", func() {
		for range haiku.NewStream(t.Context(), waiting(ended, "a"), &haiku.Request{}).Tokens() {
			panic("reader")
		}
	})
	require.Equal(t, context.Canceled, <-ended)
}

func TestTheContextsEndEndsTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := haiku.ErrClosed.With("", "going home")
		for _, tt := range []struct {
			name string
			ctx  func() (context.Context, func())
			want *haiku.Error
		}{
			{"deadline", func() (context.Context, func()) {
				ctx, cancel := context.WithTimeout(quiet(t.Context()), time.Second)
				return ctx, cancel
			}, haiku.ErrTimeout},
			{"cancel", func() (context.Context, func()) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				return ctx, cancel
			}, haiku.ErrorFrom(context.Canceled)},
			{"cancel with a cause", func() (context.Context, func()) {
				ctx, cancel := context.WithCancelCause(quiet(t.Context()))
				time.AfterFunc(time.Second, func() { cancel(cause) })
				return ctx, func() { cancel(nil) }
			}, cause},
		} {
			for _, m := range []haiku.Model{
				haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
					if _, err := w.Push(ctx, haiku.Piece{ID: -1, Text: "x"}); err != nil {
						return err
					}
					<-ctx.Done()
					return ctx.Err()
				}),
				haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
					_, _ = w.Push(ctx, haiku.Piece{ID: -1, Text: "x"})
					<-ctx.Done()
					_, err := w.Push(context.Background(), haiku.Piece{ID: -1, Text: "y"})
					if !errors.Is(err, ctx.Err()) {
						t.Errorf("%v does not match %v", err, ctx.Err())
					}
					return err
				}),
				haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
					_, _ = w.Push(ctx, haiku.Piece{ID: -1, Text: "x"})
					<-ctx.Done()
					return nil // which is not right, and no answer either
				}),
			} {
				ctx, cancel := tt.ctx()
				start := time.Now()
				a := read(haiku.NewStream(ctx, m, &haiku.Request{}))
				require.Equal(t, time.Second, time.Since(start), tt.name)
				require.Equal(t, []haiku.Token{{ID: -1, Text: "x"}}, a.tokens, tt.name)
				require.ErrorIs(t, haiku.ErrorFrom(a.err), tt.want, tt.name)
				cancel()
			}
		}
	})
}

func TestModelNames(t *testing.T) {
	m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		w.SetModel("served")
		w.Finish(0, "")
		return nil
	})
	s := haiku.NewStream(t.Context(), m, &haiku.Request{Model: "asked"})
	require.Equal(t, "asked", s.Model())
	require.Equal(t, answer{tokens: []haiku.Token{{ID: -1, Finish: haiku.FinishStop}}}, read(s), "an empty reason is an end too")
	require.Equal(t, "served", s.Model())
}
