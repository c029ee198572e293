package pool

import (
	"cmp"
	"hash/fnv"
	"math"
	"slices"

	"github.com/intelliparadigm/haiku/internal/splitmix"
)

// candidate is what is known of a server when a request is placed.
type candidate struct {
	name     string
	weight   float64 // of its full power, above 0: less while it starts slowly
	inFlight int     // requests of this process
	fresh    bool    // whether the load below was told just now
	load     Load
	mine     int // requests of this process when it was told
}

// waiting is about how many requests the server has to share itself among: what it
// told, and what this process has sent it since.
func (c *candidate) waiting() float64 {
	n := c.inFlight
	if c.fresh {
		n = max(n, c.load.Queued+c.load.Running+max(c.inFlight-c.mine, 0))
	}
	return float64(n)
}

// From where on a server counts as saturated: it is passed by while others are
// not. The figures are those of llm-d's scheduler.
const (
	saturatedQueue = 5
	saturatedKV    = 0.8
)

func (c *candidate) saturated() bool {
	return c.fresh && (c.load.Queued >= saturatedQueue || c.load.KV >= saturatedKV)
}

// nearness says how soon a server can use an adapter, from 1 for at once.
func (c *candidate) nearness(adapter string) float64 {
	switch place := c.load.Adapters[adapter]; {
	case adapter == "" || !c.fresh || c.load.Adapters == nil && !c.load.AdapterRoom:
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

// boundFactor is how much more than its share of the load a server may have
// before requests that belong to it go elsewhere.
const boundFactor = 1.25

// pick orders servers for a request: the first is where it goes, the others are
// for when that refuses. Of servers that are not saturated, and have its adapter
// or can have it soonest, it is the one to which affinity points (rendezvous
// hashing with bounded loads after Mirrokni, Thorup, Zadimoghaddam 2016): the
// first in an order that depends on affinity and names alone whose load is within
// its bound. Without affinity it is the one with the least load.
func pick(all []candidate, affinity uint64, adapter string) []int {
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := &all[a], &all[b]
		return cmp.Or(
			boolCompare(x.saturated(), y.saturated()),
			cmp.Compare(y.nearness(adapter), x.nearness(adapter)),
			cmp.Compare(x.waiting()/x.weight, y.waiting()/y.weight),
			cmp.Compare(x.name, y.name),
		)
	})
	if affinity != 0 {
		preferAffinity(all, order, affinity, adapter)
	}
	return order
}

// preferAffinity moves the server to which affinity points to the front, if it is
// one of the best of the order in all but load.
func preferAffinity(all []candidate, order []int, affinity uint64, adapter string) {
	best := &all[order[0]]
	peers := 1
	for peers < len(order) {
		c := &all[order[peers]]
		if c.saturated() != best.saturated() || c.nearness(adapter) != best.nearness(adapter) {
			break
		}
		peers++
	}
	var load, power float64
	for _, i := range order[:peers] {
		load += all[i].waiting()
		power += all[i].weight
	}
	chosen, highest := -1, math.Inf(-1)
	for at, i := range order[:peers] {
		c := &all[i]
		bound := math.Ceil(boundFactor*(load+1)*c.weight/power - 1e-9)
		if s := score(affinity, c); c.waiting()+1 <= bound && s > highest {
			chosen, highest = at, s
		}
	}
	if chosen > 0 {
		i := order[chosen]
		copy(order[1:chosen+1], order[:chosen])
		order[0] = i
	}
}

// score is a server's place in the order of an affinity: a hash of both. It does
// not depend on the other servers, so that one that comes or goes moves only what
// belongs to it.
func score(affinity uint64, c *candidate) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(c.name))
	return float64(splitmix.Mix(h.Sum64() ^ affinity))
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}
