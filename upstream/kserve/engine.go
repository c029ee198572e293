package kserve

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/intelliparadigm/haiku"
)

// Engine is a model on a server that speaks KServe v2 over gRPC. It is a
// [haiku.Model], and its methods may be called concurrently.
type Engine struct {
	opts   Options
	answer Answer
	cc     *grpc.ClientConn
	calls  []grpc.CallOption
	closed atomic.Bool
}

// New returns the model that opts describes, on the server at target, which is a
// name as grpc.NewClient takes it. Nothing is connected before it is needed.
//
// The dial options are the host's and win over those made here. They have to say
// how the connection is secured: grpc.WithTransportCredentials with
// credentials.NewTLS or, inside a trusted network, insecure.NewCredentials.
func New(target string, opts Options, dial ...grpc.DialOption) (*Engine, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	cc, err := grpc.NewClient(target, append(opts.dial(), dial...)...)
	if err != nil {
		return nil, fmt.Errorf("kserve: %w", err)
	}
	return &Engine{
		opts: opts, answer: opts.Dialect.Answer(), cc: cc,
		calls: []grpc.CallOption{
			grpc.ForceCodecV2(codec{}),
			grpc.MaxCallRecvMsgSize(opts.MaxMessageBytes),
			grpc.MaxCallSendMsgSize(opts.MaxMessageBytes),
		},
	}, nil
}

// dial makes the options of the connection.
func (o *Options) dial() []grpc.DialOption {
	again := backoff.Config{BaseDelay: o.RetryWait, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxRetryWait}
	params := grpc.ConnectParams{Backoff: again}
	if o.Connect > 0 {
		params.MinConnectTimeout = o.Connect
	}
	dial := []grpc.DialOption{
		grpc.WithConnectParams(params),
		grpc.WithStaticStreamWindowSize(windowBytes),
		grpc.WithStaticConnWindowSize(connWindowBytes),
		// Retries are made here, where it is known what has been handed on.
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
	}
	if o.Ping > 0 {
		dial = append(dial, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: o.Ping, Timeout: pingTimeout}))
	}
	return dial
}

// Close ends all requests and the connection, and waits for both.
func (e *Engine) Close() error {
	if e.closed.Swap(true) {
		return nil
	}
	return e.cc.Close()
}

// Models describes the model and its adapters.
func (e *Engine) Models() []haiku.ModelInfo {
	models := []haiku.ModelInfo{{ID: e.opts.Name, OwnedBy: "triton"}}
	for _, name := range e.opts.Adapters {
		models = append(models, haiku.ModelInfo{ID: name, Parent: e.opts.Name, OwnedBy: "triton"})
	}
	return models
}

// outgoing returns ctx with the metadata of a call, and with nothing else that
// it may hold for calls of other clients.
func (e *Engine) outgoing(ctx context.Context) context.Context {
	md := e.opts.Metadata.Copy()
	if trace := haiku.TraceparentFrom(ctx); trace != "" {
		md.Set("traceparent", trace)
	}
	if e.opts.GRPCErrors {
		md.Set("triton_grpc_error", "true")
	}
	if e.opts.Inject != nil {
		e.opts.Inject(ctx, md)
	}
	return metadata.NewOutgoingContext(ctx, md)
}

// request makes what is sent for req.
func (e *Engine) request(req *haiku.Request) (*inferRequest, error) {
	if req.Logprobs || req.TopLogprobs > 0 {
		return nil, haiku.ErrUnsupported.With("logprobs", "log-probabilities cannot be asked for from this model")
	}
	inference := &Inference{Prompt: req.Prompt, Stream: !e.opts.Unary, MaxTokens: req.MaxTokens}
	if inference.MaxTokens <= 0 {
		inference.MaxTokens = e.opts.MaxTokens
	}
	if slices.Contains(e.opts.Adapters, req.Model) {
		inference.Adapter = req.Model
	}
	if len(req.Messages) > 0 {
		var err error
		if inference.Prompt, err = e.render(req.Messages); err != nil {
			return nil, err
		}
	}
	if !utf8.ValidString(inference.Prompt) {
		return nil, haiku.ErrInvalidRequest.With("prompt", "the prompt is not valid UTF-8")
	}
	if err := e.opts.Dialect.Build(inference, req); err != nil {
		return nil, err
	}
	if inference.Stream {
		inference.Parameters = append(inference.Parameters, Parameter{parameterEmptyFinal, true})
	}
	out := &inferRequest{model: e.opts.Model, version: e.opts.Version, inference: inference}
	if len(req.ID) <= maxIDBytes && utf8.ValidString(req.ID) {
		out.id = req.ID
	}
	return out, nil
}

// maxIDBytes bounds what a server has to write into its log.
const maxIDBytes = 128

func (e *Engine) render(messages []haiku.Message) (string, error) {
	if e.opts.Render == nil {
		return "", haiku.ErrUnsupported.With("messages", "this model continues plain prompts only: it has no chat template")
	}
	prompt, err := e.opts.Render(messages)
	if err != nil {
		return "", fmt.Errorf("kserve: render the messages: %w", err)
	}
	return prompt, nil
}
