package models

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/upstream"
	"github.com/intelliparadigm/haiku/upstream/pool"
)

// none is where a server tells nothing.
const none = "none"

// places are where engines tell their load and whether they are well, as far as
// they have a place for that.
var places = map[upstream.Dialect]struct{ metrics, health string }{
	upstream.VLLM:     {"/metrics", "/health"},
	upstream.SGLang:   {"/metrics", "/health"},
	upstream.LlamaCpp: {"/metrics", "/health"}, // metrics if it was started with --metrics
}

// name is unique among a model's servers.
func (s *Server) name() string {
	if s.Name != "" {
		return s.Name
	}
	if u, err := url.Parse(s.URL); err == nil && u.Host != "" {
		return u.Host
	}
	return s.URL
}

// bare is a model by itself: local, an engine, or a pool of engines.
func (b *builder) bare(m *Model) (haiku.Model, error) {
	switch len(m.Servers) {
	case 0:
		return b.parts.Models[m.Local], nil
	case 1:
		e, err := b.engine(m, &m.Servers[0], b.parts.Upstream.OnLoad)
		if err != nil { // and not an interface that holds a nil engine
			return nil, err
		}
		return e, nil
	}
	endpoints := make([]pool.Endpoint, len(m.Servers))
	for i := range m.Servers {
		var err error
		if endpoints[i], err = b.endpoint(m, &m.Servers[i]); err != nil {
			return nil, err
		}
	}
	o := b.parts.Pool
	o.Breaker.Name = under(o.Breaker.Name, m.Name+"/servers") // two models may have servers of one name
	o.Stall = cmp.Or(time.Duration(m.Stall), o.Stall)
	p, err := pool.New(o, endpoints...)
	if err != nil {
		return nil, err
	}
	b.set.pools[m.Name] = p
	b.closing(p.Close)
	return p, nil
}

func (b *builder) engine(m *Model, s *Server, onLoad func(upstream.Load)) (*upstream.Engine, error) {
	o := b.parts.Upstream
	o.Name, o.Model, o.OnLoad = m.Name, cmp.Or(s.Model, m.Name), onLoad
	o.Key = nil // a secret goes to no server that does not name it
	if s.Key != "" {
		o.Key = func(ctx context.Context) (string, error) { return b.parts.Key(ctx, s.Key) }
	}
	if len(m.Servers) > 1 {
		o.Retry.Attempts = cmp.Or(o.Retry.Attempts, 1) // another server is asked instead
	}
	var err error
	if o.Dialect, err = upstream.ParseDialect(s.Dialect); err != nil {
		return nil, fmt.Errorf("server %q: %w", s.name(), err)
	}
	o.Abort = o.Abort && o.Dialect == upstream.SGLang
	e, err := upstream.New(s.URL, o)
	if err != nil {
		return nil, fmt.Errorf("server %q: %w", s.name(), err)
	}
	b.set.closers = append(b.set.closers, e.Close)
	return e, nil
}

// endpoint is a server of several.
func (b *builder) endpoint(m *Model, s *Server) (pool.Endpoint, error) {
	gauge, also := new(pool.Gauge), b.parts.Upstream.OnLoad
	e, err := b.engine(m, s, func(l upstream.Load) {
		gauge.Report(pool.Told(l))
		if also != nil {
			also(l)
		}
	})
	if err != nil {
		return pool.Endpoint{}, err
	}
	dialect, _ := upstream.ParseDialect(s.Dialect) // which the engine has
	end := pool.Endpoint{Name: s.name(), Model: e, Gauge: gauge}
	if at := cmp.Or(s.Metrics, places[dialect].metrics); at != "" && at != none {
		end.Metrics = pool.Metrics(b.client(), s.beside(at))
	}
	switch at := cmp.Or(s.Health, places[dialect].health); at {
	case none:
	case "":
		end.Probe = e.Refresh
	default:
		end.Probe = pool.Healthy(b.client(), s.beside(at))
	}
	return end, nil
}

// beside is the address of a path beside the version in the server's URL.
func (s *Server) beside(path string) string {
	u, err := url.Parse(s.URL)
	if err != nil {
		return "" // which upstream.New has refused
	}
	root := url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimRight(u.Path, "/")}
	root.Path = root.Path[:max(strings.LastIndexByte(root.Path, '/'), 0)]
	return root.JoinPath(path).String()
}

// client asks servers for their load and health. It has connections of its own.
func (b *builder) client() *http.Client {
	if b.polls != nil {
		return b.polls
	}
	transport := b.parts.Upstream.Transport
	if transport == nil {
		own := &http.Transport{Proxy: http.ProxyFromEnvironment, IdleConnTimeout: 4 * time.Second, ForceAttemptHTTP2: true}
		b.closing(own.CloseIdleConnections)
		transport = own
	}
	b.polls = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return b.polls
}
