package openai_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/openai"
)

// TestHTTP2 streams over HTTP/2, with TLS and without, beside a host's other
// route and inside a middleware that only unwraps.
func TestHTTP2(t *testing.T) {
	model := haikutest.NewModel(t, "old ", "pond")
	mux := http.NewServeMux()
	mux.Handle("/v1/", openai.Handler(model))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	wrapped := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(struct {
			http.ResponseWriter
			unwrapper
		}{w, unwrapper{w}}, r)
	})
	var clear http.Protocols
	clear.SetUnencryptedHTTP2(true)

	secure := httptest.NewUnstartedServer(wrapped)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	defer secure.Close()
	h2c := httptest.NewUnstartedServer(wrapped)
	h2c.Config.Protocols = &clear
	h2c.Start()
	defer h2c.Close()
	transport := &http.Transport{Protocols: &clear}
	defer transport.CloseIdleConnections()

	for name, c := range map[string]struct {
		client *http.Client
		url    string
	}{
		"TLS": {secure.Client(), secure.URL},
		"h2c": {&http.Client{Transport: transport}, h2c.URL},
	} {
		t.Run(name, func(t *testing.T) {
			body := strings.NewReader(`{"stream":true,"messages":[{"role":"user","content":"x"}]}`)
			resp, err := c.client.Post(c.url+"/v1/chat/completions", "application/json", body)
			require.NoError(t, err)
			defer resp.Body.Close()
			require.Equal(t, 2, resp.ProtoMajor)
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Contains(t, string(text), `"delta":{"content":"pond"}`)
			require.True(t, strings.HasSuffix(string(text), "data: [DONE]\n\n"))
			resp, err = c.client.Get(c.url + "/healthz")
			require.NoError(t, err)
			defer resp.Body.Close()
			require.Equal(t, 200, resp.StatusCode)
		})
	}
}

type unwrapper struct{ rw http.ResponseWriter }

func (u unwrapper) Unwrap() http.ResponseWriter { return u.rw }
