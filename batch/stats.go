package batch

import (
	"slices"
	"time"
)

// counters are what happened so far, guarded by the batcher's lock.
type counters struct {
	batches, items                        uint64
	rejected, expired, delayed, cancelled uint64
	sizes                                 []uint64
}

// Stats is a snapshot of a [DynamicBatcher]. Counts are since its beginning.
type Stats struct {
	Queued  []int  // requests that wait now, by priority level
	Running int    // calls in progress now
	Batches uint64 // batches started
	Items   uint64 // requests in them
	// Sizes[n] is how many batches of n requests were started.
	Sizes []uint64

	Rejected  uint64 // refused by a full queue
	Expired   uint64 // rejected by a queue timeout
	Delayed   uint64 // put back by a queue timeout
	Cancelled uint64 // left by the end of their context, waiting or running

	ArrivalsPerSecond float64       // as learned from recent gaps
	PerItem           time.Duration // a of the learned a·n + b
	PerBatch          time.Duration // b of it
}

// MeanSize returns the requests per batch, 0 before the first.
func (s Stats) MeanSize() float64 {
	if s.Batches == 0 {
		return 0
	}
	return float64(s.Items) / float64(s.Batches)
}

// Stats returns a snapshot.
func (b *DynamicBatcher[Req, Resp]) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := Stats{
		Running: b.options.Workers - len(b.idle),
		Batches: b.count.batches, Items: b.count.items, Sizes: slices.Clone(b.count.sizes),
		Rejected: b.count.rejected, Expired: b.count.expired, Delayed: b.count.delayed, Cancelled: b.count.cancelled,
		ArrivalsPerSecond: b.arrivals.Rate(b.now()),
		PerItem:           b.cost.PerItem(), PerBatch: b.cost.PerBatch(),
	}
	for i := range b.queue.levels {
		s.Queued = append(s.Queued, b.queue.levels[i].size)
	}
	return s
}
