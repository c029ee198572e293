//go:build unix

package main

import (
	"math"
	"slices"
	"time"
)

// lifePolicy is a rule for how long entries of a cache live, and for when they
// are computed anew.
type lifePolicy struct {
	name, short string
	// apart has each tier draw a life of its own and look at no other. An answer
	// that is gone leaves a question behind that leads nowhere.
	apart bool
	// least makes an entry visible as long as all of its tiers have it, each with
	// a life of its own.
	least bool
	// refresh is the last share of a life in which a hit has the answer computed
	// anew; hits of other phrasings do so only with similar.
	refresh float64
	similar bool
	// early moves the beginning of that share at random, to the earlier, and the
	// end of no life.
	early bool
	// join has a question wait for one under way that is similar.
	join bool
}

// lifeTiers are those that may draw a life: outputs, vectors and routes.
const lifeTiers = 3

const (
	outputTier = iota
	vectorTier
	routeTier
)

// ask is one request.
type ask struct {
	at            time.Duration // since the beginning
	group, phrase int
	// draws are where in the span of jitter, from -1 to 1, the lives lie of what
	// this request has computed.
	draws [lifeTiers]float64
}

// lifeRun is a cache in virtual time: which entries its tiers find and when
// those end, and nothing else of it.
type lifeRun struct {
	lifePolicy
	ttl       time.Duration
	jitter    float64       // the largest share by which a life is longer or shorter
	takes     time.Duration // a generation
	threshold float64       // of similarity
}

// lifeOutcome is what became of requests.
type lifeOutcome struct {
	asks, exact, similar, misses int
	// dangling misses were led by a tier to what another did not have any more.
	dangling    int
	generations []time.Duration // when each began
}

// kept is the entry of one phrasing.
type kept struct {
	ends   [lifeTiers]time.Duration
	renews time.Duration // from when on a hit has it computed anew
	// ready is when the generation is done that is under way for it, and draws is
	// what its lives will be.
	ready time.Duration
	draws [lifeTiers]float64
}

const never = time.Duration(math.MinInt64)

// run serves the requests for one group, in order of time, and counts those
// from a time on. All generations are told.
func (run lifeRun) run(texts phrasings, asks []ask, from time.Duration) (o lifeOutcome) {
	entries := make([]kept, len(texts.similarity))
	for i := range entries {
		entries[i] = kept{ends: [lifeTiers]time.Duration{never, never, never}, ready: never}
	}
	for _, a := range asks {
		for i := range entries {
			if e := &entries[i]; e.ready != never && e.ready <= a.at {
				run.land(e)
			}
		}
		similarity := texts.similarity[a.phrase]
		found, dangling := run.find(entries, similarity, a)
		begins := -1
		switch {
		case found < 0 && !(run.join && run.underway(entries, similarity)):
			begins = a.phrase
		case found >= 0 && run.refresh > 0 && (found == a.phrase || run.similar) && a.at >= entries[found].renews:
			begins = found
		}
		if begins >= 0 && entries[begins].ready == never {
			entries[begins].ready, entries[begins].draws = a.at+run.takes, a.draws
			o.generations = append(o.generations, a.at)
		}
		if a.at >= from {
			o.count(found, a.phrase, dangling)
		}
	}
	return o
}

func (o *lifeOutcome) count(found, asked int, dangling bool) {
	o.asks++
	switch {
	case found == asked:
		o.exact++
	case found >= 0:
		o.similar++
	default:
		o.misses++
	}
	if dangling {
		o.dangling++
	}
}

// land writes what has been generated.
func (run lifeRun) land(e *kept) {
	var lives [lifeTiers]time.Duration
	for i := range lives {
		draw := e.draws[i]
		switch {
		case run.early:
			draw = 0
		case run.least:
			draw = slices.Min(e.draws[:])
		case !run.apart:
			draw = e.draws[0]
		}
		lives[i] = run.ttl + time.Duration(draw*run.jitter*float64(run.ttl))
	}
	renews := time.Duration((1 - run.refresh) * float64(lives[0]))
	if run.early {
		renews -= time.Duration(run.jitter * (1 + e.draws[0]) * float64(run.ttl))
	}
	born := e.ready
	for i, life := range lives {
		e.ends[i] = born + life
	}
	e.renews, e.ready = born+renews, never
}

// find returns the phrasing whose answer is served, -1 for none. A question is
// found by itself in the output tier, or by the nearest in the vector tier, which
// leads to a route and an answer.
func (run lifeRun) find(entries []kept, similarity []float64, a ask) (found int, dangling bool) {
	if a.at < entries[a.phrase].ends[outputTier] {
		return a.phrase, false
	}
	found = -1
	for i := range entries {
		if a.at < entries[i].ends[vectorTier] && similarity[i] >= run.threshold && (found < 0 || similarity[i] > similarity[found]) {
			found = i
		}
	}
	if found >= 0 && (a.at >= entries[found].ends[outputTier] || a.at >= entries[found].ends[routeTier]) {
		return -1, true
	}
	return found, false
}

// underway reports whether a similar question is being answered.
func (run lifeRun) underway(entries []kept, similarity []float64) bool {
	for i := range entries {
		if entries[i].ready != never && similarity[i] >= run.threshold {
			return true
		}
	}
	return false
}

// runAll serves the requests of all groups, which never meet.
func (run lifeRun) runAll(groups []phrasings, asks []ask, from time.Duration) (sum lifeOutcome) {
	parts := make([][]ask, len(groups))
	for _, a := range asks {
		parts[a.group] = append(parts[a.group], a)
	}
	for i, part := range parts {
		o := run.run(groups[i], part, from)
		sum.asks += o.asks
		sum.exact += o.exact
		sum.similar += o.similar
		sum.misses += o.misses
		sum.dangling += o.dangling
		sum.generations = append(sum.generations, o.generations...)
	}
	slices.Sort(sum.generations)
	return sum
}

// hits is the share of requests that did not have to wait for a generation, in
// percent.
func (o lifeOutcome) hits() float64 { return share(o.exact+o.similar, o.asks) }

// cost is how many generations there were for a hundred requests, from a time
// on.
func (o lifeOutcome) cost(from time.Duration) float64 {
	first, _ := slices.BinarySearch(o.generations, from)
	return share(len(o.generations)-first, o.asks)
}

// peak is the largest number of generations that begin within a second, from a
// time on.
func (o lifeOutcome) peak(from time.Duration) (most int) {
	first, _ := slices.BinarySearch(o.generations, from)
	for i := first; i < len(o.generations); i++ {
		for o.generations[first] <= o.generations[i]-time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
