package pool

import (
	"cmp"
	"time"

	"github.com/intelliparadigm/haiku/fallback"
)

// chain is a chain of one server: what judges its streams, with their timers, is
// fallback's.
func (o *Options) chain(e *Endpoint) (*fallback.Chain, error) {
	return fallback.Options{Breaker: o.breaker(), Stall: o.Stall, Names: []string{e.Name}}.New(e.Model)
}

// breaker is what the servers' breakers are like.
func (o *Options) breaker() fallback.BreakerOptions {
	b := o.Breaker
	b.OpenFor = cmp.Or(b.OpenFor, 30*time.Second)
	b.Ramp = []float64{1} // the slow start is the pool's
	if b.Limits == (fallback.Limits{}) {
		b.Limits = fallback.Limits{FirstToken: -1, Gap: -1}
		if b.Policies == nil {
			// A server that rejects is busy, and passed by as such: when all are, to
			// take some away would make it worse.
			b.Policies = []fallback.Policy{fallback.ErrorRate{Rejected: 2}, fallback.Consecutive{}}
		}
	}
	if b.Logger == nil {
		b.Logger = o.Logger
	}
	return b
}

// up returns the servers that requests may go to, and looks at their breakers. One
// that an operator leaves alone is none of them.
func (p *Pool) up() (up []*member) {
	for _, m := range p.members {
		m.health = m.breaker.Status()
		if !m.down && !m.draining && !m.held() {
			up = append(up, m)
		}
	}
	return up
}

// judge brings up to date which of the servers that are up are ejected: as many as
// may be at once, the first ones first. One that has answered a probe well comes
// back, and starts slowly.
func (p *Pool) judge(up []*member) {
	room := max(1, int(p.opts.MaxEjected*float64(len(up))))
	for _, m := range up {
		if m.ejected && !m.sick() {
			m.ejected, m.joined = false, time.Now()
		}
		if m.ejected {
			room--
		}
	}
	for _, m := range up {
		if !m.ejected && m.sick() && room > 0 {
			m.ejected = true
			room--
		}
	}
}

// sick reports whether its breaker leaves the server alone, until a probe was good.
func (m *member) sick() bool {
	return m.health.State == fallback.Open || m.health.State == fallback.HalfOpen && m.health.Share == 0
}

// held reports whether an operator has said that the server is to be left alone.
func (m *member) held() bool { return m.health.Forced && m.health.State == fallback.Open }
