package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/cpu"
	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/tinymodel"
)

func TestTheHostServesItsModelBesideItsOwnRoutes(t *testing.T) {
	engine, err := infer.OpenBytes(tinymodel.GGUF(), cpu.New())
	require.NoError(t, err)
	defer engine.Close()
	server := httptest.NewServer(newMux(engine, "s3cret"))
	defer server.Close()
	ask := func(authorization string) (int, string) {
		body := strings.NewReader(`{"stream":true,"messages":[{"role":"user","content":"Write a haiku about autumn."}]}`)
		req, err := http.NewRequest("POST", server.URL+"/v1/chat/completions", body)
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", authorization)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(text)
	}

	status, text := ask("Bearer s3cret")
	require.Equal(t, 200, status)
	require.True(t, strings.HasSuffix(text, "data: [DONE]\n\n"), text)

	status, text = ask("Bearer wrong")
	require.Equal(t, 403, status)
	require.Equal(t, `{"error":{"message":"access is denied","type":"permission_error","param":null,"code":"forbidden"}}`, text)

	resp, err := http.Get(server.URL + "/healthz")
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
}
