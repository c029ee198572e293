// Quickstart streams a language model over HTTP or to the terminal.
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart -prompt "Write a haiku about autumn."
//	go run ./examples/quickstart -model model.gguf
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/cpu"
	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/openai"
	"github.com/intelliparadigm/haiku/tinymodel"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(stderr)
	addr := flags.String("addr", "127.0.0.1:8080", "`address` to serve on")
	model := flags.String("model", "", "GGUF `file` to run instead of the embedded model")
	prompt := flags.String("prompt", "", "answer this `text` on the terminal and exit")
	version := flags.Bool("version", false, "print the version and exit")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: a prompt goes after -prompt, in quotes", flags.Arg(0))
	}
	if *version {
		fmt.Fprintln(stdout, "haiku quickstart", buildVersion())
		return nil
	}
	engine, err := open(*model)
	if err != nil {
		return err
	}
	defer engine.Close()
	if *prompt != "" {
		return answer(ctx, engine, *prompt, stdout)
	}
	return serve(ctx, engine, *addr, stdout)
}

func open(path string) (*infer.Engine, error) {
	if path == "" {
		return infer.OpenBytes(tinymodel.GGUF(), cpu.New())
	}
	return infer.Open(path, cpu.New())
}

// answer streams one completion to out, with no HTTP.
func answer(ctx context.Context, engine *infer.Engine, prompt string, out io.Writer) error {
	req := &haiku.Request{Prompt: prompt}
	if engine.HasChatTemplate() {
		req = &haiku.Request{Messages: []haiku.Message{{Role: haiku.RoleUser, Content: prompt}}}
	}
	stream := infer.NewStream(haiku.WithModel(ctx, engine), req)
	for tok, err := range stream.Tokens() {
		if err != nil {
			return err
		}
		fmt.Fprint(out, tok.Text)
	}
	fmt.Fprintln(out)
	return nil
}

// serve mounts the OpenAI API on a mux of the program's own.
func serve(ctx context.Context, engine *infer.Engine, addr string, out io.Writer) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("cannot listen on %s (try another -addr): %w", addr, err)
	}
	mux := http.NewServeMux()
	mux.Handle("/v1/", openai.Handler(engine))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintf(out, "%s on http://%s. Try:\n\n  %s\n\nStop with Ctrl-C.\n", engine.Name(), listener.Addr(), curl(engine, listener.Addr()))

	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = errors.Join(engine.Shutdown(drain), server.Shutdown(drain))
	<-done
	return err
}

func curl(engine *infer.Engine, addr net.Addr) string {
	if engine.HasChatTemplate() {
		return fmt.Sprintf(`curl -N http://%s/v1/chat/completions -H 'Content-Type: application/json' -d '{"stream":true,"messages":[{"role":"user","content":"Write a haiku about autumn."}]}'`, addr)
	}
	return fmt.Sprintf(`curl -N http://%s/v1/completions -H 'Content-Type: application/json' -d '{"stream":true,"max_tokens":64,"prompt":"Once upon a time"}'`, addr)
}

func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}
