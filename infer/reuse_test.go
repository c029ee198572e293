package infer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/cpu"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
)

// as answers req for a tenant and returns the text and what was used.
func as(t testing.TB, tenant string, m haiku.Model, req *haiku.Request) (string, haiku.Usage) {
	t.Helper()
	stream := haiku.NewStream(haiku.WithIdentity(t.Context(), haiku.Identity{Tenant: tenant}), m, req)
	got, err := stream.Text()
	require.NoError(t, err)
	return got, stream.Usage()
}

func TestAConversationGoesOnWhereItStopped(t *testing.T) {
	exec := counting(30, nil)
	engine := haikutest.NewEngine(t, exec, infer.Options{})
	first := ask(strings.Repeat("x", 100))
	answer, usage := as(t, "a", engine, first)
	require.Zero(t, usage.CachedTokens)
	computed := exec.Counts().PrefillTokens
	require.Equal(t, usage.PromptTokens, computed)

	second := ask(strings.Repeat("x", 100))
	second.Messages = append(second.Messages,
		haiku.Message{Role: haiku.RoleAssistant, Content: answer}, haiku.Message{Role: haiku.RoleUser, Content: "more"})
	_, usage = as(t, "a", engine, second)
	require.Equal(t, 96, usage.CachedTokens, "six blocks of 16, up to where the conversations part")
	require.Equal(t, computed+usage.PromptTokens-usage.CachedTokens, exec.Counts().PrefillTokens)

	_, again := as(t, "a", engine, second)
	require.Greater(t, again.CachedTokens, again.PromptTokens-17)
}

func TestNothingIsFoundOfAnotherTenantOrAdapter(t *testing.T) {
	engine := haikutest.NewEngine(t, counting(5, nil), infer.Options{})
	add(t, engine, "adapter")
	for _, c := range []struct {
		tenant, model string
		cached        bool
	}{
		{"a", "", false}, {"b", "", false}, {"", "", false}, {"a", "adapter", false},
		{"a", "", true}, {"b", "", true}, {"", "", true}, {"a", "adapter", true}, {"b", "adapter", false},
	} {
		_, usage := as(t, c.tenant, engine, with(c.model, strings.Repeat("x", 100)))
		require.Equal(t, c.cached, usage.CachedTokens > 0, "%+v", c)
	}
	scale := 0.5
	req := with("adapter", strings.Repeat("x", 100))
	req.AdapterScale = &scale
	_, usage := as(t, "a", engine, req)
	require.Zero(t, usage.CachedTokens, "another scale, other keys and values")
}

func TestNoPrefixCacheComputesEverything(t *testing.T) {
	exec := counting(5, nil)
	engine := haikutest.NewEngine(t, exec, infer.Options{NoPrefixCache: true})
	for range 3 {
		_, usage := as(t, "a", engine, ask(strings.Repeat("x", 100)))
		require.Zero(t, usage.CachedTokens)
	}
}

func TestChoicesComputeTheirPromptOnce(t *testing.T) {
	exec := counting(20, nil)
	engine := haikutest.NewEngine(t, exec, infer.Options{})
	req := ask(strings.Repeat("x", 100))
	req.Choices = 5
	stream := haiku.NewStream(t.Context(), engine, req)
	texts := make([]string, 5)
	for tok, err := range stream.Tokens() {
		require.NoError(t, err)
		texts[tok.Choice] += tok.Text
	}
	for _, got := range texts {
		require.Equal(t, strings.Join(words(20), ""), got)
	}
	usage := stream.Usage()
	require.Equal(t, usage.PromptTokens, exec.Counts().PrefillTokens)
	require.Equal(t, 5*20, exec.Counts().DecodeTokens)
}

// TestChoicesAreWhatTheyWouldBeAlone compares the choices of one request with
// those of requests that compute their prompts themselves.
func TestChoicesAreWhatTheyWouldBeAlone(t *testing.T) {
	seed := uint64(7)
	request := func(n int) *haiku.Request {
		return &haiku.Request{Prompt: "The old pond lies still", Choices: n, MaxTokens: 24, Sampling: haiku.Sampling{Temperature: 1, Seed: &seed}}
	}
	texts := func(engine *infer.Engine, n int) []string {
		list := make([]string, n)
		for tok, err := range haiku.NewStream(t.Context(), engine, request(n)).Tokens() {
			require.NoError(t, err)
			list[tok.Choice] += tok.Text
		}
		return list
	}
	engine := openTiny(t, infer.Options{}, cpu.Options{BlockTokens: 16}.New())
	three := texts(engine, 3)
	require.NotEqual(t, three[0], three[1])
	require.NotEqual(t, three[1], three[2])
	require.Equal(t, three[:1], texts(engine, 1), "from the cache")
	uncached := openTiny(t, infer.Options{NoPrefixCache: true, MaxBatchTokens: 8}, cpu.New())
	require.Equal(t, three, texts(uncached, 3))
}

// TestWhenBlocksRunOutEveryAnswerIsStillRight gives many requests far too few
// blocks, slow readers among them. The fake checks that what a sequence builds
// on is there, and that nobody writes where another reads.
func TestWhenBlocksRunOutEveryAnswerIsStillRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := words(120)
		exec := haikutest.New(haikutest.Config{
			Pieces: answer, Blocks: 24, BlockTokens: 8,
			Answer: func(prompt string) []string {
				n := 0
				for _, c := range prompt {
					n += int(c)
				}
				return answer[:n%len(answer)]
			},
			Costs: haikutest.Costs{Step: time.Millisecond},
		})
		engine := haikutest.NewEngine(t, exec, infer.Options{MaxSequences: 8, MaxBatchTokens: 32})
		random := rand.New(rand.NewPCG(3, 4))
		var wg sync.WaitGroup
		for i := range 100 {
			content := fmt.Sprint(strings.Repeat("s", random.IntN(30)), i, strings.Repeat("x", random.IntN(20)))
			slow, gap, tenant := i%5 == 0, time.Duration(random.IntN(30))*time.Millisecond, fmt.Sprint(i%3)
			wg.Go(func() {
				ctx := haiku.WithIdentity(t.Context(), haiku.Identity{Tenant: tenant})
				ctx = haiku.WithStreamOptions(ctx, haiku.StreamOptions{Buffer: 4})
				req := ask(content)
				req.Choices, req.MaxTokens = 1+i%3, 60
				texts := make([]string, req.Choices)
				for tok, err := range haiku.NewStream(ctx, engine, req).Tokens() {
					require.NoError(t, err)
					texts[tok.Choice] += tok.Text
					if slow {
						elapse(gap)
					}
				}
				n := 0
				for _, c := range "user: " + content {
					n += int(c)
				}
				want := strings.Join(answer[:min(n%len(answer), 60)], "")
				for _, got := range texts {
					require.Equal(t, want, got)
				}
			})
		}
		wg.Wait()
		require.Positive(t, engine.Stats().Preempted)
	})
}

// TestASlowReaderGivesUpItsPlace lets readers that have stopped hold every place
// and every block: others are served all the same.
func TestASlowReaderGivesUpItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := counting(100, func(cfg *haikutest.Config) { cfg.Costs.Step = time.Millisecond })
		engine := haikutest.NewEngine(t, exec, infer.Options{MaxSequences: 2})
		ctx, cancel := context.WithCancel(haiku.WithStreamOptions(t.Context(), haiku.StreamOptions{Buffer: 4}))
		defer cancel()
		release := make(chan struct{})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				got, first := "", true
				for tok, err := range haiku.NewStream(ctx, engine, ask("slow")).Tokens() {
					require.NoError(t, err)
					if got += tok.Text; first {
						first = false
						<-release
					}
				}
				require.Equal(t, strings.Join(words(100), ""), got)
			})
		}
		elapse(time.Second)
		start := time.Now()
		_, err := text(t.Context(), engine, ask("fast"))
		require.NoError(t, err)
		require.LessOrEqual(t, time.Since(start), 110*time.Millisecond)
		close(release)
		wg.Wait()
	})
}
