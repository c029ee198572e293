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
func tokenTable(s settings) error {
	requests := 1500
	if s.quick {
		requests = 200
	}
	variants := []struct {
		name    string
		handler func() (http.Handler, func())
	}{
		{"floor: bare loop, prebuilt bytes, one flush per token", plain(floorHandler(1))},
		{"usual: encoding/json, Fprintf, one flush per token", plain(http.HandlerFunc(usualHandler))},
		{"haiku: ring, SSE, one flush per token", haikuHandler(1)},
		{"haiku, 2 tokens ready at a time", haikuHandler(2)},
		{"haiku, 4 tokens ready at a time", haikuHandler(4)},
		{"haiku, 8 tokens ready at a time", haikuHandler(8)},
		{"floor with one flush per 4 tokens", plain(floorHandler(4))},
	}
	micros := make([][]float64, len(variants))
	ratios := make([][]float64, len(variants))
	for range s.rounds {
		for i, v := range variants {
			m, err := cpuPerToken(v.handler, requests)
			if err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			micros[i] = append(micros[i], m)
			ratios[i] = append(ratios[i], m/micros[0][len(micros[0])-1])
		}
	}
	fmt.Printf("%d clients, %d tokens per request, median of %d rounds\n\n", tokenClients, tokensPerRequest, s.rounds)
	fmt.Printf("| way | µs CPU per token | of the floor |\n| --- | ---: | ---: |\n")
	for i, v := range variants {
		fmt.Printf("| %s | %.2f | %.2f× |\n", v.name, median(micros[i]), median(ratios[i]))
	}
	return nil
}

func median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]
}

// cpuPerToken is the CPU time, in microseconds, that this process spends per
// token while another one reads the streams.
func cpuPerToken(handler func() (http.Handler, func()), requests int) (float64, error) {
	h, stop := handler()
	defer stop()
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

func plain(h http.Handler) func() (http.Handler, func()) {
	return func() (http.Handler, func()) { return h, func() {} }
}

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

// haikuHandler streams from a stepper that makes `ready` tokens at a time for
// every stream and then waits until all of them have been flushed, as an
// engine's step does.
func haikuHandler(ready int) func() (http.Handler, func()) {
	return func() (http.Handler, func()) {
		st := newStepper(ready)
		return openai.Handler(st, countFlushes(st)), st.stop
	}
}

// countFlushes lets a stream's stepper see the flushes of its response.
func countFlushes(st *stepper) haiku.Middleware {
	return func(next haiku.InferenceHandler) haiku.InferenceHandler {
		return haiku.HandlerFunc(func(c *haiku.Context) {
			seen := &flushCounter{ResponseWriter: c.Writer, st: st}
			c.Writer = seen
			c.Request = c.Request.WithContext(context.WithValue(c.Context(), flushesKey{}, seen))
			next.ServeInference(c)
		})
	}
}

type flushesKey struct{}

// stepper is a model whose streams advance in steps, all together.
type stepper struct {
	ready   int
	join    chan *stepped
	acked   chan struct{}
	pending atomic.Int32
	quit    chan struct{}
	done    chan struct{}
}

type stepped struct {
	w       *haiku.StreamWriter
	flushes *flushCounter
	left    int
	over    chan struct{}
}

func newStepper(ready int) *stepper {
	s := &stepper{ready: ready, join: make(chan *stepped), acked: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	go s.run()
	return s
}

func (s *stepper) stop() {
	close(s.quit)
	<-s.done
}

// Generate joins the steps until its tokens are made.
func (s *stepper) Generate(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
	w.SetVocabulary(vocabulary)
	st := &stepped{w: w, left: tokensPerRequest, over: make(chan struct{})}
	st.flushes, _ = ctx.Value(flushesKey{}).(*flushCounter)
	select {
	case s.join <- st:
	case <-ctx.Done():
		return ctx.Err()
	}
	<-st.over
	return nil
}

func (s *stepper) run() {
	defer close(s.done)
	var active []*stepped
	for {
		if len(active) == 0 {
			select {
			case st := <-s.join:
				active = append(active, st)
			case <-s.quit:
				return
			}
		}
		for more := true; more; {
			select {
			case st := <-s.join:
				active = append(active, st)
			default:
				more = false
			}
		}
		active = s.step(active)
	}
}

// step pushes the next tokens of every stream and waits for the flushes of
// those that go on.
func (s *stepper) step(active []*stepped) []*stepped {
	s.pending.Store(int32(len(active)) + 1)
	for _, st := range active {
		st.flushes.awaited.Store(true)
		for range s.ready {
			st.left--
			p := haiku.Piece{ID: 0}
			if st.left == 0 {
				p.Finish = haiku.FinishStop
			}
			st.w.TryPush(p)
		}
	}
	if s.pending.Add(-1) > 0 {
		<-s.acked
	}
	return slices.DeleteFunc(active, func(st *stepped) bool {
		if st.left > 0 {
			return false
		}
		close(st.over)
		return true
	})
}

// flushCounter tells the stepper about the first flush of a stream after each
// step.
type flushCounter struct {
	http.ResponseWriter
	st      *stepper
	awaited atomic.Bool
}

func (f *flushCounter) Unwrap() http.ResponseWriter { return f.ResponseWriter }

func (f *flushCounter) FlushError() error {
	err := http.NewResponseController(f.ResponseWriter).Flush()
	if f.awaited.CompareAndSwap(true, false) && f.st.pending.Add(-1) == 0 {
		f.st.acked <- struct{}{}
	}
	return err
}
