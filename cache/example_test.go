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
