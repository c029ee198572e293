package upstream

import (
	"context"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/intelliparadigm/haiku"
)

// The headers that mean something to engines and to the gateways before them.
const (
	headerRequestID = "X-Request-Id"
	headerObjective = "X-Gateway-Inference-Objective"
	headerFairness  = "X-Gateway-Inference-Fairness-Id"
	headerTTFT      = "X-Slo-Ttft-Ms"
	headerTPOT      = "X-Slo-Tpot-Ms"
	headerTrace     = "Traceparent"
	headerState     = "Tracestate"
	headerLoadAsked = "Endpoint-Load-Metrics-Format"
	headerLoad      = "Endpoint-Load-Metrics"
)

// forwarded are the headers of a client's request that engines get, unless
// Options.Forward names more. There is no list of what is kept back: a header
// that nobody has named stays here. The traceparent is that of the context, as it
// was understood here.
var forwarded = []string{headerState, headerRequestID, headerObjective, headerTTFT, headerTPOT}

// maxHeaderBytes bounds the value of a forwarded header.
const maxHeaderBytes = 1 << 10

// forbidden are the headers that Options.Forward cannot name: those of one
// hop, those that describe a body, those with credentials, and those that
// follow from the verified identity.
var forbidden = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", "Host", "Content-Length", "Content-Type", "Content-Encoding", "Accept", "Accept-Encoding", "Expect",
	"Authorization", "Cookie", "Set-Cookie", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "X-Amz-Security-Token",
	headerFairness, headerLoadAsked,
}

type clientKey struct{}

// Propagate is middleware that lets engines see the headers of a client's
// request that are meant for them: tracestate, X-Request-Id,
// x-gateway-inference-objective and x-slo-*, and those that the engine's own
// Options.Forward names. Without it a Model knows of the client's headers only
// the traceparent. [Engine.Passthrough] needs none.
func Propagate() haiku.Middleware {
	return func(next haiku.InferenceHandler) haiku.InferenceHandler {
		return haiku.HandlerFunc(func(c *haiku.Context) {
			c.Request = c.Request.WithContext(context.WithValue(c.Context(), clientKey{}, c.Request.Header))
			next.ServeInference(c)
		})
	}
}

func clientHeaders(ctx context.Context) http.Header {
	h, _ := ctx.Value(clientKey{}).(http.Header)
	return h
}

// envelope is what of a request goes into the headers of the one to the engine.
type envelope struct {
	id        string
	tenant    string
	objective haiku.Objective
	client    http.Header
}

// headers makes the headers of a request to the engine.
func (e *Engine) headers(ctx context.Context, env envelope) (http.Header, error) {
	h := make(http.Header, 12)
	e.forward(h, env.client)
	if trace := haiku.TraceparentFrom(ctx); trace != "" {
		h.Set(headerTrace, trace)
	} else { // a state belongs to a trace
		h.Del(headerTrace)
		h.Del(headerState)
	}
	if id := h.Get(headerRequestID); !printable(id) {
		h.Del(headerRequestID)
		if env.id != "" {
			h.Set(headerRequestID, env.id)
		}
	}
	if env.tenant != "" {
		h.Set(headerFairness, e.salt(env.tenant))
	}
	if ttft := env.objective.TTFT; ttft > 0 {
		h.Set(headerTTFT, strconv.FormatFloat(float64(ttft)/float64(time.Millisecond), 'f', -1, 64))
	}
	for name, values := range e.opts.Header {
		h[textproto.CanonicalMIMEHeaderKey(name)] = slices.Clip(values) // Inject may add to it
	}
	if e.opts.Inject != nil {
		e.opts.Inject(ctx, h)
	}
	h.Set("Content-Type", "application/json")
	h.Set(headerLoadAsked, "json")
	if e.opts.Key != nil {
		key, err := e.opts.Key(ctx)
		if err != nil {
			return nil, ErrFailed.Because(&keyError{err})
		}
		h.Set("Authorization", "Bearer "+key)
	}
	return h, nil
}

// keyError is a failure to get the engine's key.
type keyError struct{ err error }

func (k *keyError) Error() string { return "upstream: get the engine's key: " + k.err.Error() }

func (k *keyError) Unwrap() error { return k.err }

func (k *keyError) Is(target error) bool { return target == ErrCredentials }

// forward copies the headers that may be, once and in a sane length.
func (e *Engine) forward(to, client http.Header) {
	if client == nil {
		return
	}
	hop := client.Values("Connection")
	for _, name := range e.forwards {
		v, ok := client[name]
		if !ok || len(v) != 1 || len(v[0]) > maxHeaderBytes || v[0] == "" || named(hop, name) {
			continue
		}
		if (name == headerTTFT || name == headerTPOT) && !number(v[0]) {
			continue
		}
		to[name] = []string{v[0]}
	}
}

// named reports whether a Connection header declares another one as its hop's.
func named(connection []string, name string) bool {
	for _, list := range connection {
		for one := range strings.SplitSeq(list, ",") {
			if equalFold(strings.TrimSpace(one), name) {
				return true
			}
		}
	}
	return false
}

func number(s string) bool {
	f, err := strconv.ParseFloat(s, 64)
	return err == nil && f > 0 && f < 1e9
}

// printable reports whether s can be an identifier in logs.
func printable(s string) bool {
	return s != "" && len(s) <= maxWordBytes && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

func equalFold(a, b string) bool { return strings.EqualFold(a, b) }

// forwardList is what New makes of Options.Forward.
func forwardList(more []string) (list []string, refused string) {
	list = slices.Clone(forwarded)
	for _, name := range more {
		name = textproto.CanonicalMIMEHeaderKey(name)
		if slices.Contains(forbidden, name) {
			return nil, name
		}
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list, ""
}
