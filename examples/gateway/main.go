// Gateway serves the models that a file describes, over OpenAI's API.
//
//	go run ./examples/gateway
//	go run ./examples/gateway -models my-models.json
//
// Its own models.json has two vLLM servers of one model on this machine, answers
// kept in memory, and a model of 0.9 million parameters in the program itself for
// when neither server is well. Run it without any server to see that one answer;
// the response header x-haiku-served-by says who did.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/cache"
	"github.com/intelliparadigm/haiku/cpu"
	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/models"
	"github.com/intelliparadigm/haiku/openai"
	"github.com/intelliparadigm/haiku/tinymodel"
	"github.com/intelliparadigm/haiku/upstream"
)

//go:embed models.json
var standard []byte

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("gateway", flag.ContinueOnError)
	flags.SetOutput(stderr)
	addr := flags.String("addr", "127.0.0.1:8080", "`address` to serve on")
	drain := flags.Duration("drain", 5*time.Second, "how `long` streams may go on after Ctrl-C")
	path := flags.String("models", "", "JSON `file` that describes the models, instead of the program's own")
	if err := flags.Parse(args); err != nil {
		return err
	}
	description := standard
	if *path != "" {
		if description, err = os.ReadFile(*path); err != nil {
			return err
		}
	}
	config, err := models.Parse(description)
	if err != nil {
		return err
	}
	tiny, err := infer.OpenBytes(tinymodel.GGUF(), cpu.New())
	if err != nil {
		return err
	}
	defer tiny.Close()
	tiers, err := cache.New(cache.Options{})
	if err != nil {
		return err
	}
	defer tiers.Close()
	set, err := models.Open(config, models.Parts{
		Models: map[string]haiku.Model{"tinymodel": tiny},
		Wrappers: map[string]func(string, haiku.Model) (haiku.Model, func()){
			"cache": func(name string, inner haiku.Model) (haiku.Model, func()) {
				c := cache.Through(inner, tiers, cache.Policy{Model: name})
				return c, c.Close
			},
		},
		Key:      secret,
		Upstream: upstream.Options{Connect: time.Second, Retry: upstream.Retry{Attempts: 1}}, // another server is asked instead
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, set.Close()) }()
	return serve(ctx, openai.Handler(set), *addr, *drain, stdout)
}

// secret reads secrets from the environment, by name.
func secret(_ context.Context, name string) (string, error) {
	value, ok := os.LookupEnv(name)
	if !ok {
		return "", fmt.Errorf("the environment has no %s", name)
	}
	return value, nil
}

func serve(ctx context.Context, api http.Handler, addr string, drain time.Duration, out io.Writer) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("cannot listen on %s (try another -addr): %w", addr, err)
	}
	mux := http.NewServeMux()
	mux.Handle("/v1/", api)
	requests, end := context.WithCancelCause(context.Background())
	defer end(nil)
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return requests },
	}
	fmt.Fprintf(out, `Serving on http://%[1]s. Try:

  curl http://%[1]s/v1/models
  curl -iN http://%[1]s/v1/chat/completions -H 'Content-Type: application/json' -d '{"model":"poet","temperature":0,"stream":true,"messages":[{"role":"user","content":"Write a haiku about autumn."}]}'

Stop with Ctrl-C.
`, listener.Addr())

	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	err = shutdown(server, drain)
	if errors.Is(err, context.DeadlineExceeded) {
		end(haiku.ErrClosed) // which is what clients are told whose streams are cut here
		err = shutdown(server, time.Second)
	}
	<-done
	return err
}

func shutdown(server *http.Server, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return server.Shutdown(ctx)
}
