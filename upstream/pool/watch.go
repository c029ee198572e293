package pool

import (
	"context"
	"log/slog"
	"time"
)

// watch polls loads and probes servers until ctx ends.
func (p *Pool) watch(ctx context.Context) {
	ticker := time.NewTicker(min(p.opts.Poll, p.opts.Probe))
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

// look asks each server what is due. One that does not answer keeps nobody else
// waiting, and is not asked again meanwhile.
func (p *Pool) look(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.members {
		if m.Metrics != nil && !m.polling && m.gauge.age() >= p.opts.Poll {
			m.polling = true
			p.tasks.Go(func() { p.poll(ctx, m) })
		}
		if m.Probe != nil && !m.probing && time.Since(m.probed) >= p.opts.Probe {
			m.probing, m.probed = true, time.Now()
			p.tasks.Go(func() { p.probe(ctx, m) })
		}
	}
}

func (p *Pool) poll(ctx context.Context, m *member) {
	limited, cancel := context.WithTimeout(ctx, max(p.opts.Stale, p.opts.Poll))
	defer cancel()
	load, err := m.Metrics(limited)
	p.mu.Lock()
	defer p.mu.Unlock()
	m.polling = false
	if err == nil { // what fails grows old, and is then not believed
		m.gauge.Report(load)
	}
}

func (p *Pool) probe(ctx context.Context, m *member) {
	limited, cancel := context.WithTimeout(ctx, p.opts.Probe)
	defer cancel()
	err := m.Probe(limited)
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
			p.opts.Logger.Info("pool: a server is back", slog.String("server", m.Name))
		}
		return
	}
	if m.failures++; m.failures >= p.opts.Failures && !m.down {
		m.down = true
		p.opts.Logger.Warn("pool: a server does not answer probes", slog.String("server", m.Name), slog.Any("error", err))
	}
}
