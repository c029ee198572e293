package pool_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/intelliparadigm/haiku/upstream"
	"github.com/intelliparadigm/haiku/upstream/pool"
)

// Two vLLM servers of one model: their load comes with answers and, while there
// are none, from their metrics; a server that fails its health check is passed by,
// and so is one whose streams fail.
func Example() {
	var endpoints []pool.Endpoint
	for name, host := range map[string]string{"gpu-0": "http://10.0.0.1:8000", "gpu-1": "http://10.0.0.2:8000"} {
		gauge := new(pool.Gauge)
		engine, err := upstream.New(host+"/v1", upstream.Options{
			Dialect: upstream.VLLM,
			Retry:   upstream.Retry{Attempts: 1}, // the pool asks another server instead
			OnLoad:  func(l upstream.Load) { gauge.Report(pool.Told(l)) },
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer engine.Close()
		endpoints = append(endpoints, pool.Endpoint{
			Name: name, Model: engine, Gauge: gauge,
			Metrics: pool.Metrics(http.DefaultClient, host+"/metrics"),
			Probe:   pool.Healthy(http.DefaultClient, host+"/health"),
		})
	}
	model, err := pool.New(pool.Options{}, endpoints...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer model.Close()
	// model is a haiku.Model, for openai.Handler or around it a cache or a breaker.
	fmt.Println(len(model.Status()), "servers")
	_ = model.Drain(context.Background(), "gpu-1")
	fmt.Println(len(model.Status()), "server")
}
