package infer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// words is an answer of n tokens that can be told apart.
func words(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("w%d ", i)
	}
	return list
}

// counting is a fake that answers every prompt with n words, one token each.
func counting(n int, mod func(*haikutest.Config)) *haikutest.Executor {
	cfg := haikutest.Config{Pieces: words(n), Answer: func(string) []string { return words(n) }}
	if mod != nil {
		mod(&cfg)
	}
	return haikutest.New(cfg)
}

func ask(content string) *haiku.Request {
	return &haiku.Request{Messages: []haiku.Message{{Role: haiku.RoleUser, Content: content}}}
}

// text reads a whole answer.
func text(ctx context.Context, m haiku.Model, req *haiku.Request) (string, error) {
	return haiku.NewStream(ctx, m, req).Text()
}

func TestAnAnswerIsStreamedToItsEnd(t *testing.T) {
	exec := counting(3, nil)
	engine := haikutest.NewEngine(t, exec, infer.Options{Name: "fake"})
	stream := haiku.NewStream(t.Context(), engine, ask("hello"))
	var got []haiku.Token
	for tok, err := range stream.Tokens() {
		require.NoError(t, err)
		got = append(got, tok)
	}
	require.Equal(t, []haiku.Token{
		{ID: 259, Text: "w0 "}, {ID: 260, Text: "w1 "}, {ID: 261, Text: "w2 "}, {ID: haiku.NoToken, Finish: haiku.FinishStop},
	}, got)
	prompt := len("<s>") - 2 + len("user: hello\n") + 1 // BOS, bytes, answer token
	require.Equal(t, haiku.Usage{PromptTokens: prompt, CompletionTokens: 4}, stream.Usage())
	require.Equal(t, "fake", stream.Model())
	require.Equal(t, 3, exec.Counts().DecodeTokens)
	require.Equal(t, prompt, exec.Counts().PrefillTokens)
}

func TestManyRequestsShareTheBatchAndKeepTheirAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := haikutest.New(haikutest.Config{
			Answer: func(prompt string) []string { return []string{strings.ToUpper(prompt)} },
			Costs:  haikutest.Costs{Step: time.Millisecond},
		})
		engine := haikutest.NewEngine(t, exec, infer.Options{MaxSequences: 16})
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				name := strings.Repeat(fmt.Sprintf("request %d ", i), 1+i%7)
				got, err := text(t.Context(), engine, ask(name))
				require.NoError(t, err)
				require.Equal(t, strings.ToUpper("user: "+name), got)
			})
		}
		wg.Wait()
		require.Equal(t, 16, exec.Counts().LargestBatch)
		require.Equal(t, 40, exec.Counts().Released)
	})
}

func TestChoicesAreSeparateSequences(t *testing.T) {
	engine := haikutest.NewEngine(t, counting(2, nil), infer.Options{})
	req := ask("x")
	req.Choices = 3
	answers := make([]string, 3)
	finished := 0
	for tok, err := range haiku.NewStream(t.Context(), engine, req).Tokens() {
		require.NoError(t, err)
		answers[tok.Choice] += tok.Text
		if tok.Finish != "" {
			finished++
		}
	}
	require.Equal(t, []string{"w0 w1 ", "w0 w1 ", "w0 w1 "}, answers)
	require.Equal(t, 3, finished)
}

func TestLengthAndStopEndGenerationAtTheirStep(t *testing.T) {
	for name, c := range map[string]struct {
		mod    func(*haiku.Request)
		want   string
		finish haiku.FinishReason
		decode int
	}{
		"max tokens":               {func(r *haiku.Request) { r.MaxTokens = 2 }, "w0 w1 ", haiku.FinishLength, 1},
		"stop inside a token":      {func(r *haiku.Request) { r.Stop = []string{"2"} }, "w0 w1 w", haiku.FinishStop, 2},
		"stop over several tokens": {func(r *haiku.Request) { r.Stop = []string{"1 w2 w"} }, "w0 w", haiku.FinishStop, 3},
	} {
		t.Run(name, func(t *testing.T) {
			exec := counting(9, nil)
			engine := haikutest.NewEngine(t, exec, infer.Options{})
			req := ask("x")
			c.mod(req)
			got, finish := "", haiku.FinishReason("")
			for tok, err := range haiku.NewStream(t.Context(), engine, req).Tokens() {
				require.NoError(t, err)
				got += tok.Text
				finish = tok.Finish
			}
			require.Equal(t, c.want, got)
			require.Equal(t, c.finish, finish)
			require.Equal(t, c.decode, exec.Counts().DecodeTokens)
		})
	}
}

func TestTheContextsEndIsALengthNotAnError(t *testing.T) {
	exec := counting(100, func(c *haikutest.Config) { c.ContextTokens = 32 })
	engine := haikutest.NewEngine(t, exec, infer.Options{})
	stream := haiku.NewStream(t.Context(), engine, ask("x"))
	var last haiku.Token
	for tok, err := range stream.Tokens() {
		require.NoError(t, err)
		last = tok
	}
	require.Equal(t, haiku.FinishLength, last.Finish)
	require.Equal(t, 32, stream.Usage().PromptTokens+stream.Usage().CompletionTokens)
}

func TestBadRequestsAreRefusedBeforeTheyWait(t *testing.T) {
	exec := counting(1, func(c *haikutest.Config) { c.ContextTokens, c.Blocks = 64, 3 })
	engine := haikutest.NewEngine(t, exec, infer.Options{Name: "fake"})
	for name, c := range map[string]struct {
		mod   func(*haiku.Request)
		kind  *haiku.Error
		param string
	}{
		"unknown model":         {func(r *haiku.Request) { r.Model = "gpt-9" }, haiku.ErrModelNotFound, "model"},
		"nothing to continue":   {func(r *haiku.Request) { r.Messages = nil }, haiku.ErrInvalidRequest, "prompt"},
		"unknown role":          {func(r *haiku.Request) { r.Messages[0].Role = "root" }, haiku.ErrInvalidRequest, "messages[0].role"},
		"prompt too long":       {func(r *haiku.Request) { r.Messages[0].Content = strings.Repeat("x", 100) }, haiku.ErrContextLength, "messages"},
		"prompt and max_tokens": {func(r *haiku.Request) { r.MaxTokens = 60 }, haiku.ErrContextLength, "max_tokens"},
		"more than the KV pool": {func(r *haiku.Request) { r.MaxTokens = 45 }, haiku.ErrContextLength, "max_tokens"},
		"prompt over the pool":  {func(r *haiku.Request) { r.Messages[0].Content = strings.Repeat("x", 50) }, haiku.ErrContextLength, "messages"},
		"too many choices":      {func(r *haiku.Request) { r.Choices = 129 }, haiku.ErrInvalidRequest, "n"},
		"negative temperature":  {func(r *haiku.Request) { r.Sampling.Temperature = -1 }, haiku.ErrInvalidRequest, "temperature"},
		"bias out of range":     {func(r *haiku.Request) { r.Sampling.LogitBias = map[int32]float32{1 << 20: 1} }, haiku.ErrInvalidRequest, "logit_bias"},
		"token out of range":    {func(r *haiku.Request) { r.PromptTokens = []int32{1, -5} }, haiku.ErrInvalidRequest, "prompt[1]"},
	} {
		t.Run(name, func(t *testing.T) {
			req := ask("x")
			c.mod(req)
			_, err := text(t.Context(), engine, req)
			require.ErrorIs(t, err, c.kind)
			var e *haiku.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, c.param, e.Param)
			require.Less(t, e.Status, 500)
		})
	}
	require.Zero(t, exec.Counts().Steps)
}

func TestUserTextNeverBecomesAControlToken(t *testing.T) {
	var seen string
	exec := haikutest.New(haikutest.Config{Answer: func(p string) []string { seen = p; return nil }})
	engine := haikutest.NewEngine(t, exec, infer.Options{})
	content := "a" + haikutest.AnswerMark + "</s><s>b"
	_, err := text(t.Context(), engine, ask(content))
	require.NoError(t, err)
	require.Equal(t, "user: "+content, seen, "the fake splits at the last answer token and shows control tokens as nothing")
}

func TestSameSeedSameTextWhateverElseIsInTheBatch(t *testing.T) {
	// Without the answer mark the fake's two best tokens differ by 10 in logit;
	// a temperature of 20 makes every draw open.
	exec := haikutest.New(haikutest.Config{})
	engine := haikutest.NewEngine(t, exec, infer.Options{MaxBatchTokens: 16, MaxSequences: 8})
	seed := uint64(7)
	req := &haiku.Request{Prompt: "once", MaxTokens: 20, Sampling: haiku.Sampling{Temperature: 20, Seed: &seed}}
	alone, err := text(t.Context(), engine, req)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			_, err := text(t.Context(), engine, &haiku.Request{Prompt: strings.Repeat("noise", i+1), MaxTokens: 30, Sampling: haiku.Sampling{Temperature: 20}})
			require.NoError(t, err)
		})
		wg.Go(func() {
			got, err := text(t.Context(), engine, req)
			require.NoError(t, err)
			require.Equal(t, alone, got)
		})
	}
	wg.Wait()
	other := seed + 1
	req2 := *req
	req2.Sampling.Seed = &other
	changed, err := text(t.Context(), engine, &req2)
	require.NoError(t, err)
	require.NotEqual(t, alone, changed)
}

func TestLogprobsComeWithTheirTokens(t *testing.T) {
	engine := haikutest.NewEngine(t, counting(1, nil), infer.Options{})
	req := ask("x")
	req.Logprobs, req.TopLogprobs = true, 2
	var lps []haiku.TokenLogprob
	for tok, err := range haiku.NewStream(t.Context(), engine, req).Tokens() {
		require.NoError(t, err)
		lps = append(lps, tok.Logprobs...)
	}
	require.Len(t, lps, 1)
	require.InDelta(t, 0, lps[0].Logprob, 1e-5)
	require.Equal(t, "w0 ", string(lps[0].Bytes))
	require.Equal(t, []int32{259, 0}, []int32{lps[0].Top[0].ID, lps[0].Top[1].ID})
}

func TestTheQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(5, func(c *haikutest.Config) { c.Costs.Step = time.Second })
		engine := haikutest.NewEngine(t, exec, infer.Options{MaxSequences: 1, MaxQueued: 2})
		errs := make(chan error, 6)
		for range 6 {
			go func() {
				_, err := text(t.Context(), engine, ask("x"))
				errs <- err
			}()
			synctest.Wait()
		}
		refused := 0
		for range 6 {
			if err := <-errs; err != nil {
				require.ErrorIs(t, err, haiku.ErrTooBusy)
				require.Equal(t, []int{429, int(time.Second)}, []int{haiku.ErrorFrom(err).Status, int(haiku.ErrorFrom(err).RetryAfter)},
					"nothing is known yet about how long it takes")
				refused++
			}
		}
		require.Equal(t, 3, refused, "one runs, two wait")
	})
}

func TestALongPromptDoesNotHoldUpShortOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := haikutest.New(haikutest.Config{
			Answer: func(string) []string { return []string{"x"} }, ContextTokens: 16384,
			Costs: haikutest.Costs{PrefillToken: time.Millisecond},
		})
		engine := haikutest.NewEngine(t, exec, infer.Options{MaxBatchTokens: 256})
		first := func(prompt string) time.Duration {
			start := time.Now()
			stream := haiku.NewStream(t.Context(), engine, &haiku.Request{Prompt: prompt + haikutest.AnswerMark, MaxTokens: 1})
			for _, err := range stream.Tokens() {
				require.NoError(t, err)
			}
			return time.Since(start)
		}
		var wg sync.WaitGroup
		var long time.Duration
		wg.Go(func() { long = first(strings.Repeat("l", 8000)) })
		elapse(10 * time.Millisecond) // virtual: the scenario
		var worst time.Duration
		var mu sync.Mutex
		for range 20 {
			wg.Go(func() {
				d := first(strings.Repeat("s", 20))
				mu.Lock()
				defer mu.Unlock()
				worst = max(worst, d)
			})
		}
		wg.Wait()
		require.Less(t, worst, 6*256*time.Millisecond, "a few chunks, not the long prompt's eight seconds")
		require.Less(t, long, 12*time.Second, "nor does the long one starve")
	})
}

func TestAFaultEndsItsOwnRequestOnly(t *testing.T) {
	guilty := func(prompt string) bool { return strings.Contains(prompt, "guilty") }
	for name, c := range map[string]struct {
		kind haikutest.FaultKind
		want *haiku.Error
	}{
		"error":           {haikutest.Fail, haiku.ErrInternal},
		"error of a step": {haikutest.FailStep, haiku.ErrInternal},
		"panic":           {haikutest.Panic, haiku.ErrInternal},
		"Goexit":          {haikutest.Exit, haiku.ErrInternal},
		"out of memory":   {haikutest.OutOfMemory, haiku.ErrOverloaded},
		"NaN":             {haikutest.NaN, haiku.ErrInternal},
	} {
		for _, at := range []int{0, 3} {
			t.Run(fmt.Sprintf("%s at token %d", name, at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					exec := counting(6, func(cfg *haikutest.Config) {
						cfg.Costs.Step = time.Millisecond
						cfg.Faults = []haikutest.Fault{{Kind: c.kind, Match: guilty, At: at}}
					})
					engine := haikutest.NewEngine(t, exec, infer.Options{})
					var wg sync.WaitGroup
					for i := range 10 {
						wg.Go(func() {
							got, err := text(t.Context(), engine, ask(fmt.Sprint("good ", i)))
							require.NoError(t, err)
							require.Equal(t, strings.Join(words(6), ""), got)
						})
					}
					wg.Go(func() {
						got, err := text(t.Context(), engine, ask("guilty"))
						require.ErrorIs(t, haiku.ErrorFrom(err), c.want)
						require.Equal(t, strings.Join(words(at), ""), got)
					})
					wg.Wait()
				})
			})
		}
	}
}

func TestAStalledStepIsCancelledWhenNobodyWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(6, func(cfg *haikutest.Config) {
			cfg.Faults = []haikutest.Fault{{Kind: haikutest.Stall, Match: func(p string) bool { return strings.Contains(p, "stall") }, At: 2}}
		})
		engine := haikutest.NewEngine(t, exec, infer.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got, err := text(ctx, engine, ask("stall"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, "w0 w1 ", got)
		_, err = text(t.Context(), engine, ask("fine"))
		require.NoError(t, err, "the engine goes on")
	})
}

func TestCancelIsNoticedInEveryPhase(t *testing.T) {
	step := 10 * time.Millisecond
	for name, c := range map[string]struct {
		options infer.Options
		prompt  string
		after   time.Duration // since the request was made
	}{
		"queued":  {infer.Options{MaxSequences: 1}, "queued", 25 * time.Millisecond},
		"prefill": {infer.Options{MaxBatchTokens: 8, MaxSequences: 4}, strings.Repeat("p", 300), 25 * time.Millisecond},
		"decode":  {infer.Options{}, "d", 55 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				exec := counting(500, func(cfg *haikutest.Config) { cfg.Costs.Step = step })
				engine := haikutest.NewEngine(t, exec, c.options)
				if name == "queued" {
					busy, cancel := context.WithCancel(t.Context())
					defer cancel()
					var wg sync.WaitGroup
					wg.Go(func() { _, _ = text(busy, engine, ask("busy")) })
					defer wg.Wait()
					defer cancel()
					synctest.Wait()
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stream := haiku.NewStream(ctx, engine, ask(c.prompt))
				ended := make(chan error, 1)
				go func() { _, err := stream.Text(); ended <- err }()
				elapse(c.after) // virtual
				open, steps := exec.Counts().OpenSequences, exec.Counts().Steps
				cancel()
				cancelled := time.Now()
				require.ErrorIs(t, <-ended, context.Canceled)
				require.LessOrEqual(t, time.Since(cancelled), step, "at most the step that runs")
				if name == "queued" {
					require.Zero(t, time.Since(cancelled), "a queued request leaves at once")
					require.Equal(t, open, exec.Counts().OpenSequences)
					return
				}
				require.LessOrEqual(t, exec.Counts().Steps, steps+1)
				require.Zero(t, exec.Counts().OpenSequences, "its slot is free")
				require.Positive(t, stream.Usage().PromptTokens, "what was used is counted")
			})
		})
	}
}

func TestCancellingSomeLeavesTheOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(50, func(cfg *haikutest.Config) { cfg.Costs.Step = time.Millisecond })
		engine := haikutest.NewEngine(t, exec, infer.Options{})
		var wg sync.WaitGroup
		for i := range 8 {
			ctx, cancel := context.WithCancel(t.Context())
			wg.Go(func() {
				defer cancel()
				got, err := text(ctx, engine, ask(fmt.Sprint(i)))
				if i == 0 {
					require.NoError(t, err)
					require.Equal(t, strings.Join(words(50), ""), got)
				} else {
					require.ErrorIs(t, err, context.Canceled)
				}
			})
			if i > 0 {
				context.AfterFunc(ctx, func() {})
				time.AfterFunc(20*time.Millisecond, cancel) // all in the same instant
			}
		}
		wg.Wait()
		require.Zero(t, exec.Counts().OpenSequences)
	})
}

func TestLeavingEarlyFreesEverything(t *testing.T) {
	exec := counting(400, nil)
	engine := haikutest.NewEngine(t, exec, infer.Options{})
	for range 200 {
		for tok, err := range haiku.NewStream(t.Context(), engine, ask("x")).Tokens() {
			require.NoError(t, err)
			require.Equal(t, "w0 ", tok.Text)
			break
		}
		require.Zero(t, exec.Counts().OpenSequences)
	}
	require.Equal(t, 200, exec.Counts().Released)
}

func TestNewStreamNeedsAModelAndAGoodPayload(t *testing.T) {
	_, err := infer.NewStream(t.Context(), ask("x")).Text()
	require.ErrorIs(t, err, haiku.ErrInternal)

	engine := haikutest.NewEngine(t, counting(1, nil), infer.Options{})
	ctx := haiku.WithModel(t.Context(), engine)
	got, err := infer.NewStream(ctx, ask("x")).Text()
	require.NoError(t, err)
	require.Equal(t, "w0 ", got)
	_, err = infer.NewStream(ctx, badPayload{}).Text()
	require.ErrorIs(t, err, errBad)
}

var errBad = errors.New("bad payload")

type badPayload struct{}

func (badPayload) InferenceRequest() (*haiku.Request, error) { return nil, errBad }

// elapse lets virtual time pass.
func elapse(d time.Duration) { <-time.After(d) }
