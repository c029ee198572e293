//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	failover "github.com/failsafe-go/failsafe-go/fallback"
	"github.com/failsafe-go/failsafe-go/timeout"
	"github.com/sony/gobreaker/v2"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/fallback"
	"github.com/intelliparadigm/haiku/openai"
	"github.com/intelliparadigm/haiku/upstream"
)

// chaosWay is a way to serve two models' streams.
type chaosWay struct {
	name     string
	reliable bool // nothing may be lost, doubled or torn
	hedged   bool
	open     func(main, small string, l chaosLimits) (h http.Handler, closeAll func(), err error)
}

// chaosLimits are what all ways are told alike.
type chaosLimits struct {
	first   time.Duration // to the first token, before the small model is asked
	openFor time.Duration // how long a breaker leaves the main model alone
	stall   time.Duration // between two tokens, for those who look at that
}

// chaosWays are the ways that are compared.
func chaosWays() []chaosWay {
	return []chaosWay{
		{"haiku", true, false, func(main, small string, l chaosLimits) (http.Handler, func(), error) {
			return haikuWay(main, small, fallback.Options{}, l)
		}},
		{"haiku, hedged", true, true, func(main, small string, l chaosLimits) (http.Handler, func(), error) {
			return haikuWay(main, small, fallback.Options{HedgeAfter: l.first / 2}, l)
		}},
		{"gobreaker", false, false, gobreakerWay},
		{"failsafe-go", false, false, failsafeWay},
		{"no breaker", false, false, plainWay},
	}
}

// haikuWay is a chain of two engines with the defaults of both packages, but for
// the times that the table sets.
func haikuWay(main, small string, o fallback.Options, l chaosLimits) (http.Handler, func(), error) {
	first, err := upstream.New(main+"/v1", upstream.Options{})
	if err != nil {
		return nil, nil, err
	}
	second, err := upstream.New(small+"/v1", upstream.Options{})
	if err != nil {
		return nil, nil, err
	}
	quiet := slog.New(slog.DiscardHandler)
	o.Names = []string{"main", "small"}
	o.Stall = l.stall
	o.Breaker = fallback.BreakerOptions{Limits: fallback.Limits{FirstToken: l.first}, OpenFor: l.openFor, Logger: quiet}
	chain, err := o.New(first, second)
	if err != nil {
		return nil, nil, err
	}
	return openai.Handler(chain, haiku.Logging(quiet)), func() {
		chain.Close()
		_ = first.Close()
		_ = second.Close()
	}, nil
}

// twoModels is what the usual ways have in common: a request is read, sent on, and
// its answer copied as it comes.
type twoModels struct {
	main, small string
	client      *http.Client
}

// newTwoModels has a client with what can be bounded of a stream: the connection
// and the headers. A bound on the whole would cut long answers.
func newTwoModels(main, small string, l chaosLimits) *twoModels {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: l.first}).DialContext
	transport.ResponseHeaderTimeout = l.first
	transport.MaxIdleConnsPerHost = 1 << 10
	transport.MaxIdleConns = 0
	return &twoModels{main: main, small: small, client: &http.Client{Transport: transport}}
}

func (t *twoModels) close() { t.client.CloseIdleConnections() }

// request is one to a model at base.
func (t *twoModels) request(ctx context.Context, base string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/chat/completions", bytes.NewReader(body))
	if err == nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, err
}

func (t *twoModels) post(ctx context.Context, base string, body []byte) (*http.Response, error) {
	req, err := t.request(ctx, base, body)
	if err != nil {
		return nil, err
	}
	return t.client.Do(req)
}

// pass copies an answer as it comes. An error is one of the model's or the client's.
func pass(w http.ResponseWriter, resp *http.Response) error {
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	w.WriteHeader(resp.StatusCode)
	flusher := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
			if err := flusher.Flush(); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// gobreakerWay has the whole answer inside of Execute, as the example of gobreaker
// has it: so the breaker learns of streams that break.
func gobreakerWay(main, small string, l chaosLimits) (http.Handler, func(), error) {
	models := newTwoModels(main, small, l)
	breaker := gobreaker.NewCircuitBreaker[bool](gobreaker.Settings{Timeout: l.openFor})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		begun, err := breaker.Execute(func() (bool, error) {
			resp, err := models.post(r.Context(), models.main, body)
			if err != nil {
				return false, err
			}
			defer resp.Body.Close()
			if resp.StatusCode >= http.StatusInternalServerError {
				return false, fmt.Errorf("main model: %s", resp.Status)
			}
			return true, pass(w, resp)
		})
		switch {
		case err == nil:
		case begun:
			panic(http.ErrAbortHandler) // the client has to see that it is cut
		default:
			models.second(w, r, body)
		}
	})
	return h, models.close, nil
}

// second answers from the small model.
func (t *twoModels) second(w http.ResponseWriter, r *http.Request, body []byte) {
	resp, err := t.post(r.Context(), t.small, body)
	if err != nil {
		http.Error(w, "no model answers", http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	if pass(w, resp) != nil {
		panic(http.ErrAbortHandler)
	}
}

// failsafeWay composes the policies in the order that failsafe-go's documentation
// recommends, around a request of its HTTP integration.
func failsafeWay(main, small string, l chaosLimits) (http.Handler, func(), error) {
	models := newTwoModels(main, small, l)
	bad := func(resp *http.Response, err error) bool {
		return err != nil || resp.StatusCode >= http.StatusInternalServerError
	}
	breaker := circuitbreaker.NewBuilder[*http.Response]().HandleIf(bad).WithFailureThreshold(5).WithDelay(l.openFor).Build()
	limit := timeout.New[*http.Response](l.first)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		req, err := models.request(r.Context(), models.main, body)
		if err != nil {
			return
		}
		other := failover.NewBuilderWithFunc(func(e failsafe.Execution[*http.Response]) (*http.Response, error) {
			if last := e.LastResult(); last != nil {
				_ = last.Body.Close()
			}
			return models.post(r.Context(), models.small, body)
		}).HandleIf(bad).Build()
		resp, err := failsafehttp.NewRequest(req, models.client, other, breaker, limit).Do()
		if err != nil {
			http.Error(w, "no model answers", http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		if pass(w, resp) != nil {
			panic(http.ErrAbortHandler)
		}
	})
	return h, models.close, nil
}

// plainWay is a reverse proxy to the main model.
func plainWay(main, _ string, _ chaosLimits) (http.Handler, func(), error) {
	target, err := url.Parse(main)
	if err != nil {
		return nil, nil, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 1 << 10, DisableCompression: true}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			body, _ := io.ReadAll(r.In.Body) // see proxies
			r.Out.Body = io.NopCloser(bytes.NewReader(body))
		},
		FlushInterval: -1,
		Transport:     transport,
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	return proxy, transport.CloseIdleConnections, nil
}
