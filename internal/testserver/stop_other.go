//go:build !unix

package testserver

import (
	"os"
	"testing"
)

func stop(t testing.TB, _ *os.Process) {
	t.Helper()
	t.Skip("no process can be stopped and go on on this system")
}

func resume(testing.TB, *os.Process) {}
