package haikutest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/intelliparadigm/haiku"
)

// TestModel runs the contract of haiku.Model as a test, with a subtest for each
// rule that can be seen from outside. Run it with the race detector: some rules
// show only there. open returns a model that answers the request req more than
// once, in at least two tokens; refused is a request that it must refuse, nil
// for none. req should ask for two choices if the model can give them.
func TestModel(t *testing.T, open func(t *testing.T) haiku.Model, req, refused *haiku.Request) {
	t.Helper()
	for _, check := range modelChecks {
		t.Run(check.rule, func(t *testing.T) {
			r := &modelRun{ctx: t.Context(), model: open(t), req: req, refused: refused}
			if err := check.run(r); err != nil {
				t.Error(err)
			}
		})
	}
}

// CheckModel returns what is wrong with a model, as TestModel would report it,
// and nil for a good one.
func CheckModel(ctx context.Context, m haiku.Model, req, refused *haiku.Request) error {
	r := &modelRun{ctx: ctx, model: m, req: req, refused: refused}
	var all []error
	for _, check := range modelChecks {
		if err := check.run(r); err != nil {
			all = append(all, fmt.Errorf("%s: %w", check.rule, err))
		}
	}
	return errors.Join(all...)
}

var modelChecks = []struct {
	rule string
	run  func(*modelRun) error
}{
	{"every choice has one finish reason and usage is set", (*modelRun).complete},
	{"the request is left as it was", (*modelRun).unchanged},
	{"many may call at once", (*modelRun).concurrent},
	{"leaving the loop ends the generation and what was used is counted", (*modelRun).leave},
	{"a context that ends while tokens come ends the generation with its error", (*modelRun).cancelled},
	{"a context that has ended before ends the generation with its error", (*modelRun).late},
	{"a refusal is a haiku.Error before the first token", (*modelRun).refusal},
	{"an answer that is recalled keeps these rules too", (*modelRun).recalled},
}

type modelRun struct {
	ctx          context.Context
	model        haiku.Model
	req, refused *haiku.Request
	recall       bool // streams may recall answers, and nobody sees what Generate returns
}

// patience is how long a model may take to begin an answer, and to notice that
// nobody wants the rest.
const patience = time.Minute

// witness is the model under test and what its Generate has returned.
type witness struct {
	haiku.Model
	returned error
}

func (w *witness) Generate(ctx context.Context, s *haiku.StreamWriter, req *haiku.Request) error {
	w.returned = w.Model.Generate(ctx, s, req)
	return w.returned
}

// Unwrap gives way to the model's other abilities.
func (w *witness) Unwrap() haiku.Model { return w.Model }

// reading is how one answer was seen.
type reading struct {
	stream   *haiku.StreamWriter
	tokens   int
	finished map[int]int // finish reasons by choice
	after    int         // tokens of a choice that had finished
	err      error       // what the reader got
	returned error       // what Generate returned
}

// read reads an answer until it ends or more says no. A nil more reads all of
// it, however long that takes.
func (r *modelRun) read(ctx context.Context, req *haiku.Request, more func() bool) (*reading, error) {
	if more == nil {
		return r.readAll(ctx, req, func() bool { return true }), nil
	}
	done := make(chan *reading, 1)
	go func() { done <- r.readAll(ctx, req, more) }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case seen := <-done:
		return seen, nil
	case <-timer.C:
		return nil, fmt.Errorf("it has not ended after %v", patience)
	}
}

func (r *modelRun) readAll(ctx context.Context, req *haiku.Request, more func() bool) *reading {
	w := &witness{Model: r.model}
	seen := &reading{stream: haiku.NewStream(ctx, w, req), finished: make(map[int]int)}
	if r.recall {
		seen.stream = haiku.NewStream(ctx, r.model, req)
	}
	for tok, err := range seen.stream.Tokens() {
		if seen.err = err; err != nil {
			break
		}
		seen.tokens++
		if seen.finished[tok.Choice] > 0 {
			seen.after++
		}
		if tok.Finish != "" {
			seen.finished[tok.Choice]++
		}
		if !more() {
			break
		}
	}
	if seen.returned = w.returned; r.recall {
		seen.returned = seen.err
	}
	return seen
}

// whole reads an answer to its end and reports what it lacks.
func (r *modelRun) whole(req *haiku.Request) (*reading, error) {
	seen, err := r.read(r.ctx, req, nil)
	if err == nil {
		err = seen.err
	}
	switch {
	case err != nil:
		return seen, err
	case seen.after > 0:
		return seen, fmt.Errorf("%d tokens come after the finish reason of their choice", seen.after)
	}
	for choice := range max(req.Choices, 1) {
		if n := seen.finished[choice]; n != 1 {
			return seen, fmt.Errorf("choice %d has %d finish reasons", choice, n)
		}
	}
	return seen, nil
}

func (r *modelRun) complete() error {
	seen, err := r.whole(r.req)
	if err != nil {
		return err
	}
	if seen.tokens < 2 {
		return fmt.Errorf("the request yields %d tokens, too few for this suite", seen.tokens)
	}
	if u := seen.stream.Usage(); u.PromptTokens <= 0 || u.CompletionTokens <= 0 {
		return fmt.Errorf("usage is %+v", u)
	}
	return nil
}

// unchanged looks at what the model was given, and overwrites it when the
// model has returned.
func (r *modelRun) unchanged() error {
	want, given := cloneRequest(r.req), cloneRequest(r.req)
	seen, err := r.whole(given)
	if err != nil {
		return err
	}
	got := seen.stream.Request()
	want.ID, want.Tenant = got.ID, got.Tenant // which the stream sets
	if !reflect.DeepEqual(want, got) {
		return fmt.Errorf("it was %+v and is %+v", want, got)
	}
	clear(given.Messages)
	clear(given.PromptTokens)
	clear(given.Stop)
	clear(given.Extensions)
	clear(given.Sampling.LogitBias)
	*got = haiku.Request{}
	return nil
}

func cloneRequest(req *haiku.Request) *haiku.Request {
	c := *req
	c.Messages = slices.Clone(req.Messages)
	for i := range c.Messages {
		c.Messages[i].Extensions = cloneExtensions(c.Messages[i].Extensions)
	}
	c.Extensions = cloneExtensions(req.Extensions)
	c.PromptTokens = slices.Clone(req.PromptTokens)
	c.Stop = slices.Clone(req.Stop)
	if req.Sampling.LogitBias != nil {
		c.Sampling.LogitBias = make(map[int32]float32, len(req.Sampling.LogitBias))
		for id, bias := range req.Sampling.LogitBias {
			c.Sampling.LogitBias[id] = bias
		}
	}
	if seed := req.Sampling.Seed; seed != nil {
		own := *seed
		c.Sampling.Seed = &own
	}
	return &c
}

func cloneExtensions(list []haiku.Extension) []haiku.Extension {
	list = slices.Clone(list)
	for i := range list {
		list[i].Value = slices.Clone(list[i].Value)
	}
	return list
}

// concurrent has some readers read all and others leave in the middle.
func (r *modelRun) concurrent() error {
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			if i%2 == 0 {
				_, errs[i] = r.whole(r.req)
			} else {
				errs[i] = r.leaveOnce()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (r *modelRun) leave() error {
	for range 20 {
		if err := r.leaveOnce(); err != nil {
			return err
		}
	}
	_, err := r.whole(r.req) // what they held is free
	return err
}

func (r *modelRun) leaveOnce() error {
	seen, err := r.read(r.ctx, r.req, func() bool { return false })
	if err != nil {
		return err
	}
	if u := seen.stream.Usage(); seen.err == nil && (u.PromptTokens <= 0 || u.CompletionTokens <= 0) {
		return fmt.Errorf("usage is %+v after a token", u)
	}
	return seen.err
}

func (r *modelRun) cancelled() error {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	seen, err := r.read(ctx, r.req, func() bool { cancel(); return true })
	if err != nil {
		return err
	}
	if seen.returned == nil && seen.err == nil {
		return nil // it had made all its tokens before the first was read
	}
	return matches(seen.returned, context.Canceled)
}

func (r *modelRun) late() error {
	cancelled, cancel := context.WithCancel(r.ctx)
	cancel()
	expired, cancel := context.WithDeadline(r.ctx, time.Unix(0, 0))
	defer cancel()
	for _, ctx := range []context.Context{cancelled, expired} {
		seen, err := r.read(ctx, r.req, func() bool { return true })
		if err != nil {
			return err
		}
		if err := matches(seen.returned, ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

func matches(returned, ended error) error {
	if !errors.Is(returned, ended) {
		return fmt.Errorf("Generate returns %v, want an error that matches %v", returned, ended)
	}
	return nil
}

func (r *modelRun) refusal() error {
	if r.refused == nil {
		return nil
	}
	seen, err := r.read(r.ctx, r.refused, func() bool { return true })
	if err != nil {
		return err
	}
	var e *haiku.Error
	if seen.tokens > 0 || !errors.As(seen.returned, &e) || e == nil || e.Status < 400 || e.Status > 599 {
		return fmt.Errorf("after %d tokens Generate returns %v", seen.tokens, seen.returned)
	}
	return nil
}

// recalled reads without a witness, which hides Recall, after the model has
// given its answers once.
func (r *modelRun) recalled() error {
	if _, able := r.model.(haiku.Recaller); !able {
		return nil
	}
	if _, err := r.whole(r.req); err != nil {
		return err
	}
	own := *r
	own.recall = true
	for _, rule := range []func(*modelRun) error{
		(*modelRun).complete, (*modelRun).unchanged, (*modelRun).concurrent, (*modelRun).leave,
		(*modelRun).cancelled, (*modelRun).late, (*modelRun).refusal,
	} {
		if err := rule(&own); err != nil {
			return err
		}
	}
	return nil
}
