package upstream

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/intelliparadigm/haiku"
)

// Generate has the engine answer req. It implements haiku.Model.
func (e *Engine) Generate(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
	g := &generation{e: e, w: w, req: req, choices: make([]choice, max(req.Choices, 1)), arrived: time.Now()}
	defer func() { w.SetUsage(g.used()) }()
	return wireError(ctx, req.Model, g.run(ctx))
}

// generation is one request on its way through one or more attempts.
type generation struct {
	e       *Engine
	w       *haiku.StreamWriter
	req     *haiku.Request
	arrived time.Time
	rid     string // what the engine may be told to abort

	p       parser
	choices []choice
	named   bool  // the model's name has been set
	begun   bool  // content has been pushed: there is no other attempt
	usage   usage // as the engine counted
	pieces  int   // pushed ones with content
}

// choice is what is known of one answer.
type choice struct {
	finished bool // here, also by a stop string
	stopped  bool // by a stop string that the engine has not seen
	called   bool // there were tool calls
	texts    bool // there was text
	members  bool // there was something beside it
}

// run makes attempts until one succeeds, has begun an answer or is the last.
func (g *generation) run(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c, err := g.call(ctx)
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		err := g.attempt(ctx, c)
		if err == nil || g.begun || ctx.Err() != nil || n >= g.e.opts.Retry.Attempts || !passing(err) {
			return err
		}
		wait := g.e.wait(n, err)
		if time.Since(g.arrived)+wait > g.e.budget(ctx, g.arrived, g.req.Objective) {
			return err
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
		g.choices, g.usage = make([]choice, len(g.choices)), usage{}
	}
}

// call prepares the request to the engine.
func (g *generation) call(ctx context.Context) (*call, error) {
	e, req := g.e, g.req
	if e.opts.Abort && len(g.choices) == 1 {
		g.rid = newRID()
	}
	body, err := e.requestBody(req, g.rid)
	if err != nil {
		return nil, err
	}
	h, err := e.headers(ctx, envelope{id: req.ID, tenant: req.Tenant, objective: req.Objective, client: clientHeaders(ctx)})
	if err != nil {
		return nil, err
	}
	h.Set("Accept", "text/event-stream")
	path := pathCompletions
	if chat(req) {
		path = pathChat
	}
	return &call{method: http.MethodPost, path: path, header: h, body: body}, nil
}

// newRID is a name of a request that none begins with: SGLang aborts all whose
// names begin with what it is told.
func newRID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// passing reports whether what has failed may succeed when it is tried again.
func passing(err error) bool {
	var status *StatusError
	switch {
	case errors.As(err, &status):
		return status.passing()
	case errors.Is(err, errConnectTimeout), errors.Is(err, ErrFirstToken), errors.Is(err, ErrIdle):
		return false // the time is gone
	default:
		return errors.Is(err, ErrConnect) || errors.Is(err, ErrIncomplete)
	}
}

// wait is how long to wait after attempt n.
func (e *Engine) wait(n int, err error) time.Duration {
	var status *StatusError
	if errors.As(err, &status) && status.RetryAfter > 0 {
		return status.RetryAfter + time.Duration(mathrand.Int64N(int64(e.opts.Retry.Base)+1)) // not all at once
	}
	most := e.opts.Retry.Max
	if base := e.opts.Retry.Base; base <= most>>(n-1) { // it does not overflow
		most = base << (n - 1)
	}
	return time.Duration(mathrand.Int64N(int64(most) + 1))
}

// budget is how long after its arrival a request may still be sent.
func (e *Engine) budget(ctx context.Context, arrived time.Time, objective haiku.Objective) time.Duration {
	budget := e.opts.Retry.Budget
	if objective.TTFT > 0 {
		budget = min(budget, objective.TTFT)
	}
	if deadline, ok := ctx.Deadline(); ok {
		budget = min(budget, deadline.Sub(arrived))
	}
	return budget
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// attempt sends the request once and reads the answer. When it returns, the
// connection is free for others or closed.
func (g *generation) attempt(ctx context.Context, c *call) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := newWatch(cancel)
	defer watch.stop()
	resp, err := g.e.send(ctx, c, watch)
	if err != nil {
		g.abort(c, err)
		return err
	}
	defer resp.Body.Close()
	defer g.e.observe(resp)()
	if resp.StatusCode != http.StatusOK {
		return statusError(resp).of(c.path)
	}
	r := &reading{generation: g, watch: watch, ctx: ctx}
	if kind := resp.Header.Get("Content-Type"); strings.HasPrefix(kind, "application/json") {
		err = r.whole(resp.Body)
	} else {
		err = r.stream(resp.Body)
	}
	if cause := context.Cause(ctx); cause != nil && err != nil {
		err = cause
	}
	if err != nil {
		g.abort(c, err)
	}
	return err
}

// abort tells an engine that has to be told that its answer is not wanted. The
// connection is being closed at the same time.
func (g *generation) abort(c *call, err error) {
	var status *StatusError
	if g.rid == "" || errors.As(err, &status) || errors.Is(err, ErrConnect) {
		return
	}
	g.e.abort(g.rid, c.header)
}

// whole reads an answer that is one JSON object although a stream was asked for.
func (r *reading) whole(src io.Reader) error {
	data, err := readBody(src, r.e.opts.MaxBodyBytes)
	if err != nil {
		return err
	}
	if err := r.chunk(data); err != nil {
		return r.ended(err)
	}
	return r.end()
}

// used is what the answer has used: as the engine counted, or what can be said
// without it: a token for each event with content, four bytes of a prompt for
// one of its tokens.
func (g *generation) used() haiku.Usage {
	u := haiku.Usage{PromptTokens: g.usage.prompt, CompletionTokens: g.usage.completion, CachedTokens: min(g.usage.cached, g.usage.prompt)}
	if u.CompletionTokens == 0 { // there are engines that count nothing
		u.CompletionTokens = g.pieces
	}
	if u.PromptTokens == 0 && (g.begun || g.usage.known) {
		u.PromptTokens = estimate(g.req)
	}
	return u
}

// estimate is about how many tokens a request's prompt has.
func estimate(req *haiku.Request) int {
	if len(req.PromptTokens) > 0 {
		return len(req.PromptTokens)
	}
	bytes := len(req.Prompt)
	for i := range req.Messages {
		bytes += len(req.Messages[i].Content) + 4*4 // of the template
	}
	return max(1, bytes/4)
}
