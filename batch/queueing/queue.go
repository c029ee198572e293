package queueing

import (
	"math"
	"time"
)

// Measure says which time of a request an [SLO] limits.
type Measure int

const (
	// Wait is the time in the queue until service begins.
	Wait Measure = iota
	// Sojourn is the time until service ends, waiting included.
	Sojourn
)

// SLO is an objective: of all requests, at most the share Misses takes longer
// than Within. P(time > Within) ≤ Misses.
type SLO struct {
	// Within is the limit in seconds.
	Within float64
	// Misses is the share of requests that may take longer, in [0, 1]: 0.05
	// makes Within the 95th percentile.
	Misses float64
	// Of is the time meant: the wait, unless set.
	Of Measure
}

// Duration returns seconds as a time.Duration. What is longer than a Duration
// can be, +Inf included, becomes the longest one; negative and NaN become 0.
func Duration(seconds float64) time.Duration {
	switch ns := seconds * float64(time.Second); {
	case ns >= math.MaxInt64:
		return math.MaxInt64
	case ns > 0:
		return time.Duration(ns)
	default:
		return 0
	}
}

// load returns the utilisation at an arrival rate and a capacity per second,
// +Inf if one of them makes no sense.
func load(rate, capacity float64) float64 {
	if !(rate >= 0) || !(capacity > 0) || math.IsInf(rate, 1) || math.IsInf(capacity, 1) {
		return math.Inf(1)
	}
	return rate / capacity
}

// delayed is the wait of an M/M/c queue, and of M/G/1 in its approximation:
// none at all, or with probability share exponential with the given rate, which
// is finite. A queue without a stationary state has rate 0.
type delayed struct {
	share, rate float64
}

func (w delayed) mean() float64 {
	if w.rate <= 0 {
		return math.Inf(1)
	}
	return w.share / w.rate
}

func (w delayed) tail(t float64) float64 {
	if !(t >= 0) || w.rate <= 0 {
		return 1
	}
	return w.share * math.Exp(-w.rate*t)
}

func (w delayed) quantile(share float64) float64 {
	switch {
	case share <= 0:
		return 0
	case !(share < 1) || w.rate <= 0:
		return math.Inf(1)
	}
	return max(0, math.Log(w.share/(1-share))/w.rate)
}

// sumTail returns P(wait + service > t) for a service time that is independent
// of the wait and exponential with rate service:
//
//	e^(−νt) + share·ν·(e^(−νt) − e^(−ηt))/(η−ν),   ν service, η waiting rate
func (w delayed) sumTail(t, service float64) float64 {
	switch {
	case !(t > 0) || w.rate <= 0:
		return 1
	case math.IsInf(t, 1):
		return 0
	case math.IsInf(service, 1): // a mean too small to be told from 0
		return w.tail(t)
	}
	x, d := service*t, (w.rate-service)/service
	alone := math.Exp(-x)
	var extra float64
	switch {
	case alone == 0 && d > -1e-12: // both are gone, and x may have overflown
	case math.Abs(d) < 1e-12: // equal rates: the limit
		extra = x * alone
	case d*x > -1: // expm1 keeps the digits while the rates are close
		extra = -math.Expm1(-d*x) / d * alone
	default:
		extra = (alone - math.Exp(-w.rate*t)) / d
	}
	return min(1, alone+w.share*extra)
}

// quantileOf returns the smallest t with tail(t) ≤ 1−share, for a tail that
// falls to 0; mean is any positive guess of its scale.
func quantileOf(tail func(t float64) float64, share, mean float64) float64 {
	switch {
	case share <= 0:
		return 0
	case !(share < 1) || math.IsInf(mean, 1):
		return math.Inf(1)
	case tail(0) <= 1-share:
		return 0
	}
	hi := mean
	for tail(hi) > 1-share {
		if hi *= 2; math.IsInf(hi, 1) {
			return hi
		}
	}
	return bisect(0, hi, func(t float64) bool { return tail(t) > 1-share })
}

// largestRate returns the largest arrival rate up to capacity at which tail, a
// function that grows with the rate, keeps the objective: 0 if none does.
func largestRate(capacity float64, slo SLO, tail func(rate float64) float64) float64 {
	if math.IsInf(load(0, capacity), 1) || !(slo.Within >= 0) || !(slo.Misses >= 0) {
		return 0
	}
	if slo.Misses >= 1 {
		return capacity
	}
	missed := func(rate float64) bool { return tail(rate) > slo.Misses }
	if missed(0) {
		return 0
	}
	// The answer must keep the objective, so it is the lower end that counts.
	lo, hi := 0.0, capacity
	for range bisections {
		if mid := lo + (hi-lo)/2; missed(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return lo
}

// bisections halve an interval to the last bits of a float64.
const bisections = 80

// bisect returns where below turns from true to false, from above.
func bisect(lo, hi float64, below func(float64) bool) float64 {
	for range bisections {
		if mid := lo + (hi-lo)/2; below(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}
