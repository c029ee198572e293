// Package testserver runs the servers that tests talk to: a redis-server or an
// etcd of a test's own on a free loopback port, with its data in a directory
// that goes with the test, and a proxy that loses a connection's bytes on
// demand. Only tests import it.
package testserver

import (
	"bufio"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"strconv"
	"strings"
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
	ready   chan bool     // says whether it serves
	ended   chan struct{} // closed when its output has ended
}

// kind is what there is to know about a program.
type kind struct {
	program string
	debian  string // the package it is in
	ready   string // is in the line it writes once it serves
}

// attempts bounds how often a start may lose its free port to another process.
const attempts = 5

// start runs n servers of a kind that wait for each other. flags returns what
// the program is to be started with; more come last and win. Where the program
// is missing the test is skipped.
func start(t testing.TB, k kind, n int, flags func([]*Server) [][]string, more []string) []*Server {
	t.Helper()
	path, err := exec.LookPath(k.program)
	if err != nil {
		t.Skipf("%s is not on PATH (Debian: %s)", k.program, k.debian)
	}
	for range attempts {
		all := make([]*Server, n)
		for i := range all {
			all[i] = &Server{t: t, kind: k, dir: t.TempDir(), Addr: freeAddr(t)}
		}
		for i, own := range flags(all) {
			all[i].command = append(append([]string{path}, own...), more...)
			all[i].launch()
			t.Cleanup(all[i].Kill)
		}
		serve := true
		for _, s := range all {
			serve = serve && <-s.ready
		}
		if serve {
			return all
		}
		for _, s := range all {
			s.Kill()
		}
	}
	t.Fatalf("%s does not start", k.program)
	return nil
}

// The ports that servers get lie below those that systems give to outgoing
// connections: else one of these, or even a client that tries to reach a killed
// server and reaches itself, could have its port when it is started again.
const (
	firstPort = 12_000
	lastPort  = 31_999
)

// freeAddr returns a loopback address on which nothing listened a moment ago.
func freeAddr(t testing.TB) string {
	t.Helper()
	for range 1000 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+rand.IntN(lastPort-firstPort+1)))
		if l, err := net.Listen("tcp", addr); err == nil {
			must(t, l.Close())
			return addr
		}
	}
	t.Fatal("no port is free")
	return ""
}

// launch starts the process.
func (s *Server) launch() {
	s.t.Helper()
	s.cmd = exec.Command(s.command[0], s.command[1:]...)
	out, err := s.cmd.StdoutPipe()
	must(s.t, err)
	s.cmd.Stderr = s.cmd.Stdout
	must(s.t, s.cmd.Start())
	ready, ended := make(chan bool, 1), make(chan struct{})
	s.ready, s.ended = ready, ended
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
}

// Kill ends the server as a crash does. It ends a paused one too, and one that
// has been killed already stays so.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.ended
	_ = s.cmd.Wait()
	s.cmd = nil
}

// Restart starts a killed server on its address and its data.
func (s *Server) Restart() {
	s.t.Helper()
	s.launch()
	if !<-s.ready {
		s.t.Fatalf("%s does not start again", s.kind.program)
	}
}

// Pause stops the process where it stands: its sockets stay open and silent. A
// test on a system that cannot do that is skipped.
func (s *Server) Pause() {
	s.t.Helper()
	stop(s.t, s.cmd.Process)
}

// Resume lets a paused process go on.
func (s *Server) Resume() {
	s.t.Helper()
	resume(s.t, s.cmd.Process)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
