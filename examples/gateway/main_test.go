package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs the gateway until the test ends, and returns its address.
func start(t *testing.T, args ...string) string {
	ctx, stop := context.WithCancel(context.Background())
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- run(ctx, append(args, "-addr", "127.0.0.1:0"), in, in) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
		http.DefaultClient.CloseIdleConnections()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	t.Cleanup(func() { _ = out.Close() })
	return regexp.MustCompile(`http://[^ ]+:\d+`).FindString(line)
}

func ask(t *testing.T, gateway string) (http.Header, string) {
	body := `{"model":"poet","stream":true,"temperature":0,"messages":[{"role":"user","content":"Write a haiku about autumn."}]}`
	resp, err := http.Post(gateway+"/v1/chat/completions", "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode, "%s", text)
	require.True(t, strings.HasSuffix(string(text), "data: [DONE]\n\n"), "%s", text)
	return resp.Header, string(text)
}

func TestTheEmbeddedModelAnswersWhileServersCannotAndTheServerWhenItCan(t *testing.T) {
	up := make(chan bool, 1)
	up <- false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		well := <-up
		up <- well
		if !well {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"leaves fall"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
	}))
	defer server.Close()
	config := filepath.Join(t.TempDir(), "models.json")
	text := strings.Replace(string(standard), "http://127.0.0.1:8000/v1", server.URL, 1)
	text = regexp.MustCompile(`,\s*\{"url": "http://127.0.0.1:8001[^}]*\}`).ReplaceAllString(text, "")
	text = strings.Replace(text, `"wrap": ["cache"]`, `"wrap": []`, 1)
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))

	gateway := start(t, "-models", config)
	header, _ := ask(t, gateway)
	require.Equal(t, "tiny", header.Get("X-Haiku-Served-By"))
	<-up
	up <- true
	header, answer := ask(t, gateway)
	require.Equal(t, "poet", header.Get("X-Haiku-Served-By"))
	require.Contains(t, answer, "leaves fall")
}

// TestStreamsThatOutlastTheGatewayAreTold: who reads one that is cut when the
// gateway ends is told why, and so is the server.
func TestStreamsThatOutlastTheGatewayAreTold(t *testing.T) {
	left := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"leaves"}}]}`+"\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(left)
	}))
	defer server.Close()
	config := filepath.Join(t.TempDir(), "models.json")
	require.NoError(t, os.WriteFile(config, []byte(`{"models":[{"name":"poet","servers":[{"url":"`+server.URL+`/v1"}]}]}`), 0o600))

	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- run(ctx, []string{"-models", config, "-addr", "127.0.0.1:0", "-drain", "1ms"}, in, in) }()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	gateway := regexp.MustCompile(`http://[^ ]+:\d+`).FindString(line)
	resp, err := http.Post(gateway+"/v1/chat/completions", "application/json", strings.NewReader(`{"stream":true,"messages":[{"role":"user","content":"x"}]}`))
	require.NoError(t, err)
	defer resp.Body.Close()
	stop()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), `"code":"shutting_down"`)
	require.NotContains(t, string(text), "[DONE]")
	require.NoError(t, <-done)
	<-left
	require.NoError(t, out.Close())
	http.DefaultClient.CloseIdleConnections()
}

func TestTheProgramsOwnModelsCanBeListed(t *testing.T) {
	resp, err := http.Get(start(t) + "/v1/models")
	require.NoError(t, err)
	defer resp.Body.Close()
	list, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	for _, name := range []string{"gpt-4o-mini", "poet", "tiny"} {
		require.Contains(t, string(list), fmt.Sprintf(`"id":%q`, name))
	}
}

func TestWhatIsWrongIsTold(t *testing.T) {
	config := filepath.Join(t.TempDir(), "models.json")
	require.NoError(t, os.WriteFile(config, []byte(`{"models":[{"name":"a","local":"b"}]}`), 0o600))
	for want, args := range map[string][]string{
		"no such file":                      {"-models", "nowhere.json"},
		`there is no "b" among`:             {"-models", config},
		"flag provided but not defined: -x": {"-x"},
		"try another -addr":                 {"-addr", "256.0.0.1:1"},
	} {
		require.ErrorContains(t, run(t.Context(), args, io.Discard, io.Discard), want)
	}
}
