//go:build unix

package main

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

// door is a listener whose machine can vanish from the network: connections that
// there are stay open on the other side and carry nothing, then and later, without a
// FIN or RST, and new ones are not answered, as far as a listener on the same
// machine can do that: the first one or two are accepted and silent, then the
// kernel drops what asks for one.
type door struct {
	net.Listener
	mu    sync.Mutex
	conns map[*doorConn]struct{}
	open  chan struct{} // closed while it is open
	isOff bool
	ended bool
}

func newDoor(l net.Listener) *door {
	d := &door{Listener: l, conns: map[*doorConn]struct{}{}, open: make(chan struct{})}
	close(d.open)
	return d
}

// Lengths of the kernel's queue of connections that nobody has accepted yet.
const (
	queueShut = 0
	queueOpen = 4096
)

// shut makes the machine vanish or come back.
func (d *door) shut(off bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if off == d.isOff || d.ended {
		return
	}
	d.isOff = off
	if !off {
		d.queue(queueOpen)
		close(d.open)
		return
	}
	d.open = make(chan struct{})
	d.queue(queueShut)
	for c := range d.conns {
		c.dead.Store(true)
	}
}

// queue sets the length of the kernel's queue, which another call of listen does.
func (d *door) queue(length int) {
	tcp, ok := d.Listener.(*net.TCPListener)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = syscall.Listen(int(fd), length) })
	}
}

// Accept waits while the door is shut.
func (d *door) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		conn := &doorConn{Conn: c, door: d}
		d.mu.Lock()
		off, open := d.isOff, d.open
		conn.dead.Store(off)
		d.conns[conn] = struct{}{}
		d.mu.Unlock()
		if !off {
			return conn, nil
		}
		<-open
	}
}

// Close closes it and all connections that were cut off.
func (d *door) Close() error {
	err := d.Listener.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isOff && !d.ended {
		close(d.open)
	}
	d.ended = true
	for c := range d.conns {
		if c.dead.Load() {
			_ = c.Conn.Close()
		}
	}
	return err
}

// doorConn is one side of a connection. Once it is dead the other side neither
// hears nor is heard, nor is it told.
type doorConn struct {
	net.Conn
	door *door
	dead atomic.Bool
}

func (c *doorConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.dead.Load() {
			return n, err
		}
	}
}

func (c *doorConn) Write(p []byte) (int, error) {
	if c.dead.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// Close leaves a dead connection open until the door is closed.
func (c *doorConn) Close() error {
	c.door.mu.Lock()
	defer c.door.mu.Unlock()
	if c.dead.Load() && !c.door.ended {
		return nil
	}
	delete(c.door.conns, c)
	return c.Conn.Close()
}
