package pool

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/intelliparadigm/haiku/upstream"
)

// Load is how busy a server says it is. A figure that it does not tell is negative.
type Load struct {
	// Queued requests wait for their turn, Running ones are in its batch.
	Queued, Running int
	// KV is the share of its KV memory in use, 0 to 1.
	KV float64
	// Adapters says how near each adapter is, for servers that tell; nil is
	// unknown.
	Adapters map[string]Adapter
	// AdapterRoom is whether an adapter that is not there could be loaded without
	// another having to go.
	AdapterRoom bool
}

// Told is the load that an engine of package upstream told with an answer, for
// [Gauge.Report].
func Told(l upstream.Load) Load {
	told := func(f float64) float64 {
		if !(f >= 0) { // NaN is not told
			return -1
		}
		return min(f, maxCount)
	}
	return Load{Queued: int(told(l.Queued)), Running: int(told(l.Running)), KV: told(l.KVUse)}
}

// maxCount is more requests than any server has: sums of it do not overflow.
const maxCount = 1 << 30

// sane is the load without figures that nothing can be reckoned with.
func (l Load) sane() Load {
	l.Queued, l.Running = min(max(l.Queued, -1), maxCount), min(max(l.Running, -1), maxCount)
	if l.KV = min(l.KV, 1); !(l.KV >= 0) {
		l.KV = -1
	}
	l.Adapters = maps.Clone(l.Adapters)
	return l
}

// Adapter says where a low-rank adapter is in a server.
type Adapter uint8

// The places of an adapter.
const (
	// Absent adapters have to be loaded first.
	Absent Adapter = iota
	// Waiting ones are asked for by requests that wait.
	Waiting
	// Active ones are in the memory of the device.
	Active
)

// Gauge holds the load that a server told last, each figure with its own age: what
// one source leaves out another may tell. It may be used concurrently.
type Gauge struct {
	mu   sync.Mutex
	load Load
	// When each figure was told, zero for never.
	queued, running, kv, adapters time.Time
	mine                          int // requests of this process that were there when Queued or Running was told
	own                           *atomic.Int64
}

// follow has reports note how many requests of this process are there.
func (g *Gauge) follow(own *atomic.Int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.own = own
}

// Report notes the present load: each figure that is told, while the others stay
// and grow old. Its argument is not kept.
func (g *Gauge) Report(l Load) { g.report(l, time.Now()) }

// report notes the load of a time. What is known of a later one stays.
func (g *Gauge) report(l Load, at time.Time) {
	l = l.sane()
	g.mu.Lock()
	defer g.mu.Unlock()
	note := func(told bool, last *time.Time) bool {
		if !told || at.Before(*last) {
			return false
		}
		*last = at
		return true
	}
	queued, running := note(l.Queued >= 0, &g.queued), note(l.Running >= 0, &g.running)
	if queued {
		g.load.Queued = l.Queued
	}
	if running {
		g.load.Running = l.Running
	}
	if g.own != nil && (queued || running) {
		g.mine = int(g.own.Load())
	}
	if note(l.KV >= 0, &g.kv) {
		g.load.KV = l.KV
	}
	if note(l.Adapters != nil || l.AdapterRoom, &g.adapters) {
		g.load.Adapters, g.load.AdapterRoom = l.Adapters, l.AdapterRoom
	}
}

// read returns what was told within the time stale, and how many requests of
// others are there by that; false if nothing was.
func (g *Gauge) read(stale time.Duration) (l Load, others int, fresh bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	young := func(at time.Time) bool {
		yes := !at.IsZero() && now.Sub(at) <= stale
		fresh = fresh || yes
		return yes
	}
	l = Load{Queued: -1, Running: -1, KV: -1}
	if young(g.queued) {
		l.Queued = g.load.Queued
	}
	if young(g.running) {
		l.Running = g.load.Running
	}
	if young(g.kv) {
		l.KV = g.load.KV
	}
	if young(g.adapters) {
		l.Adapters, l.AdapterRoom = g.load.Adapters, g.load.AdapterRoom
	}
	return l, max(max(l.Queued, 0)+max(l.Running, 0)-g.mine, 0), fresh
}

// age is that of the oldest figure of those that were ever told; a very long time
// if none was.
func (g *Gauge) age() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	oldest := time.Time{}
	for _, at := range [...]time.Time{g.queued, g.running, g.kv, g.adapters} {
		if !at.IsZero() && (oldest.IsZero() || at.Before(oldest)) {
			oldest = at
		}
	}
	if oldest.IsZero() {
		return 1<<63 - 1
	}
	return time.Since(oldest)
}
