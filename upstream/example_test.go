package upstream_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/upstream"
)

// An engine elsewhere is a Model like one in the process.
func ExampleNew() {
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(w, `data: {"model":"poet-7b","choices":[{"index":0,"delta":{"content":"an old pond"}}]}`+"\n\n",
			`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\n", "data: [DONE]\n\n")
	}))
	defer engine.Close()
	model, err := upstream.New(engine.URL+"/v1", upstream.Options{Dialect: upstream.VLLM, Model: "poet-7b"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer model.Close()
	stream := haiku.NewStream(context.Background(), model, &haiku.Request{
		Messages: []haiku.Message{{Role: haiku.RoleUser, Content: "Write a line."}},
	})
	fmt.Println(stream.Text())
	fmt.Println(stream.Model())
	// Output:
	// an old pond <nil>
	// poet-7b
}
