package cpu

import (
	"context"

	"github.com/intelliparadigm/haiku/internal/model"
	"github.com/intelliparadigm/haiku/internal/simd"
)

// forward takes the gathered tokens through all layers. On the way through the
// last one only the rows are left that somebody wants a result of.
//
// A layer adds two things to the residual stream x: what attention has found,
// and what the feed-forward layer makes of the sum. Each leaves its output in
// h, and the norm before the next one adds it to x.
func (e *executor) forward(ctx context.Context, tokens int) error {
	if err := e.perToken(opAngles, tokens); err != nil {
		return err
	}
	added := residual{} // nothing yet: x is the embedding
	for i := range e.model.Layers {
		if err := ctx.Err(); err != nil {
			return err
		}
		layer := &e.model.Layers[i]
		if err := e.norm(tokens, added, layer.AttentionNorm); err != nil {
			return err
		}
		if err := e.projectAndStore(i, layer, tokens); err != nil {
			return err
		}
		if i == len(e.model.Layers)-1 {
			if tokens = e.keepResults(); tokens == 0 {
				return nil
			}
		}
		if err := e.attend(i); err != nil {
			return err
		}
		if err := e.multiply(i, e.act.att, tokens, productPart{targetAttentionOut, &layer.AttentionOut.Matrix, e.act.h}); err != nil {
			return err
		}
		added = residual{true, layer.AttentionOut.Bias, layer.PostAttentionNorm}
		if err := e.norm(tokens, added, layer.FFNNorm); err != nil {
			return err
		}
		if err := e.feedForward(i, layer, tokens); err != nil {
			return err
		}
		added = residual{true, nil, layer.PostFFNNorm}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := e.norm(tokens, added, e.model.OutputNorm); err != nil {
		return err
	}
	return e.results()
}

// projectAndStore computes queries, keys and values, rotates the first two and
// writes the last two to the cache.
func (e *executor) projectAndStore(i int, layer *model.Layer, tokens int) error {
	a := &e.act
	err := e.multiply(i, a.h, tokens,
		productPart{targetQuery, &layer.Query.Matrix, a.q},
		productPart{targetKey, &layer.Key.Matrix, a.k},
		productPart{targetValue, &layer.Value.Matrix, a.v})
	if err != nil {
		return err
	}
	e.tokens.layer = i
	return e.perToken(opHeads, tokens)
}

// feedForward computes h = Down·(act(Gate·h) ∘ Up·h), or the weighted sum of
// the experts that each token chooses.
func (e *executor) feedForward(i int, layer *model.Layer, tokens int) error {
	if e.model.Experts > 0 {
		return e.mixture(layer, tokens)
	}
	a, only := &e.act, &layer.Experts[0]
	err := e.multiply(i, a.h, tokens, productPart{targetGate, &only.Gate, a.gate}, productPart{targetUp, &only.Up, a.up})
	if err != nil {
		return err
	}
	if err := e.perToken(opActivate, tokens); err != nil {
		return err
	}
	return e.multiply(i, a.gate, tokens, productPart{targetDown, &only.Down, a.h})
}

// keepResults moves the rows that somebody wants a result of to the front and
// makes them the only rows of the step. Keys and values of the others are in
// the cache by now. It returns the number of rows.
func (e *executor) keepResults() int {
	dim, queries := e.model.Dim, e.model.Heads*e.model.HeadDim
	spans, rows := 0, 0
	for _, s := range e.spans {
		n := 0
		switch {
		case s.item.Hidden != nil:
			n = s.n
		case s.item.Logits != nil:
			n = 1
		default:
			continue
		}
		skipped := s.n - n
		from := s.first + skipped
		copy(e.act.x[rows*dim:(rows+n)*dim], e.act.x[from*dim:])
		copy(e.act.q[rows*queries:(rows+n)*queries], e.act.q[from*queries:])
		s.start, s.first, s.n = s.start+skipped, rows, n
		e.spans[spans] = s
		spans, rows = spans+1, rows+n
	}
	e.spans = e.spans[:spans]
	return rows
}

// results writes what the items want from the final states in h.
func (e *executor) results() error {
	dim := e.model.Dim
	e.logits.items = e.logits.items[:0]
	for _, s := range e.spans {
		h := e.act.h[s.first*dim : (s.first+s.n)*dim]
		copy(s.item.Hidden, h)
		if s.item.Logits != nil { // its last row, among those of the other items
			copy(e.act.h[len(e.logits.items)*dim:], h[(s.n-1)*dim:])
			e.logits.items = append(e.logits.items, s.item)
		}
	}
	return e.computeLogits()
}

// The operations on single tokens, apart from attention.
type tokenOp uint8

const (
	opAngles   tokenOp = iota // cos, sin = of the position
	opNorm                    // x += h, unless h is empty; h = norm(x)
	opHeads                   // add biases to q, k and v, norm and rotate q and k, store k and v
	opActivate                // gate = act(gate) · up
)

// tokenTask applies one operation to a range of tokens.
type tokenTask struct {
	e      *executor
	op     tokenOp
	added  residual
	weight []float32 // of the norm
	layer  int
}

// residual says what becomes of h before it is added to x.
type residual struct {
	present bool
	bias    []float32 // [Dim] is added to h, or nil
	norm    []float32 // [Dim] then norms it, or nil
}

func (e *executor) perToken(op tokenOp, tokens int) error {
	e.tokens.op = op
	return e.pool.do(&e.tokens, tokens, max(1, e.shareMACs/(16*e.model.Dim))) // an element costs a few multiply-adds
}

// norm adds h to x and leaves the norm of the sum in h.
func (e *executor) norm(tokens int, added residual, weight []float32) error {
	e.tokens.added, e.tokens.weight = added, weight
	return e.perToken(opNorm, tokens)
}

func (t *tokenTask) run(_, lo, hi int) {
	e, c := t.e, &t.e.model.Config
	switch t.op {
	case opAngles:
		for row := lo; row < hi; row++ {
			e.angles(row)
		}
	case opNorm:
		for row := lo; row < hi; row++ {
			t.norm(e.act.x[row*c.Dim:(row+1)*c.Dim], e.act.h[row*c.Dim:(row+1)*c.Dim])
		}
	case opHeads:
		e.finishHeads(t.layer, lo, hi)
	case opActivate:
		e.activate(lo, hi)
	}
}

func (t *tokenTask) norm(x, h []float32) {
	epsilon := t.e.model.NormEpsilon
	if t.added.present {
		if t.added.bias != nil {
			simd.Add(h, t.added.bias)
		}
		if t.added.norm != nil {
			simd.RMSNorm(h, h, t.added.norm, epsilon)
		}
		simd.Add(x, h)
	}
	simd.RMSNorm(h, x, t.weight, epsilon)
}

// activate applies the gate of rows [lo, hi).
func (e *executor) activate(lo, hi int) {
	gate, up := e.act.gate[lo*e.model.FFN:hi*e.model.FFN], e.act.up[lo*e.model.FFN:hi*e.model.FFN]
	switch e.model.Activation {
	case model.GELU:
		simd.GeluMul(gate, up)
	default:
		e.level.SiluMul(gate, up)
	}
}
