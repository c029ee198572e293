package gguf

import (
	"errors"
	"fmt"
)

var (
	// ErrFormat is matched by every error about a file that is not good GGUF.
	ErrFormat = errors.New("gguf: malformed file")
	// ErrMissingKey is matched when metadata lacks a key.
	ErrMissingKey = errors.New("gguf: missing key")
)

// FormatError says where a file departs from the format, and how.
type FormatError struct {
	Offset int64  // bytes from the start of the file
	Field  string // what was being read, such as "tensor \"output.weight\": offset"
	Reason string
}

// Error gives field, offset and reason.
func (e *FormatError) Error() string {
	return fmt.Sprintf("gguf: %s at byte %d: %s", e.Field, e.Offset, e.Reason)
}

// Is makes every FormatError match [ErrFormat].
func (e *FormatError) Is(target error) bool { return target == ErrFormat }

// MetadataError reports a value of another type than is wanted.
type MetadataError struct {
	Key         string
	Found, Want string
}

// Error names the key and both types.
func (e *MetadataError) Error() string {
	return fmt.Sprintf("gguf: metadata %s is %s, want %s", e.Key, e.Found, e.Want)
}
