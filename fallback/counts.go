package fallback

import (
	"math/bits"
	"time"
)

// Total is how many attempts they count.
func (c *Counts) Total() int64 { return c.OK + c.Slow + c.Failed + c.Rejected }

// Add counts d too.
func (c *Counts) Add(d *Counts) { c.plus(d, 1) }

func (c *Counts) plus(d *Counts, sign int64) {
	c.OK += sign * d.OK
	c.Slow += sign * d.Slow
	c.Failed += sign * d.Failed
	c.Rejected += sign * d.Rejected
	for i, n := range d.FirstToken {
		c.FirstToken[i] += sign * n
	}
}

// FirstTokenWithin is a time within which the first token came in the given
// share of attempts that had one, from 0 to 1: the upper bound of the
// histogram's bucket that holds it. It is 0 if there was none, and negative if
// all that is known is that it took longer than the last bound.
func (c *Counts) FirstTokenWithin(share float64) time.Duration {
	var all int64
	for _, n := range c.FirstToken {
		all += n
	}
	if all == 0 {
		return 0
	}
	var seen int64
	for i, n := range c.FirstToken[:len(c.FirstToken)-1] {
		if seen += n; seen > 0 && float64(seen) >= share*float64(all) {
			return time.Millisecond << i
		}
	}
	return -1
}

// count adds one attempt.
func (c *Counts) count(o *Outcome) {
	switch o.Class {
	case OK:
		c.OK++
	case Slow:
		c.Slow++
	case Failed:
		c.Failed++
	case Rejected:
		c.Rejected++
	default:
		return
	}
	if o.FirstToken > 0 {
		c.FirstToken[bucketOf(o.FirstToken)]++
	}
}

// bucketOf is the place in Counts.FirstToken of a time.
func bucketOf(d time.Duration) int {
	return min(bits.Len64(uint64(d/time.Millisecond)), len(Counts{}.FirstToken)-1)
}

// windowParts is in how many steps a window moves.
const windowParts = 10

// window holds what was counted in the last span of time, in parts of which the
// oldest goes as a whole. Times are since any fixed moment and never run back.
type window struct {
	part  time.Duration
	last  int64 // number of the newest part
	parts [windowParts]Counts
	sum   Counts
}

func newWindow(span time.Duration) window { return window{part: max(span/windowParts, 1)} }

// at moves the window to a time and returns the newest part.
func (w *window) at(now time.Duration) *Counts {
	number := int64(now / w.part)
	if number-w.last >= windowParts {
		w.last = number
		w.reset()
	}
	for w.last < number {
		w.last++
		oldest := &w.parts[w.last%windowParts]
		w.sum.plus(oldest, -1)
		*oldest = Counts{}
	}
	return &w.parts[w.last%windowParts]
}

func (w *window) count(now time.Duration, o *Outcome) {
	w.at(now).count(o)
	w.sum.count(o)
}

// reset forgets all.
func (w *window) reset() {
	w.parts = [windowParts]Counts{}
	w.sum = Counts{}
}
