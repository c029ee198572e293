package pool

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/intelliparadigm/haiku"
)

// watch polls loads and probes servers until ctx ends.
func (p *Pool) watch(ctx context.Context) {
	ticker := time.NewTicker(p.tick())
	defer ticker.Stop()
	for {
		p.look(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (p *Pool) tick() time.Duration { return min(p.opts.Poll, p.opts.Probe) }

// look asks each server what is due. One that does not answer keeps nobody else
// waiting, and is not asked again meanwhile.
func (p *Pool) look(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	due := func(age, every time.Duration) bool { return age >= every-p.tick()/4 } // at the nearest tick
	for _, m := range p.members {
		if m.Metrics != nil && !m.polling && due(now.Sub(m.polled), p.opts.Poll) && due(m.gauge.age(), p.opts.Poll) {
			m.polling, m.polled = true, now
			p.tasks.Go(func() { p.poll(ctx, m) })
		}
		if m.Probe != nil && !m.probing && due(now.Sub(m.probed), p.opts.Probe) {
			m.probing, m.probed = true, now
			p.tasks.Go(func() { p.probe(ctx, m) })
		}
	}
}

// safely calls a function of the host's. What it panics with is an error.
func safely(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &haiku.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}

func (p *Pool) poll(ctx context.Context, m *member) {
	limited, cancel := context.WithTimeout(ctx, max(p.opts.Stale, p.opts.Poll))
	defer cancel()
	var load Load
	begun := time.Now()
	err := safely(func() (err error) {
		load, err = m.Metrics(limited)
		return err
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	m.polling = false
	if err == nil { // what fails grows old, and is then not believed
		m.gauge.report(load, begun) // or later: it is at most so old
	}
}

func (p *Pool) probe(ctx context.Context, m *member) {
	limited, cancel := context.WithTimeout(ctx, p.opts.Probe)
	defer cancel()
	err := safely(func() error { return m.Probe(limited) })
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m.probing = false
	if err == nil {
		m.failures = 0
		if m.down {
			m.down, m.joined = false, time.Now()
			p.opts.Logger.Info("pool: a server is back", slog.String("server", m.breaker.Name()))
		}
		return
	}
	if m.failures++; m.failures >= p.opts.Failures && !m.down {
		m.down = true
		p.opts.Logger.Warn("pool: a server does not answer probes", slog.String("server", m.breaker.Name()), slog.Any("error", err))
	}
}
