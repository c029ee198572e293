package fallback

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/intelliparadigm/haiku"
)

// attempt is one model's try at a run's answer. Fields are guarded by run.mu
// unless their comment says otherwise.
type attempt struct {
	r      *run
	place  int
	call   Call
	branch *haiku.Branch
	ctx    context.Context // fixed once it has begun
	cancel context.CancelCauseFunc
	after  func(Attempt) // Options.Observe's
	start  time.Time

	budget   time.Duration // to the first token, if another can be asked
	hedge    bool          // it began beside another
	asked    bool          // the one beside it has been looked for
	trial    bool          // it goes on beside the next to show what it would have done
	late     bool          // over the breaker's limit, which knows
	over     bool          // it has ended, or was given up: outcome and err say how
	outcome  Outcome
	err      error
	returned bool // its model has

	timer *time.Timer
	armed bool   // the timer is set, or its tick has not looked yet
	seen  uint64 // pieces at the last look
	quiet int    // looks since there was another
}

// newAttempt prepares an attempt; nothing runs yet.
func newAttempt(r *run, place int, call Call) *attempt {
	a := &attempt{r: r, place: place, call: call, budget: r.budget}
	a.branch = r.w.Branch(func() bool { return r.claim(a) })
	a.branch.As(a.called())
	ctx := r.ctx
	if observe := r.chain.opts.Observe; observe != nil {
		ctx, a.after = observe(ctx, a.member().name)
	}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	return a
}

func (a *attempt) member() *member { return a.r.chain.members[a.place] }

// name is what the answer's model is called.
func (a *attempt) name() string {
	if name := a.branch.Model(); name != "" && !a.member().given {
		return name
	}
	return a.member().name
}

// called is what its model is called by those who ask: the first as the chain is.
func (a *attempt) called() string {
	switch {
	case a.place == 0:
		return a.r.w.Model()
	case a.member().named:
		return a.member().name
	default:
		return ""
	}
}

// begin starts its clock.
func (a *attempt) begin() {
	a.start = time.Now()
	a.arm(a.due(0))
}

// run has the model answer, and reports whether the next one is to be tried.
func (a *attempt) run() (again bool) {
	err := errors.New("fallback: the model ended its own goroutine")
	defer func() { again = a.end(err) }()
	err = a.branch.Generate(a.ctx, a.member().model, a.r.chain.forPlace(a.place, a.r.req))
	return again
}

// drop ends an attempt that has been prepared in vain.
func (a *attempt) drop() {
	a.call.Done(Outcome{})
	a.cancel(ErrOvertaken)
	a.tell(Attempt{Model: a.member().name, Err: ErrOvertaken})
}

// tell tells the observer what became of it.
func (a *attempt) tell(end Attempt) {
	if a.after != nil {
		defer caught(haiku.LoggerFrom(a.r.ctx), "an observer of attempts", end.Model)
		a.after(end)
	}
}

// abandon gives it up for want of a first token, whenever its model returns.
func (a *attempt) abandon() {
	a.cancel(ErrFirstToken)
	o := Outcome{Class: Failed, Err: ErrFirstToken}
	if a.inAHurry() && !a.late {
		o = Outcome{}
	}
	a.conclude(o, ErrFirstToken)
	a.r.fails(a, false)
}

// conclude takes it out of the race and tells the breaker.
func (a *attempt) conclude(o Outcome, err error) {
	a.over = true
	a.r.open = slices.DeleteFunc(a.r.open, func(other *attempt) bool { return other == a })
	a.outcome, a.err = a.call.Done(o), err
	if errors.Is(err, ErrStalled) {
		a.err = haiku.ErrTimeout.With("", "the model stopped in the middle of its answer").Because(err)
	}
}

// grow tells it that it is the answer.
func (a *attempt) grow() {
	a.member().stats.overtaken.Store(0)
	a.disarm()
	a.arm(a.lookEach())
}

// silentLooks is how many looks in a row, a part of the time each, find a silent
// answer as it was. It is a timer's work, so that no token needs to know the time.
const silentLooks = 4

func (a *attempt) lookEach() time.Duration {
	first := min(a.member().breaker.opts.Limits.Silence, a.r.chain.opts.Stall)
	if first == noLimit {
		return noLimit
	}
	return max(first/silentLooks, 1)
}

// looks is how many looks without news a silence lasts at least.
func (a *attempt) looks(silence time.Duration) int {
	each := a.lookEach()
	if silence >= noLimit-each {
		return math.MaxInt
	}
	return int((silence + each - silentLooks) / each) // up, but for what lookEach has cut off
}

// inAHurry reports whether the client gives it less time than its operator does.
func (a *attempt) inAHurry() bool { return a.budget < a.r.chain.opts.FirstToken }

// judgedEach is how many times in a row a model is overtaken, or given up for a
// client's hurry, before it is looked at to the end of its limit: a model of which
// nobody ever sees whether it would have answered is never found to be sick.
const judgedEach = 16

// judged reports whether an attempt that is not waited for goes on to show what it
// would have done, while the answer lasts.
func (a *attempt) judged() bool {
	if !a.trial && !a.late && a.member().breaker.opts.Limits.FirstToken != noLimit {
		a.trial = a.member().stats.overtaken.Add(1)%judgedEach == 0
	}
	return a.trial && !a.late
}

// dismissed reports whether it has been told to end, so that nothing is shown by
// what it does now.
func (a *attempt) dismissed() bool {
	return a.r.ctx.Err() != nil || a.r.winner != nil && !a.trial
}

// arm sets the timer, unless it is set or there is nothing to come.
func (a *attempt) arm(d time.Duration) {
	if d == noLimit || a.armed || a.over || a.r.closed {
		return
	}
	a.armed = true
	a.r.all.Add(1)
	if a.timer == nil {
		a.timer = time.AfterFunc(d, a.tick)
	} else {
		a.timer.Reset(d)
	}
}

// disarm stops the timer, if its tick has not begun.
func (a *attempt) disarm() {
	if a.armed && a.timer.Stop() {
		a.armed = false
		a.r.all.Done()
	}
}

// due is how long it is, after some time, until there is something to look at.
func (a *attempt) due(passed time.Duration) time.Duration {
	if a == a.r.winner {
		return a.lookEach()
	}
	next, more := noLimit, a.r.more()
	for _, limit := range [...]struct {
		at   time.Duration
		past bool
	}{
		{a.r.chain.opts.HedgeAfter, a.asked || a.r.chain.opts.HedgeAfter == 0 || !more},
		{a.member().breaker.opts.Limits.FirstToken, a.late},
		{a.budget, !more},
	} {
		if !limit.past && limit.at != noLimit {
			next = min(next, max(limit.at-passed, 0))
		}
	}
	return next
}

// tick runs on the timer's goroutine. What it finds to be tried it tries there.
func (a *attempt) tick() {
	defer a.r.all.Done()
	switch hedge, move := a.look(); {
	case hedge:
		a.beside(nil)
	case move:
		a.beside(a)
	}
}

// look does what is due, but for another attempt beside this one or in its place.
func (a *attempt) look() (hedge, move bool) {
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	a.armed = false
	if a.over || a.r.closed {
		return false, false
	}
	if a == a.r.winner {
		a.lookForSilence()
		return false, false
	}
	if a.dismissed() {
		return false, false
	}
	passed := time.Since(a.start)
	if limit := a.member().breaker.opts.Limits.FirstToken; !a.late && passed >= limit {
		a.late = true
		a.call.Late()
	}
	opts := &a.r.chain.opts
	switch {
	case a.r.winner != nil:
		if a.late { // it has been judged
			a.abandon()
			return false, false
		}
	case passed >= a.budget && a.r.more():
		if a.inAHurry() && a.judged() {
			a.asked, a.budget = true, opts.FirstToken
			return true, false
		}
		return false, true
	case !a.asked && opts.HedgeAfter > 0 && passed >= opts.HedgeAfter && a.r.more():
		a.asked = true
		return true, false
	}
	a.arm(a.due(passed))
	return false, false
}

// lookForSilence tells the breaker of an answer in which nothing has happened for
// too long, and ends one that has stalled.
func (a *attempt) lookForSilence() {
	pieces, waiting := a.branch.Progress()
	if a.quiet++; waiting || pieces != a.seen {
		a.seen, a.quiet = pieces, 0
	}
	if a.quiet >= a.looks(a.member().breaker.opts.Limits.Silence) && a.ctx.Err() == nil && !a.branch.Whole() {
		a.call.Silent()
	}
	stalled := a.looks(a.r.chain.opts.Stall)
	switch {
	case a.quiet >= stalled && a.ctx.Err() == nil:
		a.cancel(ErrStalled)
	case a.quiet > stalled && errors.Is(context.Cause(a.ctx), ErrStalled): // it does not listen either
		if a.branch.Whole() {
			a.conclude(Outcome{Class: OK}, nil) // nothing that is still to come is missed
		} else {
			a.conclude(Outcome{Class: Failed, Err: ErrStalled}, ErrStalled)
		}
		a.r.decide()
	}
	a.arm(a.lookEach())
}

// beside tries the next model beside this one, or in the place of late. If there
// is none this one goes on. The one that was begun may be one too many by now.
func (a *attempt) beside(late *attempt) {
	next := a.r.pick()
	begun := next != nil && a.r.enter(next, late)
	a.rearm()
	if begun && next.run() {
		a.r.goOn()
	}
}

// rearm sets the timer to what is due next, unless it has ended meanwhile.
func (a *attempt) rearm() {
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	a.r.decide()
	a.arm(a.due(time.Since(a.start)))
}

// end takes in how the model has returned. It reports whether the next one is to
// be tried.
func (a *attempt) end(err error) (again bool) {
	r := a.r
	r.mu.Lock()
	r.running--
	a.returned = true
	a.disarm()
	if !a.over {
		a.conclude(a.judge(err))
		again = r.settled(a)
	}
	served := a == r.winner
	a.cancel(nil)
	if !again {
		r.decide()
	}
	r.mu.Unlock()
	a.member().stats.note(a, served)
	a.tell(Attempt{
		Model: a.member().name, Served: served, Hedge: a.hedge, Probe: a.call.Probe(),
		Outcome: a.outcome, Took: time.Since(a.start), Usage: a.branch.Usage(), Err: a.err,
	})
	return again
}

// judge says what the end of the attempt means, with the error that explains it.
func (a *attempt) judge(err error) (Outcome, error) {
	complete := a.branch.Complete()
	if cause := context.Cause(a.ctx); err != nil && a.r.ctx.Err() == nil && cause != nil {
		err = cause // ours: nobody else ends this context alone
	}
	if complete && errors.Is(err, ErrStalled) {
		err = nil // nothing that is still to come is missed
	}
	o := OutcomeOf(a.r.ctx, err, complete)
	objective := a.r.req.Objective.TTFT
	switch {
	case complete:
		o.Gap = a.gap(time.Since(a.start))
	case errors.Is(err, haiku.ErrTooBusy) && objective > 0 && objective < a.member().breaker.opts.Limits.FirstToken:
		o = Outcome{} // the client is in more of a hurry than the limit
	}
	return o, err
}

// gap is the mean time between the pieces of a choice.
func (a *attempt) gap(passed time.Duration) time.Duration {
	pieces, delayed := a.branch.Pieces()
	choices := max(a.r.req.Choices, 1)
	if pieces <= choices {
		return 0
	}
	return (passed - a.call.first - delayed) * time.Duration(choices) / time.Duration(pieces-choices)
}
