package haikutest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/intelliparadigm/haiku"
)

// TestModel runs the contract of haiku.Model as a test. open returns a model
// that answers the request req, which must ask for at least two tokens, in more
// than one token and more than once; refused is a request that it must refuse,
// nil for none.
func TestModel(t *testing.T, open func(t *testing.T) haiku.Model, req, refused *haiku.Request) {
	t.Helper()
	if err := CheckModel(t.Context(), open(t), req, refused); err != nil {
		t.Error(err)
	}
}

// CheckModel returns what is wrong with a model, nil for a good one.
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
	{"every choice has a finish reason, and usage is set", (*modelRun).complete},
	{"the request is left as it was", (*modelRun).unchanged},
	{"many may call at once", (*modelRun).concurrent},
	{"leaving the loop ends the generation", (*modelRun).leave},
	{"a cancelled context ends the generation with its error", (*modelRun).cancelled},
	{"a refusal is a haiku.Error before the first token", (*modelRun).refusal},
}

type modelRun struct {
	ctx          context.Context
	model        haiku.Model
	req, refused *haiku.Request
}

// patience is how long a model may take to notice that its context has ended.
const patience = 10 * time.Second

func (r *modelRun) read(req *haiku.Request) (stream *haiku.StreamWriter, tokens int, err error) {
	stream = haiku.NewStream(r.ctx, r.model, req)
	finished := make(map[int]int)
	for tok, err := range stream.Tokens() {
		if err != nil {
			return stream, tokens, err
		}
		tokens++
		if tok.Finish != "" {
			finished[tok.Choice]++
		} else if finished[tok.Choice] > 0 {
			return stream, tokens, fmt.Errorf("choice %d goes on after its finish reason", tok.Choice)
		}
	}
	for choice := range max(req.Choices, 1) {
		if finished[choice] != 1 {
			return stream, tokens, fmt.Errorf("choice %d has %d finish reasons", choice, finished[choice])
		}
	}
	return stream, tokens, nil
}

func (r *modelRun) complete() error {
	stream, tokens, err := r.read(r.req)
	if err != nil {
		return err
	}
	if tokens < 2 {
		return fmt.Errorf("the request yields %d tokens, too few for this suite", tokens)
	}
	if u := stream.Usage(); u.PromptTokens <= 0 || u.CompletionTokens <= 0 {
		return fmt.Errorf("usage is %+v", u)
	}
	return nil
}

func (r *modelRun) unchanged() error {
	before := *r.req
	if _, _, err := r.read(r.req); err != nil {
		return err
	}
	if !reflect.DeepEqual(before, *r.req) {
		return fmt.Errorf("it was %+v and is %+v", before, *r.req)
	}
	return nil
}

func (r *modelRun) concurrent() error {
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, _, errs[i] = r.read(r.req) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (r *modelRun) leave() error {
	for range 20 {
		left := make(chan error, 1)
		go func() {
			var first error
			for _, err := range haiku.NewStream(r.ctx, r.model, r.req).Tokens() {
				first = err
				break
			}
			left <- first
		}()
		if err := within(left); err != nil {
			return err
		}
	}
	return nil
}

func (r *modelRun) cancelled() error {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		var last error
		for _, err := range haiku.NewStream(ctx, r.model, r.req).Tokens() {
			cancel()
			last = err
		}
		ended <- last
	}()
	err := within(ended)
	// A model that had made all its tokens before it looked has succeeded.
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("the error is not the context's: %w", err)
	}
	return nil
}

func within(done <-chan error) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return fmt.Errorf("it has not ended after %v", patience)
	}
}

func (r *modelRun) refusal() error {
	if r.refused == nil {
		return nil
	}
	_, tokens, err := r.read(r.refused)
	var e *haiku.Error
	if tokens > 0 || !errors.As(err, &e) || e.Status < 400 || e.Status > 499 {
		return fmt.Errorf("after %d tokens the error is %v", tokens, err)
	}
	return nil
}
