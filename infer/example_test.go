package infer_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/cpu"
	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/tinymodel"
)

// A model that answers with no HTTP at all.
func Example() {
	engine, err := infer.OpenBytes(tinymodel.GGUF(), cpu.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()

	ctx := haiku.WithModel(context.Background(), engine)
	stream := infer.NewStream(ctx, &haiku.Request{
		Messages: []haiku.Message{{Role: haiku.RoleUser, Content: "Write a haiku about autumn."}},
	})
	for token, err := range stream.Tokens() {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Print(token.Text)
	}
	fmt.Println()
	fmt.Println(stream.Usage().PromptTokens, "tokens in")
	// Output:
	// autumn wind and moon
	// the wind carries autumn wind
	// autumn wind and moon
	// 12 tokens in
}

// The same seed gives the same text, whatever else is in the batch.
func ExampleNewStream_seed() {
	engine, err := infer.OpenBytes(tinymodel.GGUF(), cpu.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()
	ctx := haiku.WithModel(context.Background(), engine)

	poem := func(seed uint64) string {
		text, err := infer.NewStream(ctx, &haiku.Request{
			Messages: []haiku.Message{{Role: haiku.RoleUser, Content: "Write a haiku about snow."}},
			Sampling: haiku.Sampling{Temperature: 1, Seed: &seed},
		}).Text()
		if err != nil {
			return err.Error()
		}
		return text
	}
	first := poem(1)
	fmt.Println(poem(1) == first, poem(2) == first)
	// Output:
	// true false
}

// A service of several models passes each request to the one it names.
func ExampleRegistry() {
	engine, err := infer.Options{Name: "haiku-tiny"}.OpenBytes(tinymodel.GGUF(), cpu.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()

	var models infer.Registry
	models.Add("haiku-tiny", engine)
	models.Add("default", engine) // another name for it
	for _, m := range models.Models() {
		fmt.Println(m.ID, m.ContextTokens)
	}

	ctx := haiku.WithModel(context.Background(), &models)
	_, err = infer.NewStream(ctx, &haiku.Request{Model: "gpt-9", Prompt: "Once"}).Text()
	fmt.Println(errors.Is(err, haiku.ErrModelNotFound), err)
	// Output:
	// default 256
	// haiku-tiny 256
	// true haiku: the model "gpt-9" does not exist (model)
}

// Options shape an engine; a limit that a request exceeds is an error for its
// client.
func ExampleOptions() {
	options := infer.Options{Name: "poet", MaxSequences: 4, MaxBatchTokens: 64, MaxQueued: 16}
	engine, err := options.OpenBytes(tinymodel.GGUF(), cpu.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()
	ctx := haiku.WithModel(context.Background(), engine)
	_, err = infer.NewStream(ctx, &haiku.Request{Prompt: "frog", Choices: 5}).Text()
	fmt.Println(haiku.ErrorFrom(err).Status, err)
	// Output:
	// 400 haiku: at most 4 choices can be asked for (n)
}

// Adapters come and go while the engine runs; a request asks for one by its
// name, as it asks for a model.
func ExampleEngine_LoadAdapter() {
	engine, err := infer.Options{Name: "base"}.OpenBytes(tinymodel.GGUF(), cpu.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()
	err = engine.LoadAdapter(context.Background(), "poet", "poet.lora.gguf")
	fmt.Println(errors.Is(err, fs.ErrNotExist))
	for _, m := range engine.Models() {
		fmt.Println(m.ID, m.Parent)
	}
	// Output:
	// true
	// base
}
