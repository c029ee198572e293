//go:build unix

package main

import (
	"math"
	"slices"
	"time"

	"github.com/intelliparadigm/haiku/batch"
)

// line is what a batch costs: perItem·n + perBatch.
type line struct{ perItem, perBatch time.Duration }

func (l line) of(size int) time.Duration { return time.Duration(size)*l.perItem + l.perBatch }

// capacity returns the items per second of one worker with full batches.
func (l line) capacity(size int) float64 { return float64(size) / l.of(size).Seconds() }

// started is one batch of a schedule: items[first:first+size].
type started struct {
	at          time.Duration
	first, size int
}

// simulate runs one worker under the rule of a window in virtual time. The rule
// learns from what it sees, from nothing on, as in a batch.DynamicBatcher. The
// batches are returned in order.
func simulate(arrivals []time.Duration, cost line, w batch.Window) []started {
	var (
		batches  []started
		learned  batch.Arrivals
		price    batch.Cost
		came     int // arrivals so far
		gone     int // of these, in a batch
		free     time.Duration
		busy     bool
		deadline = time.Duration(math.MaxInt64) // end of the open window
	)
	for gone < len(arrivals) {
		now := deadline
		if busy {
			now = free
		}
		if came < len(arrivals) && arrivals[came] <= now {
			now = arrivals[came]
			learned.Observe(now)
			came++
		} else if busy {
			busy = false
			last := batches[len(batches)-1]
			price.Observe(last.size, cost.of(last.size))
		}
		deadline = math.MaxInt64
		if busy || came == gone {
			continue
		}
		d := w.Decide(now, batch.State{
			Waiting: came - gone, IdleWorkers: 1, Oldest: arrivals[gone], Arrivals: &learned, Cost: &price,
		})
		if d.Size == 0 {
			deadline = d.Until
			continue
		}
		batches = append(batches, started{now, gone, d.Size})
		gone += d.Size
		busy, free = true, now+cost.of(d.Size)
	}
	return batches
}

// threshold runs one worker that waits for at least that many items, however
// long it takes. Chosen in hindsight, it is the best that a rule for Poisson
// arrivals could do which knows their rate, and the cost, but not their times.
func threshold(arrivals []time.Duration, cost line, least, most int) []started {
	var batches []started
	var free time.Duration
	for first := 0; first < len(arrivals); {
		at := max(free, arrivals[min(first+least, len(arrivals))-1])
		size := 1
		for size < most && first+size < len(arrivals) && arrivals[first+size] <= at {
			size++
		}
		batches = append(batches, started{at, first, size})
		first += size
		free = at + cost.of(size)
	}
	return batches
}

// latencies returns how long each item took from arrival to the end of its batch.
func latencies(arrivals []time.Duration, cost line, batches []started) []time.Duration {
	out := make([]time.Duration, 0, len(arrivals))
	for _, b := range batches {
		for _, arrived := range arrivals[b.first : b.first+b.size] {
			out = append(out, b.at+cost.of(b.size)-arrived)
		}
	}
	return out
}

func mean(values []time.Duration) time.Duration {
	var sum time.Duration
	for _, v := range values {
		sum += v
	}
	return sum / time.Duration(len(values))
}

func percentile(values []time.Duration, share float64) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}

// plan is a way to have served the first items: the worker is free at free, and
// their latencies add up to sum.
type plan struct{ free, sum time.Duration }

// oracle returns the least mean latency that one worker can reach who knows all
// arrivals beforehand. Items are alike, so some best schedule serves them in
// order, each batch as soon as the worker is free and its last item is there;
// for each number of served items the plans are kept that no other beats both
// in time and in sum.
func oracle(arrivals []time.Duration, cost line, most int) time.Duration {
	came := make([]time.Duration, len(arrivals)+1) // sums
	for i, at := range arrivals {
		came[i+1] = came[i] + at
	}
	plans := make([][]plan, len(arrivals)+1)
	plans[0] = []plan{{}}
	for served := range arrivals {
		kept := undominated(plans[served], arrivals[served])
		plans[served] = nil
		for size := 1; size <= min(most, len(arrivals)-served); size++ {
			last := arrivals[served+size-1]
			for _, p := range kept {
				end := max(p.free, last) + cost.of(size)
				waited := time.Duration(size)*end - (came[served+size] - came[served])
				plans[served+size] = append(plans[served+size], plan{end, p.sum + waited})
			}
		}
	}
	best := slices.MinFunc(plans[len(arrivals)], func(a, b plan) int { return int(a.sum - b.sum) })
	return best.sum / time.Duration(len(arrivals))
}

// undominated keeps the plans that may still become the best. Being free before
// the next arrival is worth no more than being free just then.
func undominated(plans []plan, next time.Duration) []plan {
	slices.SortFunc(plans, func(a, b plan) int {
		if af, bf := max(a.free, next), max(b.free, next); af != bf {
			return int(af - bf)
		}
		return int(a.sum - b.sum)
	})
	kept := plans[:0]
	for _, p := range plans {
		if len(kept) == 0 || p.sum < kept[len(kept)-1].sum {
			kept = append(kept, p)
		}
	}
	return kept
}
