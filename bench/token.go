//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/openai"
)

const (
	tokensPerRequest = 256
	tokenClients     = 8
	pieceText        = " autumn"
)

// tokenTable compares ways to send a token, each in the server's CPU time, in
// rounds that visit every variant, so that the machine's moods hit all alike.
// Haiku's ways include reading and checking the request.
func tokenTable(s settings) error {
	requests := 1500
	if s.quick {
		requests = 200
	}
	variants := []struct {
		name    string
		handler func() http.Handler
	}{
		{"floor: bare loop, prebuilt bytes, one flush per token", plain(floorHandler(1))},
		{"the same bytes through a goroutine and a channel, always one ahead", plain(hopHandler(false))},
		{"the same, each token made after the flush of the one before", plain(hopHandler(true))},
		{"the same, inside Haiku's mux with the request read and checked", hopBehindMux},
		{"usual: encoding/json, Fprintf, one flush per token", plain(http.HandlerFunc(usualHandler))},
		{"haiku, 1 token ready at a time", bursts(1)},
		{"haiku, 2 tokens ready at a time", bursts(2)},
		{"haiku, 4 tokens ready at a time", bursts(4)},
		{"haiku, 8 tokens ready at a time", bursts(8)},
		{"haiku, tokens made as fast as the ring takes them", bursts(tokensPerRequest)},
		{"floor with one flush per 4 tokens", plain(floorHandler(4))},
	}
	micros := make([][]float64, len(variants))
	ratios := make([][]float64, len(variants))
	perFlush := make([]float64, len(variants))
	for range s.rounds {
		for i, v := range variants {
			h := v.handler()
			m, err := cpuPerToken(h, requests)
			if err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			if b, ok := h.(*burstHandler); ok {
				perFlush[i] = float64(b.tokens.Load()) / float64(b.flushes.Load())
			}
			micros[i] = append(micros[i], m)
			ratios[i] = append(ratios[i], m/micros[0][len(micros[0])-1])
		}
	}
	fmt.Printf("%d clients, %d tokens per request, median of %d rounds\n\n", tokenClients, tokensPerRequest, s.rounds)
	fmt.Printf("| way | µs CPU per token | of the floor | tokens per flush |\n| --- | ---: | ---: | ---: |\n")
	for i, v := range variants {
		flushes := ""
		if perFlush[i] > 0 {
			flushes = fmt.Sprintf("%.1f", perFlush[i])
		}
		fmt.Printf("| %s | %.2f | %.2f× | %s |\n", v.name, median(micros[i]), median(ratios[i]), flushes)
	}
	return nil
}

func median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]
}

// cpuPerToken is the CPU time, in microseconds, that this process spends per
// token while another one reads the streams.
func cpuPerToken(h http.Handler, requests int) (float64, error) {
	url, closeServer, err := listen(h)
	if err != nil {
		return 0, err
	}
	defer closeServer()
	l := load{URL: url, Body: chatBody, Conns: tokenClients, Requests: max(requests/10/tokenClients, 1)}
	if _, err := drive(l); err != nil { // warm up
		return 0, err
	}
	l.Requests = requests / tokenClients
	before := cpuTime()
	r, err := drive(l)
	if err != nil {
		return 0, err
	}
	spent := cpuTime() - before
	tokens := l.Requests * l.Conns * tokensPerRequest
	if r.Events < int64(tokens) {
		return 0, fmt.Errorf("%d events for %d tokens", r.Events, tokens)
	}
	return float64(spent.Microseconds()) / float64(tokens), nil
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // cannot fail for RUSAGE_SELF
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func listen(h http.Handler) (url string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: h}
	go server.Serve(listener)
	return "http://" + listener.Addr().String() + "/v1/chat/completions", func() { server.Close() }, nil
}

func plain(h http.Handler) func() http.Handler { return func() http.Handler { return h } }

// frame is the chunk that all ways send for a token, as Haiku writes it.
var frame = func() []byte {
	recorder := httptest.NewRecorder()
	model := haiku.ModelFunc(func(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
		w.SetVocabulary(vocabulary)
		w.TryPush(haiku.Piece{ID: 0})
		w.Finish(0, haiku.FinishStop)
		return nil
	})
	openai.Handler(model).ServeHTTP(recorder, chatRequest())
	for event := range strings.SplitSeq(recorder.Body.String(), "\n\n") {
		if strings.Contains(event, `"content":"`+pieceText) {
			return []byte(event + "\n\n")
		}
	}
	panic("no frame with the text in " + recorder.Body.String())
}()

var vocabulary = haiku.NewVocabulary([][]byte{[]byte(pieceText)})

const chatBody = `{"model":"bench","stream":true,"messages":[{"role":"user","content":"x"}]}`

func chatRequest() *http.Request {
	return httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(chatBody))
}

// floorHandler is the least that one flush per flushEvery tokens can cost.
func floorHandler(flushEvery int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		flusher := w.(http.Flusher)
		for i := range tokensPerRequest {
			w.Write(frame)
			if (i+1)%flushEvery == 0 {
				flusher.Flush()
			}
		}
	})
}

// hopHandler gets its tokens from another goroutine, as every server does whose
// model serves more than one request. In steps, that goroutine waits for the
// flush as Haiku's measurements do: a model is slower than a flush, so both
// sides sleep for every token.
func hopHandler(steps bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		flusher := http.NewResponseController(w)
		tokens, flushed := make(chan int, 1), make(chan struct{}, 1)
		go func() {
			defer close(tokens)
			for i := range tokensPerRequest {
				tokens <- i
				if steps {
					<-flushed
				}
			}
		}()
		for range tokens {
			w.Write(frame)
			flusher.Flush()
			if steps {
				flushed <- struct{}{}
			}
		}
	})
}

// hopBehindMux is hopHandler in steps where Haiku's handlers are: what it costs
// less than they do is the ring and the encoder.
func hopBehindMux() http.Handler {
	b := &burstHandler{}
	mux := haiku.New()
	hop := hopHandler(true)
	mux.Register("POST /v1/chat/completions", haiku.HandlerFunc(func(c *haiku.Context) {
		var payload openai.ChatCompletionRequest
		if err := c.Bind(&payload); err != nil {
			c.AbortWithError(err)
			return
		}
		if _, err := payload.InferenceRequest(); err != nil {
			c.AbortWithError(err)
			return
		}
		hop.ServeHTTP(c.Writer, c.Request)
	}), b.watchFlushes)
	return mux
}

// chunk is what the usual way marshals for each token.
type chunk struct {
	ID      string        `json:"id"`
	Object  string        `json:"object"`
	Created int64         `json:"created"`
	Model   string        `json:"model"`
	Choices []chunkChoice `json:"choices"`
}

type chunkChoice struct {
	Index        int     `json:"index"`
	Delta        delta   `json:"delta"`
	FinishReason *string `json:"finish_reason"`
}

type delta struct {
	Content string `json:"content"`
}

func usualHandler(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	flusher := w.(http.Flusher)
	for range tokensPerRequest {
		b, err := json.Marshal(chunk{
			ID: "chatcmpl-0123456789abcdef01234567", Object: "chat.completion.chunk", Created: 1764592000, Model: "bench",
			Choices: []chunkChoice{{Delta: delta{Content: pieceText}}},
		})
		if err != nil {
			return
		}
		fmt.Fprintf(w, "data: %s\n\n", b)
		flusher.Flush()
	}
}

// burstHandler serves OpenAI's API from a model that makes a number of tokens
// at once and then waits until they have been flushed, so that this many are
// ready at a time.
type burstHandler struct {
	http.Handler
	burst           int
	tokens, flushes atomic.Int64
}

func bursts(burst int) func() http.Handler {
	return func() http.Handler {
		b := &burstHandler{burst: burst}
		b.Handler = openai.Handler(b, b.watchFlushes)
		return b
	}
}

// flushWatch tells a stream's model about the flushes of its response.
type flushWatch struct {
	http.ResponseWriter
	flush   func() error
	flushed chan struct{} // capacity 1
	count   *atomic.Int64
}

func (f *flushWatch) Unwrap() http.ResponseWriter { return f.ResponseWriter }

func (f *flushWatch) FlushError() error {
	err := f.flush()
	f.count.Add(1)
	select {
	case f.flushed <- struct{}{}:
	default:
	}
	return err
}

type flushedKey struct{}

func (b *burstHandler) watchFlushes(next haiku.InferenceHandler) haiku.InferenceHandler {
	return haiku.HandlerFunc(func(c *haiku.Context) {
		watch := &flushWatch{ResponseWriter: c.Writer, flushed: make(chan struct{}, 1), count: &b.flushes}
		watch.flush = http.NewResponseController(c.Writer).Flush
		c.Writer = watch
		c.Request = c.Request.WithContext(context.WithValue(c.Context(), flushedKey{}, watch.flushed))
		next.ServeInference(c)
	})
}

// Generate makes the tokens of one answer.
func (b *burstHandler) Generate(ctx context.Context, w *haiku.StreamWriter, _ *haiku.Request) error {
	w.SetVocabulary(vocabulary)
	flushed, _ := ctx.Value(flushedKey{}).(chan struct{})
	for left := tokensPerRequest; left > 0; {
		for range min(b.burst, left) {
			if _, err := w.Push(ctx, haiku.Piece{ID: 0}); err != nil {
				return err
			}
			left--
		}
		select {
		case <-flushed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	b.tokens.Add(tokensPerRequest)
	w.Finish(0, haiku.FinishStop)
	return nil
}
