package cpu

import (
	"math"

	"github.com/intelliparadigm/haiku/internal/model"
	"github.com/intelliparadigm/haiku/internal/simd"
)

// reference computes a model plainly in float64: whole sequences, no cache, no
// tiles. It shares nothing with the executor but the weights.
type reference struct{ m *model.Model }

func apply(m *simd.Matrix, x []float64) []float64 {
	row, y := make([]float32, m.Cols), make([]float64, m.Rows)
	for r := range y {
		simd.Portable.Row(row, m, r)
		for c, w := range row {
			y[r] += float64(w) * x[c]
		}
	}
	return y
}

func normalise(x []float64, weight []float32, epsilon float32) []float64 {
	var squares float64
	for _, v := range x {
		squares += v * v
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v / math.Sqrt(squares/float64(len(x))+float64(epsilon)) * float64(weight[i])
	}
	return y
}

// rotate applies the rotary embedding to every head of x by the formula of the
// paper, one pair at a time.
func (r reference) rotate(x []float64, position int) {
	c := &r.m.Config
	for head := 0; head < len(x); head += c.HeadDim {
		for i := 0; i < c.RopeDims; i += 2 {
			angle := float64(position) * c.RopeScale * math.Pow(c.RopeBase, -float64(i)/float64(c.RopeDims))
			if c.RopeFactors != nil {
				angle /= float64(c.RopeFactors[i/2])
			}
			a, b := x[head+i], x[head+i+1]
			x[head+i] = a*math.Cos(angle) - b*math.Sin(angle)
			x[head+i+1] = a*math.Sin(angle) + b*math.Cos(angle)
		}
	}
}

// attend returns the attention output of one query [Heads·HeadDim] over keys
// and values [positions][KVHeads·HeadDim].
func (r reference) attend(query []float64, keys, values [][]float64) []float64 {
	c := &r.m.Config
	out := make([]float64, len(query))
	for head := range c.Heads {
		at, from := head*c.HeadDim, head/(c.Heads/c.KVHeads)*c.HeadDim
		weights, total := make([]float64, len(keys)), 0.0
		for p, key := range keys {
			var score float64
			for d := range c.HeadDim {
				score += query[at+d] * key[from+d]
			}
			weights[p] = math.Exp(score / math.Sqrt(float64(c.HeadDim)))
			total += weights[p]
		}
		for p, value := range values {
			for d := range c.HeadDim {
				out[at+d] += weights[p] / total * value[from+d]
			}
		}
	}
	return out
}

// logits returns the logits after the last of tokens.
func (r reference) logits(tokens []int32) []float64 {
	c := &r.m.Config
	x := make([][]float64, len(tokens))
	for p, token := range tokens {
		row := make([]float32, c.Dim)
		simd.Portable.Row(row, &r.m.Embedding, int(token))
		for _, v := range row {
			x[p] = append(x[p], float64(v))
		}
	}
	for i := range r.m.Layers {
		r.layer(&r.m.Layers[i], x, i == len(r.m.Layers)-1)
	}
	return apply(&r.m.Output, normalise(x[len(x)-1], r.m.OutputNorm, c.NormEpsilon))
}

// layer takes the residual stream x [positions][Dim] through one layer, in the
// last only for the last position.
func (r reference) layer(l *model.Layer, x [][]float64, last bool) {
	c := &r.m.Config
	var queries, keys, values [][]float64
	for p := range x {
		h := normalise(x[p], l.AttentionNorm, c.NormEpsilon)
		query, key := apply(&l.Query, h), apply(&l.Key, h)
		r.rotate(query, p)
		r.rotate(key, p)
		queries, keys, values = append(queries, query), append(keys, key), append(values, apply(&l.Value, h))
	}
	for p := range x {
		if last && p < len(x)-1 {
			continue
		}
		for i, v := range apply(&l.AttentionOut, r.attend(queries[p], keys[:p+1], values[:p+1])) {
			x[p][i] += v
		}
		h := normalise(x[p], l.FFNNorm, c.NormEpsilon)
		gate, up := apply(&l.Gate, h), apply(&l.Up, h)
		for i, g := range gate {
			gate[i] = g / (1 + math.Exp(-g)) * up[i]
		}
		for i, v := range apply(&l.Down, gate) {
			x[p][i] += v
		}
	}
}
