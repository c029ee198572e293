package fallback

import "time"

// core is a breaker as a function of events and times. Times are since any fixed
// moment, by a clock that never runs back; nothing here knows what day it is.
// The moves between its states:
//
//	Closed ── a judge says why ──▶ Open ── its time is over ──▶ HalfOpen
//	   ▲                            ▲                              │
//	   └── all stages passed ───────┼── an attempt fails ──────────┤
//	                                └──────────────────────────────┘
//
// HalfOpen has stages: at first single probes, one at a time, then shares of the
// traffic.
type core struct {
	opts   *BreakerOptions
	judges []Judge
	recent window // what was seen here since the last change

	state  State
	era    uint64        // grows with each change of state: what began before it is old news
	forced bool          // by an operator: nothing that is seen changes the state
	until  time.Duration // Open: when it is over
	stage  stage         // HalfOpen
	permit permit        // HalfOpen while probing
	why    string        // of the last change
	cause  error         // of the last change, if an attempt's error was

	sum      Counts        // of all replicas, as last heard
	sumUntil time.Duration // when that is too old; 0 if it is
	fresh    time.Duration // from when on the sums of others are about this era
	sample   Sample        // reused
}

// stage is how far a half-open breaker has come.
type stage struct {
	number int     // 0 while probing, then 1 + the index in Ramp
	share  float64 // of the traffic that is let through, 0 while probing
	credit float64 // what of a request is due to be let through
	passed int     // good answers at this stage
	since  time.Duration
}

// permit is the right to probe. There is one, and a call has it until the call
// ends or the permit's time is over.
type permit struct {
	call   uint64        // who has it, 0 for nobody
	ends   time.Duration // of call's right
	serial uint64        // of the last call that had it
	// With a Switch, the cluster's permit has to be here first.
	leased time.Duration // until when, 0 if it is not
	wanted bool          // somebody asked for it in vain
}

func newCore(o *BreakerOptions) *core {
	c := &core{opts: o, recent: newWindow(o.Window)}
	for _, p := range o.Policies {
		c.judges = append(c.judges, p.Judge(o.Limits))
	}
	return c
}

// enter makes a state begin.
func (c *core) enter(now time.Duration, s State, why string) {
	c.state, c.why, c.cause = s, why, nil
	c.era++
	c.stage, c.permit = stage{}, permit{serial: c.permit.serial}
	c.recent.reset()
	c.fresh = now + c.opts.Window
	c.ask(Judge.Reset)
}

// verdict is the answer to a call that would like to be made.
type verdict struct {
	allowed bool
	probe   uint64        // not 0: the call has the permit
	after   time.Duration // if it is refused: when it may be worth asking again
}

// retryProbe is when to ask again while others probe.
const retryProbe = time.Second

// allow decides about a call. lease says that the permit needs the cluster's.
func (c *core) allow(now time.Duration, lease bool) verdict {
	if c.state == Open && !c.forced && now >= c.until {
		c.enter(now, HalfOpen, "its time was over")
	}
	switch {
	case c.state == Closed:
		return verdict{allowed: true}
	case c.state == Open && c.forced:
		return verdict{after: c.opts.OpenFor}
	case c.state == Open:
		return verdict{after: c.until - now}
	case c.stage.share > 0:
		return c.stage.allow()
	default:
		return c.permit.allow(now, c.opts.ProbeFor, lease)
	}
}

// allow lets through the share of calls that is due, evenly.
func (s *stage) allow() verdict {
	if s.credit += s.share; s.credit < 1 {
		return verdict{after: retryProbe}
	}
	s.credit--
	return verdict{allowed: true}
}

func (p *permit) allow(now, ttl time.Duration, lease bool) verdict {
	if p.call != 0 && now < p.ends {
		return verdict{after: retryProbe}
	}
	if lease && p.leased <= now {
		p.wanted = true
		return verdict{after: retryProbe}
	}
	p.serial++
	p.call, p.ends, p.wanted = p.serial, now+ttl, false
	return verdict{allowed: true, probe: p.serial}
}

// call is what core has to know of one that was allowed.
type call struct {
	era   uint64
	probe uint64
}

// late is told that the first token of a call is over its limit.
func (c *core) late(now time.Duration, of call, taken time.Duration) {
	if of.era != c.era || c.forced {
		return
	}
	if of.probe != 0 {
		c.trip(now, "a probe's first token was late", Outcome{})
		return
	}
	c.observe(now, Late, Outcome{FirstToken: taken})
}

// silent is told that the answer of a call has had no token for too long.
func (c *core) silent(now time.Duration, of call) {
	switch {
	case of.era != c.era || c.forced:
	case c.state == HalfOpen:
		c.trip(now, "an answer fell silent while half-open", Outcome{})
	default:
		c.observe(now, Silent, Outcome{Class: Failed, Silent: true})
	}
}

// end is told what became of a call.
func (c *core) end(now time.Duration, of call, o Outcome) {
	if of.era == c.era && of.probe != 0 && of.probe == c.permit.call {
		c.permit.call = 0
	}
	if o.Class == Neutral {
		return
	}
	if of.era != c.era {
		c.endOld(now, o)
		return
	}
	c.recent.count(now, &o)
	switch {
	case c.forced:
	case c.state == HalfOpen && (o.Class == Failed || o.Class == Rejected):
		c.trip(now, "an attempt was "+o.Class.String()+" while half-open", o)
	case c.state == HalfOpen && c.stage.share == 0 && o.Class == Slow:
		c.trip(now, "a probe was slow", o)
	default:
		if o.Class == OK {
			c.pass(now)
		}
		c.observe(now, Ended, o)
	}
}

// endOld is told what became of a call from before the last change. All it can
// tell is that a model which is left alone needs more time.
func (c *core) endOld(now time.Duration, o Outcome) {
	if c.state == Open && !c.forced && (o.Class == Failed || o.Class == Rejected) {
		c.until = max(c.until, now+c.opts.wait(o.RetryAfter))
	}
}

// pass counts a good answer of a half-open model. A stage takes some, or one where
// so few ask that it has lasted as long as the model was left alone.
func (c *core) pass(now time.Duration) {
	if c.state != HalfOpen {
		return
	}
	s := &c.stage
	if s.passed++; s.share > 0 && s.passed < c.opts.RampAnswers && now-s.since < c.opts.OpenFor {
		return
	}
	if s.number >= len(c.opts.Ramp) { // more, where others have a longer one
		c.enter(now, Closed, "it answers again")
		return
	}
	c.why, c.cause = "its answers were good", nil
	*s = stage{number: s.number + 1, share: c.opts.Ramp[s.number], since: now}
	c.permit = permit{serial: c.permit.serial}
}

// trip opens for as long as it takes; o was the last to be seen.
func (c *core) trip(now time.Duration, why string, o Outcome) {
	c.enter(now, Open, why)
	c.until, c.cause = now+c.opts.wait(o.RetryAfter), o.Err
}

// observe shows the judges a sample. The first that objects decides, and all
// have seen it.
func (c *core) observe(now time.Duration, m Moment, o Outcome) {
	c.sample = Sample{At: now, Moment: m, Outcome: o, Recent: &c.recent.sum}
	if now < c.sumUntil && now >= c.fresh {
		c.sample.Recent = &c.sum
		if m == Ended {
			c.sum.count(&o)
		}
	}
	why := ""
	c.ask(func(j Judge) {
		if w := j.Observe(&c.sample); w != "" && why == "" {
			why = w
		}
	})
	if why != "" {
		c.trip(now, why, o)
	}
}

// share is told what all replicas have seen, which holds until a time.
func (c *core) share(now time.Duration, sum *Counts, until time.Duration) {
	c.sum, c.sumUntil = *sum, until
	if c.state != Open && !c.forced && now >= c.fresh {
		c.observe(now, Shared, Outcome{})
	}
}

// why is never empty: a log that says nothing would have people look for a fault.
func (s *Setting) why() string {
	switch {
	case s.Reason != "":
		return s.Reason
	case s.By != "":
		return "set by " + s.By
	default:
		return "set for all replicas"
	}
}

// follow is told what the cluster has decided.
func (c *core) follow(now time.Duration, s *Setting) {
	c.forced = s.Forced
	until := now + max(s.Remaining, 0)
	switch {
	case s.State == HalfOpen && s.Share > 0:
		if c.state != HalfOpen {
			c.enter(now, HalfOpen, s.why())
		}
		c.stage.reach(now, s.Share, c.opts.Ramp)
		c.permit = permit{serial: c.permit.serial}
	case s.State == Open && !s.Forced && c.state == HalfOpen && c.stage.share == 0 && until <= now:
		// Its time was over here as well.
	case s.State != c.state, s.State == HalfOpen && c.stage.share > 0:
		c.enter(now, s.State, s.why())
	case s.Forced:
		c.why, c.cause = s.why(), nil
	}
	if s.State == Open {
		c.until = until
	}
}

// reach makes the stage one of a share that was decided elsewhere.
func (s *stage) reach(now time.Duration, share float64, ramp []float64) {
	if share == s.share {
		return
	}
	*s = stage{share: min(share, 1), since: now}
	for s.number < len(ramp) && ramp[s.number] <= share {
		s.number++
	}
	s.number = max(s.number, 1)
}

// setting is the core's state as others may follow it.
func (c *core) setting(now time.Duration) Setting {
	s := Setting{State: c.state, Share: c.stage.share, Reason: c.why, Forced: c.forced}
	if c.state == Open {
		s.Wait = max(c.until-now, 0)
	}
	return s
}
