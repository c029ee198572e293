package kserve

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/upstream"
)

// Generate answers req with one stream of its own. Streams of other requests
// share its connection, not its fate: cancelling one resets it alone, which is
// what makes Triton stop computing, and a reader who is slow fills only its own
// window.
func (e *Engine) Generate(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	request, err := e.request(req)
	if err != nil {
		return err
	}
	message, err := request.marshal()
	if err != nil {
		return err
	}
	if len(message) > e.opts.MaxMessageBytes {
		return haiku.ErrBodyTooLarge.With("prompt", "the prompt is too long for the model's engine")
	}
	name := e.opts.Name
	if adapter := request.inference.Adapter; adapter != "" {
		name = adapter
	}
	w.SetModel(name)
	a := newAnswer(w, e.answer, request, max(req.Choices, 1), e.opts.Count(request.inference.Prompt))
	defer func() { w.SetUsage(a.usage()) }()
	return e.wire(ctx, e.ask(ctx, a, message))
}

// ask sends the request until it is answered or there is no use in it.
func (e *Engine) ask(ctx context.Context, a *answer, message encoded) error {
	begun := time.Now()
	for again := 0; ; again++ {
		t := attempt{engine: e, answer: a, begun: begun}
		err := t.run(ctx, message)
		wait, ok := e.retry(err, again)
		if !ok || t.heard || e.tooLate(err, time.Since(begun)+wait) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// retry says whether and when a request may be sent again that has failed with
// err, again retries after it was sent first.
func (e *Engine) retry(err error, again int) (time.Duration, bool) {
	var status *StatusError
	if again >= e.opts.Retries || !errors.As(err, &status) || !status.again() || status.RetryAfter > maxRetryWait {
		return 0, false
	}
	wait := min(e.opts.RetryWait<<min(again, 16), maxRetryWait)
	wait = time.Duration((0.5 + rand.Float64()) * float64(wait))
	return max(wait, status.RetryAfter), true
}

// tooLate reports whether another attempt, so long after the request, would be
// beyond what it may take.
func (e *Engine) tooLate(err error, after time.Duration) bool {
	if e.opts.Connect > 0 && errors.Is(err, upstream.ErrConnect) && after >= e.opts.Connect {
		return true
	}
	return e.opts.FirstToken > 0 && after >= e.opts.FirstToken
}

// attempt is one stream to the server.
type attempt struct {
	engine *Engine
	answer *answer
	begun  time.Time // of the request
	watch  watch
	stream grpc.ClientStream
	heard  bool // a response has come
}

var (
	streaming = &grpc.StreamDesc{StreamName: "ModelStreamInfer", ServerStreams: true, ClientStreams: true}
	single    = &grpc.StreamDesc{StreamName: "ModelInfer"}
)

func (t *attempt) run(ctx context.Context, message encoded) error {
	inner, cancel := t.watch.start(t.engine.outgoing(ctx))
	defer cancel()
	if err := t.open(inner, message); err != nil {
		return t.engine.failure(ctx, inner, t, err)
	}
	var in replier = new(streamReply)
	if t.engine.opts.Unary {
		in = new(unaryReply)
	}
	for t.answer.open > 0 {
		t.await()
		err := t.stream.RecvMsg(in)
		t.watch.pause()
		switch {
		case errors.Is(err, io.EOF):
			return t.answer.over(ctx)
		case err != nil:
			return t.engine.failure(ctx, inner, t, err)
		}
		t.heard = true
		if err := t.answer.take(ctx, in.body()); err != nil {
			return err
		}
		if t.engine.opts.Unary && t.answer.open > 0 {
			return t.answer.over(ctx)
		}
	}
	if !t.answer.stopped {
		t.drain(in)
	}
	return nil
}

// replier is a reply with a response in it.
type replier interface {
	reply
	body() *response
}

func (r *response) body() *response { return r }

// open makes the stream and sends all that there is to send. The half of the
// stream that is this side's is then closed, so that the server ends the other
// one when it has answered.
func (t *attempt) open(ctx context.Context, message encoded) (err error) {
	e := t.engine
	desc, method := streaming, methodStream
	if e.opts.Unary {
		desc, method = single, methodInfer
	}
	t.watch.allow(e.opts.Connect, lateConnect)
	if t.stream, err = e.cc.NewStream(ctx, desc, method, e.calls...); err != nil {
		return err
	}
	t.await()
	if err := t.stream.SendMsg(message); err != nil && !errors.Is(err, io.EOF) { // an EOF's reason is what is received
		return err
	}
	return t.stream.CloseSend()
}

// await says how long the next response may take.
func (t *attempt) await() {
	first := t.engine.opts.FirstToken
	switch {
	case t.answer.content:
		t.watch.allow(t.engine.opts.Idle, lateIdle)
	case first < 0:
		t.watch.pause()
	default:
		t.watch.allow(max(first-time.Since(t.begun), 0), lateFirst)
	}
}

// drain waits for the end of a stream whose answer is complete: a stream that
// has ended need not be reset, which is what servers stumble over.
func (t *attempt) drain(in reply) {
	t.watch.allow(drainTime, lateEnd)
	for t.stream.RecvMsg(in) == nil { // until it ends, well or not
		continue
	}
}
