// Host is the README's example: a service with a mux of its own that serves a
// model beside its other routes.
package main

import (
	"cmp"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/cpu"
	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/openai"
	"github.com/intelliparadigm/haiku/tinymodel"
)

func main() {
	engine, err := infer.OpenBytes(tinymodel.GGUF(), cpu.New())
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", newMux(engine, cmp.Or(os.Getenv("HOST_SECRET"), "secret"))))
}

// newMux is everything that is the host's own.
func newMux(model haiku.Model, secret string) http.Handler {
	haiku.Use(haiku.Provide(model))
	haiku.Register("/v1/chat/completions", haiku.HandlerFunc(func(c *haiku.Context) {
		if c.Request.Header.Get("Authorization") != "Bearer "+secret {
			c.AbortWithStatus(403)
			return
		}
		var payload openai.ChatCompletionRequest
		if err := c.Bind(&payload); err != nil {
			c.AbortWithError(err)
			return
		}
		stream := infer.NewStream(c.Context(), &payload)
		c.Stream(stream)
	}))

	mux := http.NewServeMux()
	mux.Handle("/v1/", haiku.Handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	return mux
}
