package kserve

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/intelliparadigm/haiku"
)

// Options describe one model on a server. Model is required; of the rest the
// zero value is ready to use.
type Options struct {
	// Model is the model's name in the server's repository, and Version its
	// version, empty for the one that the server chooses.
	Model, Version string
	// Name is what clients are told that serves; empty means Model.
	Name string
	// Adapters are names by which a request can ask for an adapter of the model.
	// A request for any other name gets the model itself.
	Adapters []string

	// Dialect says what the model's tensors are; nil means [VLLM].
	Dialect Dialect
	// Unary asks with ModelInfer for the whole answer in one response: for
	// servers without Triton's ModelStreamInfer, and only for models that are not
	// decoupled. FirstToken then has to be long enough for all of it.
	Unary bool
	// Render makes one text of a conversation, as the model was trained to read
	// it. Texts of control tokens in messages are its to defuse. Without it a
	// request with messages is refused.
	Render func([]haiku.Message) (string, error)
	// MaxTokens is the bound of requests that name none. 0 means 1<<20, which
	// both backends cut to what the context holds.
	MaxTokens int
	// Count estimates the tokens of a prompt, for the usage of answers whose
	// server does not tell; nil counts a token for each four bytes.
	Count func(prompt string) int

	// Connect bounds the wait for a connection; 0 means 5 s, negative no bound.
	Connect time.Duration
	// FirstToken bounds the time from the request to the first text, with all
	// that is tried meanwhile; 0 means 60 s, negative no bound.
	FirstToken time.Duration
	// Idle bounds the silence of the server after that; 0 means 30 s, negative
	// no bound. A pause that this side makes for a slow reader is not counted.
	Idle time.Duration
	// Ping is how long a connection with requests on it may be silent before the
	// server is asked whether it is still there; 0 means 5 min 10 s, negative
	// never. Triton ends connections on which pings come more often than every
	// five minutes without data, unless it was started with a smaller
	// --grpc-http2-min-recv-ping-interval-without-data.
	Ping time.Duration

	// Retries is how often a request is sent again when the server was not
	// available and nothing came of it; 0 means 2, negative never.
	Retries int
	// RetryWait is how long the first retry waits, give or take half of it; each
	// further one waits twice as long. 0 means 50 ms. A server that names a time
	// itself is asked again then, if that is soon.
	RetryWait time.Duration
	// MaxMessageBytes bounds a message in either direction; 0 means 4 MiB.
	MaxMessageBytes int

	// Metadata goes with every call. Credentials belong into a grpc.DialOption,
	// where they are bound to a secure connection.
	Metadata metadata.MD
	// Inject, when not nil, has the last word on the metadata of a call: for
	// trace propagation other than the traceparent of ctx, which is in it
	// already. It may be called concurrently. Nothing of ctx's own outgoing
	// metadata is sent.
	Inject func(ctx context.Context, md metadata.MD)
	// GRPCErrors asks Triton (24.08 and later) for errors of a model as gRPC
	// statuses, by the metadata triton_grpc_error. Without it such errors are
	// texts, and only the well-known ones can be told apart.
	GRPCErrors bool
}

const (
	defaultMaxTokens  = 1 << 20
	defaultConnect    = 5 * time.Second
	defaultFirstToken = 60 * time.Second
	defaultIdle       = 30 * time.Second
	defaultPing       = 5*time.Minute + 10*time.Second
	defaultRetries    = 2
	defaultRetryWait  = 50 * time.Millisecond
	defaultMaxMessage = 4 << 20

	// maxRetryWait is the longest wait for a retry, whoever wants it.
	maxRetryWait = 5 * time.Second
	// pingTimeout is how long an answer to a ping may take.
	pingTimeout = 20 * time.Second
	// drainTime is how long the end of a stream may take after the last response.
	drainTime = 250 * time.Millisecond
	// windowBytes is how much of a stream may wait here unread. It is fixed:
	// grpc would let it grow with a fast network, and a slow reader would fill it.
	windowBytes = 64 << 10
	// connWindowBytes is how much of all streams may be on its way. What a slow
	// reader leaves lying does not count.
	connWindowBytes = 1 << 20
)

// withDefaults fills in what is zero.
func (o Options) withDefaults() (Options, error) {
	if o.Model == "" {
		return o, fmt.Errorf("kserve: Options.Model is empty")
	}
	for _, one := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.Connect, defaultConnect}, {&o.FirstToken, defaultFirstToken}, {&o.Idle, defaultIdle},
		{&o.Ping, defaultPing}, {&o.RetryWait, defaultRetryWait},
	} {
		if *one.field == 0 {
			*one.field = one.value
		}
	}
	for _, one := range []struct {
		field *int
		value int
	}{
		{&o.MaxTokens, defaultMaxTokens}, {&o.Retries, defaultRetries}, {&o.MaxMessageBytes, defaultMaxMessage},
	} {
		if *one.field == 0 {
			*one.field = one.value
		}
	}
	if o.MaxTokens < 0 || o.MaxMessageBytes < 0 || o.RetryWait < 0 {
		return o, fmt.Errorf("kserve: MaxTokens, MaxMessageBytes and RetryWait cannot be negative")
	}
	lower := metadata.MD{}
	for name, values := range o.Metadata {
		lower.Append(name, values...)
	}
	o.Metadata = lower
	if o.Name == "" {
		o.Name = o.Model
	}
	if o.Dialect == nil {
		o.Dialect = VLLM{}
	}
	if o.Count == nil {
		o.Count = func(prompt string) int { return max((len(prompt)+3)/4, 1) }
	}
	return o, nil
}
