package fallback

import (
	"context"
	"errors"
	"time"

	"github.com/intelliparadigm/haiku"
)

// Class is what an attempt says about the model that made it.
type Class uint8

const (
	// Neutral attempts say nothing: the client left or ran out of time, its
	// request was at fault, or another model was faster. They change nothing.
	Neutral Class = iota
	// OK is an answer with a finish reason for every choice, and in time.
	OK
	// Slow is one that was over a limit.
	Slow
	// Failed is an answer that broke, stalled or had no end, or none at all.
	Failed
	// Rejected is a request that the model had no room for.
	Rejected
)

// String names the class.
func (c Class) String() string {
	if int(c) >= len(classNames) {
		return "unknown"
	}
	return classNames[c]
}

var classNames = [...]string{"neutral", "ok", "slow", "failed", "rejected"}

// Outcome is what became of an attempt.
type Outcome struct {
	Class Class
	// FirstToken is the time to the first token, 0 if none came.
	FirstToken time.Duration
	// Gap is the mean time between tokens, without the time that the reader let
	// the model wait, or 0 if there were not two.
	Gap time.Duration
	// Silent says that it was silent for longer than the limit, as its breaker was
	// told at that moment.
	Silent bool
	// RetryAfter is how long the model asked to be left alone.
	RetryAfter time.Duration
	// Err is what a failed or rejected attempt has said, for people who want to
	// know why a breaker has opened: nothing is decided by it.
	Err error
}

// The reasons for which an attempt is ended from here, as causes of its context.
var (
	// ErrFirstToken: it had no first token within its budget.
	ErrFirstToken = errors.New("fallback: no first token in time")
	// ErrStalled: it began, and then no token came for too long.
	ErrStalled = errors.New("fallback: the stream has stalled")
	// ErrOvertaken: another model has begun to answer.
	ErrOvertaken = errors.New("fallback: another model was faster")
)

// OutcomeOf says what the end of an attempt means. request is the context of the
// request on whose behalf it was made, not the attempt's own; complete tells
// whether every choice of the answer has a finish reason.
//
// An attempt whose request has ended is Neutral, unless it was complete, and
// whatever err says: a connection that is cut on the client's behalf fails in
// many words. A context error while the request goes on is a timeout of the
// model's own, and counts.
func OutcomeOf(request context.Context, err error, complete bool) Outcome {
	var e *haiku.Error
	ended := hasEnded(request)
	switch {
	case complete && (err == nil || ended):
		return Outcome{Class: OK}
	case ended:
		return Outcome{}
	case errors.Is(err, ErrOvertaken):
		return Outcome{}
	case !errors.As(err, &e) || e == nil:
		return Outcome{Class: Failed, Err: err}
	case e.Status == haiku.ErrTooBusy.Status, e.Code == haiku.ErrOverloaded.Code:
		return Outcome{Class: Rejected, RetryAfter: e.RetryAfter, Err: err}
	case clients(e):
		return Outcome{}
	default:
		return Outcome{Class: Failed, RetryAfter: e.RetryAfter, Err: err}
	}
}

// hasEnded reports whether a request is over. A socket or a server may notice its
// deadline a moment before the context does.
func hasEnded(request context.Context) bool {
	deadline, bounded := request.Deadline()
	return request.Err() != nil || bounded && !time.Now().Before(deadline)
}

// clients reports whether an error is the client's: any model would refuse.
func clients(e *haiku.Error) bool {
	return e.Status >= 400 && e.Status < 500 && e.Status != haiku.ErrTooBusy.Status
}

// about reports whether a refusal is about the model that it comes from, so that
// another one may well answer.
func about(e *haiku.Error) bool {
	return errors.Is(e, haiku.ErrUnsupported) || errors.Is(e, haiku.ErrContextLength) || errors.Is(e, haiku.ErrModelNotFound)
}
