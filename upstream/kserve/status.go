package kserve

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/upstream"
)

// StatusError is an error that the server has told, or that gRPC has made for
// it, found by errors.As in what Generate and Ready return.
type StatusError struct {
	// Code is the status. Of an error inside a stream, which is a text alone, it
	// is what the text says, codes.Unknown if nothing is known of it.
	Code codes.Code
	// Message is for logs: it may hold paths, stack traces and parts of a prompt.
	Message string
	// InStream says that the error came as a response and not as a status.
	InStream bool
	// RetryAfter is when the server wants to be asked again, 0 if it does not say.
	RetryAfter time.Duration

	refused bool  // the server wants no retry
	kind    error // one of the errors of this package, or nil
}

// Error gives what the server said.
func (e *StatusError) Error() string {
	return fmt.Sprintf("kserve: %v: %s", e.Code, e.Message)
}

// Unwrap returns the kind of error, such as [upstream.ErrConnect].
func (e *StatusError) Unwrap() error { return e.kind }

// again reports whether the same request may succeed when it is sent again.
func (e *StatusError) again() bool { return e.Code == codes.Unavailable && !e.InStream && !e.refused }

// failure says what an error of an attempt is. ctx is the request's own, inner
// that of the attempt.
func (e *Engine) failure(ctx, inner context.Context, t *attempt, err error) error {
	var late *lateError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(context.Cause(inner), &late):
		return late
	case e.closed.Load():
		return haiku.ErrClosed.Because(err)
	}
	var trailer metadata.MD
	if t.stream != nil {
		trailer = t.stream.Trailer()
	}
	failed := fromStatus(err, trailer, e.opts.MaxMessageBytes)
	switch {
	case failed.Code == codes.DeadlineExceeded && ended(ctx):
		return ctx.Err()
	case failed.kind != nil:
	case t.stream == nil && failed.Code == codes.Unavailable:
		failed.kind = upstream.ErrConnect
	case t.heard:
		failed.kind = upstream.ErrIncomplete
	}
	return failed
}

// ended waits a moment for a deadline that the server, which knows it too, has
// seen passing first.
func ended(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	if !ok || time.Until(deadline) > drainTime {
		return false
	}
	<-ctx.Done()
	return true
}

// fromStatus reads a status and what goes with it.
func fromStatus(err error, trailer metadata.MD, maxMessage int) *StatusError {
	s := status.Convert(err)
	e := &StatusError{Code: s.Code(), Message: s.Message()}
	for _, detail := range s.Proto().GetDetails() {
		if strings.HasSuffix(detail.GetTypeUrl(), "/google.rpc.RetryInfo") {
			e.RetryAfter = retryDelay(detail.GetValue())
		}
	}
	if v := trailer.Get("grpc-retry-pushback-ms"); len(v) > 0 {
		ms, err := strconv.ParseInt(v[0], 10, 32)
		e.refused = err != nil || ms < 0
		e.RetryAfter = time.Duration(max(ms, 0)) * time.Millisecond
	}
	switch e.Code {
	case codes.Unauthenticated, codes.PermissionDenied:
		e.kind = upstream.ErrCredentials
	case codes.Unavailable: // is what Triton is without the header of --grpc-restricted-protocol
		if e.says([]string{"protocol is restricted"}) {
			e.kind, e.refused = upstream.ErrCredentials, true
		}
	case codes.ResourceExhausted:
		// What gRPC says here of a response that is too long has the same code as
		// what a server says of too many requests.
		if limit := strconv.Itoa(maxMessage); strings.Contains(e.Message, "larger than max") && strings.Contains(e.Message, limit) {
			e.kind = upstream.ErrMalformed
		}
	}
	return e
}

// retryDelay reads a google.rpc.RetryInfo: 1 retry_delay, a Duration of
// 1 seconds and 2 nanos.
func retryDelay(b []byte) time.Duration {
	var delay []byte
	for f := (fields{rest: b}); f.next(); {
		if f.is(1, protowire.BytesType) {
			delay = f.bytes
		}
	}
	var d time.Duration
	for f := (fields{rest: delay}); f.next(); {
		switch {
		case f.is(1, protowire.VarintType) && f.varint <= math.MaxInt32:
			d += time.Duration(f.varint) * time.Second
		case f.is(2, protowire.VarintType) && f.varint < uint64(time.Second):
			d += time.Duration(f.varint)
		}
	}
	return d
}

// inStream are the words by which Triton's own errors are known inside a stream,
// where they have no code.
var inStream = []struct {
	words string
	code  codes.Code
}{
	{"exceeds maximum queue size", codes.ResourceExhausted},
	{"request timeout expired", codes.Unavailable},
	{"stopped accepting new", codes.Unavailable},
	{"server is exiting", codes.Unavailable},
	{"server exiting", codes.Unavailable},
	{"server not ready", codes.Unavailable},
	{"unhealthy", codes.Unavailable},
	{"unknown model", codes.NotFound},
	{"has no available versions", codes.NotFound},
	{"was cancelled", codes.Canceled},
}

// told is the error that a response consists of, after content or before it.
func told(message []byte, content bool) *StatusError {
	e := &StatusError{Code: codes.Unknown, Message: string(message), InStream: true}
	for _, known := range inStream {
		if e.says([]string{known.words}) {
			e.Code = known.code
			break
		}
	}
	if content || e.Code == codes.Canceled {
		e.kind = upstream.ErrIncomplete
	}
	return e
}

// tooLong are the words by which engines say that a prompt is too long.
var tooLong = []string{
	"context length", "maximum model length", "max_model_len", "maximum input length", "exceeds max_input_len", "max_num_tokens",
}

// contextLength recognises a prompt that is too long, which has no code.
func (e *StatusError) contextLength() bool {
	switch e.Code {
	case codes.Unknown, codes.Internal, codes.InvalidArgument, codes.OutOfRange, codes.FailedPrecondition:
	default:
		return false
	}
	return e.says(tooLong)
}

// misfit are the words by which Triton says that the tensors are not the
// model's, which is this side's mistake and not the client's.
var misfit = []string{"inference input", "inference output", "inference request batch-size", "unexpected shape", "unexpected datatype"}

// says reports whether the message has one of the words.
func (e *StatusError) says(any []string) bool {
	lower := strings.ToLower(e.Message)
	return slices.ContainsFunc(any, func(words string) bool { return strings.Contains(lower, words) })
}

// wire gives an error its place on the wire. What the server says stays in the
// cause: of these backends it may hold anything.
func (e *StatusError) wire() *haiku.Error {
	var out *haiku.Error
	switch {
	case e.contextLength():
		out = haiku.ErrContextLength
	case e.kind == upstream.ErrMalformed, e.kind == upstream.ErrIncomplete, e.kind == upstream.ErrCredentials, e.says(misfit):
		out = upstream.ErrFailed
	case e.Code == codes.Unavailable:
		out = haiku.ErrOverloaded
	case e.Code == codes.ResourceExhausted:
		out = haiku.ErrRateLimited
	case e.Code == codes.DeadlineExceeded:
		out = haiku.ErrTimeout
	case e.Code == codes.InvalidArgument, e.Code == codes.OutOfRange:
		out = haiku.ErrInvalidRequest.With("", "the model's engine does not accept the request")
	default:
		out = upstream.ErrFailed
	}
	out = out.Because(e)
	out.RetryAfter = e.RetryAfter
	return out
}

// wire gives what Generate has met its place on the wire.
func (e *Engine) wire(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); ended != nil {
		if errors.Is(err, ended) {
			return err
		}
		return fmt.Errorf("kserve: %w (%w)", ended, err)
	}
	var known *haiku.Error
	var told *StatusError
	var late *lateError
	switch {
	case errors.As(err, &known):
		return err
	case errors.As(err, &told):
		return told.wire()
	case errors.Is(err, upstream.ErrConnect):
		return haiku.ErrOverloaded.Because(err)
	case errors.As(err, &late):
		return haiku.ErrTimeout.With("", "the model's engine did not answer in time").Because(err)
	}
	return upstream.ErrFailed.Because(err)
}
