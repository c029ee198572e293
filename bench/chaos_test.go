//go:build unix

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// said is a stream of three tokens of a request as it should be.
func said() []string {
	return []string{"main:7:0 ", "main:7:1 ", "main:7:2 ", "finish", "[DONE]"}
}

// wire writes a stream: texts, and by their names what is none.
func wire(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		switch p {
		case "[DONE]":
			b.WriteString("data: [DONE]\n\n")
		case "finish":
			b.WriteString(`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n")
		case "error":
			b.WriteString("event: error\ndata: " + chaosError + "\n\n")
		case "half":
			b.WriteString(`data: {"choices":[{"ind`)
		default:
			fmt.Fprintf(&b, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%q},\"finish_reason\":null}],\"error\":null}\n\n", p)
		}
	}
	return b.String()
}

func TestAnAnswerThatIsNotWholeIsFound(t *testing.T) {
	good := said()
	for name, c := range map[string]struct {
		status int
		stream []string
		want   fate
	}{
		"whole":                       {200, good, wholly},
		"whole, with a role first":    {200, slices.Insert(said(), 0, ""), wholly},
		"whole, tokens in one event":  {200, []string{"main:7:0 main:7:1 ", "main:7:2 ", "finish", "[DONE]"}, wholly},
		"a token in two events":       {200, []string{"main:7", ":0 main:7:1 main:7:2 ", "finish", "[DONE]"}, wholly},
		"error event in the middle":   {200, []string{good[0], good[1], "error"}, broken},
		"error event at the end":      {200, []string{good[0], good[1], good[2], "error"}, broken},
		"error status":                {503, nil, refused},
		"error event before any text": {200, []string{"", "error"}, refused},
		"no response":                 {0, nil, lost},
		"headers alone":               {200, nil, lost},
		"an end without text":         {200, []string{"finish", "[DONE]"}, lost},
		"token twice":                 {200, []string{good[0], good[0], good[1], good[2], "finish", "[DONE]"}, doubled},
		"answer twice":                {200, slices.Concat(good, good), doubled},
		"begun anew by another model": {200, []string{good[0], "small:7:0 ", "small:7:1 ", "small:7:2 ", "finish", "[DONE]"}, doubled},
		"continued by another model":  {200, []string{good[0], "small:7:1 ", "small:7:2 ", "finish", "[DONE]"}, doubled},
		"another request's token":     {200, []string{good[0], "main:8:1 ", good[2], "finish", "[DONE]"}, doubled},
		"text behind the end":         {200, []string{good[0], good[1], "finish", good[2], "[DONE]"}, doubled},
		"a gap":                       {200, []string{good[0], good[2], "finish", "[DONE]"}, torn},
		"a gap before an error event": {200, []string{good[0], good[2], "error"}, torn},
		"no beginning":                {200, []string{good[1], good[2], "finish", "[DONE]"}, torn},
		"too short":                   {200, []string{good[0], good[1], "finish", "[DONE]"}, torn},
		"cut":                         {200, []string{good[0], good[1]}, torn},
		"cut within an event":         {200, []string{good[0], good[1], "half"}, torn},
		"half of a token":             {200, []string{good[0], good[1], "main:7:", "finish", "[DONE]"}, torn},
		"no end mark":                 {200, []string{good[0], good[1], good[2], "finish"}, torn},
		"no finish reason":            {200, []string{good[0], good[1], good[2], "[DONE]"}, torn},
	} {
		t.Run(name, func(t *testing.T) {
			h := &heard{status: c.status}
			h.read(strings.NewReader(wire(c.stream...)), func() {})
			got, _ := h.fate(7, 3)
			require.Equal(t, c.want, got)
		})
	}
}

// pipes is a network of one listener, within a bubble of virtual time.
type pipes struct {
	conns chan net.Conn
	ended chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.ended); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// askSick asks an engine that has a fault, in virtual time.
func askSick(t *testing.T, f fault, later fault) (answer chaosAnswer, headers time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		engine := newChaosEngine(chaosScript{Model: "main", First: 20 * time.Millisecond, Pace: 5 * time.Millisecond, Tokens: chaosTokens})
		engine.sick.Store(&f)
		network := newPipes()
		front := newDoor(network)
		server := &http.Server{Handler: engine}
		served := make(chan error)
		go func() { served <- server.Serve(front) }()
		transport := &http.Transport{DialContext: network.dial}
		start := time.Now()
		change := time.AfterFunc(27*time.Millisecond, func() {
			if later != (fault{}) {
				engine.sick.Store(&later)
				front.shut(later.Gone)
			}
		})
		defer change.Stop()
		l := chaosLoad{URL: "http://engine/v1/chat/completions", Start: start, Tokens: chaosTokens, Patience: time.Second}
		answer = l.ask(clocked{transport, &headers}, 7, 0)
		transport.CloseIdleConnections()
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	return answer, headers
}

// clocked notes how long the headers of a response took.
type clocked struct {
	http.RoundTripper
	took *time.Duration
}

func (r clocked) RoundTrip(req *http.Request) (*http.Response, error) {
	start := time.Now()
	defer func() { *r.took = time.Since(start) }()
	return r.RoundTripper.RoundTrip(req)
}

func TestTheEngineIsAsSickAsItIsTold(t *testing.T) {
	const ms = time.Millisecond
	healthy := chaosAnswer{First: 20 * ms, Gap: 5 * ms, End: 55 * ms, Fate: wholly, Model: "main"}
	for name, c := range map[string]struct {
		now, later fault // from its beginning and, if there is one, after 27 ms
		want       chaosAnswer
		headers    time.Duration
	}{
		"healthy":                    {fault{}, fault{}, healthy, 0},
		"status":                     {fault{Status: 500}, fault{}, chaosAnswer{Fate: refused}, 0},
		"slow":                       {fault{First: 400 * ms}, fault{}, chaosAnswer{First: 420 * ms, Gap: 5 * ms, End: 455 * ms, Fate: wholly, Model: "main"}, 0},
		"slow with its headers":      {fault{First: 400 * ms, Late: true}, fault{}, chaosAnswer{First: 420 * ms, Gap: 5 * ms, End: 455 * ms, Fate: wholly, Model: "main"}, 420 * ms},
		"stalled without headers":    {fault{Late: true, Deed: stall}, fault{}, chaosAnswer{End: time.Second, Fate: lost}, time.Second},
		"stalled behind the headers": {fault{Deed: stall}, fault{}, chaosAnswer{End: time.Second, Fate: lost}, 0},
		"stalled at a token":         {fault{Deed: stall, At: 2}, fault{}, chaosAnswer{First: 20 * ms, Gap: 5 * ms, End: time.Second, Fate: torn, Model: "main"}, 0},
		"stalled while it streams":   {fault{}, fault{Deed: stall}, chaosAnswer{First: 20 * ms, Gap: 5 * ms, End: time.Second, Fate: torn, Model: "main"}, 0},
		"error event at a token":     {fault{Deed: event, At: 2}, fault{}, chaosAnswer{First: 20 * ms, Gap: 5 * ms, End: 30 * ms, Fate: broken, Model: "main"}, 0},
		"cut at a token":             {fault{Deed: cut, At: 2}, fault{}, chaosAnswer{First: 20 * ms, Gap: 5 * ms, End: 30 * ms, Fate: torn, Model: "main"}, 0},
		"cut off while it streams":   {fault{}, fault{Gone: true}, chaosAnswer{First: 20 * ms, Gap: 5 * ms, End: time.Second, Fate: torn, Model: "main"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, headers := askSick(t, c.now, c.later)
			require.Equal(t, c.want, got)
			require.Equal(t, c.headers, headers)
		})
	}
}

// TestAShutDoorIsSilent has real connections: what is asked of the kernel is the point.
func TestAShutDoorIsSilent(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	front := newDoor(listener)
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	served := make(chan error)
	go func() { served <- server.Serve(front) }()
	const answer = "HTTP/1.1 200 OK"
	const long, short = 10 * time.Second, 30 * time.Millisecond // to an answer, and to none
	ask := func(c net.Conn, patience time.Duration) string {
		_, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
		require.NoError(t, err)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
		got := make([]byte, 1<<10)
		n, err := c.Read(got)
		if err != nil {
			require.ErrorContains(t, err, "timeout") // neither closed nor reset
			return ""
		}
		return string(got[:min(n, len(answer))])
	}
	var opened []net.Conn
	dial := func(patience time.Duration) (net.Conn, error) {
		c, err := net.DialTimeout("tcp", listener.Addr().String(), patience)
		if err == nil {
			opened = append(opened, c)
		}
		return c, err
	}
	old, err := dial(long)
	require.NoError(t, err)
	require.Equal(t, answer, ask(old, long))

	front.shut(true)
	require.Empty(t, ask(old, short))
	for range 3 {
		if c, err := dial(short); err == nil {
			require.Empty(t, ask(c, short))
		}
	}

	front.shut(false)
	require.Empty(t, ask(old, short), "what was cut off stays so")
	fresh, err := dial(long)
	require.NoError(t, err)
	require.Equal(t, answer, ask(fresh, long))
	require.NoError(t, server.Close())
	require.ErrorIs(t, <-served, http.ErrServerClosed)
	for _, c := range opened {
		require.NoError(t, c.Close())
	}
}

func TestEachWayWithASmallModelMovesOnToIt(t *testing.T) {
	script := func(name string) chaosScript { return chaosScript{Model: name, Tokens: chaosTokens} }
	sick, small := newChaosEngine(script("main")), newChaosEngine(script("small"))
	first, second := httptest.NewServer(sick), httptest.NewServer(small)
	defer first.Close()
	defer second.Close()
	for _, way := range chaosWays() {
		sick.sick.Store(&fault{})
		h, closeAll, err := way.open(first.URL, second.URL, chaosLimits{first: time.Second, openFor: time.Hour, stall: time.Second})
		require.NoError(t, err)
		front := httptest.NewServer(h)
		l := chaosLoad{URL: front.URL + "/v1/chat/completions", Tokens: chaosTokens, Patience: time.Minute}
		transport := &http.Transport{}
		for i, want := range []string{"main", "small", "small"} {
			l.Start = time.Now()
			a := l.ask(transport, i, 0)
			if want == "small" && way.name == "no breaker" {
				require.Equal(t, refused, a.Fate, way.name)
				continue
			}
			require.Equal(t, wholly, a.Fate, way.name)
			require.Equal(t, want, a.Model, way.name)
			sick.sick.Store(&fault{Status: 500})
		}
		transport.CloseIdleConnections()
		front.Close()
		closeAll()
	}
}

// sampled are answers that are due one each millisecond, as one says.
func sampled(n int, of func(ms int) chaosAnswer) []chaosAnswer {
	answers := make([]chaosAnswer, n)
	for i := range answers {
		answers[i] = of(i)
		answers[i].At = time.Duration(i) * time.Millisecond
	}
	return answers
}

func TestSwitchAndRecoveryAreFoundInTheAnswers(t *testing.T) {
	const ms = time.Millisecond
	good := slo{first: 250 * ms, gap: 200 * ms}
	answer := func(f fate, model string, first time.Duration) chaosAnswer {
		return chaosAnswer{Fate: f, Model: model, First: first, End: first}
	}
	cell := &chaosCell{slo: good, on: 500 * ms, off: 1000 * ms, answers: sampled(2000, func(at int) chaosAnswer {
		switch {
		case at < 500:
			return answer(wholly, "main", 20*ms)
		case at < 620:
			return answer(torn, "main", 20*ms)
		case at == 800: // a probe, which one in a hundred may be
			return answer(wholly, "main", 400*ms)
		case at < 1300:
			return answer(wholly, "small", 120*ms)
		}
		return answer(wholly, "main", 20*ms)
	})}
	took, ok := cell.switched()
	require.True(t, ok)
	// The last window with two bad answers begins with the last but one.
	require.Equal(t, 119*ms, took)
	took, ok = cell.recovered()
	require.True(t, ok)
	require.Equal(t, 290*ms, took) // from where on a tenth is the small model's
	require.Equal(t, 120, cell.count(torn))
	require.False(t, cell.reliable())
	require.InDelta(t, 1-121.0/2000, shareOf(cell.answers, good.met), 1e-9)
	require.Len(t, cell.before(), 480, "without those that were under way")
	require.Contains(t, cell.row("cut", "haiku"), "| cut | haiku | 93.95% | 100.00% | 75.80% | 1880 | 0 | 0 | 0 | 0 | 120 |")

	never := &chaosCell{slo: good, on: 500 * ms, off: 1000 * ms, answers: sampled(2000, func(at int) chaosAnswer {
		return answer(refused, "", 0)
	})}
	_, ok = never.switched()
	require.False(t, ok)
	_, ok = never.recovered()
	require.False(t, ok)
	require.True(t, never.reliable(), "all said what they are")

	always := &chaosCell{slo: good, on: 500 * ms, off: 1000 * ms, answers: sampled(2000, func(at int) chaosAnswer {
		return answer(wholly, "main", 20*ms)
	})}
	took, ok = always.switched()
	require.True(t, ok)
	require.Zero(t, took)
}

// TestACellOfTheTable kills a process under load and has it come back.
func TestACellOfTheTable(t *testing.T) {
	run := chaosRun{
		requests: 200, rate: 400, patience: 5 * time.Second,
		limits: chaosLimits{first: time.Second, openFor: 50 * time.Millisecond, stall: 2 * time.Second},
		slo:    slo{first: 5 * time.Second, gap: 5 * time.Second},
	}
	cell, err := run.cell(fault{Name: "killed", Killed: true}, chaosWays()[0])
	require.NoError(t, err)
	require.Len(t, cell.answers, run.requests)
	require.True(t, cell.reliable())
	require.Greater(t, shareOf(cell.before(), fromMain), 0.9)
	during := cell.due(cell.on, cell.off)
	require.NotEmpty(t, during)
	require.Less(t, shareOf(during, fromMain), 0.5, "but for those that were tried again when it was back")
	require.Greater(t, shareOf(during, cell.slo.met), 0.9)
}
