package haikutest

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/infer"
)

func chat(content string) *haiku.Request {
	return &haiku.Request{Messages: []haiku.Message{{Role: haiku.RoleUser, Content: content}}}
}

func text(t *testing.T, m haiku.Model, req *haiku.Request) (string, error) {
	return haiku.NewStream(t.Context(), m, req).Text()
}

// best is the most probable token of a row of logits, and by how much.
func best(logits []float32) (id int32, lead float32) {
	for i, l := range logits {
		if l > logits[id] {
			id = int32(i)
		}
	}
	rest := slices.Clone(logits)
	rest[id] = 0
	return id, logits[id] - slices.Max(rest)
}

func TestCostsPassInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Says("one ", "two ", "three")
		cfg.Costs = Costs{Step: time.Second, PrefillToken: time.Millisecond, DecodeSequence: 10 * time.Millisecond}
		exec := New(cfg)
		start := time.Now()
		got, err := text(t, NewEngine(t, exec, infer.Options{}), &haiku.Request{Prompt: "12345678" + AnswerMark})
		require.NoError(t, err)
		require.Equal(t, "one two three", got)
		// One step for ten tokens of prompt, three for one token each.
		require.Equal(t, 4*time.Second+10*time.Millisecond+30*time.Millisecond, time.Since(start))
		require.Equal(t, Counts{Steps: 4, PrefillTokens: 10, DecodeTokens: 3, LargestBatch: 1, Released: 1}, exec.Counts())
	})
}

func TestAChunkOfOneTokenIsPromptUntilThereAreLogits(t *testing.T) {
	exec := New(Config{})
	step := func(start int, logits []float32) {
		it := infer.Item{Seq: 1, Start: start, Tokens: []int32{40}, Blocks: []int32{3}, Logits: logits}
		require.NoError(t, exec.Step(t.Context(), &infer.Batch{Items: []infer.Item{it}}))
	}
	logits := make([]float32, exec.Spec().VocabSize)
	step(0, nil)
	step(1, logits)
	step(2, logits)
	require.Equal(t, Counts{Steps: 3, PrefillTokens: 2, DecodeTokens: 1, LargestBatch: 1, OpenSequences: 1}, exec.Counts())
}

func TestAStepThatIsCancelledMidwayLeavesNoTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := New(Config{Costs: Costs{Step: time.Minute}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		it := infer.Item{Seq: 1, Tokens: []int32{40}, Blocks: []int32{0}}
		start := time.Now()
		require.ErrorIs(t, exec.Step(ctx, &infer.Batch{Items: []infer.Item{it}}), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		require.Zero(t, exec.Counts().OpenSequences)
	})
}

func TestTheAnswerDependsOnThePromptAlone(t *testing.T) {
	var prompts []string
	exec := New(Config{
		Pieces: []string{"yes", "no"},
		Answer: func(prompt string) []string {
			prompts = append(prompts, prompt)
			return []string{prompt[len(prompt)-1:], "yes", "unknown"}
		},
	})
	engine := NewEngine(t, exec, infer.Options{})
	for _, content := range []string{"a", "b", "a"} {
		got, err := text(t, engine, chat(content))
		require.NoError(t, err)
		require.Equal(t, content+"yesunknown", got)
	}
	require.Equal(t, []string{"user: a", "user: b", "user: a"}, prompts, "the script is asked once per sequence")
}

func TestTheScriptedTokenIsFarAhead(t *testing.T) {
	exec := New(Says("x", "y"))
	it := infer.Item{
		Tokens: []int32{bosToken, answerToken}, Blocks: []int32{0},
		Logits: make([]float32, exec.Spec().VocabSize),
	}
	for _, want := range []int32{pieceToken, pieceToken + 1, eosToken, eosToken} {
		require.NoError(t, exec.Step(t.Context(), &infer.Batch{Items: []infer.Item{it}}))
		id, lead := best(it.Logits)
		require.Equal(t, want, id)
		require.GreaterOrEqual(t, lead, float32(20))
		it.Start += len(it.Tokens)
		it.Tokens = []int32{id}
	}
}

func TestWithoutAMarkTheNextTokenIsNoiseThatNeverEnds(t *testing.T) {
	exec := New(Config{})
	engine := NewEngine(t, exec, infer.Options{})
	req := &haiku.Request{Prompt: "x", MaxTokens: 500}
	stream := haiku.NewStream(t.Context(), engine, req)
	_, err := stream.Text()
	require.NoError(t, err)
	require.Equal(t, 500, stream.Usage().CompletionTokens)
}

// A rewritten sequence is as good as a new one: whatever is written over what,
// the next token is that of the tokens which are there in the end.
func TestTheNextTokenFollowsFromTheTokensThatAreThere(t *testing.T) {
	exec := New(Config{
		Pieces: []string{"long piece"},
		Answer: func(prompt string) []string { return []string{prompt, "long piece"} },
	})
	next := func(s *sequence) []float32 {
		logits := make([]float32, exec.Spec().VocabSize)
		exec.logits(logits, s)
		return logits
	}
	tokens := rapid.SliceOfN(rapid.SampledFrom([]int32{bosToken, answerToken, eosToken, 40, 41, pieceToken}), 1, 6)
	rapid.Check(t, func(t *rapid.T) {
		rewritten := &sequence{mark: -1}
		for range rapid.IntRange(1, 8).Draw(t, "writes") {
			at := rapid.IntRange(0, len(rewritten.tokens)).Draw(t, "at")
			rewritten.write(at, tokens.Draw(t, "tokens"))
			fresh := &sequence{mark: -1}
			fresh.write(0, rewritten.tokens)
			require.Equal(t, next(fresh), next(rewritten))
			require.Equal(t, fresh, rewritten)
		}
	})
}
