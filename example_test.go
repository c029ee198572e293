package haiku_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/intelliparadigm/haiku"
)

// frog stands for an engine: it answers everything with the same poem.
var frog = haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
	words := []string{"old pond", " / a frog", " leaps in"}
	for _, text := range words {
		if r, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: text}); err != nil || r == haiku.Stopped {
			return err
		}
	}
	w.Finish(0, haiku.FinishStop)
	w.SetUsage(haiku.Usage{PromptTokens: 4, CompletionTokens: len(words)})
	return nil
})

// post sends body to h and prints the response.
func post(h http.Handler, path, body string) {
	srv := httptest.NewServer(h)
	defer srv.Close()
	resp, err := http.Post(srv.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	answer, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, resp.Header.Get("Content-Type"))
	fmt.Println(string(bytes.TrimSpace(answer)))
}

// A service with one route of its own, mounted beside the host's others.
func Example() {
	api := haiku.New()
	api.Register("POST /v1/poem", haiku.HandlerFunc(func(c *haiku.Context) {
		var in struct {
			Topic string `json:"topic"`
		}
		if err := c.Bind(&in); err != nil {
			c.AbortWithError(err)
			return
		}
		model, _ := haiku.ModelFrom(c.Context())
		_ = c.Stream(haiku.NewStream(c.Context(), model, &haiku.Request{Prompt: "A poem about " + in.Topic}))
	}), haiku.Provide(frog))

	mux := http.NewServeMux()
	mux.Handle("/v1/", api)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })

	post(mux, "/v1/poem", `{"topic":"frogs"}`)
	post(mux, "/v1/poem", `{"topic":7}`)
	// Output:
	// 200 text/event-stream
	// data: "old pond"
	//
	// data: " / a frog"
	//
	// data: " leaps in"
	//
	// data: [DONE]
	// 400 application/json
	// {"error":{"message":"the value has the wrong type: found a number","type":"invalid_request_error","param":"topic","code":"invalid_request"}}
}

// A program without HTTP reads a stream as a sequence.
func ExampleStreamWriter_Tokens() {
	stream := haiku.NewStream(context.Background(), frog, &haiku.Request{Stop: []string{" leaps"}})
	for tok, err := range stream.Tokens() {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%q %q\n", tok.Text, tok.Finish)
	}
	// Output:
	// "old pond" ""
	// " / a frog" ""
	// "" "stop"
}

// Leaving the loop ends the generation.
func ExampleStreamWriter_Tokens_leave() {
	counter := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		for n := 1; ; n++ {
			if _, err := w.Push(ctx, haiku.Piece{ID: haiku.NoToken, Text: fmt.Sprint(n)}); err != nil {
				fmt.Println("the model ends:", errors.Is(err, context.Canceled))
				return err
			}
		}
	})
	for tok := range haiku.NewStream(context.Background(), counter, &haiku.Request{}).Tokens() {
		if tok.Text == "3" {
			break
		}
		fmt.Println(tok.Text)
	}
	fmt.Println("the loop goes on")
	// Output:
	// 1
	// 2
	// the model ends: true
	// the loop goes on
}

// careful is a Model around a Model, which refuses short prompts.
type careful struct{ next haiku.Model }

func (m careful) Generate(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
	if len(req.Prompt) < 5 {
		return haiku.ErrInvalidRequest.With("prompt", "at least 5 bytes, please")
	}
	return m.next.Generate(ctx, w, req)
}

// Unwrap lets the optional abilities of the inner Model be found.
func (m careful) Unwrap() haiku.Model { return m.next }

// A Model around a Model is a Model.
func ExampleModel() {
	for _, prompt := range []string{"hi", "hello"} {
		text, err := haiku.NewStream(context.Background(), careful{frog}, &haiku.Request{Prompt: prompt}).Text()
		fmt.Printf("%q %v\n", text, err)
	}
	// Output:
	// "" haiku: at least 5 bytes, please (prompt)
	// "old pond / a frog leaps in" <nil>
}

// Middleware may answer by itself, or leave something for the handler.
func ExampleMux_Use() {
	keys := func(next haiku.InferenceHandler) haiku.InferenceHandler {
		return haiku.HandlerFunc(func(c *haiku.Context) {
			key := c.Request.Header.Get("Authorization")
			if key == "" {
				c.AbortWithStatus(http.StatusUnauthorized)
				return
			}
			c.SetIdentity(haiku.Identity{Subject: key, Tenant: "acme"})
			next.ServeInference(c)
		})
	}
	api := haiku.New()
	api.Use(keys)
	api.Register("POST /whoami", haiku.HandlerFunc(func(c *haiku.Context) {
		_ = c.JSON(200, map[string]string{"tenant": c.Identity().Tenant})
	}))
	post(api, "/whoami", "{}")
	// Output:
	// 401 application/json
	// {"error":{"message":"authentication is required","type":"authentication_error","param":null,"code":"invalid_api_key"}}
}

// csvEncoder sends an answer as one body with a line per delta.
type csvEncoder struct{}

func (csvEncoder) ContentType() string                   { return "text/csv" }
func (csvEncoder) Begin(dst []byte, h haiku.Head) []byte { return append(dst, "choice,text\n"...) }
func (csvEncoder) Token(dst []byte, d *haiku.Delta) []byte {
	return fmt.Appendf(dst, "%d,%s\n", d.Choice, d.Escaped)
}
func (csvEncoder) End(dst []byte, u haiku.Usage, err *haiku.Error) []byte {
	if err != nil {
		return append(dst, err.Message...)
	}
	return fmt.Appendf(dst, "tokens,%d", u.CompletionTokens)
}

// An Encoder of one's own decides the form of an answer.
func ExampleEncoder() {
	api := haiku.New()
	api.Register("POST /csv", haiku.HandlerFunc(func(c *haiku.Context) {
		_ = c.Stream(haiku.NewStream(c.Context(), frog, &haiku.Request{Encoder: csvEncoder{}}))
	}))
	post(api, "/csv", "")
	// Output:
	// 200 text/csv
	// choice,text
	// 0,old pond
	// 0, / a frog
	// 0, leaps in
	// 0,
	// tokens,3
}

// Errors match by kind, however they are wrapped and whatever they say.
func ExampleError() {
	err := fmt.Errorf("admit: %w", haiku.ErrOverloaded.With("", "12 requests are waiting already"))
	fmt.Println(errors.Is(err, haiku.ErrOverloaded), haiku.ErrorFrom(err).Status)
	fmt.Println(string(haiku.AppendError(nil, haiku.ErrorFrom(errors.New("password is hunter2")))))
	// Output:
	// true 503
	// {"error":{"message":"the server failed to answer","type":"server_error","param":null,"code":"internal_error"}}
}

// A route for people who wait, and clients that may say how long: the scheduler
// serves the earliest due first, and refuses what would come too late.
func ExampleObjectives() {
	interactive := haiku.Objectives{
		Default: haiku.Objective{TTFT: 2 * time.Second},
		Named:   map[string]haiku.Objective{"batch": {Priority: 10}},
		MinTTFT: 100 * time.Millisecond, // of x-slo-ttft-ms
	}
	api := haiku.New()
	api.Use(haiku.Provide(frog), interactive.Middleware())
	api.Register("POST /v1/poem", haiku.HandlerFunc(func(c *haiku.Context) {
		fmt.Printf("%+v\n", haiku.ObjectiveFrom(c.Context()))
		c.Writer.WriteHeader(http.StatusNoContent)
	}))
	for _, headers := range []http.Header{{}, {"X-Slo-Ttft-Ms": {"500"}}, {"X-Gateway-Inference-Objective": {"batch"}}} {
		req := httptest.NewRequest(http.MethodPost, "/v1/poem", nil)
		req.Header = headers
		api.ServeHTTP(httptest.NewRecorder(), req)
	}
	// Output:
	// {Priority:0 TTFT:2s}
	// {Priority:0 TTFT:500ms}
	// {Priority:10 TTFT:0s}
}
