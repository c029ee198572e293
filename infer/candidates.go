package infer

import (
	"cmp"
	"math"
	"slices"
)

// candidate is a token that may be drawn, with its share relative to the best.
type candidate struct {
	id    int32
	share float64 // exp((logit-best)/temperature), in (0,1]
}

// before orders candidates: the most probable first, equal ones by id.
func (c candidate) before(d candidate) bool {
	return c.share > d.share || (c.share == d.share && c.id < d.id)
}

// softmax appends all tokens that have a share, in the order of their ids, and
// returns the sum of the shares.
func softmax(dst []candidate, logits []float32, best float32, temperature float64) ([]candidate, float64) {
	sum := 0.0
	for id, l := range logits {
		if share := math.Exp(float64(l-best) / temperature); share > 0 {
			dst = append(dst, candidate{int32(id), share})
			sum += share
		}
	}
	return dst, sum
}

// bestOf returns the k first of cs in no order. It keeps them in a heap with
// the last of them on top, so that most of a large vocabulary costs one
// comparison each.
func bestOf(cs []candidate, k int) []candidate {
	heap := cs[:k]
	sink := func(i int) {
		for {
			last := i
			for child := 2*i + 1; child <= 2*i+2 && child < k; child++ {
				if heap[last].before(heap[child]) {
					last = child
				}
			}
			if last == i {
				return
			}
			heap[i], heap[last] = heap[last], heap[i]
			i = last
		}
	}
	for i := k/2 - 1; i >= 0; i-- {
		sink(i)
	}
	for _, c := range cs[k:] {
		if c.before(heap[0]) {
			heap[0] = c
			sink(0)
		}
	}
	return heap
}

func sortByShare(cs []candidate) {
	slices.SortFunc(cs, func(a, b candidate) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
}

// plausible drops candidates that cannot be needed to reach p of sum: all that
// lie below its bound together have less than 1−p. It keeps the sort of what
// is left short.
func plausible(cs []candidate, p, sum float64) []candidate {
	bound := (1 - p) * sum / float64(len(cs))
	return slices.DeleteFunc(cs, func(c candidate) bool { return c.share < bound && c.share < 1 })
}

// reaching keeps the first candidates whose shares reach enough.
func reaching(cs []candidate, enough float64) []candidate {
	reached := 0.0
	for i, c := range cs {
		if reached += c.share; reached >= enough {
			return cs[:i+1]
		}
	}
	return cs
}

// atLeast keeps candidates with at least p times the share of the best.
func atLeast(cs []candidate, p float64) []candidate {
	best := 0.0
	for _, c := range cs {
		best = max(best, c.share)
	}
	return slices.DeleteFunc(cs, func(c candidate) bool { return c.share < p*best })
}

// typical keeps the candidates that tell about as much as one does on average,
// the nearest to it first, until they reach p of all.
func typical(cs []candidate, p float64) []candidate {
	sum := total(cs)
	entropy := 0.0
	for _, c := range cs {
		if p := c.share / sum; p > 0 { // a share of almost nothing is no number's logarithm
			entropy -= p * math.Log(p)
		}
	}
	// |−log(share/sum) − entropy| grows with the ratio of share to this one.
	average := sum * math.Exp(-entropy)
	ratio := func(c candidate) float64 { return max(c.share/average, average/c.share) }
	slices.SortFunc(cs, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(ratio(a), ratio(b)), cmp.Compare(b.share, a.share), cmp.Compare(a.id, b.id))
	})
	return reaching(cs, p*sum)
}

func total(cs []candidate) (sum float64) {
	for _, c := range cs {
		sum += c.share
	}
	return sum
}

// draw picks the candidate in whose part of the whole u, in [0,1), falls.
func draw(cs []candidate, u float64) int32 {
	left := u * total(cs)
	for _, c := range cs {
		if left -= c.share; left < 0 {
			return c.id
		}
	}
	return cs[len(cs)-1].id // rounding left a crumb
}
