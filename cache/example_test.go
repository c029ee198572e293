package cache_test

import (
	"context"
	"fmt"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/cache"
)

// A cache is a Model around a Model.
func ExampleThrough() {
	slow := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
		fmt.Println("computing")
		if _, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: "a frog leaps in"}); err != nil {
			return err
		}
		w.Finish(0, haiku.FinishStop)
		return nil
	})
	tiers, err := cache.New(cache.Options{MaxBytes: 64 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tiers.Close()
	model := cache.Through(slow, tiers, cache.Policy{})
	defer model.Close()
	for range 2 {
		text, err := haiku.NewStream(context.Background(), model, &haiku.Request{Prompt: "an old pond"}).Text()
		fmt.Println(text, err)
	}
	// Output:
	// computing
	// a frog leaps in <nil>
	// a frog leaps in <nil>
}

// A route keeps what is drawn at random too, for a minute, and clients may ask
// for less with Cache-Control.
func ExampleControl_Middleware() {
	control := cache.Control{Random: true, TTL: 60e9}
	haiku.New().Use(control.Middleware())
}

// Which model answers is decided once for each kind of prompt, and again for all
// as soon as there is a new table.
func ExampleRoutes() {
	echo := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
		if _, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: "answered by " + req.Model}); err != nil {
			return err
		}
		w.Finish(0, haiku.FinishStop)
		return nil
	})
	table := func(version, model string) cache.Table {
		return cache.Table{Version: version, Decide: func(context.Context, *haiku.Request) (cache.Route, error) {
			fmt.Println("deciding by table", version)
			return cache.Route{Model: model}, nil
		}}
	}
	tiers, err := cache.New(cache.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tiers.Close()
	routes := cache.NewRoutes(table("1", "small"))
	model := cache.Through(echo, tiers, cache.Policy{Routes: routes})
	defer model.Close()
	ask := func(question string) {
		req := &haiku.Request{Messages: []haiku.Message{{Role: haiku.RoleUser, Content: question}}}
		fmt.Println(haiku.NewStream(context.Background(), model, req).Text())
	}
	ask("Where is the old pond?")
	ask("Where is the frog?")
	routes.Set(table("2", "large"))
	ask("Where is the frog?")
	// Output:
	// deciding by table 1
	// answered by small <nil>
	// answered by small <nil>
	// deciding by table 2
	// answered by large <nil>
}

// Questions that mean the same share an answer. One hit in a hundred is computed
// all the same, which tells how often the cache is wrong.
func ExampleSemantic() {
	tiers, err := cache.New(cache.Options{Semantic: &cache.Semantic{Threshold: 0.8, Shadow: 0.01}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tiers.Close()
	stats := tiers.Stats()
	fmt.Println(stats.Semantic, stats.Gated, stats.Verified, stats.Wrong)
	// Output: 0 0 0 0
}
