package testserver

import (
	"net"
	"sync"
	"testing"
)

// Proxy passes TCP connections on to a server until it is told not to. It ends
// with the test.
type Proxy struct {
	Addr string

	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	open   chan struct{} // closed while bytes pass
	held   bool
	cut    bool
	closed bool
	conns  map[net.Conn]bool
}

// NewProxy returns a Proxy in front of target.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &Proxy{Addr: l.Addr().String(), target: target, listener: l, open: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(p.open)
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Partition lets nothing pass, in either direction: what is sent waits, as it
// does in a sender whose packets are lost.
func (p *Proxy) Partition() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.held {
		p.held, p.open = true, make(chan struct{})
	}
}

// Cut closes every connection, and each new one at once.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for c := range p.conns {
		_ = c.Close()
	}
}

// Heal ends a Partition or a Cut.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
	p.release()
}

func (p *Proxy) release() {
	if p.held {
		p.held = false
		close(p.open)
	}
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.release()
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(near) })
	}
}

// serve passes one connection on.
func (p *Proxy) serve(near net.Conn) {
	defer near.Close()
	if !p.keep(near) {
		return
	}
	defer p.drop(near)
	p.wait()
	far, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer far.Close()
	if !p.keep(far) {
		return
	}
	defer p.drop(far)
	var back sync.WaitGroup
	back.Go(func() { p.copy(near, far) })
	p.copy(far, near)
	back.Wait()
}

// copy ends both connections when either has ended.
func (p *Proxy) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		p.wait()
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// wait returns once bytes may pass.
func (p *Proxy) wait() {
	p.mu.Lock()
	open := p.open
	p.mu.Unlock()
	<-open
}

// keep notes a connection that Cut has to close, or refuses it.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut || p.closed {
		return false
	}
	p.conns[c] = true
	return true
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}
