package upstream_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/upstream"
)

// engine stands for a server such as vLLM.
func engine() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if strings.HasSuffix(r.URL.Path, "/embeddings") {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"model":"big","data":[{"index":0,"embedding":[0.6,0.8]}],"usage":{"prompt_tokens":2}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, text := range []string{"old pond", ", a frog"} {
			fmt.Fprintf(w, "data: {\"model\":\"big\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", text)
		}
		fmt.Fprint(w, "data: {\"model\":\"big\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":6}}\n\ndata: [DONE]\n\n")
	}))
}

func ExampleNew() {
	server := engine()
	defer server.Close()
	e, err := upstream.New(server.URL+"/v1", upstream.Options{Dialect: upstream.VLLM})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	req := &haiku.Request{Model: "big", Messages: []haiku.Message{{Role: haiku.RoleUser, Content: "a haiku"}}}
	stream := haiku.NewStream(context.Background(), e, req)
	for tok, err := range stream.Tokens() {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Print(tok.Text)
	}
	fmt.Println("\n"+stream.Model(), stream.Usage())
	// Output:
	// old pond, a frog
	// big {4 6 0}
}

func ExampleEngine_Embed() {
	server := engine()
	defer server.Close()
	e, err := upstream.New(server.URL, upstream.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	out, err := e.Embed(context.Background(), &haiku.EmbeddingRequest{Inputs: []haiku.EmbeddingInput{{Text: "a frog"}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(out.Model, out.Vectors)
	// Output: big [[0.6 0.8]]
}

func ExampleEngine_Passthrough() {
	server := engine()
	defer server.Close()
	e, err := upstream.New(server.URL, upstream.Options{
		OnServed: func(s upstream.Served) { fmt.Println(s.Model, s.Usage, s.Err) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	mux := haiku.New()
	mux.Register("POST /v1/chat/completions", e.Passthrough())
	body := strings.NewReader(`{"model":"big","stream":true,"messages":[{"role":"user","content":"a haiku"}]}`)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("POST", "/v1/chat/completions", body))
	first, _, _ := strings.Cut(w.Body.String(), "\n")
	fmt.Println(first)
	// Output:
	// big {4 6 0} <nil>
	// data: {"model":"big","choices":[{"index":0,"delta":{"content":"old pond"}}]}
}
