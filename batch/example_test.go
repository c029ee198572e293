package batch_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/intelliparadigm/haiku/batch"
)

// A function on many texts, here a trivial one, serves callers that have one
// each.
func Example() {
	shout := func(ctx context.Context, texts []string) ([]batch.Result[string], error) {
		results := make([]batch.Result[string], len(texts))
		for i, text := range texts {
			results[i].Value = strings.ToUpper(text)
		}
		return results, nil
	}
	b, err := batch.New(shout, batch.Options{MaxDelay: 2 * time.Millisecond, MaxBatchSize: 16})
	if err != nil {
		panic(err)
	}
	defer b.Close()

	texts := []string{"an", "old", "pond"}
	answers := make([]string, len(texts))
	var callers sync.WaitGroup
	for i, text := range texts {
		callers.Go(func() { answers[i], _ = b.Do(context.Background(), text) })
	}
	callers.Wait()
	fmt.Println(answers)
	// Output: [AN OLD POND]
}

// Interactive requests go before those of a nightly job, of which at most a
// thousand wait, and none longer than a minute.
func ExampleDynamicBatcher_DoWith() {
	const interactive, nightly = 0, 1
	square := func(ctx context.Context, xs []int) ([]batch.Result[int], error) {
		results := make([]batch.Result[int], len(xs))
		for i, x := range xs {
			results[i].Value = x * x
		}
		return results, nil
	}
	b, err := batch.New(square, batch.Options{Levels: []batch.Level{
		interactive: {Timeout: time.Second},
		nightly:     {MaxQueue: 1000, Timeout: time.Minute, OnTimeout: batch.Delay},
	}})
	if err != nil {
		panic(err)
	}
	defer b.Close()
	fmt.Println(b.DoWith(context.Background(), 12, batch.Call{Priority: interactive, Timeout: 100 * time.Millisecond}))
	fmt.Println(b.DoWith(context.Background(), 3, batch.Call{Priority: nightly}))
	// Output:
	// 144 <nil>
	// 9 <nil>
}
