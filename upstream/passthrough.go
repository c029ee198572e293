package upstream

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/internal/sse"
)

// Passthrough is a handler that has the engine answer a client's request as it
// is, for routes that end in /chat/completions, /completions or /embeddings:
//
//	mux.Register("POST /v1/chat/completions", engine.Passthrough())
//
// Neither body is decoded and encoded again. Of the request's body the model's
// name is checked and replaced, and cache_salt, priority and the name of the
// request are this side's to decide; parameters that are not known here are
// refused. Events of the answer go to the client as they came, whole ones only,
// after a look for finish reason, usage, errors and the end mark.
//
// What a stream gets from Context.Stream it has here too: deadlines for each
// flush, keepalive comments, a status that waits for the first content, errors
// in the form of the API, and an end of the engine's work when the client
// leaves. Stop strings and the choice of a sampler are the engine's alone.
//
// names are the models that clients may ask for; without any, and without
// Options.Name, all are.
func (e *Engine) Passthrough(names ...string) haiku.InferenceHandler {
	return haiku.HandlerFunc(func(c *haiku.Context) {
		p := &passage{e: e, c: c, arrived: time.Now()}
		err := p.serve(names)
		if err != nil {
			c.AbortWithError(err)
		}
		if e.opts.OnServed != nil && p.body != nil {
			e.opts.OnServed(p.served(err))
		}
	})
}

// passage is one request on its way through.
type passage struct {
	e       *Engine
	c       *haiku.Context
	arrived time.Time
	body    *passed
	rid     string
	usage   usage
	events  int // with content
	first   time.Duration
}

// wholeWithin bounds an answer that is no stream: all of it is computed before
// its first byte.
const wholeWithin = 10 * time.Minute

func (p *passage) serve(names []string) error {
	path, ok := passedPath(p.c.Request.URL.Path)
	if !ok {
		return haiku.ErrNotFound
	}
	call, err := p.call(path, names)
	if err != nil {
		return err
	}
	ctx := p.c.Context()
	if !p.body.stream {
		limited, cancel := context.WithTimeoutCause(ctx, wholeWithin, ErrFirstToken)
		defer cancel()
		err = p.attempts(limited, func() error { return p.whole(limited, call) }, func() bool { return false })
		return p.wireError(err)
	}
	if !sse.CanFlush(p.c.Writer) {
		return haiku.ErrCannotFlush
	}
	r := newRelay(p)
	defer r.close()
	err = p.attempts(ctx, func() error { return r.attempt(ctx, call) }, r.opened)
	return r.finish(p.wireError(err))
}

func (p *passage) wireError(err error) error {
	return wireError(p.c.Context(), p.body.model, err)
}

// passedPath is the engine's path for one here.
func passedPath(path string) (string, bool) {
	for _, end := range []string{pathChat, pathCompletions, pathEmbeddings} {
		if strings.HasSuffix(path, end) {
			return end, true
		}
	}
	return "", false
}

// call reads the client's request and makes the one to the engine.
func (p *passage) call(path string, names []string) (*call, error) {
	var text jsontext.Value
	if err := p.c.Bind(&text); err != nil {
		return nil, err
	}
	body, err := p.e.readPassed(text)
	if err != nil {
		return nil, err
	}
	if !p.e.serves(body.model, names) {
		return nil, haiku.ModelNotFound(body.model)
	}
	if p.e.opts.Abort && body.choices == 1 {
		p.rid = newRID()
	}
	ctx := p.c.Context()
	env := envelope{id: newRID(), tenant: p.c.Identity().Tenant, objective: haiku.ObjectiveFrom(ctx), client: p.c.Request.Header}
	h, err := p.e.headers(ctx, env)
	if err != nil {
		return nil, err
	}
	if body.stream {
		h.Set("Accept", "text/event-stream")
	}
	p.body = body
	return &call{method: http.MethodPost, path: path, header: h, body: p.e.passedBody(body, env, p.rid)}, nil
}

// serves reports whether clients may ask for a model by that name.
func (e *Engine) serves(name string, names []string) bool {
	if len(names) == 0 && e.opts.Name == "" {
		return true
	}
	return slices.Contains(names, name) || name == e.opts.Name || len(names) == 0 && e.adapter(name)
}

// attempts makes attempts until one succeeds, has begun an answer or is the
// last.
func (p *passage) attempts(ctx context.Context, attempt func() error, begun func() bool) error {
	objective := haiku.ObjectiveFrom(ctx)
	for n := 1; ; n++ {
		err := attempt()
		if err == nil || begun() || ctx.Err() != nil || n >= p.e.opts.Retry.Attempts || !passing(err) {
			return err
		}
		wait := p.e.wait(n, err)
		if time.Since(p.arrived)+wait > p.e.budget(ctx, p.arrived, objective) {
			return err
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// whole passes on an answer that is one JSON object.
func (p *passage) whole(ctx context.Context, call *call) error {
	data, err := p.e.fetchCall(ctx, call, false)
	if err != nil {
		return err
	}
	var parser parser
	if _, ok := parser.parse(data); !ok || parser.ch.failure != nil {
		if failed, ok := parseError(data); ok {
			return failed
		}
		return fmt.Errorf("%w: a body that is no answer", ErrMalformed)
	}
	p.usage = parser.ch.usage
	h := p.c.Writer.Header()
	h.Set("Content-Type", "application/json")
	out := sse.NewWriter(p.c.Writer, p.c.Request, sse.Options{WriteTimeout: haiku.StreamOptionsFrom(p.c.Context()).WriteTimeout, ContentType: "application/json"})
	defer out.Restore()
	out.Buf = data
	return out.Reply(http.StatusOK)
}

// served is what became of the request.
func (p *passage) served(err error) Served {
	s := Served{Identity: p.c.Identity(), Model: p.body.model, Counted: p.usage.known, FirstToken: p.first, Err: err}
	s.Usage = haiku.Usage{PromptTokens: p.usage.prompt, CompletionTokens: p.usage.completion, CachedTokens: p.usage.cached}
	if !s.Counted {
		s.Usage.CompletionTokens = p.events
	}
	return s
}
