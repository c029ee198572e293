// Package mmap maps model files into memory.
//
// The one idea: a file is a slice of bytes whose pages are read when they are
// touched and shared between processes. Where a system has no such thing, the
// file is read.
package mmap
