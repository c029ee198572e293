// Package tinymodel holds a language model small enough to live in a program:
// a Llama of 0.9 million parameters that writes haiku when it is asked for one.
// It is a real model in a real format, for first steps, examples and tests; it
// knows nothing but a dozen topics. Only programs that import this package
// carry its 964,288 bytes. PROVENANCE.md says where it comes from.
package tinymodel

import _ "embed" // the model's file

//go:embed haiku-tiny.q8_0.gguf
var file []byte

// GGUF returns the model file, quantised to Q8_0, for infer.OpenBytes. All
// callers share the bytes; nobody may change them.
func GGUF() []byte { return file }
