package haiku

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
)

// generate owns the Model's goroutine: whatever happens in it, even a panic or
// runtime.Goexit, the ring is closed and the reader is told.
func (w *StreamWriter) generate() {
	defer close(w.done)
	err := errors.New("haiku: the model ended its own goroutine")
	defer func() {
		w.stopStallTimer()
		if !w.ended {
			w.report(err)
		}
		w.ring.Close(err)
	}()
	err = w.cause(w.ask())
}

// ask has the Model answer, and holds it to its contract.
func (w *StreamWriter) ask() (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	err = w.model.Generate(w.ctx, w, w.req)
	if err == nil {
		if err = w.incomplete(); err != nil && w.ctx.Err() != nil {
			err = w.ctx.Err()
		}
	}
	return err
}

// End tells the reader that the answer is over, with an error or without, before
// Generate returns: for a Model that has to wait for something which is no part of
// the answer. Usage has to be set before, and nothing is pushed or set after it;
// what Generate returns then is for nobody. The reader still waits for that when it
// has read all. In a [Branch] it does nothing. Only the Model may call it, once.
func (w *StreamWriter) End(err error) {
	if w.branch != nil {
		return
	}
	if err == nil {
		err = w.incomplete()
	}
	w.stopStallTimer()
	err = w.cause(err)
	w.report(err)
	w.ended = true
	w.ring.Close(err)
}

// incomplete is the error of an answer that lacks the end of a choice.
func (w *StreamWriter) incomplete() error {
	missing := w.branch != nil && !w.branch.grown // then the choices are another's
	for i := 0; i < len(w.choices) && !missing; i++ {
		missing = !w.choices[i].finished
	}
	if missing {
		return errors.New("haiku: the model returned before every choice had a finish reason")
	}
	return nil
}

// cause replaces a bare context error by the reason the context has ended, if
// that says more to a client.
func (w *StreamWriter) cause(err error) error {
	ended := w.ctx.Err()
	if ended == nil || !errors.Is(err, ended) {
		return err
	}
	var e *Error
	if c := context.Cause(w.ctx); errors.As(c, &e) || errors.Is(c, context.DeadlineExceeded) {
		return c
	}
	return err
}

// report logs what only the operator should know. Prompts are not logged.
// Refusals under load and deadlines, which can come by the thousand and which
// the client learns of, are for those who look for them.
func (w *StreamWriter) report(err error) {
	if err == nil {
		return
	}
	var p *PanicError
	log, request, model := LoggerFrom(w.ctx), slog.String("request", w.req.ID), slog.String("model", w.Model())
	switch status := ErrorFrom(err); {
	case status.Status < 500:
	case errors.As(err, &p):
		log.Error("haiku: model panicked",
			request, model, slog.Any("panic", p.Value), slog.String("stack", string(p.Stack)))
	case status.Status == ErrOverloaded.Status || status.Status == ErrTimeout.Status:
		log.Debug("haiku: stream refused or too late", request, model, slog.Any("error", err))
	default:
		log.Error("haiku: stream failed", request, model, slog.Any("error", err))
	}
}

// stop ends the generation and waits until nothing of it runs. The reader
// calls it exactly once.
func (w *StreamWriter) stop() {
	w.halt(context.Canceled)
	if w.ring != nil {
		w.ring.Free()
	}
}

// halt ends the generation and waits for its end; a recalled answer has none.
func (w *StreamWriter) halt(cause error) {
	if w.ring != nil {
		w.cancel(cause)
		<-w.done
	}
}

// follow ends the generation when ctx does, where the stream was made from
// another context. The returned function ends that and waits for it.
func (w *StreamWriter) follow(ctx context.Context) (unfollow func()) {
	if w.ring == nil {
		w.recalled.reader = ctx
		return func() {}
	}
	if ctx.Done() == w.parent {
		return func() {}
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		w.cancel(context.Cause(ctx))
	})
	return func() {
		if !stop() {
			<-ended
		}
	}
}
