package pool

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/intelliparadigm/haiku/upstream"
)

// Load is how busy a server says it is.
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
// [Gauge.Report]. A figure that it did not tell is 0.
func Told(l upstream.Load) Load {
	told := func(f float64) float64 {
		if !(f > 0) { // NaN is not told
			return 0
		}
		return min(f, 1<<30)
	}
	return Load{Queued: int(told(l.Queued)), Running: int(told(l.Running)), KV: min(told(l.KVUse), 1)}
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

// Gauge holds the load that a server told last. It may be used concurrently.
type Gauge struct {
	mu   sync.Mutex
	load Load
	at   time.Time
	mine int // requests of this process that were there then
	own  *atomic.Int64
}

// follow has reports note how many requests of this process are there.
func (g *Gauge) follow(own *atomic.Int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.own = own
}

// Report notes the present load. Its argument is not kept.
func (g *Gauge) Report(l Load) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l.Adapters = maps.Clone(l.Adapters)
	g.load, g.at = l, time.Now()
	if g.own != nil {
		g.mine = int(g.own.Load())
	}
}

// read returns what was told last, and how many requests of this process were
// there then; false if it is older than stale.
func (g *Gauge) read(stale time.Duration) (l Load, mine int, fresh bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.load, g.mine, !g.at.IsZero() && time.Since(g.at) <= stale
}

// age is how long ago the last report came; a very long time if none has.
func (g *Gauge) age() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.at.IsZero() {
		return 1<<63 - 1
	}
	return time.Since(g.at)
}
