package batch

import (
	"math"
	"time"
)

// Cost learns how long a call takes: about a·n + b for n requests. It is the
// least-squares line through the recent calls, each of which weighs 31/32 of the
// one after it, kept as weighted moments, so that neither a matrix nor the calls
// are stored. The zero value knows nothing. Methods must not be called at the
// same time.
//
// Neither a nor b is ever negative. As long as all calls had the same size the
// line is not determined: the slope stays what it was, at first all of the time
// per request, so that the window waits for no saving that was not seen.
type Cost struct {
	weight           float64
	size, took       float64 // weighted means
	sizeSize, sizeIn float64 // weighted sums of (n−n̄)² and (n−n̄)(d−d̄)
	slope, fixed     float64 // ns per request, ns per call
	spread           float64 // mean distance of a call from the line, ns
	known            bool    // the slope was seen, not assumed
}

const (
	costDecay = 1 - 1.0/32
	// minVariance is the variance of the sizes below which they count as equal.
	minVariance = 1.0 / 64
	// tookCap is how many times the expected duration a call counts at most: a
	// pause of the machine is not a price.
	tookCap   = 4
	settled   = 8 // calls before that holds
	spreadCap = 3 // AtMost adds this many times the spread
)

// Observe notes a call with size requests that took that long.
func (c *Cost) Observe(size int, took time.Duration) {
	n, d := float64(size), math.Max(float64(took), 0)
	if expected := c.slope*n + c.fixed; c.weight > settled && expected > 0 {
		d = math.Min(d, tookCap*expected)
	}
	if c.weight > 0 {
		c.spread += (math.Abs(d-c.slope*n-c.fixed) - c.spread) * (1 - costDecay)
	}
	c.accumulate(n, d)
	c.fit()
}

// accumulate moves the weighted moments to a new point.
func (c *Cost) accumulate(n, d float64) {
	c.weight = c.weight*costDecay + 1
	c.sizeSize *= costDecay
	c.sizeIn *= costDecay
	dn, dd := n-c.size, d-c.took
	c.size += dn / c.weight
	c.took += dd / c.weight
	c.sizeSize += dn * (n - c.size)
	c.sizeIn += dn * (d - c.took)
}

func (c *Cost) fit() {
	switch {
	case c.sizeSize > minVariance*c.weight:
		c.slope, c.known = c.sizeIn/c.sizeSize, true
	case !c.known:
		c.slope = c.took / c.size
	}
	// The line goes through the means, and crosses neither axis below zero.
	c.slope = math.Min(math.Max(c.slope, 0), c.took/c.size)
	c.fixed = c.took - c.slope*c.size
}

// affine returns a and b in ns.
func (c *Cost) affine() (perItem, perBatch float64) { return c.slope, c.fixed }

// PerItem returns a, the time that one more request adds to a call.
func (c *Cost) PerItem() time.Duration { return time.Duration(c.slope) }

// PerBatch returns b, the time of a call that does not depend on its size.
func (c *Cost) PerBatch() time.Duration { return time.Duration(c.fixed) }

// Predict returns the expected time of a call with size requests.
func (c *Cost) Predict(size int) time.Duration {
	return time.Duration(c.slope*float64(size) + c.fixed)
}

// AtMost returns a time within which a call with size requests usually ends:
// the expected one and three times the mean deviation of the recent ones.
func (c *Cost) AtMost(size int) time.Duration {
	return c.Predict(size) + time.Duration(spreadCap*c.spread) + 1
}
