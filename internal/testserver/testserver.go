// Package testserver runs the servers that tests talk to: a redis-server or an
// etcd of a test's own on a free loopback port, with its data in a directory
// that goes with the test, and a proxy that loses a connection's bytes on
// demand. Only tests import it.
package testserver

import (
	"bufio"
	"io"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Server is a process that serves on a loopback address. Its methods fail the
// test when they fail. It ends with the test.
type Server struct {
	// Addr is where it serves, and serves again after Restart.
	Addr string

	t       testing.TB
	kind    kind
	dir     string
	command []string
	cmd     *exec.Cmd
	ended   chan struct{} // closed when its output has ended
}

// kind is what there is to know about a program.
type kind struct {
	program string
	debian  string // the package it is in
	ready   string // is in the line it writes once it serves
	flags   func(s *Server, port string) []string
}

// attempts bounds how often a start may lose its free port to another process.
const attempts = 5

// start runs a program on a free port; flags come last and win. Where the
// program is missing the test is skipped.
func start(t testing.TB, k kind, flags []string) *Server {
	t.Helper()
	path, err := exec.LookPath(k.program)
	if err != nil {
		t.Skipf("%s is not on PATH (Debian: %s)", k.program, k.debian)
	}
	for range attempts {
		s := &Server{t: t, kind: k, dir: t.TempDir(), Addr: FreeAddr(t)}
		_, port, _ := net.SplitHostPort(s.Addr)
		s.command = append(append([]string{path}, k.flags(s, port)...), flags...)
		if s.run() {
			t.Cleanup(func() {
				if s.cmd != nil {
					s.Kill()
				}
			})
			return s
		}
	}
	t.Fatalf("%s does not start", k.program)
	return nil
}

// FreeAddr returns a loopback address on which nothing listened a moment ago.
func FreeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

// run starts the process and returns once it serves, or false if it ended.
func (s *Server) run() bool {
	s.cmd = exec.Command(s.command[0], s.command[1:]...)
	out, err := s.cmd.StdoutPipe()
	must(s.t, err)
	s.cmd.Stderr = s.cmd.Stdout
	must(s.t, s.cmd.Start())
	ready, ended := make(chan bool, 1), make(chan struct{})
	s.ended = ended
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.Contains(lines.Text(), s.kind.ready) {
				ready <- true
				_, _ = io.Copy(io.Discard, out)
				return
			}
		}
		ready <- false
	}()
	if <-ready {
		return true
	}
	s.Kill()
	return false
}

// Kill ends the server as a crash does. It ends a paused one too.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	<-s.ended
	_ = s.cmd.Wait()
	s.cmd = nil
}

// Restart starts a killed server on its address and its data.
func (s *Server) Restart() {
	s.t.Helper()
	if !s.run() {
		s.t.Fatalf("%s does not start again", s.kind.program)
	}
}

// Pause stops the process where it stands: its sockets stay open and silent.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	must(s.t, s.cmd.Process.Signal(sig))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
