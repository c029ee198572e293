// Package sse writes a stream of server-sent events to an
// http.ResponseWriter as bytes.
//
// The one idea: a frame is appended to one reused buffer, and a flush is one
// Write of that buffer under a fresh write deadline. Everything that could
// vary per token, the JSON escaping and the cut between whole UTF-8
// characters, is a function from bytes to bytes; everything that belongs to
// the connection, headers, deadlines and flushing through wrappers, is in
// Writer.
package sse
