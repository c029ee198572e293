//go:build unix

package mmap

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestAPipeIsRefusedWithoutWaitingForItsWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	_, _, err := Open(path)
	require.ErrorContains(t, err, "not a regular file")
}
