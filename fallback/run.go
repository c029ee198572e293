package fallback

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/intelliparadigm/haiku"
)

// run is one request on its way through a chain. Attempts run on the goroutine
// that the stream gave its Model and, when one has to begin while another is still
// under way, on that of the timer which found it due. Generate returns after all.
type run struct {
	chain  *Chain
	ctx    context.Context // the request's
	w      *haiku.StreamWriter
	req    *haiku.Request
	budget time.Duration  // to the first token, where another can be asked
	chosen bool           // by whoever asks, who has the first model's call
	call   *Call          // that one, until it is somebody's to end
	all    sync.WaitGroup // timers that are set, and what they run

	mu       sync.Mutex
	next     int        // the place to try next
	picking  int        // attempts that are being prepared
	open     []*attempt // that may still answer
	begun    []*attempt
	space    [2][2]*attempt // for both, of the usual size
	winner   *attempt
	closed   bool // nothing more is begun
	running  int  // attempts whose model has not returned
	failures []failure
	decisive error
	decided  bool
	err      error // what the stream learns, once it is decided
}

// goOn tries one model after the other, until one has answered, others are at it,
// or none is left.
func (r *run) goOn() {
	for {
		a := r.pick()
		if a == nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.decide()
			return
		}
		if !r.enter(a, nil) || !a.run() {
			return
		}
	}
}

// decide makes the end known, if nothing can change it any more: an answer has
// ended, or nobody is left who could give one. A model that was given up and does
// not listen may still be running; the client need not wait for it, only Generate.
// The caller holds mu.
func (r *run) decide() {
	ended := r.winner != nil && r.winner.over || r.decisive != nil
	if r.decided || !ended && (len(r.open) > 0 || r.picking > 0 || r.more()) {
		return
	}
	r.decided = true
	r.err = r.result()
	if r.running > 0 {
		r.w.End(r.err)
	}
}

// pick prepares an attempt at the next model that can be asked, nil if there is
// none. It has to be entered.
func (r *run) pick() *attempt {
	for {
		place, ok := r.take()
		if !ok {
			return nil
		}
		a, f := r.prepare(place)
		if a != nil {
			return a
		}
		r.mu.Lock()
		r.picking--
		r.failures = append(r.failures, f)
		r.mu.Unlock()
	}
}

// take returns the next place, if another model is of use.
func (r *run) take() (place int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.more() {
		return 0, false
	}
	r.next++
	r.picking++
	return r.next - 1, true
}

// more reports whether another model can be tried.
func (r *run) more() bool {
	return !r.closed && r.winner == nil && r.ctx.Err() == nil && r.next < len(r.chain.members)
}

// prepare makes an attempt at the model of a place, or says why there is none. It
// may run on a timer's goroutine, where nobody else would recover what models and
// observers do.
func (r *run) prepare(place int) (a *attempt, f failure) {
	m := r.chain.members[place]
	call, asked := r.asked(place)
	defer func() {
		if v := recover(); v != nil {
			call.Done(Outcome{})
			a, f = nil, failure{place: place, err: &haiku.PanicError{Value: v, Stack: debug.Stack()}}
		}
	}()
	if err := r.chain.lacks(place, r.req); err != nil {
		call.Done(Outcome{})
		m.stats.lacking.Add(1)
		return nil, failure{place: place, err: err, lacks: true}
	}
	if !asked {
		call, asked = m.breaker.Allow()
	}
	if !asked {
		m.stats.refused.Add(1)
		e := haiku.ErrOverloaded.With("", "the model is left alone after failures, try again later")
		e.RetryAfter = call.RetryAfter()
		return nil, failure{place: place, err: e}
	}
	return newAttempt(r, place, call), failure{}
}

// asked returns the call that came with the request, which is then the caller's to
// end.
func (r *run) asked(place int) (call Call, ok bool) {
	if place > 0 || r.call == nil {
		return Call{}, false
	}
	call, r.call = *r.call, nil
	return call, true
}

// enter makes an attempt one that may answer, in the place of another if late is
// not nil. It reports false, and drops it, if it is not needed any more.
func (r *run) enter(a, late *attempt) bool {
	r.mu.Lock()
	r.picking--
	if r.closed || r.winner != nil {
		r.mu.Unlock()
		a.drop()
		return false
	}
	defer r.mu.Unlock()
	if late != nil && !late.over {
		late.abandon()
	}
	a.hedge = len(r.open) > 0
	r.open = append(r.open, a)
	r.begun = append(r.begun, a)
	r.running++
	a.begin()
	return true
}

// claim is an attempt's wish to be the answer. It runs where tokens are made, and
// does not block.
func (r *run) claim(a *attempt) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !a.dismissed() {
		a.call.FirstToken()
	}
	if r.winner != nil || a.ctx.Err() != nil {
		a.cancel(ErrOvertaken)
		return false
	}
	r.winner = a
	a.grow()
	for _, other := range r.open {
		if other != a && !other.judged() {
			other.cancel(ErrOvertaken)
		}
	}
	if r.chosen && a.place == 0 {
		return true
	}
	r.w.SetHeader(HeaderServedBy, a.name())
	if a.place > 0 {
		r.w.SetDegraded()
	}
	if a.member().named {
		r.w.SetModel(a.member().name)
	}
	return true
}

func (r *run) isDecided() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.decided
}

// settled is told that an attempt has ended. It reports whether the next model is
// to be tried, by the goroutine that asks.
func (r *run) settled(a *attempt) (again bool) {
	alone := len(r.open) == 0 && r.picking == 0
	if a == r.winner {
		r.closed = true
		r.cancelOpen()
		return false
	}
	var e *haiku.Error
	_ = errors.As(a.err, &e) // else it stays nil
	lacks := e != nil && about(e) && a.place > 0
	if e != nil && clients(e) && !lacks && (alone || a.place == 0) && r.winner == nil && r.ctx.Err() == nil {
		r.decisive, r.closed = a.err, true
		r.cancelOpen()
		return false
	}
	r.fails(a, lacks)
	return alone && r.more()
}

// fails notes why an attempt is no answer.
func (r *run) fails(a *attempt, lacks bool) {
	r.failures = append(r.failures, failure{place: a.place, err: a.err, lacks: lacks})
	haiku.LoggerFrom(r.ctx).Debug("haiku: a model did not answer",
		slog.String("request", r.req.ID), slog.String("model", a.member().name), slog.Any("error", a.err))
}

func (r *run) cancelOpen() {
	for _, other := range r.open {
		other.cancel(ErrOvertaken)
	}
}

// leave ends what is still under way when Generate is left in an unusual manner,
// and waits for it.
func (r *run) leave() {
	r.mu.Lock()
	r.closed = true
	r.cancelOpen()
	for _, a := range r.begun {
		a.disarm()
	}
	r.mu.Unlock()
	r.all.Wait()
	if r.call != nil {
		r.call.Done(Outcome{})
	}
}

// result is what the stream learns, and how much was used as far as is known.
func (r *run) result() error {
	if a := r.winner; a != nil {
		if a.returned {
			r.w.SetUsage(a.branch.Usage())
		}
		return a.err
	}
	var used haiku.Usage
	for _, a := range r.begun {
		if !a.returned {
			continue
		}
		u := a.branch.Usage()
		used.PromptTokens += u.PromptTokens
		used.CompletionTokens += u.CompletionTokens
		used.CachedTokens += u.CachedTokens
	}
	r.w.SetUsage(used)
	if err := r.ctx.Err(); err != nil {
		return err
	}
	if r.decisive != nil {
		return r.decisive
	}
	return r.chain.refusal(r.failures)
}
