package pool

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/fallback"
	"github.com/intelliparadigm/haiku/upstream"
)

// chaosTokens is the length of each answer.
const chaosTokens = 24

// answerTo is what every server answers a question: it shows where something is
// missing, doubled or of another answer.
func answerTo(question string) string {
	var b strings.Builder
	for i := range chaosTokens {
		fmt.Fprintf(&b, "%s.%d ", question, i)
	}
	return b.String()
}

// machine is a server on loopback that speaks as vLLM does, and can be killed,
// stalled, slowed and made to fail its health check.
type machine struct {
	t    *testing.T
	name string
	addr string
	srv  *http.Server
	done chan struct{} // closed when srv serves no more

	step    atomic.Int64 // ns between tokens
	sick    atomic.Bool
	running atomic.Int64
	served  atomic.Int64
	mu      sync.Mutex
	stalled chan struct{} // nil, or closed when it goes on
}

func newMachine(t *testing.T, name string) *machine {
	m := &machine{t: t, name: name, addr: "127.0.0.1:0"}
	m.step.Store(int64(time.Millisecond))
	m.start()
	t.Cleanup(m.kill)
	return m
}

// start serves, again where it did before.
func (m *machine) start() {
	l, err := net.Listen("tcp", m.addr)
	if err != nil {
		m.t.Errorf("%s: %v", m.name, err)
		return
	}
	m.addr = l.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/chat/completions", m.chat)
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) {
		if m.sick.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "vllm:num_requests_running %d\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0.1\n", m.running.Load())
	})
	srv, done := &http.Server{Handler: mux}, make(chan struct{})
	m.srv, m.done = srv, done
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
}

// kill cuts all connections and takes no more.
func (m *machine) kill() {
	_ = m.srv.Close()
	<-m.done
}

// stall makes every answer stop where it is, until goOn.
func (m *machine) stall() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stalled = make(chan struct{})
}

func (m *machine) goOn() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.stalled)
	m.stalled = nil
}

// pause waits for the next token's time, and reports false if nobody does.
func (m *machine) pause(ctx context.Context) bool {
	m.mu.Lock()
	stalled := m.stalled
	m.mu.Unlock()
	if stalled != nil {
		select {
		case <-stalled:
		case <-ctx.Done():
			return false
		}
	}
	select {
	case <-time.After(time.Duration(m.step.Load())):
		return true
	case <-ctx.Done():
		return false
	}
}

func (m *machine) chat(w http.ResponseWriter, r *http.Request) {
	m.running.Add(1)
	defer m.running.Add(-1)
	var body struct {
		Messages []struct{ Content string }
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || len(body.Messages) == 0 {
		http.Error(w, "bad", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Endpoint-Load-Metrics", fmt.Sprintf(`JSON {"named_metrics":{"num_requests_waiting":0,"kv_cache_usage_perc":%g}}`, 0.1))
	send := func(delta, finish string) {
		fmt.Fprintf(w, "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"model\":%q,\"choices\":[{\"index\":0,\"delta\":{%s},\"finish_reason\":%s}]}\n\n", m.name, delta, finish)
		_ = http.NewResponseController(w).Flush()
	}
	send(`"role":"assistant"`, "null")
	for i := range chaosTokens {
		if !m.pause(r.Context()) {
			return
		}
		send(fmt.Sprintf(`"content":"%s.%d "`, body.Messages[0].Content, i), "null")
	}
	send("", `"stop"`)
	fmt.Fprint(w, "data: [DONE]\n\n")
	m.served.Add(1)
}

// endpoint returns a pool's view of the machine. health says whether it is probed.
func (m *machine) endpoint(health bool) Endpoint {
	gauge := new(Gauge)
	engine, err := upstream.New("http://"+m.addr+"/v1", upstream.Options{
		Dialect: upstream.VLLM, Connect: time.Second, FirstToken: time.Second, Idle: 10 * time.Second,
		Retry:  upstream.Retry{Attempts: 1},
		OnLoad: func(l upstream.Load) { gauge.Report(Told(l)) },
	})
	require.NoError(m.t, err)
	m.t.Cleanup(func() { _ = engine.Close() })
	transport := &http.Transport{}
	client := &http.Client{Transport: transport}
	m.t.Cleanup(transport.CloseIdleConnections)
	e := Endpoint{Name: m.name, Model: engine, Gauge: gauge, Metrics: Metrics(client, "http://"+m.addr+"/metrics")}
	if health {
		e.Probe = Healthy(client, "http://"+m.addr+"/health")
	}
	return e
}

// TestChaosAmongRealServers has 64 clients ask seven servers, of which one is
// killed, one stalls, one is slow, one fails its health check and one is drained
// while they answer. Every answer is whole, or begun by one of the first two and
// ended by an error; whoever was ejected comes back.
func TestChaosAmongRealServers(t *testing.T) {
	fleet := map[string]*machine{}
	var endpoints []Endpoint
	for _, name := range []string{"killed", "stalled", "slow", "sick", "drained", "well", "good"} {
		fleet[name] = newMachine(t, name)
		endpoints = append(endpoints, fleet[name].endpoint(name != "killed" && name != "stalled"))
	}
	fleet["slow"].step.Store(int64(20 * time.Millisecond))
	p, err := New(Options{
		Poll: 20 * time.Millisecond, Probe: 50 * time.Millisecond, SlowStart: 50 * time.Millisecond, Stall: time.Second,
		Breaker: fallback.BreakerOptions{OpenFor: 300 * time.Millisecond, RampAnswers: 2}, Logger: slog.New(slog.DiscardHandler),
	}, endpoints...)
	require.NoError(t, err)
	c := &chaos{t: t, p: p, fleet: fleet, drained: make(chan error, 1)}
	c.run()
	require.NoError(t, <-c.drained)
	p.Close()
	for _, s := range p.Status() {
		require.Zero(t, s.InFlight, s.Name)
	}
	require.Positive(t, c.torn.Load(), "some were under way when their servers went")
	require.Less(t, c.torn.Load(), int64(64), "no more than were under way")
	t.Logf("%d answers, %d torn", c.asked.Load(), c.torn.Load())
}

// chaos is the test under way.
type chaos struct {
	t       *testing.T
	p       *Pool
	fleet   map[string]*machine
	drained chan error
	asked   atomic.Int64
	torn    atomic.Int64
	over    atomic.Bool

	mu    sync.Mutex
	stage int
	since int64 // answers since the stage began
	base  [2]int64
}

func (c *chaos) run() {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	var clients sync.WaitGroup
	for range 64 {
		clients.Go(func() {
			for !c.over.Load() && ctx.Err() == nil {
				c.ask(ctx)
				c.next()
			}
		})
	}
	clients.Wait()
	require.NoError(c.t, ctx.Err(), "it ended at stage %d: %+v", c.stage, c.p.Status())
}

func (c *chaos) ask(ctx context.Context) {
	question := fmt.Sprint("q", c.asked.Add(1))
	ctx = haiku.WithLogger(ctx, slog.New(slog.DiscardHandler))
	stream := haiku.NewStream(ctx, c.p, &haiku.Request{Messages: []haiku.Message{{Role: haiku.RoleUser, Content: question}}})
	text, err := stream.Text()
	want := answerTo(question)
	switch {
	case err == nil:
		if text != want {
			c.t.Errorf("%s by %s: %q", question, stream.Model(), text)
		}
	case text == "" || !strings.HasPrefix(want, text):
		c.t.Errorf("%s by %s: %q, %v", question, stream.Model(), text, err)
	case stream.Model() != "killed" && stream.Model() != "stalled":
		c.t.Errorf("%s was torn by %s: %v", question, stream.Model(), err)
	default:
		c.torn.Add(1)
	}
}

// next does the next thing to the servers once the last one has had its effect.
func (c *chaos) next() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since++
	state := map[string]Status{}
	for _, s := range c.p.Status() {
		state[s.Name] = s
	}
	stages := []struct {
		ready bool
		do    func()
	}{
		{c.since >= 200, c.fleet["killed"].kill},
		{state["killed"].Ejected, c.fleet["stalled"].stall},
		{state["stalled"].Ejected, func() { c.fleet["sick"].sick.Store(true) }},
		{state["sick"].Down, func() { go func() { c.drained <- c.p.Drain(context.Background(), "drained") }() }},
		{state["drained"].Name == "", func() { c.fleet["killed"].start(); c.fleet["stalled"].goOn(); c.fleet["sick"].sick.Store(false) }},
		{!state["killed"].Ejected && !state["stalled"].Ejected && !state["sick"].Down, func() {
			c.base = [2]int64{c.fleet["killed"].served.Load(), c.fleet["stalled"].served.Load()}
		}},
		{c.fleet["killed"].served.Load() > c.base[0]+10 && c.fleet["stalled"].served.Load() > c.base[1]+10, func() { c.over.Store(true) }},
	}
	if c.stage < len(stages) && stages[c.stage].ready {
		stages[c.stage].do()
		c.stage++
		c.since = 0
	}
}
