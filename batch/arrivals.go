package batch

import (
	"math/bits"
	"time"
)

// Arrivals learns how long the gaps between requests are. The zero value knows
// nothing. Its methods take times as durations since any fixed epoch, never
// decreasing, and must not be called at the same time.
type Arrivals struct {
	// weights is the histogram of the gaps, the older the lighter. Bucket 0
	// holds gaps below 1.024 µs, bucket i those up to 2^i times that, the last
	// one all above: those are never worth a wait.
	weights [gapBuckets]float64
	mean    float64 // of the gaps, in ns, moving, without their longest tails
	last    time.Duration
	seen    int
}

const (
	gapBuckets = 25 // up to 1.024 µs · 2^23 = 8.6 s, and all above
	gapUnit    = 10 // bits: 1.024 µs
	// A gap loses 1/32 of its weight with each newer one: some 32 gaps count.
	// Half or twice as many change the means of the table "window" by less than
	// one percent.
	gapDecay = 1 - 1.0/32
	// doubt is the weight of an arrival that never comes: as much as the last
	// four gaps. A window must promise enough to be opened on few or on
	// contradictory gaps, and the largest of many noisy promises is too large.
	doubt = 4.0
	// meanShare is the weight of a new gap in the mean, meanCap how many times
	// the mean a gap counts at most there: one idle hour is one gap, not a rate.
	meanShare = 1.0 / 16
	meanCap   = 8
)

// Observe notes a request that arrived at the time now.
func (a *Arrivals) Observe(now time.Duration) {
	gap := max(now-a.last, 0)
	a.last = now
	a.seen++
	switch a.seen {
	case 1:
		return
	case 2:
		a.mean = float64(gap)
	default:
		a.mean += meanShare * (min(float64(gap), meanCap*max(a.mean, 1)) - a.mean)
	}
	for i := range a.weights {
		a.weights[i] *= gapDecay
	}
	a.weights[gapBucket(gap)]++
}

// Rate returns the requests per second that the recent gaps and the present one
// speak for, 0 if there were fewer than two requests.
func (a *Arrivals) Rate(now time.Duration) float64 {
	if a.seen < 2 {
		return 0
	}
	gap := a.mean
	if open := float64(now - a.last); open > gap {
		gap += meanShare * (open - gap)
	}
	return float64(time.Second) / max(gap, 1)
}

func gapBucket(gap time.Duration) int {
	return min(bits.Len64(uint64(gap)>>gapUnit), gapBuckets-1)
}

// bucketBounds returns the shortest gap of bucket i and that of bucket i+1.
func bucketBounds(i int) (from, to float64) {
	if i == 0 {
		return 0, 1 << gapUnit
	}
	return float64(uint64(1) << (gapUnit + i - 1)), float64(uint64(1) << (gapUnit + i))
}

// window returns the u that maximises V(u) in the comment on [Window], 0 if no
// V is positive: an arrival after g gains saving − delayed·g, in ns, and giving
// up after u costs waiting·u. Inside a bucket gaps are taken as equally likely,
// so V is looked at where buckets end.
func (a *Arrivals) window(now time.Duration, waiting, delayed, saving float64) time.Duration {
	age := max(now-a.last, 0)
	first := gapBucket(age)
	left := doubt // weight of the gaps longer than the window
	for i := first; i < gapBuckets; i++ {
		left += a.remaining(i, age)
	}
	var best, end, gained float64
	for i := first; i < gapBuckets-1; i++ {
		from, to := bucketBounds(i)
		from, to = max(from-float64(age), 0), to-float64(age)
		weight := a.remaining(i, age)
		left -= weight
		gained += weight * (saving - delayed*(from+to)/2)
		if v := gained - left*waiting*to; v > best {
			best, end = v, to
		}
		if to > saving {
			break // from here on every arrival costs more than it saves
		}
	}
	return time.Duration(end)
}

// remaining returns the weight of the gaps in bucket i that are longer than age.
func (a *Arrivals) remaining(i int, age time.Duration) float64 {
	from, to := bucketBounds(i)
	if float64(age) <= from || i == gapBuckets-1 {
		return a.weights[i]
	}
	return a.weights[i] * max(to-float64(age), 0) / (to - from)
}

// followers returns how many requests are expected within span ns after an
// arrival. If a share p of the gaps is shorter than span and these last μ on
// average, it is p / (1 − p + p·μ/span): p/(1−p) for short volleys, the rate
// times span for steady arrivals over a long span.
func (a *Arrivals) followers(span float64) float64 {
	var all, within, sum float64
	for i, weight := range a.weights {
		all += weight
		from, to := bucketBounds(i)
		if i == gapBuckets-1 || from >= span {
			continue
		}
		if to > span {
			weight *= (span - from) / (to - from)
			to = span
		}
		within += weight
		sum += weight * (from + to) / 2
	}
	if within == 0 {
		return 0
	}
	return within / (all - within + sum/span)
}
