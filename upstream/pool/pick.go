package pool

import (
	"cmp"
	"math"
	"slices"

	"github.com/intelliparadigm/haiku/internal/splitmix"
)

// candidate is what is known of a server when a request is placed.
type candidate struct {
	name     string
	hash     uint64  // of its name
	weight   float64 // of its full power, above 0: less while it starts slowly
	inFlight int     // requests of this process
	fresh    bool    // whether anything below was told just now
	load     Load
	others   int // requests of other processes, by that
}

// From where on a server counts as saturated: it is passed by while others are
// not. The figures are those of llm-d's scheduler.
const (
	saturatedQueue = 5
	saturatedKV    = 0.8
)

func (c *candidate) saturated() bool {
	return c.load.Queued >= saturatedQueue || c.load.KV >= saturatedKV
}

// nearness says how soon a server can use an adapter, from 1 for at once.
func (c *candidate) nearness(adapter string) float64 {
	switch place := c.load.Adapters[adapter]; {
	case adapter == "" || c.load.Adapters == nil && !c.load.AdapterRoom:
		return 0.8 // nothing is known
	case place == Active:
		return 1
	case c.load.AdapterRoom:
		return 0.8
	case place == Waiting:
		return 0.6
	default:
		return 0
	}
}

// requests is how many requests the server has to share itself among. One that
// tells nothing is held to have as many of others as those that tell have on
// average: that it is silent does not make it idle.
func (c *candidate) requests(average int) int {
	if c.fresh {
		return c.inFlight + c.others
	}
	return c.inFlight + average
}

// power is what the server can do, of a whole one: less while it starts slowly,
// and as its memory for keys and values fills.
func (c *candidate) power() float64 { return c.weight * (1 - min(max(c.load.KV, 0), 0.95)) }

// place is a candidate in the order of a request.
type place struct {
	*candidate
	index     int
	saturated bool
	nearness  float64
	requests  int
	cost      float64
}

// tier compares what comes before load.
func (a *place) tier(b *place) int {
	if a.saturated != b.saturated {
		if a.saturated {
			return 1
		}
		return -1
	}
	return cmp.Compare(b.nearness, a.nearness)
}

// boundFactor is how much more than its share of the load a server may have
// before requests that belong to it go elsewhere.
const boundFactor = 1.25

// pick chooses a server for a request. Of those that are not saturated, and have
// its adapter or can have it soonest, it is the one to which affinity points: the
// first, in an order that depends on affinity and names alone, whose load is within
// its bound. Without affinity (0), or without such a one, it is one with little
// load. chance is a random number.
func pick(all []candidate, affinity uint64, adapter string, chance uint64) int {
	order, shared := rank(all, adapter, chance)
	peers := 1
	for peers < len(order) && order[0].tier(&order[peers]) == 0 {
		peers++
	}
	chosen := -1
	if affinity != 0 {
		chosen = belongs(order[:peers], affinity)
	}
	if chosen < 0 {
		chosen = 0
		if shared {
			chosen = ofTwo(peers, chance)
		}
	}
	return order[chosen].index
}

// rank orders servers by all but affinity, and reports whether others send
// requests there too. The request itself counts as a random part of one, so that
// equals take turns, and one that starts slowly among idle ones has its share.
func rank(all []candidate, adapter string, chance uint64) (order []place, shared bool) {
	others, telling := 0, 0
	for i := range all {
		if all[i].fresh {
			others += all[i].others
			telling++
		}
	}
	average := others / max(telling, 1)
	order = make([]place, len(all))
	for i := range all {
		c := &all[i]
		n := c.requests(average)
		part := float64(splitmix.Mix(chance+uint64(i))>>11) / (1 << 53)
		order[i] = place{candidate: c, index: i, saturated: c.saturated(), nearness: c.nearness(adapter), requests: n, cost: (float64(n) + part) / c.power()}
	}
	slices.SortFunc(order, func(a, b place) int { return cmp.Or(a.tier(&b), cmp.Compare(a.cost, b.cost)) })
	return order, others > 0
}

// ofTwo is the better of two servers, drawn from the first n of an order. Where
// others choose by the same figures, all of them would choose the one with the
// least load until the next figures come, and it would have the most; the better
// of two spreads them (Mitzenmacher 2000, "How useful is old information?").
func ofTwo(n int, chance uint64) int {
	if n < 2 {
		return 0
	}
	a := int(splitmix.Mix(^chance) % uint64(n))
	b := int(splitmix.Mix(^chance+1) % uint64(n-1))
	if b >= a {
		b++
	}
	return min(a, b)
}

// belongs returns the place of the server to which affinity points, within bounds
// on loads (Mirrokni, Thorup, Zadimoghaddam 2016); -1 if there is none.
func belongs(peers []place, affinity uint64) int {
	var requests int
	var weights float64
	for i := range peers {
		requests += peers[i].requests
		weights += peers[i].weight
	}
	chosen, highest := -1, math.Inf(-1)
	for i := range peers {
		p := &peers[i]
		bound := math.Ceil(boundFactor*float64(requests+1)*p.weight/weights - 1e-9)
		if s := score(affinity, p.candidate); float64(p.requests)+1 <= bound && s > highest {
			chosen, highest = i, s
		}
	}
	return chosen
}

// score is a server's place in the order of an affinity: weighted rendezvous
// hashing (Schindelhauer, Schomaker 2005). It does not depend on the other
// servers, so that one that comes or goes moves only what belongs to it, and one
// whose weight grows only takes.
func score(affinity uint64, c *candidate) float64 {
	u := (float64(splitmix.Mix(c.hash^affinity)>>12) + 0.5) / (1 << 52) // 0 to 1, and neither
	return -c.weight / math.Log(u)
}
