package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// errConnectTimeout is ErrConnect by time.
var errConnectTimeout = fmt.Errorf("%w in time", ErrConnect)

// call is one request to the engine, which may be sent several times.
type call struct {
	method, path string
	root         bool // the path is beside the API's version, not below it
	header       http.Header
	body         []byte
}

// wireState is what the sending of one request has seen of its connection. Its hooks
// run on goroutines of the transport.
type wireState struct {
	watch    *watch
	connect  time.Duration
	first    time.Duration
	began    time.Time   // of the request
	tried    time.Time   // of this try
	wanted   atomic.Bool // a connection has been asked for
	got      atomic.Bool // and there is one
	reused   atomic.Bool // which has served others before
	answered atomic.Bool // a byte of the response has come
}

func (s *wireState) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) {
			s.wanted.Store(true)
			s.watch.phase(s.connect, errConnectTimeout, time.Now())
		},
		GotConn: func(info httptrace.GotConnInfo) {
			s.got.Store(true)
			s.reused.Store(info.Reused)
			s.watch.phase(s.first, ErrFirstToken, s.began)
		},
		GotFirstResponseByte: func() { s.answered.Store(true) },
	}
}

// stale reports whether a request has failed because of a connection that the
// server had given up before it: an old one, on which no byte came back, and
// which says so at once. A server that has begun to work has not.
func (s *wireState) stale() bool {
	return s.reused.Load() && !s.answered.Load() && time.Since(s.tried) < staleWithin
}

const (
	// staleTries bounds how often a request is sent again because of connections
	// that had been closed while they were idle.
	staleTries = 2
	// staleWithin is longer than it takes to hear that a connection is closed:
	// a round trip, and one more packet if one was lost.
	staleWithin = 2 * time.Second
)

// send makes the request and returns the response once its headers are there.
// A connection that turns out to be closed by the other side costs nothing but
// another try. watch ends the attempt when the engine is too slow; its reason
// is then the error.
func (e *Engine) send(ctx context.Context, c *call, w *watch) (*http.Response, error) {
	began := time.Now()
	for try := 0; ; try++ {
		s := &wireState{watch: w, connect: e.opts.Connect, first: e.opts.FirstToken, began: began, tried: time.Now()}
		w.phase(s.first, ErrFirstToken, began)
		req := c.request(httptrace.WithClientTrace(ctx, s.trace()), e)
		resp, err := e.transport.RoundTrip(req)
		if err == nil {
			return resp, nil
		}
		if try < staleTries && ctx.Err() == nil && s.stale() {
			if e.own != nil { // the others are no younger
				e.own.CloseIdleConnections()
			}
			continue
		}
		return nil, s.failure(ctx, err)
	}
}

// request makes the request. It is for one try: a transport may still read the
// body after it has failed.
func (c *call) request(ctx context.Context, e *Engine) *http.Request {
	u := e.url(c.path, c.root)
	req := &http.Request{
		Method: c.method, URL: u, Host: u.Host, Header: c.header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if c.body != nil {
		req.ContentLength = int64(len(c.body))
		req.Body = io.NopCloser(bytes.NewReader(c.body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(c.body)), nil }
	}
	return req.WithContext(ctx)
}

// failure says what has gone wrong with a connection.
func (s *wireState) failure(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var op *net.OpError
	if s.wanted.Load() && !s.got.Load() || errors.As(err, &op) && op.Op == "dial" {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return fmt.Errorf("%w: %w", errConnectTimeout, hide(err))
		}
		return fmt.Errorf("%w: %w", ErrConnect, hide(err))
	}
	return fmt.Errorf("%w: no response: %w", ErrIncomplete, hide(err))
}
