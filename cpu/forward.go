package cpu

import (
	"context"
	"math"

	"github.com/intelliparadigm/haiku/internal/model"
	"github.com/intelliparadigm/haiku/internal/simd"
)

// forward takes the gathered tokens through all layers. On the way out only
// the rows are left whose logits somebody asked for.
func (e *executor) forward(ctx context.Context, tokens int) error {
	if err := e.perToken(opAngles, tokens, nil); err != nil {
		return err
	}
	last := len(e.model.Layers) - 1
	for i := range e.model.Layers {
		if err := ctx.Err(); err != nil {
			return err
		}
		layer := &e.model.Layers[i]
		if err := e.projectAndStore(i, layer, tokens); err != nil {
			return err
		}
		if i == last {
			if tokens = e.keepFinals(); tokens == 0 {
				return nil
			}
		}
		if err := e.attend(i); err != nil {
			return err
		}
		if err := e.feedForward(layer, tokens); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := e.perToken(opAddNorm, tokens, e.model.OutputNorm); err != nil {
		return err
	}
	return e.computeLogits(tokens)
}

// projectAndStore computes queries, keys and values, rotates them and writes
// the latter two to the cache.
func (e *executor) projectAndStore(i int, layer *model.Layer, tokens int) error {
	op := opAddNorm // what the layer before left in h
	if i == 0 {
		op = opNorm
	}
	if err := e.perToken(op, tokens, layer.AttentionNorm); err != nil {
		return err
	}
	a := &e.act
	err := e.multiply(a.h, tokens,
		productPart{&layer.Query, a.q}, productPart{&layer.Key, a.k}, productPart{&layer.Value, a.v})
	if err != nil {
		return err
	}
	e.tokens.layer = i
	return e.perToken(opRotate, tokens, nil)
}

// feedForward takes the attention's output through the rest of a layer. What
// it leaves in h is still to be added to x.
func (e *executor) feedForward(layer *model.Layer, tokens int) error {
	a := &e.act
	if err := e.multiply(a.att, tokens, productPart{&layer.AttentionOut, a.h}); err != nil {
		return err
	}
	if err := e.perToken(opAddNorm, tokens, layer.FFNNorm); err != nil {
		return err
	}
	if err := e.multiply(a.h, tokens, productPart{&layer.Gate, a.gate}, productPart{&layer.Up, a.up}); err != nil {
		return err
	}
	if err := e.perToken(opSilu, tokens, nil); err != nil {
		return err
	}
	return e.multiply(a.gate, tokens, productPart{&layer.Down, a.h})
}

// keepFinals moves the last row of every item that wants logits to the front
// and makes them the only rows of the step. Keys and values of the others are
// in the cache by now. It returns the number of rows.
func (e *executor) keepFinals() int {
	dim, queries := e.model.Dim, e.model.Heads*e.model.HeadDim
	kept := 0
	for _, s := range e.spans {
		if s.item.Logits == nil {
			continue
		}
		row := s.first + s.n - 1
		copy(e.act.x[kept*dim:(kept+1)*dim], e.act.x[row*dim:])
		copy(e.act.q[kept*queries:(kept+1)*queries], e.act.q[row*queries:])
		e.spans[kept] = span{s.item, s.start + s.n - 1, kept, 1}
		kept++
	}
	e.spans = e.spans[:kept]
	return kept
}

// The operations on single tokens, apart from attention.
type tokenOp uint8

const (
	opAngles  tokenOp = iota // cos, sin = of the position
	opNorm                   // h = norm(x)
	opAddNorm                // x += h; h = norm(x)
	opRotate                 // rotate q and k, store k and v
	opSilu                   // gate = silu(gate) · up
)

// tokenTask applies one operation to a range of tokens.
type tokenTask struct {
	e      *executor
	op     tokenOp
	weight []float32 // of the norm
	layer  int
}

func (e *executor) perToken(op tokenOp, tokens int, weight []float32) error {
	e.tokens.op, e.tokens.weight = op, weight
	return e.pool.do(&e.tokens, tokens, max(1, e.shareMACs/(16*e.model.Dim))) // an element costs a few multiply-adds
}

func (t *tokenTask) run(_, lo, hi int) {
	e, c := t.e, &t.e.model.Config
	switch t.op {
	case opAngles:
		for row := lo; row < hi; row++ {
			e.angles(row)
		}
	case opNorm, opAddNorm:
		for row := lo; row < hi; row++ {
			x, h := e.act.x[row*c.Dim:(row+1)*c.Dim], e.act.h[row*c.Dim:(row+1)*c.Dim]
			if t.op == opAddNorm {
				simd.Add(x, h)
			}
			simd.RMSNorm(h, x, t.weight, c.NormEpsilon)
		}
	case opRotate:
		e.rotateAndStore(t.layer, lo, hi)
	case opSilu:
		e.level.SiluMul(e.act.gate[lo*c.FFN:hi*c.FFN], e.act.up[lo*c.FFN:hi*c.FFN])
	}
}

// angles computes the rotation of one row's position.
func (e *executor) angles(row int) {
	position := float64(e.positions[row])
	pairs := len(e.frequencies)
	cos, sin := e.act.cos[row*pairs:(row+1)*pairs], e.act.sin[row*pairs:(row+1)*pairs]
	for i, frequency := range e.frequencies {
		s, c := math.Sincos(position * frequency)
		cos[i], sin[i] = float32(c), float32(s)
	}
}

// rotateAndStore rotates rows [lo, hi) of q and k and stores k and v.
func (e *executor) rotateAndStore(layer, lo, hi int) {
	c, pairs := &e.model.Config, len(e.frequencies)
	for _, s := range e.spans {
		for row := max(lo, s.first); row < min(hi, s.first+s.n); row++ {
			cos, sin := e.act.cos[row*pairs:(row+1)*pairs], e.act.sin[row*pairs:(row+1)*pairs]
			for head := row * c.Heads; head < (row+1)*c.Heads; head++ {
				simd.Rotate(e.act.q[head*c.HeadDim:(head+1)*c.HeadDim], cos, sin)
			}
			for head := row * c.KVHeads; head < (row+1)*c.KVHeads; head++ {
				simd.Rotate(e.act.k[head*c.HeadDim:(head+1)*c.HeadDim], cos, sin)
			}
			position, keys := e.positions[row], c.KVHeads*c.HeadDim
			block, slot := s.item.Blocks[position/e.kv.blockTokens], position%e.kv.blockTokens
			e.kv.store(layer, block, slot, e.act.k[row*keys:(row+1)*keys], e.act.v[row*keys:(row+1)*keys])
		}
	}
}
