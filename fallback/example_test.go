package fallback_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/fallback"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/openai"
)

// model is an engine over a fake GPU that answers every question with its name, or
// that has run out of memory.
func model(name string, broken bool) *infer.Engine {
	config := haikutest.Says("This is ", name, ".")
	if broken {
		config.Faults = []haikutest.Fault{{Kind: haikutest.OutOfMemory}}
	}
	exec := haikutest.New(config)
	engine, err := infer.New(exec, exec.Text(), infer.Options{Name: name})
	if err != nil {
		panic(err)
	}
	return engine
}

// A small model answers while the large one cannot, and clients do not notice but by
// the name of the model.
func ExampleNew() {
	large, small := model("large", true), model("small", false)
	defer large.Close()
	defer small.Close()

	chain := fallback.New(large, small)
	defer chain.Close()

	stream := haiku.NewStream(context.Background(), chain, &haiku.Request{
		Messages: []haiku.Message{{Role: haiku.RoleUser, Content: "Who is it?"}},
	})
	text, err := stream.Text()
	fmt.Println(text, err)
	fmt.Println(stream.Model())
	for _, m := range chain.Stats() {
		fmt.Println(m.Model, m.Served, m.Rejected, m.Status.State)
	}
	// Output:
	// This is small. <nil>
	// small
	// large 0 1 closed
	// small 1 0 closed
}

// The small model begins after 60 ms of silence, and the first to speak answers. What
// the operator wants to know is told as it happens.
func ExampleOptions() {
	large, small := model("large", false), model("small", false)
	defer large.Close()
	defer small.Close()

	chain, err := fallback.Options{
		HedgeAfter: 60 * time.Millisecond,
		Breaker: fallback.BreakerOptions{
			OpenFor:  time.Minute,
			OnChange: func(c fallback.Change) { slog.Info("breaker", "model", c.Name, "state", c.To, "why", c.Why) },
		},
		Observe: func(ctx context.Context, model string) (context.Context, func(fallback.Attempt)) {
			return ctx, func(a fallback.Attempt) { fmt.Println(model, a.Served, a.Usage.CompletionTokens > 0) }
		},
	}.New(large, small)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer chain.Close()

	mux := http.NewServeMux()
	mux.Handle("/v1/", openai.Handler(chain))

	text, _ := haiku.NewStream(context.Background(), chain, &haiku.Request{
		Messages: []haiku.Message{{Role: haiku.RoleUser, Content: "Who is it?"}},
	}).Text()
	fmt.Println(text)
	// Output:
	// large true true
	// This is large.
}

// A breaker can stand before anything that streams. Every call that it allows is
// ended by Done.
func ExampleBreaker() {
	breaker, err := fallback.NewBreaker(fallback.BreakerOptions{
		Policies: []fallback.Policy{fallback.Consecutive{Failures: 2}},
		OpenFor:  time.Minute,
		Logger:   slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer breaker.Close()

	ctx := context.Background() // the request's
	ask := func() error { return haiku.ErrInternal }
	for range 3 {
		call, ok := breaker.Allow()
		if !ok {
			fmt.Println("come back in", call.RetryAfter().Round(time.Second))
			continue
		}
		err := ask() // and call.FirstToken() when it comes
		outcome := call.Done(fallback.OutcomeOf(ctx, err, err == nil))
		fmt.Println(outcome.Class)
	}
	// Output:
	// failed
	// failed
	// come back in 1m0s
}
