package simd

// readers are the assembly for each format.
var readers = [len(layouts)]reader{
	F32:    {spread: spreadF32},
	F16:    {spreadF16, dot4F16},
	BF16:   {spreadBF16, dot4BF16},
	Q8_0:   {spreadQ80, dot4Q80},
	Q4_0:   {spreadQ40, dot4Q40},
	Q4_1:   {spreadQ41, dot4Q41},
	Q5_0:   {spreadQ50, dot4Q50},
	Q5_1:   {spreadQ51, dot4Q51},
	Q4_K:   {spreadQ4K, dot4Q4K},
	Q5_K:   {spreadQ5K, dot4Q5K},
	Q6_K:   {spreadQ6K, dot4Q6K},
	F8E4M3: {spreadFP8, dot4FP8},
}

//go:noescape
func spreadF32(dst *float32, step int, src *byte, n int)

//go:noescape
func spreadF16(dst *float32, step int, src *byte, n int)

//go:noescape
func spreadBF16(dst *float32, step int, src *byte, n int)

//go:noescape
func spreadQ80(dst *float32, step int, src *byte, n int)

//go:noescape
func spreadQ40(dst *float32, step int, src *byte, n int)

//go:noescape
func spreadQ41(dst *float32, step int, src *byte, n int)

//go:noescape
func spreadQ50(dst *float32, step int, src *byte, n int)

//go:noescape
func spreadQ51(dst *float32, step int, src *byte, n int)

//go:noescape
func spreadQ4K(dst *float32, step int, src *byte, n int)

//go:noescape
func spreadQ5K(dst *float32, step int, src *byte, n int)

//go:noescape
func spreadQ6K(dst *float32, step int, src *byte, n int)

//go:noescape
func spreadFP8(dst *float32, step int, src *byte, n int)

//go:noescape
func dot4F16(dst *[quad]float32, w *byte, rowBytes int, x *float32, cols int)

//go:noescape
func dot4BF16(dst *[quad]float32, w *byte, rowBytes int, x *float32, cols int)

//go:noescape
func dot4Q80(dst *[quad]float32, w *byte, rowBytes int, x *float32, cols int)

//go:noescape
func dot4Q40(dst *[quad]float32, w *byte, rowBytes int, x *float32, cols int)

//go:noescape
func dot4Q41(dst *[quad]float32, w *byte, rowBytes int, x *float32, cols int)

//go:noescape
func dot4Q50(dst *[quad]float32, w *byte, rowBytes int, x *float32, cols int)

//go:noescape
func dot4Q51(dst *[quad]float32, w *byte, rowBytes int, x *float32, cols int)

//go:noescape
func dot4Q4K(dst *[quad]float32, w *byte, rowBytes int, x *float32, cols int)

//go:noescape
func dot4Q5K(dst *[quad]float32, w *byte, rowBytes int, x *float32, cols int)

//go:noescape
func dot4Q6K(dst *[quad]float32, w *byte, rowBytes int, x *float32, cols int)

//go:noescape
func dot4FP8(dst *[quad]float32, w *byte, rowBytes int, x *float32, cols int)
