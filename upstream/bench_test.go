package upstream

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/openai"
)

// eventBody gives out one event a read.
type eventBody struct{ texts []string }

func (b *eventBody) Read(p []byte) (int, error) {
	if len(b.texts) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.texts[0])
	b.texts = b.texts[1:]
	return n, nil
}

func (b *eventBody) Close() error { return nil }

// nowhere is a response that goes nowhere.
type nowhere struct{ h http.Header }

func (n nowhere) Header() http.Header         { return n.h }
func (n nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n nowhere) WriteHeader(int)             {}
func (n nowhere) FlushError() error           { return nil }
func (n nowhere) Flush()                      {}

// BenchmarkAnswer is what an answer of 64 tokens costs without its system calls.
func BenchmarkAnswer(b *testing.B) {
	texts := append(repeat("data: "+textChunk+"\n\n", 64), stopChunk, usageChunk, doneMark)
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		_, _ = io.Copy(io.Discard, r.Body)
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, ContentLength: -1, Body: &eventBody{texts: texts}}, nil
	})
	e, err := New("http://h", Options{Transport: transport})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	target := &url.URL{Scheme: "http", Host: "h"}
	mux := haiku.New()
	mux.Register("POST /v1/chat/completions", e.Passthrough())
	for _, way := range []struct {
		name string
		h    http.Handler
	}{
		{"ReverseProxy", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, FlushInterval: -1, Transport: transport}},
		{"Passthrough", mux},
		{"Model", openai.Handler(e)},
	} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(streamBody))
				way.h.ServeHTTP(nowhere{http.Header{}}, r)
			}
		})
	}
}
