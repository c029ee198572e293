package batch

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrClosed is the answer to a request that comes after Close or Shutdown,
	// and to one that still waits when the bound of Shutdown is over.
	ErrClosed = errors.New("batch: closed")
	// ErrQueueFull is matched by every *QueueFullError.
	ErrQueueFull = errors.New("batch: queue full")
	// ErrQueueTimeout is matched by every *QueueTimeoutError.
	ErrQueueTimeout = errors.New("batch: waited too long")
	// ErrPriority is the answer to a request for a level that does not exist.
	ErrPriority = errors.New("batch: no such priority level")
	// ErrGoexit is the answer to the requests of a call that ended its goroutine
	// with runtime.Goexit, as a failing assertion of a test does.
	ErrGoexit = errors.New("batch: the function called runtime.Goexit")
)

// QueueFullError says that as many requests wait at a priority level as may.
type QueueFullError struct {
	Level, Limit int
}

func (e *QueueFullError) Error() string {
	return fmt.Sprintf("batch: queue full: %d requests wait at level %d", e.Limit, e.Level)
}

// Is makes errors.Is(err, ErrQueueFull) hold.
func (e *QueueFullError) Is(target error) bool { return target == ErrQueueFull }

// QueueTimeoutError says that a request was rejected by its queue timeout.
type QueueTimeoutError struct {
	Level  int
	Waited time.Duration
}

func (e *QueueTimeoutError) Error() string {
	return fmt.Sprintf("batch: waited %v at level %d, which is too long", e.Waited, e.Level)
}

// Is makes errors.Is(err, ErrQueueTimeout) hold.
func (e *QueueTimeoutError) Is(target error) bool { return target == ErrQueueTimeout }

// PanicError carries a panic of the function to the requests of that call.
type PanicError struct {
	Value any
	Stack []byte // as runtime/debug.Stack prints it, taken where the panic was
}

func (e *PanicError) Error() string { return fmt.Sprintf("batch: the function panicked: %v", e.Value) }

// Unwrap returns the value of the panic if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ResultCountError says that the function returned no error and yet not one
// result per request, so that nobody can tell whose results they are.
type ResultCountError struct {
	Requests, Results int
}

func (e *ResultCountError) Error() string {
	return fmt.Sprintf("batch: the function returned %d results for %d requests", e.Results, e.Requests)
}
