//go:build unix

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// chaosLoad is what a client process is asked to send: requests that arrive
// whether those before are answered or not, so that who is slow is not asked less.
type chaosLoad struct {
	URL      string
	Start    time.Time
	Requests int
	Rate     float64 // a second
	Tokens   int     // of a whole answer
	Patience time.Duration
}

// chaosAnswer is what became of a request. Times are since the load's start, or
// since the request was due, whenever it was sent.
type chaosAnswer struct {
	At    time.Duration
	First time.Duration // to the first text, 0 if there was none
	Gap   time.Duration // longest between two
	End   time.Duration
	Fate  fate
	Model string
}

// send does so in a process of its own.
func (l chaosLoad) send() ([]chaosAnswer, error) { return apart[[]chaosAnswer]("-chaos-load", l) }

// chaosSeed makes all contenders get the same arrivals.
const chaosSeed = 6

func (l chaosLoad) run() ([]chaosAnswer, error) {
	arrivals, err := poisson(rand.New(rand.NewPCG(chaosSeed, chaosSeed)), l.Requests, l.Rate)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: l.Requests, DisableCompression: true}
	defer transport.CloseIdleConnections()
	answers := make([]chaosAnswer, len(arrivals))
	var all sync.WaitGroup
	for i, at := range arrivals {
		time.Sleep(time.Until(l.Start.Add(at)))
		all.Go(func() { answers[i] = l.ask(transport, i, at) })
	}
	all.Wait()
	return answers, nil
}

// ask sends one request, and waits for its end for as long as a client would.
func (l chaosLoad) ask(transport http.RoundTripper, id int, at time.Duration) chaosAnswer {
	due := l.Start.Add(at)
	ctx, cancel := context.WithDeadline(context.Background(), due.Add(l.Patience))
	defer cancel()
	a, h := chaosAnswer{At: at}, &heard{}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.URL, strings.NewReader(fmt.Sprintf(chaosAsk, id)))
	if err != nil {
		return a
	}
	req.Header.Set("Content-Type", "application/json")
	if resp, err := transport.RoundTrip(req); err == nil { // else nothing was heard
		h.status = resp.StatusCode
		h.read(resp.Body, func() { a.hear(time.Since(due)) })
		_ = resp.Body.Close()
	}
	a.End = time.Since(due)
	a.Fate, a.Model = h.fate(id, l.Tokens)
	return a
}

// hear notes when text has come.
func (a *chaosAnswer) hear(now time.Duration) {
	if a.First == 0 {
		a.First = now
	} else {
		a.Gap = max(a.Gap, now-a.End)
	}
	a.End = now
}
