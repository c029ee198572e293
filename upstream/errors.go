package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/intelliparadigm/haiku"
)

// What can go wrong between this process and an engine, found by errors.Is in
// what Generate returns, also that of upstream/kserve; its place on the wire is a
// haiku.Error around it. None of them is an error of the request's own context: a
// client that leaves is not the engine's fault.
var (
	// ErrConnect: no connection to the engine, or not within Options.Connect.
	ErrConnect = errors.New("upstream: no connection to the engine")
	// ErrFirstToken: no content within Options.FirstToken.
	ErrFirstToken = errors.New("upstream: no token came in time")
	// ErrIdle: the engine has sent nothing of the answer for Options.Idle.
	ErrIdle = errors.New("upstream: the engine has fallen silent")
	// ErrIncomplete: the stream ended, was cut or was given up by the engine
	// before every choice had a finish reason.
	ErrIncomplete = errors.New("upstream: the engine's answer is incomplete")
	// ErrMalformed: the engine sent what is no answer, or one that is too long.
	ErrMalformed = errors.New("upstream: the engine sent what is no answer")
	// ErrCredentials: the engine does not accept this process's own credentials.
	ErrCredentials = errors.New("upstream: the engine refuses the credentials")
)

// ErrFailed is what a client sees of an engine that fails or cannot be reached.
var ErrFailed = &haiku.Error{Status: http.StatusBadGateway, Type: "server_error", Code: "upstream_failed", Message: "the model's engine failed"}

// StatusError is what an engine has said in an error of its own, found by
// errors.As in what Generate returns.
type StatusError struct {
	// Status is the HTTP status, or the code inside a stream, 0 for none.
	Status int
	// Type, Code, Param and Message are those of the error object.
	Type, Code, Param, Message string
	// Dropped is the reason that llm-d gives for not having run the request
	// (x-llm-d-request-dropped-reason).
	Dropped string
	// RetryAfter is when the engine wants to be asked again, 0 if it does not say.
	RetryAfter time.Duration
	// Retry is what the header x-should-retry says: 1 yes, -1 no, 0 nothing.
	Retry int
}

// Error gives what the engine said.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("upstream: the engine answered %d", e.Status)
	if e.Code != "" || e.Type != "" {
		text += fmt.Sprintf(" (%s %s)", e.Type, e.Code)
	}
	if e.Dropped != "" {
		text += ", dropped: " + e.Dropped
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// Is matches the kinds of error that stand for a status.
func (e *StatusError) Is(target error) bool { return target == ErrCredentials && e.credentials() }

func (e *StatusError) credentials() bool {
	return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden || e.Status == http.StatusProxyAuthRequired
}

// passing reports whether the same request may succeed when it is sent again.
func (e *StatusError) passing() bool {
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout, statusOverloaded:
		return e.Retry >= 0
	}
	return e.Retry > 0
}

// of is the error of a call to a path. What kind of request it is chooses the
// client: that an engine which chats has nothing at /completions, or at
// /embeddings, is no failure of the engine, or any client could have a breaker
// take it away from all. One that has nothing at /chat/completions is not where
// it is said to be, or not there yet.
func (e *StatusError) of(path string) error {
	switch e.Status {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
	default:
		return e
	}
	if path != pathCompletions && path != pathEmbeddings || e.Status == http.StatusNotFound && e.aboutModel() {
		return e
	}
	return haiku.ErrUnsupported.With("", "this model's engine has no %s", path).Because(e)
}

// statusOverloaded is Anthropic's, which gateways pass on.
const statusOverloaded = 529

// wire gives an error its place on the wire. Of 5xx, what the engine says is
// for the operator; of 4xx it is about the request, and the client's to read.
func (e *StatusError) wire(model string) error {
	var out *haiku.Error
	switch status := e.Status; {
	case e.contextLength():
		out = haiku.ErrContextLength
	case e.credentials():
		return ErrFailed.Because(e)
	case status == http.StatusNotFound && e.aboutModel():
		return haiku.ModelNotFound(model).Because(e)
	case status == http.StatusBadRequest, status == http.StatusUnprocessableEntity, status == http.StatusRequestedRangeNotSatisfiable:
		out = haiku.ErrInvalidRequest
	case status == http.StatusRequestEntityTooLarge:
		out = haiku.ErrBodyTooLarge
	case status == http.StatusTooManyRequests:
		return e.later(haiku.ErrRateLimited)
	case status == http.StatusServiceUnavailable, status == statusOverloaded:
		return e.later(haiku.ErrOverloaded)
	case status == http.StatusRequestTimeout, status == http.StatusGatewayTimeout:
		return e.later(haiku.ErrTimeout)
	default:
		return e.later(ErrFailed)
	}
	if e.Message != "" {
		out = out.With(e.Param, "%s", e.Message)
	}
	return out.Because(e)
}

func (e *StatusError) later(kind *haiku.Error) error {
	out := kind.Because(e)
	out.RetryAfter = e.RetryAfter
	return out
}

// contextLength recognises the many ways to say that a prompt is too long.
// There are engines that say it with status 500.
func (e *StatusError) contextLength() bool {
	if e.Status == http.StatusTooManyRequests || e.credentials() {
		return false
	}
	switch strings.ToLower(e.Code) {
	case "context_length_exceeded", "exceed_context_size_error":
		return true
	}
	if e.Type == "exceed_context_size_error" {
		return true
	}
	message := strings.ToLower(e.Message)
	for _, words := range [...]string{
		"context length", "context size", "context window", "maximum model length", "max_model_len", "maximum input length",
	} {
		if strings.Contains(message, words) {
			return true
		}
	}
	return false
}

// aboutModel reports whether a 404 is about the model's name, and not about the
// address.
func (e *StatusError) aboutModel() bool {
	return strings.Contains(strings.ToLower(e.Code+e.Message+e.Param), "model")
}

// wireError gives err its place on the wire. ctx is the request's own: when it
// has ended, that is what happened, whatever it has led to.
func wireError(ctx context.Context, model string, err error) error {
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); ended != nil {
		if errors.Is(err, ended) {
			return err
		}
		return fmt.Errorf("upstream: %w (%w)", ended, err)
	}
	var status *StatusError
	var wire *haiku.Error
	switch {
	case errors.As(err, &wire):
		return err
	case errors.As(err, &status):
		return status.wire(model)
	case errors.Is(err, ErrFirstToken), errors.Is(err, ErrIdle), errors.Is(err, errConnectTimeout):
		return haiku.ErrTimeout.With("", "the model's engine did not answer in time").Because(hide(err))
	default:
		return ErrFailed.Because(hide(err))
	}
}

// hidden keeps the errors of contexts and deadlines that are not the request's
// own out of errors.Is: who asks whether the client has left must not be told
// that it has.
type hidden struct {
	text  string
	kinds []error
}

func (h *hidden) Error() string { return h.text }

func (h *hidden) Unwrap() []error { return h.kinds }

func hide(err error) error {
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	h := &hidden{text: err.Error()}
	for _, kind := range []error{ErrConnect, ErrFirstToken, ErrIdle, ErrIncomplete, ErrMalformed} {
		if errors.Is(err, kind) {
			h.kinds = append(h.kinds, kind)
		}
	}
	return h
}
