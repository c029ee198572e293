//go:build unix

package testserver

import (
	"os"
	"syscall"
	"testing"
)

func stop(t testing.TB, p *os.Process) {
	t.Helper()
	must(t, p.Signal(syscall.SIGSTOP))
}

func resume(t testing.TB, p *os.Process) {
	t.Helper()
	must(t, p.Signal(syscall.SIGCONT))
}
