package haiku_test

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// pipeListener is a net.Listener over net.Pipe, so that servers run on the
// virtual clock of a synctest bubble. A pipe holds nothing: a write waits until
// the other end reads.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// protocols names the ways a server may speak without TLS.
var protocols = map[string]func(*http.Protocols){
	"HTTP1": func(p *http.Protocols) { p.SetHTTP1(true) },
	"h2c":   func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
}

// site is a running server and a client of it.
type site struct {
	*http.Client
	url   string
	dials atomic.Int32 // connections made so far
}

// on runs srv on l until test returns. dial is how the client reaches it.
func on(t *testing.T, srv *http.Server, set func(*http.Protocols), l net.Listener, url string,
	dial func(context.Context, string, string) (net.Conn, error), test func(s *site)) {
	srv.Protocols = new(http.Protocols)
	srv.ErrorLog = log.New(io.Discard, "", 0) // handlers that panic on purpose
	set(srv.Protocols)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	s := &site{url: url}
	transport := &http.Transport{Protocols: srv.Protocols, DialContext: func(ctx context.Context, n, a string) (net.Conn, error) {
		s.dials.Add(1)
		return dial(ctx, n, a)
	}}
	s.Client = &http.Client{Transport: transport}
	defer func() {
		transport.CloseIdleConnections()
		require.NoError(t, srv.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	}()
	test(s)
}

// inBubble runs test per protocol with a server on the virtual clock.
func inBubble(t *testing.T, srv func() *http.Server, test func(t *testing.T, s *site)) {
	for name, set := range protocols {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newPipeListener()
				on(t, srv(), set, l, "http://haiku", l.dial, func(s *site) { test(t, s) })
			})
		})
	}
}

// onLoopback runs test per protocol with a server on a real socket.
func onLoopback(t *testing.T, h http.Handler, test func(t *testing.T, s *site)) {
	for name, set := range protocols {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			var d net.Dialer
			on(t, &http.Server{Handler: h}, set, l, "http://"+l.Addr().String(), d.DialContext, func(s *site) { test(t, s) })
		})
	}
}
