package haiku

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Error is an error with a place on the wire: an HTTP status and the fields of
// the OpenAI error object. Models return it (wrapped or not) and the HTTP side
// writes it, before the first byte as a response with Status, after it as an
// error event.
//
// Two Errors match under errors.Is when they have the same code, so that a
// specialised copy made by [Error.With] still matches its sentinel.
type Error struct {
	// Status is the HTTP status code.
	Status int
	// Type is the OpenAI error type, as in "invalid_request_error".
	Type string
	// Code is a stable word for programs, as in "model_not_found".
	Code string
	// Param names the request field at fault, as in "messages[2].content".
	Param string
	// Message is shown to the client. It holds no paths, prompts or stacks.
	Message string
	// RetryAfter, when positive, is sent as Retry-After and retry-after-ms.
	RetryAfter time.Duration
	// Err is the cause. It is logged and matched, and never shown to a client.
	Err error
}

// The kinds of failure a client can meet. Use [Error.With] to say what exactly
// was wrong and errors.Is to recognise one.
var (
	ErrInvalidRequest   = &Error{Status: http.StatusBadRequest, Type: typeInvalid, Code: "invalid_request", Message: "the request is not valid"}
	ErrUnsupported      = &Error{Status: http.StatusBadRequest, Type: typeInvalid, Code: "unsupported_parameter", Message: "the parameter is not supported"}
	ErrContextLength    = &Error{Status: http.StatusBadRequest, Type: typeInvalid, Code: "context_length_exceeded", Message: "the prompt is longer than the model's context"}
	ErrUnauthenticated  = &Error{Status: http.StatusUnauthorized, Type: "authentication_error", Code: "invalid_api_key", Message: "authentication is required"}
	ErrForbidden        = &Error{Status: http.StatusForbidden, Type: "permission_error", Code: "forbidden", Message: "access is denied"}
	ErrModelNotFound    = &Error{Status: http.StatusNotFound, Type: typeInvalid, Code: "model_not_found", Message: "the model does not exist"}
	ErrNotFound         = &Error{Status: http.StatusNotFound, Type: typeInvalid, Code: "not_found", Message: "there is nothing at this address"}
	ErrMethodNotAllowed = &Error{Status: http.StatusMethodNotAllowed, Type: typeInvalid, Code: "method_not_allowed", Message: "the method is not allowed here"}
	ErrBodyTooLarge     = &Error{Status: http.StatusRequestEntityTooLarge, Type: typeInvalid, Code: "request_too_large", Message: "the request body is too large"}
	ErrRateLimited      = &Error{Status: http.StatusTooManyRequests, Type: "rate_limit_error", Code: "rate_limit_exceeded", Message: "too many requests"}
	ErrTooBusy          = &Error{Status: http.StatusTooManyRequests, Type: "rate_limit_error", Code: "too_busy", Message: "the server cannot answer this in time, try again later"}
	ErrOverloaded       = &Error{Status: http.StatusServiceUnavailable, Type: "overloaded_error", Code: "overloaded", Message: "the server is overloaded, try again later"}
	ErrClosed           = &Error{Status: http.StatusServiceUnavailable, Type: typeServer, Code: "shutting_down", Message: "the server is shutting down"}
	ErrTimeout          = &Error{Status: http.StatusGatewayTimeout, Type: typeServer, Code: "timeout", Message: "the request took longer than its deadline"}
	ErrSlowReader       = &Error{Status: http.StatusRequestTimeout, Type: typeInvalid, Code: "slow_reader", Message: "the client reads slower than it may"}
	ErrInternal         = &Error{Status: http.StatusInternalServerError, Type: typeServer, Code: "internal_error", Message: "the server failed to answer"}
	ErrCannotFlush      = &Error{Status: http.StatusInternalServerError, Type: typeServer, Code: "cannot_flush", Message: "a middleware of this server hides http.Flusher (as http.TimeoutHandler does), so nothing can be streamed through it"}
	errClientGone       = &Error{Status: 499, Type: typeInvalid, Code: "client_closed_request", Message: "the client closed the request"}
)

const (
	typeInvalid = "invalid_request_error"
	typeServer  = "server_error"
)

// Error gives the message, the field at fault and the cause.
func (e *Error) Error() string {
	if e == nil {
		return "haiku: a nil *Error was returned as an error"
	}
	text := "haiku: " + e.Message
	if e.Param != "" {
		text += " (" + e.Param + ")"
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// Is reports whether target is an Error with the same code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && e != nil && t != nil && e.Code == t.Code && e.Code != ""
}

// wireStatus is Status, or 500 where it is none that ends a response.
func (e *Error) wireStatus() int {
	if e.Status < 200 || e.Status > 999 {
		return http.StatusInternalServerError
	}
	return e.Status
}

// With returns a copy of e that names the field at fault (empty for none) and
// says in words for the client what was wrong.
func (e *Error) With(param, format string, args ...any) *Error {
	c := *e
	c.Param = param
	c.Message = fmt.Sprintf(format, args...)
	return &c
}

// Because returns a copy of e whose cause is err.
func (e *Error) Because(err error) *Error {
	c := *e
	c.Err = err
	return &c
}

// ModelNotFound is [ErrModelNotFound] for a name that a client has sent.
func ModelNotFound(name string) *Error {
	return ErrModelNotFound.With("model", "the model %q does not exist", clip(name))
}

// ErrorFrom is the one place where an error becomes what a client sees. An
// [Error] anywhere in err's chain is used as it is; a cancelled or expired
// context has its own kind; everything else becomes [ErrInternal] with err as
// its hidden cause. It returns nil for nil alone.
func ErrorFrom(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	switch {
	case errors.As(err, &e):
		if e == nil { // a nil *Error that became a non-nil error on its way
			return ErrInternal
		}
		return e
	case errors.Is(err, context.DeadlineExceeded):
		return ErrTimeout.Because(err)
	case errors.Is(err, context.Canceled):
		return errClientGone.Because(err)
	default:
		return ErrInternal.Because(err)
	}
}

// PanicError carries a panic from the goroutine where it happened to whoever
// waits for the result.
type PanicError struct {
	// Value is what was passed to panic.
	Value any
	// Stack is the panicking goroutine's stack trace.
	Stack []byte
}

// Error names the panic's value.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }
