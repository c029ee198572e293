package upstream

import (
	"context"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

var timeouts = Options{Connect: time.Second, FirstToken: 3 * time.Second, Idle: 2 * time.Second}

// slowly streams texts with a pause before each.
func slowly(pause time.Duration, texts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for _, text := range texts {
			select {
			case <-time.After(pause):
			case <-r.Context().Done():
				return
			}
			events(text)(w, r)
		}
	}
}

func repeat(text string, n int) (texts []string) {
	for range n {
		texts = append(texts, text)
	}
	return texts
}

// afterAToken is when silence after a token at once is noticed: the first look,
// of those that began when connecting did, finds the token's mark.
const afterAToken = 2*time.Second + time.Second/looks

func TestEachWaitHasALimitOfItsOwn(t *testing.T) {
	for name, tt := range map[string]struct {
		engine http.HandlerFunc
		opts   Options
		err    error // nil: a good answer
		took   time.Duration
		text   string
	}{
		"no response":                      {engine: hang, err: ErrFirstToken, took: 3 * time.Second},
		"a response and nothing else":      {engine: then([]string{""}, hang), err: ErrFirstToken, took: 3 * time.Second},
		"a role and nothing else":          {engine: then([]string{roleChunk}, hang), err: ErrFirstToken, took: 3 * time.Second},
		"comments and nothing else":        {engine: slowly(time.Second, repeat(": ping\n\n", 10)...), err: ErrFirstToken, took: 3 * time.Second},
		"half an event":                    {engine: then([]string{"data: {\"choices\":[{\"del"}, hang), err: ErrFirstToken, took: 3 * time.Second},
		"silence after a token":            {engine: then([]string{piece("a")}, hang), err: ErrIdle, took: afterAToken, text: "a"},
		"half an event after a token":      {engine: then([]string{piece("a"), "data: {\"choices\":[{\"del"}, hang), err: ErrIdle, took: afterAToken, text: "a"},
		"comments after a token":           {engine: then([]string{piece("a")}, slowly(time.Second, repeat(": ping\n\n", 10)...)), err: ErrIdle, took: afterAToken, text: "a"},
		"pings after a token":              {engine: then([]string{piece("a")}, slowly(time.Second, repeat("event: ping\ndata: {\"type\":\"ping\"}\n\n", 10)...)), err: ErrIdle, took: afterAToken, text: "a"},
		"tokens that keep coming":          {engine: then([]string{piece("a")}, slowly(1900*time.Millisecond, piece("b"), piece("c"), piece("d"), stopChunk+doneMark)), took: 4 * 1900 * time.Millisecond, text: "abcd"},
		"a first token just in time":       {engine: slowly(2900*time.Millisecond, piece("a")+stopChunk+doneMark), took: 2900 * time.Millisecond, text: "a"},
		"no limits":                        {engine: slowly(time.Hour, piece("a"), piece("b"), stopChunk+doneMark), opts: Options{Connect: -1, FirstToken: -1, Idle: -1}, took: 3 * time.Hour, text: "ab"},
		"an answer that is no stream":      {engine: then(nil, hang), err: ErrFirstToken, took: 3 * time.Second},
		"an error whose body does not end": {engine: then(nil, func(w http.ResponseWriter, r *http.Request) { hang(w, r) }), err: ErrFirstToken, took: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tt.opts.Connect == 0 {
					tt.opts = timeouts
				}
				h, served := inTurn(tt.engine)
				e, network := serve(t, h, tt.opts)
				began := time.Now()
				a := ask(t.Context(), e, hello())
				require.Equal(t, tt.took, time.Since(began))
				require.Equal(t, tt.text, a.texts[0])
				require.Equal(t, 1, served(), "the time is gone: no other attempt")
				if tt.err == nil {
					require.NoError(t, a.err)
					return
				}
				require.ErrorIs(t, a.err, tt.err)
				require.ErrorIs(t, a.err, haiku.ErrTimeout)
				require.NotErrorIs(t, a.err, context.Canceled)
				require.NotErrorIs(t, a.err, context.DeadlineExceeded, "that would be the client's")
				require.Equal(t, 504, haiku.ErrorFrom(a.err).Status)
				synctest.Wait()
				_, open := network.connections()
				require.Zero(t, open)
			})
		})
	}
}

func TestAConnectionHasALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := speak(t, newPipes(), timeouts) // nobody accepts
		began := time.Now()
		a := ask(t.Context(), e, hello())
		require.Equal(t, time.Second, time.Since(began))
		require.ErrorIs(t, a.err, ErrConnect)
		require.ErrorIs(t, a.err, haiku.ErrTimeout)
	})
}

func TestADialThatTimesOutByItselfIsATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := speak(t, newPipes(), once)
		e.own.DialContext = func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: context.DeadlineExceeded}
		}
		a := ask(t.Context(), e, hello())
		require.ErrorIs(t, a.err, ErrConnect)
		require.ErrorIs(t, a.err, haiku.ErrTimeout)
		require.NotErrorIs(t, a.err, context.DeadlineExceeded)
	})
}

// TestAReaderThatIsSlowIsNotTheEngine has a reader that takes longer over each
// token than the engine may be silent.
func TestAReaderThatIsSlowIsNotTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		texts := repeat(piece("a"), 40)
		e, _ := serve(t, events(append(texts, stopChunk, doneMark)...), timeouts)
		ctx := haiku.WithStreamOptions(t.Context(), haiku.StreamOptions{Buffer: 1})
		n := 0
		for tok, err := range haiku.NewStream(ctx, e, hello()).Tokens() {
			require.NoError(t, err)
			n += len(tok.Text)
			soon(5 * time.Second)
		}
		require.Equal(t, 40, n)
	})
}

func TestCancelReachesTheEngineAtOnce(t *testing.T) {
	for name, first := range map[string][]string{
		"before the response": nil, "before the first token": {roleChunk}, "after tokens": {roleChunk, piece("a"), piece("b")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var left time.Time
				e, network := serve(t, func(w http.ResponseWriter, r *http.Request) {
					if first != nil {
						events(first...)(w, r)
					}
					hang(w, r)
					left = time.Now()
				}, Options{})
				ctx, cancel := context.WithCancel(t.Context())
				began := time.Now()
				time.AfterFunc(time.Second, cancel)
				a := ask(ctx, e, hello())
				require.ErrorIs(t, a.err, context.Canceled)
				require.Equal(t, time.Second, time.Since(began))
				synctest.Wait()
				require.Equal(t, began.Add(time.Second), left)
				_, open := network.connections()
				require.Zero(t, open)
				if len(first) > 1 {
					require.Equal(t, haiku.Usage{PromptTokens: 5, CompletionTokens: 2}, a.usage, "what was used is counted")
				}
			})
		})
	}
}

func TestALateCancelChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := serve(t, then([]string{piece("a"), stopChunk}, hang), Options{})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		require.NoError(t, ask(ctx, e, hello()).err, "the finish reason was there")
	})
}
