package kserve

import (
	"errors"
	"net/http"

	"github.com/intelliparadigm/haiku"
)

// What can go wrong between this process and a server, found by errors.Is in
// what Generate and Ready return. None of them is an error of the request's own
// context: a client that leaves is not the server's fault.
var (
	// ErrConnect: no connection to the server, or not within Options.Connect.
	ErrConnect = errors.New("kserve: no connection to the server")
	// ErrFirstToken: no text within Options.FirstToken.
	ErrFirstToken = errors.New("kserve: no text came in time")
	// ErrIdle: nothing has come of the answer for Options.Idle.
	ErrIdle = errors.New("kserve: the server has fallen silent")
	// ErrIncomplete: the answer was cut off or given up.
	ErrIncomplete = errors.New("kserve: the answer is incomplete")
	// ErrMalformed: the server sent what is no answer, or one that is too long.
	ErrMalformed = errors.New("kserve: the server sent what is no answer")
	// ErrCredentials: the server does not accept this process's credentials.
	ErrCredentials = errors.New("kserve: the server refuses the credentials")
	// ErrNotReady: the server, or the model on it, is not ready.
	ErrNotReady = errors.New("kserve: not ready")
)

// ErrFailed is what a client sees of a server that fails or cannot be reached.
var ErrFailed = &haiku.Error{Status: http.StatusBadGateway, Type: "server_error", Code: "upstream_failed", Message: "the model's engine failed"}
