//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package cpu

import (
	"syscall"
	"unsafe"
)

// allocate returns n ≥ 1 zeroed floats outside the Go heap, so that a pool of a
// gigabyte does not make the collector wait for another gigabyte of the host's
// garbage, and a refusal of the system is an error. Pages take memory when they
// are first written. free must be called once and ends the use of floats.
func allocate(n int) (floats []float32, free func() error, err error) {
	data, err := syscall.Mmap(-1, 0, 4*n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, nil, err
	}
	floats = unsafe.Slice((*float32)(unsafe.Pointer(&data[0])), n)
	return floats, func() error { return syscall.Munmap(data) }, nil
}
