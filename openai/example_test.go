package openai_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/openai"
)

// frog stands for an engine: it answers everything with the same words.
var frog = haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
	for _, text := range []string{"old ", "pond"} {
		if _, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: text}); err != nil {
			return err
		}
	}
	w.Finish(0, haiku.FinishStop)
	w.SetUsage(haiku.Usage{PromptTokens: 3, CompletionTokens: 2})
	return nil
})

// All of the API for one model, beside the host's own routes.
func ExampleHandler() {
	mux := http.NewServeMux()
	mux.Handle("/v1/", openai.Handler(frog))
	server := httptest.NewServer(mux)
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()

	body := strings.NewReader(`{"messages":[{"role":"user","content":"hi"}],"temperature":3}`)
	resp, err := http.Post(server.URL+"/v1/chat/completions", "application/json", body)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(answer))
	// Output:
	// 400 {"error":{"message":"temperature must lie from 0 to 2","type":"invalid_request_error","param":"temperature","code":"invalid_request"}}
}

// A request can be made in Go and answered with no HTTP.
func ExampleChatCompletionRequest() {
	payload := openai.ChatCompletionRequest{Messages: []openai.Message{
		openai.SystemMessage("You write haiku."),
		openai.UserMessage("About frogs, please."),
	}}
	req, err := payload.InferenceRequest()
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := haiku.NewStream(context.Background(), frog, req).Text()
	fmt.Println(text, err)
	// Output: old pond <nil>
}
