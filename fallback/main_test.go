package fallback

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/intelliparadigm/haiku"
)

// raceEnabled is set when the race detector, which allocates, is compiled in.
var raceEnabled bool

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	goleak.VerifyTestMain(m)
}

// newBreaker returns a breaker that is closed when the test, or its bubble, ends.
func newBreaker(t *testing.T, o BreakerOptions) *Breaker {
	t.Helper()
	b, err := NewBreaker(o)
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

// changesSeen collects what OnChange tells.
type changesSeen struct {
	mu  sync.Mutex
	all []Change
}

func (c *changesSeen) add(change Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, change)
}

func (c *changesSeen) list() []Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Change(nil), c.all...)
}

// must makes a call that has to be allowed.
func must(t *testing.T, b *Breaker) Call {
	t.Helper()
	c, ok := b.Allow()
	require.True(t, ok, "the call is refused")
	return c
}

func refused(t *testing.T, b *Breaker) Call {
	t.Helper()
	c, ok := b.Allow()
	require.False(t, ok, "the call is allowed")
	return c
}

// fail makes n calls that fail.
func fail(t *testing.T, b *Breaker, n int) {
	t.Helper()
	for range n {
		c := must(t, b)
		c.Done(Outcome{Class: Failed})
	}
}

// answer is all that a reader gets from a stream.
type answer struct {
	text   string
	tokens []haiku.Token
	model  string
	usage  haiku.Usage
	err    error
}

func ask(ctx context.Context, m haiku.Model, req *haiku.Request) (a answer) {
	s := haiku.NewStream(haiku.WithLogger(ctx, slog.New(slog.DiscardHandler)), m, req)
	for tok, err := range s.Tokens() {
		if err != nil {
			a.err = err
			continue
		}
		a.tokens = append(a.tokens, tok)
		if tok.Choice == 0 {
			a.text += tok.Text
		}
	}
	a.model, a.usage = s.Model(), s.Usage()
	return a
}

// elapse lets time pass, which costs nothing in a synctest bubble.
func elapse(d time.Duration) { <-time.After(d) }
