// Package gguf reads GGUF model files: metadata by key and tensors as views
// into the file.
//
// The one idea: nothing in a file is believed. Every count and length is
// compared with the bytes that are left before anything is allocated for it,
// every product is computed with overflow in mind, and every tensor lies
// within the file, so that a hostile file costs no more memory than its own
// size and ends in an error that names the field and the byte.
//
// The format is described in ggml's docs/gguf.md: a header (magic, version,
// two counts), key-value pairs, tensor descriptions, padding to the alignment,
// and the tensors' data. Versions 2 and 3, little-endian, are read. Bytes after
// the last tensor are allowed and ignored.
package gguf
