package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/intelliparadigm/haiku"
)

// Engine is a [haiku.Model] whose answers another server computes. It is also a
// [haiku.Embedder], a [haiku.Lister] and [haiku.Extended]. Its methods may be
// called at any time from any goroutine.
type Engine struct {
	base      *url.URL
	opts      Options
	dialect   *dialect
	transport http.RoundTripper
	own       *http.Transport // transport, if it is the engine's own
	forwards  []string        // canonical names of the headers that may pass
	models    listing

	ctx        context.Context // of what runs beside requests
	cancel     context.CancelFunc
	background sync.WaitGroup
	mu         sync.Mutex
	closed     bool
}

var (
	_ haiku.Model    = (*Engine)(nil)
	_ haiku.Embedder = (*Engine)(nil)
	_ haiku.Lister   = (*Engine)(nil)
	_ haiku.Extended = (*Engine)(nil)
)

// New returns an engine at baseURL, which is what OpenAI's clients call so: with
// the version in its path, as in "http://localhost:8000/v1". A URL without a
// path gets "/v1". New makes no connection.
func New(baseURL string, o Options) (*Engine, error) {
	base, err := parseBase(baseURL)
	if err != nil {
		return nil, fmt.Errorf("upstream: base URL: %w", err)
	}
	if int(o.Dialect) >= len(dialects) {
		return nil, fmt.Errorf("upstream: there is no %v", o.Dialect)
	}
	if o.Abort && o.Dialect != SGLang {
		return nil, fmt.Errorf("upstream: %v has no call that aborts a request", o.Dialect)
	}
	forwards, refused := forwardList(o.Forward)
	if refused != "" {
		return nil, fmt.Errorf("upstream: the header %s cannot be forwarded", refused)
	}
	e := &Engine{base: base, opts: o.withDefaults(), dialect: &dialects[o.Dialect], transport: o.Transport, forwards: forwards}
	if e.transport == nil {
		e.own = newTransport(e.opts.Connect)
		e.transport = e.own
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e, nil
}

func parseBase(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("it cannot be parsed") // the error would show it, with its password
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, errors.New("it must begin with http:// or https:// and a host")
	case u.User != nil:
		return nil, errors.New("it holds credentials, which belong into Options.Key")
	case u.Fragment != "":
		return nil, errors.New("it has a fragment")
	}
	u.Path = strings.TrimRight(u.Path, "/")
	for _, end := range []string{pathChat, pathCompletions, pathEmbeddings, pathModels} {
		if strings.HasSuffix(u.Path, end) {
			return nil, fmt.Errorf("it is the address of one call: leave out %s", end)
		}
	}
	if u.Path == "" {
		u.Path = "/v1"
	}
	u.RawPath = ""
	return u, nil
}

// The calls, behind the base URL.
const (
	pathChat        = "/chat/completions"
	pathCompletions = "/completions"
	pathEmbeddings  = "/embeddings"
	pathModels      = "/models"
)

// idleConnections is how long a connection is kept that nobody uses: for less
// than the 5 s after which uvicorn and llama.cpp's server close it.
const idleConnections = 4 * time.Second

func newTransport(connect time.Duration) *http.Transport {
	dialer := &net.Dialer{Timeout: connect, KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    connect,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           0, // no bound in all: there is one host
		MaxIdleConnsPerHost:    1 << 10,
		IdleConnTimeout:        idleConnections,
		ExpectContinueTimeout:  time.Second,
		DisableCompression:     true, // a compressor holds events back
		ReadBufferSize:         16 << 10,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// url is the address of a call: behind the base URL or, for those of an engine's
// own, beside its last element, the version.
func (e *Engine) url(path string, root bool) *url.URL {
	u := *e.base
	if root {
		u.Path = u.Path[:strings.LastIndexByte(u.Path, '/')]
	}
	u.Path += path
	return &u
}

// Close ends what runs beside requests, waits for it, and lets go of idle
// connections. Requests are still answered.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.cancel()
	e.background.Wait()
	if e.own != nil {
		e.own.CloseIdleConnections()
	}
	return nil
}

// beside runs f on a goroutine that Close waits for, and not at all after it.
func (e *Engine) beside(f func(ctx context.Context)) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.background.Go(func() { f(e.ctx) })
	return true
}
