package haikutest

import (
	"context"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/infer"
)

// sick is an executor that says four words, with one fault.
func sick(f Fault) *Executor {
	cfg := Says("one ", "two ", "three ", "four")
	cfg.Faults = []Fault{f}
	return New(cfg)
}

// first is a batch whose sequence "x" is about to make its first token.
func first(exec *Executor) *infer.Batch {
	return &infer.Batch{Items: []infer.Item{{
		Tokens: []int32{bosToken, byteToken + 'x', answerToken}, Blocks: []int32{0},
		Logits: make([]float32, exec.Spec().VocabSize),
	}}}
}

func TestEachFaultDoesWhatItSays(t *testing.T) {
	exec := sick(Fault{Kind: Fail})
	b := first(exec)
	require.NoError(t, exec.Step(t.Context(), b))
	require.ErrorIs(t, b.Items[0].Err, ErrFault)

	exec = sick(Fault{Kind: OutOfMemory})
	b = first(exec)
	require.NoError(t, exec.Step(t.Context(), b))
	require.ErrorIs(t, b.Items[0].Err, infer.ErrOutOfMemory)

	exec = sick(Fault{Kind: FailStep})
	b = first(exec)
	require.ErrorIs(t, exec.Step(t.Context(), b), ErrFault)
	require.NoError(t, b.Items[0].Err)

	exec = sick(Fault{Kind: NaN})
	b = first(exec)
	require.NoError(t, exec.Step(t.Context(), b))
	require.NoError(t, b.Items[0].Err)
	for _, l := range b.Items[0].Logits {
		require.True(t, math.IsNaN(float64(l)))
	}

	exec = sick(Fault{Kind: Panic})
	require.PanicsWithValue(t, "haikutest: scripted panic", func() { exec.Step(t.Context(), first(exec)) })

	exec = sick(Fault{Kind: Exit})
	exited := make(chan bool)
	go func() {
		returned := false
		defer func() { exited <- !returned }()
		exec.Step(t.Context(), first(exec))
		returned = true
	}()
	require.True(t, <-exited)
	require.NoError(t, sick(Fault{Kind: Exit, At: 1}).Step(t.Context(), first(exec)))
}

// After a panic or an exit the executor can be used again.
func TestAFaultLeavesTheExecutorUsable(t *testing.T) {
	exec := sick(Fault{Kind: Panic, Times: 1})
	require.Panics(t, func() { exec.Step(t.Context(), first(exec)) })
	b := first(exec)
	require.NoError(t, exec.Step(t.Context(), b))
	id, _ := best(b.Items[0].Logits)
	require.Equal(t, pieceToken, id)
	require.Empty(t, exec.Violations())
}

func TestAFaultStrikesWhereItSays(t *testing.T) {
	guilty := func(prompt string) bool { return strings.HasSuffix(prompt, "guilty") }
	for name, c := range map[string]struct {
		fault   Fault
		content string
		want    string // of the answer
		fails   bool
	}{
		"at the first token":       {Fault{}, "x", "", true},
		"at the third":             {Fault{At: 2}, "x", "one two ", true},
		"at the end":               {Fault{At: 4}, "x", "one two three four", true},
		"after the end":            {Fault{At: 5}, "x", "one two three four", false},
		"on the guilty":            {Fault{At: 1, Match: guilty}, "guilty", "one ", true},
		"not on the innocent":      {Fault{At: 1, Match: guilty}, "innocent", "one two three four", false},
		"in the prompt":            {Fault{Position: 3}, "x", "", true},
		"in the answer":            {Fault{Position: 11}, "x", "one two ", true}, // BOS, "user: x\n", mark
		"beyond the last position": {Fault{Position: 15}, "x", "one two three four", false},
		"once, and never again":    {Fault{Kind: FailStep, At: 1, Times: 1}, "x", "one ", true},
	} {
		t.Run(name, func(t *testing.T) {
			exec := sick(c.fault)
			engine := NewEngine(t, exec, infer.Options{})
			got, err := text(t, engine, chat(c.content))
			require.Equal(t, c.want, got)
			if c.fails {
				require.ErrorIs(t, err, ErrFault)
			} else {
				require.NoError(t, err)
			}
			if c.fault.Times == 1 {
				got, err := text(t, engine, chat(c.content))
				require.NoError(t, err)
				require.Equal(t, "one two three four", got)
			}
		})
	}
}

func TestMemoryRunsOutForLongPromptsOnly(t *testing.T) {
	engine := NewEngine(t, sick(Fault{Kind: OutOfMemory, Position: 30}), infer.Options{MaxBatchTokens: 8})
	_, err := text(t, engine, chat("short"))
	require.NoError(t, err)
	_, err = text(t, engine, chat(strings.Repeat("long ", 8)))
	require.ErrorIs(t, err, haiku.ErrOverloaded)
	require.ErrorIs(t, err, infer.ErrOutOfMemory)
}

func TestAStallEndsWithItsContextOrWhenItIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		exec := sick(Fault{Kind: Stall, Until: until})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, exec.Step(ctx, first(exec)), context.DeadlineExceeded)

		time.AfterFunc(time.Hour, func() { close(until) })
		start := time.Now()
		b := first(exec)
		require.NoError(t, exec.Step(t.Context(), b))
		require.Equal(t, time.Hour, time.Since(start))
		id, _ := best(b.Items[0].Logits)
		require.Equal(t, pieceToken, id, "it computes as if nothing had happened")
	})
}

func TestAHangHearsNoContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		engine := NewEngine(t, sick(Fault{Kind: Hang, At: 1, Until: until}), infer.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(time.Hour, func() { close(until) })
		start := time.Now()
		got, err := haiku.NewStream(ctx, engine, chat("x")).Text()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, "one ", got)
		require.Equal(t, time.Hour, time.Since(start), "the device keeps the sequence until the kernel ends")
	})
}
