//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/openai"
	"github.com/intelliparadigm/haiku/upstream"
)

// proxyLoad is a load under which ways to pass on a stream are compared.
type proxyLoad struct {
	how      string
	clients  int
	requests int
	tokens   int           // of an answer
	pace     time.Duration // between two tokens of a stream
}

// proxyTable compares ways to pass on the stream of another server, whose
// tokens come as fast as it can send them, several in a read.
func proxyTable(s settings) error {
	return proxyRounds(s, proxyLoad{how: "as fast as the engine can send them", clients: tokenClients, requests: 1600, tokens: 64})
}

// pacedTable does so with a token at a time, as models make them: short answers,
// where what a request costs weighs more, and those of the mean length in the
// Azure LLM inference trace. Each client asks several times on its connection.
func pacedTable(s settings) error {
	for _, l := range []proxyLoad{{tokens: 64, requests: 1024}, {tokens: 211, requests: 384}} {
		l.how, l.clients, l.pace = "one each 4 ms and stream", 128, 4*time.Millisecond
		if err := proxyRounds(s, l); err != nil {
			return err
		}
	}
	return nil
}

// proxyRounds measures in rounds that visit every way, so that the machine's
// moods hit all alike. The engine and the clients are processes of their own, so
// that what is counted is what the proxy does.
func proxyRounds(s settings, l proxyLoad) error {
	if s.quick {
		l.requests = max(l.requests/4, l.clients)
	}
	engine, stop, err := startEngine(scriptedEngine{Tokens: l.tokens, Pace: l.pace})
	if err != nil {
		return err
	}
	defer stop()
	ways, closeAll, err := proxies(engine)
	if err != nil {
		return err
	}
	defer closeAll()
	results := make([][]proxyCost, len(ways))
	rounds := 2 * s.rounds // short ones, in another order each
	for round := range rounds {
		for i := range ways {
			i = (i + round) % len(ways)
			cost, err := ways[i].measure(engine, l)
			if err != nil {
				return fmt.Errorf("%s: %w", ways[i].name, err)
			}
			results[i] = append(results[i], cost)
		}
	}
	fmt.Printf("%d clients, %d tokens of %d bytes per answer, %s, median of %d rounds\n\n", l.clients, l.tokens, len(frame), l.how, rounds)
	fmt.Printf("| way | µs CPU per token | of ReverseProxy | tokens per flush | tokens/s | first token, µs | added to direct, µs |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	direct := column(results[0], func(c proxyCost) float64 { return c.first })
	for i, way := range ways {
		ratio := make([]float64, rounds)
		for k := range ratio {
			ratio[k] = results[i][k].micros / results[1][k].micros
		}
		cpu := column(results[i], func(c proxyCost) float64 { return c.micros })
		flushes := column(results[i], func(c proxyCost) float64 { return c.perFlush })
		first := column(results[i], func(c proxyCost) float64 { return c.first })
		rate := column(results[i], func(c proxyCost) float64 { return c.rate })
		if way.handler == nil {
			fmt.Printf("| %s | | | | %.0f | %.0f | |\n", way.name, rate, first)
			continue
		}
		fmt.Printf("| %s | %.2f | %.2f× | %.1f | %.0f | %.0f | %.0f |\n", way.name, cpu, median(ratio), flushes, rate, first, first-direct)
	}
	fmt.Println()
	return nil
}

func column(costs []proxyCost, of func(proxyCost) float64) float64 {
	xs := make([]float64, len(costs))
	for i := range costs {
		xs[i] = of(costs[i])
	}
	return median(xs)
}

// proxyWay is one way to pass a stream on; without a handler there is none, and
// clients speak to the engine.
type proxyWay struct {
	name    string
	handler http.Handler
}

// proxyCost is one measurement: CPU time per token and time to first token in
// microseconds, tokens per second and per flush to a client.
type proxyCost struct{ micros, first, rate, perFlush float64 }

func (v proxyWay) measure(engine string, p proxyLoad) (cost proxyCost, err error) {
	target := engine + "/v1/chat/completions"
	flushes := &flushCounter{next: v.handler}
	if v.handler != nil {
		var closeServer func()
		if target, closeServer, err = listen(flushes); err != nil {
			return cost, err
		}
		defer closeServer()
	}
	l := load{URL: target, Body: chatBody, Conns: p.clients, Requests: max(p.requests/10/p.clients, 1)}
	if _, err := drive(l); err != nil { // warm up
		return cost, err
	}
	l.Requests = p.requests / p.clients
	before := cpuTime()
	flushes.n.Store(0)
	r, err := drive(l)
	if err != nil {
		return cost, err
	}
	spent := cpuTime() - before
	tokens := float64(l.Requests * l.Conns * p.tokens)
	if float64(r.Events) < tokens {
		return cost, fmt.Errorf("%d events for %.0f tokens", r.Events, tokens)
	}
	return proxyCost{float64(spent.Microseconds()) / tokens, r.FirstMicros, tokens / r.Seconds, tokens / float64(flushes.n.Load())}, nil
}

// flushCounter counts the flushes of a handler.
type flushCounter struct {
	next http.Handler
	n    atomic.Int64
}

func (c *flushCounter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.next.ServeHTTP(&countedWriter{w, http.NewResponseController(w), &c.n}, r)
}

type countedWriter struct {
	http.ResponseWriter
	rc *http.ResponseController
	n  *atomic.Int64
}

func (c *countedWriter) FlushError() error {
	c.n.Add(1)
	return c.rc.Flush()
}

func (c *countedWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// proxies are the ways that are compared.
func proxies(engine string) (ways []proxyWay, closeAll func(), err error) {
	target, err := url.Parse(engine)
	if err != nil {
		return nil, nil, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 1 << 10, DisableCompression: true}
	reverse := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			// Read first: otherwise the server closes it when the response begins,
			// the transport's last look at it fails, and one answer in some thousand
			// is cut.
			body, _ := io.ReadAll(r.In.Body)
			r.Out.Body = io.NopCloser(bytes.NewReader(body))
		},
		FlushInterval: -1,
		Transport:     transport,
	}
	e, err := upstream.New(engine+"/v1", upstream.Options{})
	if err != nil {
		return nil, nil, err
	}
	through := haiku.New()
	through.Register("POST /v1/chat/completions", e.Passthrough())
	closeAll = func() {
		transport.CloseIdleConnections()
		_ = e.Close()
	}
	return []proxyWay{
		{"direct", nil},
		{"httputil.ReverseProxy, FlushInterval −1", reverse},
		{"upstream.Engine as a Model: read, parsed, encoded anew", openai.Handler(e)},
		{"upstream.Engine, pass-through", through},
	}, closeAll, nil
}

// scriptedEngine is an engine that sends the same answer to everybody.
type scriptedEngine struct {
	Tokens int
	Pace   time.Duration // between two tokens of a stream
}

// startEngine runs an engine in a process of its own.
func startEngine(script scriptedEngine) (url string, stop func(), err error) {
	in, err := json.Marshal(script)
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command(os.Args[0], "client", "-engine", string(in))
	cmd.Stderr = os.Stderr
	keep, err := cmd.StdinPipe() // the engine ends when it is closed
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = keep.Close()
		_ = cmd.Wait()
	}
	url, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("engine: %w", err)
	}
	return strings.TrimSpace(url), stop, nil
}

// engineMain is that process.
func engineMain(text string) error {
	var script scriptedEngine
	if err := json.Unmarshal([]byte(text), &script); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: script}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Close()
	}()
	fmt.Printf("http://%s\n", listener.Addr())
	_ = server.Serve(listener)
	return nil
}

// lastFrames end an answer.
const lastFrames = `data: {"id":"x","object":"chat.completion.chunk","created":1764592000,"model":"bench","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}` + "\n\n" +
	`data: {"id":"x","object":"chat.completion.chunk","created":1764592000,"model":"bench","choices":[],"usage":{"prompt_tokens":8,"completion_tokens":64,"total_tokens":72}}` + "\n\n" +
	"data: [DONE]\n\n"

func (e scriptedEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "text/event-stream")
	flusher := http.NewResponseController(w)
	var tick <-chan time.Time
	if e.Pace > 0 {
		ticker := time.NewTicker(e.Pace)
		defer ticker.Stop()
		tick = ticker.C
	}
	for range e.Tokens {
		if tick != nil {
			<-tick
		}
		if _, err := w.Write(frame); err != nil {
			return
		}
		_ = flusher.Flush()
	}
	_, _ = io.WriteString(w, lastFrames)
}
