//go:build !unix

package mmap

import "os"

// Open reads the file at path.
func Open(path string) (data []byte, close func() error, err error) {
	data, err = os.ReadFile(path)
	return data, func() error { return nil }, err
}
