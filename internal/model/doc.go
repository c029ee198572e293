// Package model turns a GGUF file  into hyper-parameters and
// weights that executors can trust.
//
// The one idea: everything is checked here, once. After [Load] has returned a
// Model, every matrix has the shape the forward pass expects, in a format
// package simd can multiply, and every number is in a range that no later
// computation needs to doubt. A file that says something this package does not
// implement is refused by name, never read with a silent default. Nothing is
// allocated in proportion to a number in the metadata before it has been
// compared with the tensors that are really there.
package model

import "errors"

var (
	// ErrUnsupported is matched when a file uses an architecture, tensor type
	// or option that is not supported.
	ErrUnsupported = errors.New("model: unsupported")
	// ErrInvalid is matched when metadata and tensors contradict each other or
	// something needed is missing.
	ErrInvalid = errors.New("model: invalid file")
)
