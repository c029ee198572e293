package cpu

import (
	"cmp"
	"math"
	"slices"

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

// affine is apply with a bias.
func affine(l *model.Linear, x []float64) []float64 {
	y := apply(&l.Matrix, x)
	for i, b := range l.Bias {
		y[i] += float64(b)
	}
	return y
}

// heads norms, where there is a weight, and rotates every head of x by the
// formula of the paper, one pair at a time.
func (r reference) heads(x []float64, weight []float32, rotation model.Rotation, position int) {
	c := &r.m.Config
	for from := 0; from < len(x); from += c.HeadDim {
		head := x[from : from+c.HeadDim]
		if weight != nil {
			copy(head, normalise(head, weight, c.NormEpsilon))
		}
		for i, frequency := range rotation.Frequencies {
			first, second := 2*i, 2*i+1
			if c.RopeHalves {
				first, second = i, i+c.RopeDims/2
			}
			angle, magnitude := float64(position)*frequency, float64(rotation.Magnitude)
			a, b := head[first], head[second]
			head[first] = magnitude * (a*math.Cos(angle) - b*math.Sin(angle))
			head[second] = magnitude * (a*math.Sin(angle) + b*math.Cos(angle))
		}
	}
}

func softcap(x float64, bound float32) float64 {
	if bound == 0 {
		return x
	}
	return float64(bound) * math.Tanh(x/float64(bound))
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
			weights[p] = math.Exp(softcap(score*float64(c.AttentionScale), c.AttentionSoftcap))
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
			x[p] = append(x[p], float64(v)*float64(c.EmbeddingScale))
		}
	}
	for i := range r.m.Layers {
		r.layer(&r.m.Layers[i], x, i == len(r.m.Layers)-1)
	}
	logits := apply(&r.m.Output, normalise(x[len(x)-1], r.m.OutputNorm, c.NormEpsilon))
	for i, l := range logits {
		logits[i] = softcap(l, c.FinalSoftcap)
	}
	return logits
}

// layer takes the residual stream x [positions][Dim] through one layer, in the
// last only for the last position.
func (r reference) layer(l *model.Layer, x [][]float64, last bool) {
	c := &r.m.Config
	var queries, keys, values [][]float64
	for p := range x {
		h := normalise(x[p], l.AttentionNorm, c.NormEpsilon)
		query, key := affine(&l.Query, h), affine(&l.Key, h)
		r.heads(query, l.QueryNorm, c.Rotations[l.Rotation], p)
		r.heads(key, l.KeyNorm, c.Rotations[l.Rotation], p)
		queries, keys, values = append(queries, query), append(keys, key), append(values, affine(&l.Value, h))
	}
	for p := range x {
		if last && p < len(x)-1 {
			continue
		}
		first := 0
		if l.Window > 0 {
			first = max(0, p+1-l.Window)
		}
		r.add(x[p], affine(&l.AttentionOut, r.attend(queries[p], keys[first:p+1], values[first:p+1])), l.PostAttentionNorm)
		r.add(x[p], r.feedForward(l, normalise(x[p], l.FFNNorm, c.NormEpsilon)), l.PostFFNNorm)
	}
}

func (r reference) add(x, h []float64, norm []float32) {
	if norm != nil {
		h = normalise(h, norm, r.m.NormEpsilon)
	}
	for i, v := range h {
		x[i] += v
	}
}

// feedForward sums the chosen experts by the formula of the router: a softmax
// over all, of which the largest are kept and renormalised.
func (r reference) feedForward(l *model.Layer, h []float64) []float64 {
	if r.m.Experts == 0 {
		return r.expert(&l.Experts[0], h)
	}
	scores := apply(&l.Router, h)
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	var chosen float64
	for _, i := range order[:r.m.ExpertsUsed] {
		chosen += math.Exp(scores[i])
	}
	sum := make([]float64, len(h))
	for _, i := range order[:r.m.ExpertsUsed] {
		for d, v := range r.expert(&l.Experts[i], h) {
			sum[d] += math.Exp(scores[i]) / chosen * v
		}
	}
	return sum
}

func (r reference) expert(e *model.Expert, h []float64) []float64 {
	gate, up := apply(&e.Gate, h), apply(&e.Up, h)
	for i, g := range gate {
		if r.m.Activation == model.GELU {
			gate[i] = g / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(g+0.044715*g*g*g))) * up[i]
		} else {
			gate[i] = g / (1 + math.Exp(-g)) * up[i]
		}
	}
	return apply(&e.Down, gate)
}
