package simd

// RotateHalves turns the pairs (x[i], x[i+len(cos)]) by the angles whose
// cosines and sines are given, one per pair: the rotary embedding of one head
// in the order of GPT-NeoX. Elements of x beyond the pairs stay as they are.
func RotateHalves(x, cos, sin []float32) {
	n := len(cos)
	sin, first, second := sin[:n], x[:n], x[n:2*n]
	for i, c := range cos {
		s := sin[i]
		a, b := first[i], second[i]
		first[i] = float32(a*c) - float32(b*s)
		second[i] = float32(a*s) + float32(b*c)
	}
}
