package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/intelliparadigm/haiku/tinymodel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAPromptIsAnsweredOnTheTerminal(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-prompt", "Write a haiku about autumn."}, &out, io.Discard))
	require.Contains(t, out.String(), "autumn")
	require.Equal(t, 3, strings.Count(out.String(), "\n"))
}

func TestAModelFileIsAnsweredFromToo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	require.NoError(t, os.WriteFile(path, tinymodel.GGUF(), 0o600))
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-model", path, "-prompt", "Write a haiku about autumn."}, &out, io.Discard))
	require.Contains(t, out.String(), "autumn")
}

// firstLines collects what serve prints and tells when the address is there.
type firstLines struct {
	mu    sync.Mutex
	text  strings.Builder
	ready chan string
}

var curlLine = regexp.MustCompile(`curl -N (http://\S+) .* -d '([^']+)'`)

func (f *firstLines) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text.Write(b)
	if m := curlLine.FindStringSubmatch(f.text.String()); m != nil {
		select {
		case f.ready <- m[1] + "\n" + m[2]:
		default:
		}
	}
	return len(b), nil
}

func TestThePrintedCurlLineStreamsAHaiku(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &firstLines{ready: make(chan string, 1)}
	done := make(chan error, 1)
	go func() { done <- run(ctx, []string{"-addr", "127.0.0.1:0"}, out, io.Discard) }()
	url, body, _ := strings.Cut(<-out.ready, "\n")

	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	require.Contains(t, string(answer), "data: [DONE]")

	cancel()
	require.NoError(t, <-done)
	http.DefaultClient.CloseIdleConnections()
}

func TestErrorsArePlain(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"a stray argument":  {[]string{"hello"}, `unexpected argument "hello": a prompt goes after -prompt`},
		"no such model":     {[]string{"-model", "absent.gguf"}, "absent.gguf"},
		"no model at all":   {[]string{"-model", "main.go"}, `magic at byte 0: "// Q" is not "GGUF"`},
		"an address in use": {[]string{"-addr", "127.0.0.1:99999"}, "cannot listen on 127.0.0.1:99999 (try another -addr)"},
		"an unknown flag":   {[]string{"-modle", "x"}, "flag provided but not defined: -modle"},
		"a prompt too long": {[]string{"-prompt", strings.Repeat("autumn wind ", 200)}, "the model's context holds 256"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, run(t.Context(), c.args, io.Discard, io.Discard), c.want)
		})
	}
}

func TestVersionAndHelp(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-version"}, &out, io.Discard))
	require.Contains(t, out.String(), "haiku quickstart")
	out.Reset()
	require.Error(t, run(t.Context(), []string{"-h"}, io.Discard, &out))
	require.Contains(t, out.String(), "-prompt")
}
