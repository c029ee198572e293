package cpu

import (
	"math"

	"github.com/intelliparadigm/haiku/internal/model"
)

// routing says which tokens of a step go to which expert. A route is one token
// on its way to one expert; routes to the same expert lie together, in the
// order of tokens, so that an expert's matrices are read once for all of them.
type routing struct {
	scores  []float32 // [tokens][Experts] of the router
	experts []int32   // [tokens][ExpertsUsed], ascending
	weights []float32 // [tokens][ExpertsUsed], adding up to one
	routes  []int32   // [tokens][ExpertsUsed] rows of in and out
	ends    []int32   // [Experts] one past the last route to it
	in, out []float32 // [routes][Dim]
}

func newRouting(c *model.Config, tokens int) routing {
	if c.Experts == 0 {
		return routing{}
	}
	routes := tokens * c.ExpertsUsed
	return routing{
		scores:  make([]float32, tokens*c.Experts),
		experts: make([]int32, routes), weights: make([]float32, routes), routes: make([]int32, routes),
		ends: make([]int32, c.Experts),
		in:   make([]float32, routes*c.Dim), out: make([]float32, routes*c.Dim),
	}
}

// mixture replaces h by the weighted sum of what the experts that each token
// chooses make of it. A token's sum runs over its experts in their own order,
// whatever else is in the step.
func (e *executor) mixture(layer *model.Layer, tokens int) error {
	r, c := &e.routing, &e.model.Config
	e.product.jobs = append(e.product.jobs[:0], productJob{&layer.Router, r.scores, e.act.h, tokens})
	if err := e.multiplyJobs(); err != nil {
		return err
	}
	r.choose(c, tokens)
	r.sort(c, tokens)
	if err := e.perRoute(routeIn, tokens); err != nil {
		return err
	}
	e.product.jobs = e.product.jobs[:0]
	r.each(func(expert, from, to int) {
		x, n := r.in[from*c.Dim:], to-from
		e.product.jobs = append(e.product.jobs,
			productJob{&layer.Experts[expert].Gate, e.act.gate[from*c.FFN:], x, n},
			productJob{&layer.Experts[expert].Up, e.act.up[from*c.FFN:], x, n})
	})
	if err := e.multiplyJobs(); err != nil {
		return err
	}
	if err := e.perToken(opActivate, tokens*c.ExpertsUsed); err != nil {
		return err
	}
	e.product.jobs = e.product.jobs[:0]
	r.each(func(expert, from, to int) {
		e.product.jobs = append(e.product.jobs,
			productJob{&layer.Experts[expert].Down, r.out[from*c.Dim:], e.act.gate[from*c.FFN:], to - from})
	})
	if err := e.multiplyJobs(); err != nil {
		return err
	}
	return e.perRoute(routeOut, tokens)
}

// choose picks the experts with the best scores for each token. Their weights
// are the softmax over those chosen, which is that over all renormalised.
func (r *routing) choose(c *model.Config, tokens int) {
	for t := range tokens {
		scores := r.scores[t*c.Experts : (t+1)*c.Experts]
		experts := r.experts[t*c.ExpertsUsed : (t+1)*c.ExpertsUsed]
		best(experts, scores)
		weights := r.weights[t*c.ExpertsUsed : (t+1)*c.ExpertsUsed]
		largest, sum := math.Inf(-1), 0.0
		for _, expert := range experts {
			largest = max(largest, float64(scores[expert]))
		}
		for _, expert := range experts {
			sum += math.Exp(float64(scores[expert]) - largest)
		}
		for i, expert := range experts {
			weights[i] = float32(math.Exp(float64(scores[expert])-largest) / sum)
		}
	}
}

// best writes the indices of the len(chosen) best scores, ascending. Of equal
// scores the first is the better; one that is not a number is worse than all.
func best(chosen []int32, scores []float32) {
	n := 0
	for i := range scores {
		at := n // where i stands among the best so far, the best first
		for at > 0 && better(scores[i], scores[chosen[at-1]]) {
			at--
		}
		if n < len(chosen) {
			n++
		}
		if at < n {
			copy(chosen[at+1:n], chosen[at:])
			chosen[at] = int32(i)
		}
	}
	for i := 1; i < n; i++ { // there are few
		for j := i; j > 0 && chosen[j] < chosen[j-1]; j-- {
			chosen[j], chosen[j-1] = chosen[j-1], chosen[j]
		}
	}
}

func better(a, b float32) bool { return a > b || b != b && a == a }

// sort gives every route its row.
func (r *routing) sort(c *model.Config, tokens int) {
	clear(r.ends)
	experts := r.experts[:tokens*c.ExpertsUsed]
	for _, expert := range experts {
		r.ends[expert]++
	}
	next := int32(0)
	for expert, n := range r.ends {
		r.ends[expert] = next
		next += n
	}
	for i, expert := range experts {
		r.routes[i] = r.ends[expert]
		r.ends[expert]++
	}
}

// each calls f with every expert that has routes and their rows.
func (r *routing) each(f func(expert, from, to int)) {
	from := 0
	for expert, end := range r.ends {
		if to := int(end); to > from {
			f(expert, from, to)
			from = to
		}
	}
}

// The two ways of a row: to an expert, and back.
const (
	routeIn  = true  // in = h
	routeOut = false // h = the weighted sum of out
)

// routeTask moves the rows of a range of tokens.
type routeTask struct {
	e  *executor
	in bool
}

func (e *executor) perRoute(in bool, tokens int) error {
	e.route.in = in
	return e.pool.do(&e.route, tokens, max(1, e.shareMACs/(4*e.model.ExpertsUsed*e.model.Dim)))
}

func (t *routeTask) run(_, lo, hi int) {
	r, dim, used := &t.e.routing, t.e.model.Dim, t.e.model.ExpertsUsed
	for token := lo; token < hi; token++ {
		h := t.e.act.h[token*dim : (token+1)*dim]
		routes := r.routes[token*used : (token+1)*used]
		if t.in {
			for _, route := range routes {
				copy(r.in[int(route)*dim:], h)
			}
			continue
		}
		clear(h)
		for i, route := range routes {
			t.e.level.AddWeighted(h, r.out[int(route)*dim:(int(route)+1)*dim], r.weights[token*used+i:token*used+i+1])
		}
	}
}
