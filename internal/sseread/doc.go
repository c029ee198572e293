// Package sseread finds the events in a stream of server-sent events, as the
// HTML standard defines them, in whatever form engines send them: any line
// length up to a bound, lines that end in LF, CR or CRLF, a byte order mark,
// comments, several data lines in an event, and a stream that ends without the
// blank line after its last event.
//
// An event is found without being copied or decoded: its parts are views of the
// reader's buffer. Reading and finding are two steps, so that a proxy can pass
// on all events that one read has brought before it reads again.
package sseread
