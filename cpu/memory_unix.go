//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package cpu

import "syscall"

// allocate returns n ≥ 1 zeroed bytes outside the Go heap, so that a pool of a
// gigabyte does not make the collector wait for another gigabyte of the host's
// garbage, and a refusal of the system is an error. Pages take memory when they
// are first written. free must be called once and ends the use of data.
func allocate(n int) (data []byte, free func() error, err error) {
	data, err = syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, nil, err
	}
	return data, func() error { return syscall.Munmap(data) }, nil
}
