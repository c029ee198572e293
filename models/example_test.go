package models_test

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/cpu"
	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/models"
	"github.com/intelliparadigm/haiku/openai"
	"github.com/intelliparadigm/haiku/tinymodel"
)

// Two servers have the large model, and a small one in this process stands in for
// it. Clients see "chat", which they may also call by the name they are used to.
func Example() {
	config, err := models.Parse([]byte(`{"models": [
		{
			"name": "chat",
			"aliases": ["gpt-4o"],
			"servers": [
				{"url": "http://gpu-0:8000/v1", "dialect": "vLLM", "model": "Qwen/Qwen3-32B", "key": "VLLM_KEY"},
				{"url": "http://gpu-1:8000/v1", "dialect": "vLLM", "model": "Qwen/Qwen3-32B", "key": "VLLM_KEY"}
			],
			"fallback": ["small"],
			"first_token": "800ms"
		},
		{"name": "small", "hidden": true, "local": "embedded"}
	]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	engine, err := infer.OpenBytes(tinymodel.GGUF(), cpu.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()
	set, err := models.Open(config, models.Parts{
		Models: map[string]haiku.Model{"embedded": engine},
		Key:    func(_ context.Context, name string) (string, error) { return os.Getenv(name), nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer set.Close()

	mux := http.NewServeMux()
	mux.Handle("/v1/", openai.Handler(set))
	_ = http.ListenAndServe("127.0.0.1:8080", mux) // the host's own listener
}
