package haikutest_test

import (
	"context"
	"fmt"

	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/infer"
)

// forgetful is an executor that reports failure for all where one has failed.
type forgetful struct{ infer.Executor }

func (f forgetful) Step(ctx context.Context, b *infer.Batch) error {
	if err := f.Executor.Step(ctx, b); err != nil {
		return err
	}
	for i := range b.Items {
		if b.Items[i].Err != nil {
			return b.Items[i].Err
		}
	}
	return nil
}

func ExampleCheckExecutor() {
	err := haikutest.CheckExecutor(func() (infer.Executor, error) {
		return forgetful{haikutest.New(haikutest.Config{})}, nil
	})
	fmt.Println(err)
	// Output:
	// a bad item fails alone: a token beyond the vocabulary: the whole step fails: haikutest: token 259 of 259
}

func ExampleParseEvents() {
	body := ": keepalive\n\ndata: \"old\"\n\ndata: [DONE]\n\n"
	for _, event := range haikutest.ParseEvents(body) {
		if event.Comment != "" {
			continue
		}
		fmt.Println(event.Data)
	}
	// Output:
	// "old"
	// [DONE]
}
