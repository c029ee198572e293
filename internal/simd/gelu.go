package simd

import "math"

// GeluMul replaces gate by gelu(gate) · up, element by element, where gelu is
// the tanh approximation of Hendrycks and Gimpel: x/2·(1 + tanh(z)) with
// z = √(2/π)·(x + 0.044715·x³), which is x·σ(2z).
func GeluMul(gate, up []float32) {
	const twiceRoot = 2 * 0.79788456080286535588 // 2·√(2/π)
	for i, g := range gate {
		x := float64(g)
		gate[i] = float32(x/(1+math.Exp(-twiceRoot*(x+0.044715*x*x*x)))) * up[i]
	}
}
