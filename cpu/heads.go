package cpu

import (
	"math"

	"github.com/intelliparadigm/haiku/internal/model"
	"github.com/intelliparadigm/haiku/internal/simd"
)

// angleTable holds the turned pairs of one rotation for all rows of a step.
type angleTable struct {
	cos, sin []float32 // [tokens][RopeDims/2], times the rotation's magnitude
}

// angles computes the rotations of one row's position.
func (e *executor) angles(row int) {
	position := float64(e.positions[row])
	for i := range e.model.Rotations {
		rotation, cos, sin := &e.model.Rotations[i], e.angleRow(e.act.angles[i].cos, row), e.angleRow(e.act.angles[i].sin, row)
		for pair, frequency := range rotation.Frequencies {
			s, c := math.Sincos(position * frequency)
			cos[pair], sin[pair] = float32(c)*rotation.Magnitude, float32(s)*rotation.Magnitude
		}
	}
}

func (e *executor) angleRow(table []float32, row int) []float32 {
	pairs := e.model.RopeDims / 2
	return table[row*pairs : (row+1)*pairs]
}

// finishHeads makes queries, keys and values of rows [lo, hi) of what the
// products left, and stores the latter two.
func (e *executor) finishHeads(i, lo, hi int) {
	c, layer := &e.model.Config, &e.model.Layers[i]
	queries, keys := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	angles := &e.act.angles[layer.Rotation]
	for _, s := range e.spans {
		for row := max(lo, s.first); row < min(hi, s.first+s.n); row++ {
			q, k, v := e.act.q[row*queries:(row+1)*queries], e.act.k[row*keys:(row+1)*keys], e.act.v[row*keys:(row+1)*keys]
			addBias(q, layer.Query.Bias)
			addBias(k, layer.Key.Bias)
			addBias(v, layer.Value.Bias)
			cos, sin := e.angleRow(angles.cos, row), e.angleRow(angles.sin, row)
			turn(c, q, layer.QueryNorm, cos, sin)
			turn(c, k, layer.KeyNorm, cos, sin)
			position := e.positions[row]
			block, slot := s.item.Blocks[position/e.kv.blockTokens], position%e.kv.blockTokens
			e.kv.store(i, block, slot, k, v)
		}
	}
}

func addBias(x, bias []float32) {
	if bias != nil {
		simd.Add(x, bias)
	}
}

// turn norms, where there is a weight, and rotates every head of x.
func turn(c *model.Config, x, weight, cos, sin []float32) {
	for ; len(x) > 0; x = x[c.HeadDim:] {
		head := x[:c.HeadDim]
		if weight != nil {
			simd.RMSNorm(head, head, weight, c.NormEpsilon)
		}
		if c.RopeHalves {
			simd.RotateHalves(head, cos, sin)
		} else {
			simd.Rotate(head, cos, sin)
		}
	}
}
