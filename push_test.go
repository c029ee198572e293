package haiku_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

func TestTextsLongerThanTheArena(t *testing.T) {
	long := strings.Repeat("0123456789 你好 😀\n", 3000)
	m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		_, err := w.Push(ctx, haiku.Piece{ID: 7, Text: long, Logprob: &haiku.TokenLogprob{ID: 7, Logprob: -1, Bytes: []byte("x")}})
		w.Finish(0, haiku.FinishLength)
		return err
	})
	a := read(haiku.NewStream(t.Context(), m, &haiku.Request{}))
	require.NoError(t, a.err)
	require.True(t, long == a.text(0))
	require.True(t, long == wire(t, m))
	var ids []int32
	var logprobs []haiku.TokenLogprob
	for _, tok := range a.tokens {
		if tok.ID != haiku.NoToken {
			ids = append(ids, tok.ID)
		}
		logprobs = append(logprobs, tok.Logprobs...)
	}
	require.Equal(t, []int32{7}, ids, "one token, however many parts")
	require.Equal(t, []haiku.TokenLogprob{{ID: 7, Logprob: -1, Bytes: []byte("x")}}, logprobs)
}

func TestAStopStringInsideALongText(t *testing.T) {
	long := strings.Repeat("x", 700) + "STOP" + strings.Repeat("y", 7000)
	got, err := haiku.NewStream(t.Context(), pieces(long), &haiku.Request{Stop: []string{"STOP"}}).Text()
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("x", 700), got)
}

func TestTheVocabularysTextCountsWherePieceHasBoth(t *testing.T) {
	m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		w.SetVocabulary(haiku.NewVocabulary([][]byte{[]byte("zero"), nil}))
		for _, p := range []haiku.Piece{
			{ID: 0, Text: strings.Repeat("x", 5000)},
			{ID: 1, Text: "control tokens are not shown"},
			{ID: 99},
			{ID: haiku.NoToken, Text: "own"},
			{ID: 0, Finish: haiku.FinishLength},
		} {
			if _, err := w.Push(ctx, p); err != nil {
				return err
			}
		}
		return nil
	})
	require.Equal(t, answer{tokens: []haiku.Token{
		{ID: 0, Text: "zero"}, {ID: 1}, {ID: 99}, {ID: -1, Text: "own"}, {ID: 0, Text: "zero", Finish: haiku.FinishLength},
	}}, read(haiku.NewStream(t.Context(), m, &haiku.Request{})))
}

func TestLogprobsArriveWithTheTextOfTheirToken(t *testing.T) {
	lp := func(id int32, bytes string, top ...haiku.TokenLogprob) *haiku.TokenLogprob {
		return &haiku.TokenLogprob{ID: id, Logprob: -float32(id) / 4, Bytes: []byte(bytes), Top: top}
	}
	fromVocabulary := &haiku.TokenLogprob{ID: 1, Logprob: -0.25, Top: []haiku.TokenLogprob{{ID: 0, Logprob: -2}, {ID: 1, Logprob: -0.25}}}
	m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		w.SetVocabulary(haiku.NewVocabulary([][]byte{[]byte("zero"), []byte("one")}))
		for _, p := range []haiku.Piece{
			{ID: -1, Text: "a\xe4", Logprob: lp(1, "a\xe4", *lp(9, "b"))},
			{ID: -1, Text: "\xbd", Logprob: lp(2, "\xbd")},
			{ID: -1, Text: "\xa0", Logprob: lp(3, "\xa0")},
			{ID: 1, Logprob: fromVocabulary},
			{ID: -1, Text: "ST", Logprob: lp(4, "ST")},
			{ID: -1, Text: "-", Logprob: lp(5, "-")},
			{ID: -1, Text: "zST", Logprob: lp(6, "zST")},
			{ID: -1, Text: "O", Logprob: lp(7, "O")},
			{ID: -1, Text: "P", Logprob: lp(8, "P")},
		} {
			if _, err := w.Push(ctx, p); err != nil {
				return err
			}
		}
		return nil
	})
	one := haiku.TokenLogprob{ID: 1, Logprob: -0.25, Bytes: []byte("one"), Top: []haiku.TokenLogprob{
		{ID: 0, Logprob: -2, Bytes: []byte("zero")}, {ID: 1, Logprob: -0.25, Bytes: []byte("one")},
	}}
	require.Equal(t, answer{tokens: []haiku.Token{
		{ID: -1, Text: "a"},
		{ID: -1},
		{ID: -1, Text: "你", Logprobs: []haiku.TokenLogprob{*lp(1, "a\xe4", *lp(9, "b")), *lp(2, "\xbd"), *lp(3, "\xa0")}},
		{ID: 1, Text: "one", Logprobs: []haiku.TokenLogprob{one}},
		{ID: -1},
		{ID: -1, Text: "ST-", Logprobs: []haiku.TokenLogprob{*lp(4, "ST"), *lp(5, "-")}},
		{ID: -1, Text: "z"},
		{ID: -1},
		{ID: -1, Finish: haiku.FinishStop, Logprobs: []haiku.TokenLogprob{*lp(6, "zST")}},
	}}, read(haiku.NewStream(t.Context(), m, &haiku.Request{Stop: []string{"STOP"}})))
}

func TestAlternativesThatDoNotFitAreLeftOut(t *testing.T) {
	many := haiku.TokenLogprob{ID: 1, Bytes: []byte("x")}
	for i := range 200 {
		many.Top = append(many.Top, haiku.TokenLogprob{ID: int32(i), Bytes: []byte(strings.Repeat("y", 20))})
	}
	m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		_, err := w.Push(ctx, haiku.Piece{ID: -1, Text: strings.Repeat("z", 512), Logprob: &many, Finish: haiku.FinishStop})
		return err
	})
	a := read(haiku.NewStream(t.Context(), m, &haiku.Request{}))
	require.NoError(t, a.err)
	got := a.tokens[0].Logprobs[0].Top
	require.NotEmpty(t, got)
	require.Equal(t, many.Top[:len(got)], got)
	require.Len(t, got, (512-11)/30)
}

func TestTryPushFullAndOnSpaceAtHalf(t *testing.T) {
	const slots = 7 // and one in reserve for the finish
	begun, filled, half := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var results []haiku.PushResult
	calls := 0
	m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		w.OnSpace(func() { calls++ })
		push := func(id int32) { results = append(results, w.TryPush(haiku.Piece{ID: id})) }
		push(100)
		<-begun // the reader holds it and reads no other
		for id := range int32(slots + 2) {
			push(id)
		}
		close(filled)
		<-half
		push(slots)
		w.Finish(0, haiku.FinishStop)
		return nil
	})
	ctx := haiku.WithStreamOptions(t.Context(), haiku.StreamOptions{Buffer: slots})
	var ids []int32
	for tok, err := range haiku.NewStream(ctx, m, &haiku.Request{}).Tokens() {
		require.NoError(t, err)
		switch len(ids) {
		case 0:
			close(begun)
			<-filled
		case slots - slots/2: // a token is given back before it is yielded
			require.Equal(t, 1, calls)
			close(half)
		default:
			require.Equal(t, len(ids) > slots-slots/2, calls == 1, "after %d tokens", len(ids))
		}
		ids = append(ids, tok.ID)
	}
	const ok, full = haiku.Pushed, haiku.Full
	require.Equal(t, []haiku.PushResult{ok, ok, ok, ok, ok, ok, ok, ok, full, full, ok}, results)
	require.Equal(t, []int32{100, 0, 1, 2, 3, 4, 5, 6, slots, haiku.NoToken}, ids)
	require.Equal(t, 1, calls)
}

func TestFinishNeverWaits(t *testing.T) {
	const n = 5
	m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		for w.TryPush(haiku.Piece{ID: -1, Text: "x"}) == haiku.Pushed {
		}
		for i := range n {
			w.Finish(i, haiku.FinishLength)
			w.Finish(i, haiku.FinishStop) // the first counts
		}
		return nil
	})
	gate := make(chan struct{})
	full := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, r *haiku.Request) error {
		defer close(gate)
		return m.Generate(ctx, w, r)
	})
	s := haiku.NewStream(t.Context(), full, &haiku.Request{Choices: n})
	a := read(s)
	<-gate
	require.NoError(t, a.err)
	for i := range n {
		require.Equal(t, haiku.FinishLength, a.finish(i))
	}
}

// slowly reads s with a pause of d before each token after the first.
func slowly(s *haiku.StreamWriter, d time.Duration) (a answer) {
	for tok, err := range s.Tokens() {
		if err != nil {
			a.err = err
			break
		}
		a.tokens = append(a.tokens, tok)
		<-time.After(d)
	}
	return a
}

func TestASlowReaderPausesItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		texts := strings.Split(strings.Repeat("x", 50), "")
		ctx := haiku.WithStreamOptions(t.Context(), haiku.StreamOptions{Buffer: 3})
		start := time.Now()
		a := slowly(haiku.NewStream(ctx, pieces(texts...), &haiku.Request{}), time.Hour)
		require.NoError(t, a.err)
		require.Equal(t, strings.Repeat("x", 50), a.text(0))
		require.Equal(t, 51*time.Hour, time.Since(start))
	})
}

func TestAStallOverTheLimitEndsTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := haiku.WithStreamOptions(quiet(t.Context()), haiku.StreamOptions{Buffer: 3, StallLimit: 10 * time.Second})
		var ended time.Duration
		start := time.Now()
		m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, r *haiku.Request) error {
			err := endless("x").Generate(ctx, w, r)
			ended = time.Since(start)
			return err
		})
		a := slowly(haiku.NewStream(ctx, m, &haiku.Request{}), time.Minute)
		require.ErrorIs(t, haiku.ErrorFrom(a.err), haiku.ErrSlowReader)
		require.Equal(t, 10*time.Second, ended)
		require.GreaterOrEqual(t, len(a.tokens), 3, "what was in the ring is still delivered")
	})
}

func TestAReaderThatCatchesUpInTimeIsNotStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		texts := strings.Split(strings.Repeat("x", 100), "")
		ctx := haiku.WithStreamOptions(t.Context(), haiku.StreamOptions{Buffer: 3, StallLimit: 10 * time.Second})
		// Room is half a ring: two tokens of four seconds each.
		a := slowly(haiku.NewStream(ctx, pieces(texts...), &haiku.Request{}), 4*time.Second)
		require.NoError(t, a.err)
		require.Equal(t, strings.Repeat("x", 100), a.text(0))
	})
}

// A producer that is busy elsewhere after the reader has caught up is not the
// reader's fault, even if the space was freed while the ring was being armed.
func TestTheStallEndsWhenTheReaderHasCaughtUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := haiku.WithStreamOptions(t.Context(), haiku.StreamOptions{Buffer: 3, StallLimit: 10 * time.Second})
		m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
			for w.TryPush(haiku.Piece{ID: -1, Text: "x"}) == haiku.Pushed {
			}
			<-time.After(time.Minute) // a long step for other streams
			require.Equal(t, haiku.Pushed, w.TryPush(haiku.Piece{ID: -1, Text: "y"}))
			w.Finish(0, haiku.FinishStop)
			return nil
		})
		a := slowly(haiku.NewStream(ctx, m, &haiku.Request{}), time.Second)
		require.NoError(t, a.err)
		require.Regexp(t, "^x{3,4}y$", a.text(0))
	})
}

func TestPushEndsWhenTheReaderLeavesWhateverItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) (err error) {
			for err == nil {
				_, err = w.Push(context.Background(), haiku.Piece{ID: -1, Text: "x"})
			}
			return err
		})
		for range haiku.NewStream(t.Context(), m, &haiku.Request{}).Tokens() {
			synctest.Wait() // the ring is full and the model waits
			break
		}
	})
}

func TestPushEndsWithItsOwnContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := haiku.WithStreamOptions(quiet(t.Context()), haiku.StreamOptions{Buffer: 1})
		m := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
			once, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			for {
				if r, err := w.Push(once, haiku.Piece{ID: -1, Text: "x"}); err != nil {
					require.Equal(t, haiku.Gone, r)
					require.NoError(t, ctx.Err())
					return err
				}
			}
		})
		require.ErrorIs(t, slowly(haiku.NewStream(ctx, m, &haiku.Request{}), time.Hour).err, context.DeadlineExceeded)
	})
}
