package upstream

import (
	"context"
	"net/http"
	"time"

	"github.com/intelliparadigm/haiku"
)

// Options say how an engine is spoken to. The zero value speaks to a server
// with OpenAI's parameters, sends no credentials and waits with the timeouts
// below. Nothing in it may be changed once it has been given to New.
type Options struct {
	// Model is what the engine calls its model; empty passes on the name that a
	// request asks for. Its adapters keep the names under which the engine lists
	// them, from when it has first been asked for its list.
	Model string
	// Name is what Haiku's clients call the model; empty shows the name that the
	// engine answers with.
	Name string
	// Dialect is what the engine understands beside OpenAI's API.
	Dialect Dialect

	// Key returns the engine's API key, which is sent as a bearer token. It is
	// asked for each request, so that keys can be rotated, and should not block.
	Key func(ctx context.Context) (string, error)
	// Header are headers of each request to the engine.
	Header http.Header
	// Forward names further headers of a client's request that the engine gets:
	// see Propagate. Headers of one hop and those with credentials cannot be
	// among them.
	Forward []string
	// Inject adds headers to a request that is about to be sent, such as the
	// trace context of a span that was begun for it.
	Inject func(ctx context.Context, h http.Header)
	// Extensions names further parameters without a place in haiku.Request that
	// the engine gets, beside those that are known to shape an answer only; "*"
	// is any. Other optional ones are left out, and other ones refused.
	Extensions []string

	// SaltKey is a secret of the host. With it, the names of tenants become
	// cache salts and fairness ids, which do not tell who they are; without it
	// they are still hashes.
	SaltKey []byte
	// Priority sends the objective's priority. The engine's scheduler has to be
	// set up for it: vLLM refuses a request that has one otherwise.
	Priority bool
	// Abort tells an SGLang engine by a call of its own when a request is not
	// wanted any more, beside closing the connection, which builds of it have
	// missed.
	Abort bool
	// ContinuousUsage asks for a count of tokens in each event, which vLLM and
	// SGLang have. Without it, what a cancelled request has used is an estimate.
	ContinuousUsage bool

	// Connect bounds the making of a connection; 0 means 5 s, negative no bound.
	Connect time.Duration
	// FirstToken bounds the time from sending a request to its first content; 0
	// means 2 minutes, negative no bound.
	FirstToken time.Duration
	// Idle bounds the time between two events of an answer; 0 means 1 minute,
	// negative no bound. Comments that a proxy sends do not count. Silence may be
	// noticed up to a quarter of Idle later.
	Idle time.Duration
	// Retry says when a request is sent again.
	Retry Retry

	// MaxEventBytes bounds one event of a stream, and with it a line; 0 means
	// 16 MiB. MaxBodyBytes bounds an answer that is no stream; 0 means 64 MiB.
	MaxEventBytes int
	MaxBodyBytes  int64
	// ModelsTTL is how old the list of the engine's models may be before it is
	// asked for again; 0 means 1 minute. A list that could not be renewed for
	// ten times as long is not shown any more.
	ModelsTTL time.Duration

	// Transport makes the requests; nil is one of the engine's own, which keeps
	// connections for less long than engines do (uvicorn closes them after 5 s)
	// and shares none with others. Redirects are not followed in any case.
	Transport http.RoundTripper
	// OnLoad is told what the engine says of its load, in the header or trailer
	// endpoint-load-metrics of an answer. It must not block.
	OnLoad func(Load)
	// OnServed is told of each request that passed through Passthrough and has
	// ended. It runs on the request's goroutine.
	OnServed func(Served)
}

// Retry says when a request is sent again: only as long as nothing of its
// answer has been passed on, and only after failures that may pass, which are no
// connection, one that broke, and the statuses 408, 429, 502, 503, 504 and 529,
// or what the header x-should-retry says. An engine may then compute the same
// answer twice; a request to it changes nothing else, so it may be repeated.
//
// A connection that the engine had closed while it was idle is not a failure of
// a request: if it breaks at once, and no byte of an answer has come, the request
// is sent on another one, twice at most, whatever Attempts says.
type Retry struct {
	// Attempts is how often a request is sent at most; 0 means 3, 1 once.
	Attempts int
	// Base and Max shape the wait before attempt n+1: a random time up to
	// min(Max, Base·2ⁿ⁻¹). 0 means 100 ms and 2 s. A time that the engine names
	// is waited for in their place.
	Base, Max time.Duration
	// Budget is how long after its arrival a request may still be sent again; 0
	// means 10 s. The deadline of its context and the time to first token of its
	// objective bound it too. An engine that asks for a longer wait gets none:
	// the client is told when to come back.
	Budget time.Duration
}

// Defaults of Options.
const (
	defaultConnect    = 5 * time.Second
	defaultFirstToken = 2 * time.Minute
	defaultIdle       = time.Minute
	defaultAttempts   = 3
	defaultBase       = 100 * time.Millisecond
	defaultMax        = 2 * time.Second
	defaultBudget     = 10 * time.Second
	defaultBodyBytes  = 64 << 20
	defaultModelsTTL  = time.Minute
)

// withDefaults fills in what is left open. A negative bound becomes 0: none.
func (o Options) withDefaults() Options {
	bound := func(d *time.Duration, standard time.Duration) {
		if *d == 0 {
			*d = standard
		}
		*d = max(*d, 0)
	}
	bound(&o.Connect, defaultConnect)
	bound(&o.FirstToken, defaultFirstToken)
	bound(&o.Idle, defaultIdle)
	bound(&o.ModelsTTL, defaultModelsTTL)
	bound(&o.Retry.Base, defaultBase)
	bound(&o.Retry.Max, defaultMax)
	bound(&o.Retry.Budget, defaultBudget)
	if o.Retry.Attempts <= 0 {
		o.Retry.Attempts = defaultAttempts
	}
	if o.MaxBodyBytes <= 0 {
		o.MaxBodyBytes = defaultBodyBytes
	}
	return o
}

// Served is what became of a request that passed through.
type Served struct {
	// Identity is who it was for, Model the name that was asked for.
	Identity haiku.Identity
	Model    string
	// Usage is what the engine counted, if Counted is set; otherwise the
	// completion tokens are the events that came.
	Usage   haiku.Usage
	Counted bool
	// FirstToken is the time from the request's arrival to the first event with
	// content, 0 if none came.
	FirstToken time.Duration
	// Err is nil for an answer that was complete.
	Err error
}
