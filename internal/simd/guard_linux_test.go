package simd

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// beforeNothing returns n bytes that end where the next byte cannot be read.
func beforeNothing(t *testing.T, n int) []byte {
	t.Helper()
	page := os.Getpagesize()
	whole := (n+page-1)/page*page + page
	memory, err := syscall.Mmap(-1, 0, whole, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Munmap(memory)) })
	require.NoError(t, syscall.Mprotect(memory[whole-page:], syscall.PROT_NONE))
	return memory[whole-page-n : whole-page]
}

// TestNothingIsReadBehindAMatrix dies of a fault where a kernel reads a byte too
// many.
func TestNothingIsReadBehindAMatrix(t *testing.T) {
	for _, format := range formats {
		for _, cols := range []int{1, 8, 9, 32, 128, 136, 256, 768} {
			if format.RowBytes(cols) == 0 {
				continue
			}
			for _, rows := range []int{1, 4, 9} {
				data := beforeNothing(t, rows*format.RowBytes(cols))
				m, err := NewMatrix(format, rows, cols, data)
				require.NoError(t, err)
				for _, level := range Levels() {
					for _, tokens := range []int{1, 2} {
						dst, x := make([]float32, tokens*rows), make([]float32, tokens*cols)
						level.Mul(dst, rows, &m, 0, rows, x, tokens, make([]float32, TileLen(cols)))
						require.Equal(t, make([]float32, tokens*rows), dst)
					}
				}
			}
		}
	}
}
