package simd

import "math"

// Add adds src to dst, element by element.
func Add(dst, src []float32) {
	for i, v := range src[:len(dst)] {
		dst[i] += v
	}
}

// RMSNorm writes x scaled to a root mean square of one, times weight, to dst.
// All three have the same length; dst may be x.
func RMSNorm(dst, x, weight []float32, epsilon float32) {
	var s0, s1, s2, s3 float64
	i := 0
	for ; i+4 <= len(x); i += 4 {
		a, b, c, d := float64(x[i]), float64(x[i+1]), float64(x[i+2]), float64(x[i+3])
		s0 += float64(a * a)
		s1 += float64(b * b)
		s2 += float64(c * c)
		s3 += float64(d * d)
	}
	for ; i < len(x); i++ {
		s0 += float64(float64(x[i]) * float64(x[i]))
	}
	mean := (s0 + s1 + s2 + s3) / float64(len(x))
	scale := float32(1 / math.Sqrt(mean+float64(epsilon)))
	weight, dst = weight[:len(x)], dst[:len(x)]
	for i, v := range x {
		dst[i] = v * scale * weight[i]
	}
}

// Rotate turns the pairs (x[2i], x[2i+1]) by the angles whose cosines and
// sines are given, one per pair: Llama's rotary embedding of one head.
// Elements of x beyond the pairs stay as they are.
func Rotate(x, cos, sin []float32) {
	sin = sin[:len(cos)]
	x = x[:2*len(cos)]
	for i, c := range cos {
		s := sin[i]
		a, b := x[2*i], x[2*i+1]
		x[2*i] = float32(a*c) - float32(b*s)
		x[2*i+1] = float32(a*s) + float32(b*c)
	}
}

func maximumPortable(s []float32) float32 {
	largest := s[0]
	for _, v := range s[1:] {
		if v > largest {
			largest = v
		}
	}
	return largest
}

func addWeightedPortable(dst, rows, p []float32) {
	for i, weight := range p {
		for c, v := range rows[i*len(dst) : (i+1)*len(dst)] {
			dst[c] += float32(weight * v)
		}
	}
}

func expSumPortable(s []float32, shift float32) float32 {
	var sum float32
	for i, v := range s {
		e := float32(math.Exp(float64(v - shift)))
		s[i] = e
		sum += e
	}
	return sum
}

func siluMulPortable(gate, up []float32) {
	for i, g := range gate {
		gate[i] = float32(float64(g)/(1+math.Exp(-float64(g)))) * up[i]
	}
}
