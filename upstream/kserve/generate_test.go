package kserve

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/upstream"
)

// counting answers n tokens for each choice and honours max_tokens.
func counting(n int) func(*call) error {
	return func(c *call) error {
		choices := 1
		if strings.Contains(c.request.text("sampling_parameters"), `"n":2`) {
			choices = 2
		}
		for i := range n {
			texts, reasons, counts := []string{}, []string{}, []uint32{}
			for range choices {
				reason := "None"
				if i == n-1 {
					reason = "stop"
				}
				texts, reasons, counts = append(texts, "token "), append(reasons, reason), append(counts, 1)
			}
			r := says(texts...).texts("finish_reason", reasons...).counts("num_input_tokens", 3).counts("num_output_tokens", counts...)
			if err := c.send(r.of(c.request.id).last(i == n-1).stream()); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestAnEngineKeepsTheModelsContract(t *testing.T) {
	req := &haiku.Request{Prompt: "count", Choices: 2, Sampling: haiku.Sampling{Temperature: 1, Seed: new(uint64(7))}, Stop: []string{"never"}}
	refused := &haiku.Request{Messages: []haiku.Message{{Role: haiku.RoleUser, Content: "hi"}}}
	open := func(t *testing.T) haiku.Model {
		return (&triton{answer: counting(40)}).start(t, Options{})
	}
	haikutest.TestModel(t, open, req, refused)
}

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, answer func(*call) error, opts Options, test func(t *testing.T, s *triton, e *Engine)) {
	synctest.Test(t, func(t *testing.T) {
		s := &triton{answer: answer}
		test(t, s, s.start(t, opts))
	})
}

var hello = &haiku.Request{ID: "req-1", Prompt: "hello"}

func TestLeavingReachesTheServerAtOnce(t *testing.T) {
	for phase, answer := range map[string]func(*call) error{
		"before the first response": func(c *call) error { return c.gone() },
		"before the first text":     func(c *call) error { return errors.Join(c.send(says("").stream()), c.gone()) },
		"after a text":              func(c *call) error { return errors.Join(c.send(says("a").stream()), c.gone()) },
	} {
		t.Run(phase, func(t *testing.T) {
			inBubble(t, answer, Options{}, func(t *testing.T, s *triton, e *Engine) {
				ctx, cancel := context.WithCancel(t.Context())
				var returned error
				var texts int
				done := make(chan struct{})
				go func() {
					defer close(done)
					m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
						returned = e.Generate(ctx, w, req)
						return returned
					})
					for tok := range haiku.NewStream(quiet(ctx), m, hello).Tokens() {
						texts += len(tok.Text)
					}
				}()
				synctest.Wait()
				begun := time.Now()
				cancel()
				<-done
				synctest.Wait()
				require.Zero(t, time.Since(begun))
				require.ErrorIs(t, returned, context.Canceled)
				require.Equal(t, []error{context.Canceled}, s.ended)
				require.Equal(t, strings.Count(phase, "after"), texts)
			})
		})
	}
}

func TestAStopStringEndsTheServersWork(t *testing.T) {
	endless := func(c *call) error {
		for {
			if err := c.send(says("a").stream()); err != nil {
				return err
			}
			c.wait(time.Second)
		}
	}
	inBubble(t, endless, Options{}, func(t *testing.T, s *triton, e *Engine) {
		begun := time.Now()
		got, err := read(t.Context(), e, &haiku.Request{Prompt: "p", Stop: []string{"aaa"}})
		require.NoError(t, err)
		require.Equal(t, []string{""}, got.texts)
		require.Equal(t, 2*time.Second, time.Since(begun))
		synctest.Wait()
		require.Equal(t, []error{context.Canceled}, s.ended)
	})
}

// A stream whose answer is complete ends by itself: resetting it is what servers
// have stumbled over (triton-inference-server/server#6576).
func TestACompleteStreamIsNotReset(t *testing.T) {
	slowly := func(c *call) error {
		err := c.send(says("a").last(true).stream())
		c.wait(drainTime / 2)
		return err
	}
	inBubble(t, slowly, Options{}, func(t *testing.T, s *triton, e *Engine) {
		_, err := read(t.Context(), e, hello)
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, []error{nil}, s.ended)
	})
	never := func(c *call) error { return errors.Join(c.send(says("a").last(true).stream()), c.gone()) }
	inBubble(t, never, Options{}, func(t *testing.T, s *triton, e *Engine) {
		begun := time.Now()
		_, err := read(t.Context(), e, hello)
		require.NoError(t, err)
		require.Equal(t, drainTime, time.Since(begun))
	})
}

func TestTimesAreBounded(t *testing.T) {
	opts := Options{Connect: time.Second, FirstToken: 10 * time.Second, Idle: 3 * time.Second}
	for _, c := range []struct {
		name   string
		answer func(*call) error
		after  time.Duration
		kind   error
	}{
		{"no response", func(c *call) error { return c.gone() }, 10 * time.Second, upstream.ErrFirstToken},
		{"responses without a text", func(c *call) error {
			for c.Context().Err() == nil {
				if err := c.send(says("").stream()); err != nil {
					return err
				}
				c.wait(time.Second)
			}
			return nil
		}, 10 * time.Second, upstream.ErrFirstToken},
		{"silence after a text", func(c *call) error {
			c.wait(9 * time.Second)
			return errors.Join(c.send(says("a").stream()), c.gone())
		}, 12 * time.Second, upstream.ErrIdle},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, c.answer, opts, func(t *testing.T, s *triton, e *Engine) {
				begun := time.Now()
				_, err := read(t.Context(), e, hello)
				require.Equal(t, c.after, time.Since(begun))
				require.ErrorIs(t, err, c.kind)
				require.ErrorIs(t, err, haiku.ErrTimeout)
				require.NotErrorIs(t, err, context.DeadlineExceeded, "that would be the client's")
				require.NotErrorIs(t, err, context.Canceled)
				synctest.Wait()
				require.Equal(t, []error{context.Canceled}, s.ended)
			})
		})
	}
	slow := func(c *call) error {
		for range 10 {
			if err := c.send(says("a").stream()); err != nil {
				return err
			}
			c.wait(time.Hour)
		}
		return nil
	}
	inBubble(t, slow, Options{FirstToken: -1, Idle: -1}, func(t *testing.T, s *triton, e *Engine) {
		got, err := read(t.Context(), e, hello)
		require.NoError(t, err)
		require.Equal(t, []string{"aaaaaaaaaa"}, got.texts)
	})
}

func TestAClientsDeadlineIsTheClients(t *testing.T) {
	for name, answer := range map[string]func(*call) error{
		"the server waits on":      func(c *call) error { c.wait(time.Minute); return nil },
		"the server ends it first": func(*call) error { return status.Error(codes.DeadlineExceeded, "late") },
	} {
		inBubble(t, answer, Options{}, func(t *testing.T, s *triton, e *Engine) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			begun := time.Now()
			_, err := read(ctx, e, hello)
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.Equal(t, 100*time.Millisecond, time.Since(begun))
			deadline, ok := s.asks()[0].Context().Deadline()
			require.True(t, ok, "the server knows the deadline")
			require.WithinDuration(t, begun.Add(100*time.Millisecond), deadline, time.Millisecond)
		})
	}
	late := func(*call) error { return status.Error(codes.DeadlineExceeded, "my own") }
	inBubble(t, late, Options{}, func(t *testing.T, s *triton, e *Engine) {
		_, err := read(t.Context(), e, hello)
		require.ErrorIs(t, err, haiku.ErrTimeout)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestASlowReaderIsNotTheServersSilence(t *testing.T) {
	many := func(c *call) error { // more than the window takes
		for range 200 {
			if err := c.send(says(strings.Repeat("x", 1000)).stream()); err != nil {
				return err
			}
		}
		return c.send(new(infer).last(true).stream())
	}
	inBubble(t, many, Options{Idle: time.Second}, func(t *testing.T, s *triton, e *Engine) {
		ctx := haiku.WithStreamOptions(t.Context(), haiku.StreamOptions{Buffer: 4})
		read := 0
		for tok, err := range haiku.NewStream(ctx, e, hello).Tokens() {
			require.NoError(t, err)
			read += len(tok.Text)
			<-time.After(time.Minute)
		}
		require.Equal(t, 200_000, read)
	})
}

// A stream that nobody reads holds at most its window, and does not stop others
// on the same connection.
func TestASlowReaderHoldsLittleAndStopsNobody(t *testing.T) {
	var sent atomic.Int64
	endless := func(c *call) error {
		text := strings.Repeat("x", 1000)
		for i := 0; ; i++ {
			if c.request.text("text_input") != "endless" && i == 100 {
				return c.send(new(infer).last(true).stream())
			}
			if err := c.send(says(text).stream()); err != nil {
				return err
			}
			if c.request.text("text_input") == "endless" {
				sent.Add(1000)
			}
		}
	}
	inBubble(t, endless, Options{}, func(t *testing.T, s *triton, e *Engine) {
		ctx, cancel := context.WithCancel(haiku.WithStreamOptions(quiet(t.Context()), haiku.StreamOptions{Buffer: 1}))
		left := make(chan struct{})
		go func() {
			defer close(left)
			for range haiku.NewStream(ctx, e, &haiku.Request{Prompt: "endless"}).Tokens() {
				<-ctx.Done()
			}
		}()
		synctest.Wait()
		require.Less(t, sent.Load(), int64(4*windowBytes))
		got, err := read(t.Context(), e, hello)
		require.NoError(t, err)
		require.Len(t, got.texts[0], 100_000)
		cancel()
		<-left
	})
}

func TestAServerThatIsNotAvailableIsAskedAgain(t *testing.T) {
	var asked atomic.Int32
	sick := func(failures int32, trailer metadata.MD) func(*call) error {
		return func(c *call) error {
			if asked.Add(1) <= failures {
				c.SetTrailer(trailer)
				return status.Error(codes.Unavailable, "not yet")
			}
			return c.send(says("a").last(true).stream())
		}
	}
	for _, c := range []struct {
		name     string
		opts     Options
		failures int32
		trailer  metadata.MD
		asked    int32
		min, max time.Duration
		err      error
	}{
		{"it comes back", Options{}, 2, nil, 3, 75 * time.Millisecond, 225 * time.Millisecond, nil},
		{"it does not", Options{}, 9, nil, 3, 75 * time.Millisecond, 225 * time.Millisecond, haiku.ErrOverloaded},
		{"never again", Options{Retries: -1}, 9, nil, 1, 0, 0, haiku.ErrOverloaded},
		{"it names a time", Options{}, 1, metadata.Pairs("grpc-retry-pushback-ms", "2000"), 2, 2 * time.Second, 2 * time.Second, nil},
		{"it names a long time", Options{}, 1, metadata.Pairs("grpc-retry-pushback-ms", "10000"), 1, 0, 0, haiku.ErrOverloaded},
		{"it wants no more", Options{}, 1, metadata.Pairs("grpc-retry-pushback-ms", "-1"), 1, 0, 0, haiku.ErrOverloaded},
		{"it would be too late", Options{FirstToken: time.Second}, 1, metadata.Pairs("grpc-retry-pushback-ms", "2000"), 1, 0, 0, haiku.ErrOverloaded},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked.Store(0)
			inBubble(t, sick(c.failures, c.trailer), c.opts, func(t *testing.T, s *triton, e *Engine) {
				begun := time.Now()
				got, err := read(t.Context(), e, hello)
				if c.err != nil {
					require.ErrorIs(t, err, c.err)
				} else {
					require.NoError(t, err)
					require.Equal(t, []string{"a"}, got.texts)
				}
				require.Equal(t, c.asked, asked.Load())
				require.GreaterOrEqual(t, time.Since(begun), c.min)
				require.LessOrEqual(t, time.Since(begun), c.max)
			})
		})
	}
}

func TestRetriesDoNotComeAllAtOnce(t *testing.T) {
	e := &Engine{opts: Options{Retries: 3, RetryWait: time.Second}}
	waits := map[time.Duration]bool{}
	for range 20 {
		wait, ok := e.retry(&StatusError{Code: codes.Unavailable}, 1)
		require.True(t, ok)
		require.InDelta(t, 2*time.Second, wait, float64(time.Second))
		waits[wait] = true
	}
	require.Greater(t, len(waits), 10)
}

// TestAnAnswerThatIsGivenUpIsCancelled also where the request goes on, to another
// model.
func TestAnAnswerThatIsGivenUpIsCancelled(t *testing.T) {
	bad := func(c *call) error { return errors.Join(c.send(says("a").of("another").stream()), c.gone()) }
	inBubble(t, bad, Options{}, func(t *testing.T, s *triton, e *Engine) {
		m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
			err := e.Generate(ctx, w, req)
			synctest.Wait()
			require.ErrorIs(t, err, upstream.ErrMalformed)
			require.Equal(t, []error{context.Canceled}, s.ended)
			return err
		})
		_, err := haiku.NewStream(quiet(t.Context()), m, hello).Text()
		require.Error(t, err)
	})
}

func TestLeavingEndsTheWaitForARetry(t *testing.T) {
	sick := func(*call) error { return status.Error(codes.Unavailable, "no") }
	inBubble(t, sick, Options{RetryWait: time.Minute, FirstToken: time.Hour}, func(t *testing.T, s *triton, e *Engine) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		_, err := read(ctx, e, hello)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(begun))
	})
}

func TestNothingIsSentAgainOnceSomethingCame(t *testing.T) {
	for name, first := range map[string]message{
		"a text": says("a").stream(), "no text": says("").stream(), "no output": new(infer).last(false).stream(),
	} {
		broken := func(c *call) error {
			return errors.Join(c.send(first), status.Error(codes.Unavailable, "going away"))
		}
		inBubble(t, func(c *call) error { _ = broken(c); return status.Error(codes.Unavailable, "going away") }, Options{},
			func(t *testing.T, s *triton, e *Engine) {
				_, err := read(t.Context(), e, hello)
				require.ErrorIs(t, err, upstream.ErrIncomplete, name)
				require.Len(t, s.asks(), 1, name)
			})
	}
	for _, code := range []codes.Code{codes.Internal, codes.ResourceExhausted, codes.Unknown, codes.Aborted} {
		inBubble(t, func(*call) error { return status.Error(code, "no") }, Options{}, func(t *testing.T, s *triton, e *Engine) {
			_, err := read(t.Context(), e, hello)
			require.Error(t, err)
			require.Len(t, s.asks(), 1, "%v", code)
		})
	}
	inBubble(t, func(c *call) error { return c.send(failed("Server not ready")) }, Options{}, func(t *testing.T, s *triton, e *Engine) {
		_, err := read(t.Context(), e, hello)
		require.ErrorIs(t, err, haiku.ErrOverloaded)
		require.Len(t, s.asks(), 1, "what came as a response was run")
	})
}

// unreachable is a connection that cannot be made.
func unreachable(dial func(ctx context.Context) (net.Conn, error)) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) })
}

func TestAServerThatCannotBeReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		s := &triton{answer: counting(1)}
		e := s.start(t, Options{}, unreachable(func(context.Context) (net.Conn, error) { dials++; return nil, errors.New("refused") }))
		_, err := read(t.Context(), e, hello)
		require.ErrorIs(t, err, upstream.ErrConnect)
		require.ErrorIs(t, err, haiku.ErrOverloaded)
		require.Greater(t, dials, 1)
	})
	synctest.Test(t, func(t *testing.T) {
		s := &triton{answer: counting(1)}
		e := s.start(t, Options{}, unreachable(func(ctx context.Context) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }))
		begun := time.Now()
		_, err := read(t.Context(), e, hello)
		require.ErrorIs(t, err, upstream.ErrConnect)
		require.ErrorIs(t, err, haiku.ErrOverloaded)
		require.Equal(t, defaultConnect, time.Since(begun))
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	})
}

// A server that dies (triton-inference-server/server#7472) resets its
// connections. This one is a real one.
func TestAServerThatIsKilled(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.ForceServerCodecV2(frames{}), grpc.UnknownServiceHandler((&triton{answer: func(c *call) error {
		return errors.Join(c.send(says("a").stream()), c.gone())
	}}).handle))
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(lis) }()
	e, err := New(lis.Addr().String(), Options{Model: "llm"}, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer e.Close()
	var texts strings.Builder
	var failed error
	for tok, err := range haiku.NewStream(quiet(t.Context()), e, hello).Tokens() {
		if err != nil {
			failed = err
			break
		}
		texts.WriteString(tok.Text)
		server.Stop()
	}
	<-served
	require.Equal(t, "a", texts.String())
	require.ErrorIs(t, failed, upstream.ErrIncomplete)
	require.Equal(t, http.StatusBadGateway, haiku.ErrorFrom(failed).Status)
	_, err = read(t.Context(), e, hello)
	require.ErrorIs(t, err, upstream.ErrConnect)
}

func TestCloseEndsWhatRuns(t *testing.T) {
	inBubble(t, func(c *call) error { return c.gone() }, Options{}, func(t *testing.T, s *triton, e *Engine) {
		failed := make(chan error)
		go func() {
			_, err := read(t.Context(), e, hello)
			failed <- err
		}()
		synctest.Wait()
		require.NoError(t, e.Close())
		require.ErrorIs(t, <-failed, haiku.ErrClosed)
		_, err := read(t.Context(), e, hello)
		require.ErrorIs(t, err, haiku.ErrClosed)
		require.NoError(t, e.Close())
	})
}
