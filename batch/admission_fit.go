package batch

import "math"

// The terms of a step's cost, in seconds.
const (
	baseTerm = iota
	prefillTerm
	decodeTerm
	costTerms
)

type (
	costVector [costTerms]float64
	costMatrix [costTerms][costTerms]float64
)

// stepFit fits seconds ≈ cost·x, cost ≥ 0, by recursive least squares with
// exponential forgetting.
//
// It keeps the sums of the normal equations rather than the inverse that the
// textbook's recursion updates: the inverse grows without bound in directions
// that no step excites (an engine that only decodes), the sums just fade. In
// such directions a weak pull towards the last estimate decides, so that what
// was learnt stays until there is something new to learn.
type stepFit struct {
	xx    costMatrix
	xy    costVector
	scale costVector // the largest of each input seen, fading
	cost  costVector
	count int
}

// fitPull is the weight of the last estimate, in steps.
const fitPull = 1e-3

func (f *stepFit) observe(x costVector, seconds, keep float64) {
	seconds = f.withoutStall(x, seconds)
	for i := range costTerms {
		for j := range costTerms {
			f.xx[i][j] = f.xx[i][j]*keep + x[i]*x[j]
		}
		f.xy[i] = f.xy[i]*keep + x[i]*seconds
		f.scale[i] = max(x[i], f.scale[i]*keep)
	}
	f.count++
	a, b := f.xx, f.xy
	for i := range costTerms {
		weight := fitPull * max(1, f.scale[i]*f.scale[i])
		a[i][i] += weight
		b[i] += weight * f.cost[i]
	}
	f.cost = solveNonNegative(a, b)
}

// withoutStall bounds the time of a step like those seen before.
func (f *stepFit) withoutStall(x costVector, seconds float64) float64 {
	const seen, bound = 16, 8
	if f.count < seen || x[prefillTerm] > 2*f.scale[prefillTerm] || x[decodeTerm] > 2*f.scale[decodeTerm] {
		return seconds
	}
	expected := f.cost[baseTerm]*x[baseTerm] + f.cost[prefillTerm]*x[prefillTerm] + f.cost[decodeTerm]*x[decodeTerm]
	if expected <= 0 {
		return seconds
	}
	return min(seconds, bound*expected)
}

// solveNonNegative minimises c·A·c − 2b·c over c ≥ 0 for a positive definite
// A: the best of the solutions with some of the terms at zero.
func solveNonNegative(a costMatrix, b costVector) (best costVector) {
	least := 0.0 // of no term at all
	for used := 1; used < 1<<costTerms; used++ {
		c, ok := solveTerms(a, b, used)
		// At a solution, c·A·c is b·c.
		if value := -(b[0]*c[0] + b[1]*c[1] + b[2]*c[2]); ok && value < least {
			best, least = c, value
		}
	}
	return best
}

// solveTerms solves A·c = b for the terms whose bit is set in used, the others 0. It
// reports whether there is a solution and none of it is negative.
func solveTerms(a costMatrix, b costVector, used int) (c costVector, ok bool) {
	// Cholesky's decomposition, scaled to a diagonal of ones.
	var l costMatrix
	var y, unit costVector
	for i := range costTerms {
		if used&(1<<i) == 0 {
			continue
		}
		unit[i] = math.Sqrt(a[i][i])
		sum := b[i] / unit[i]
		diagonal := 1.0
		for j := range i {
			if used&(1<<j) == 0 {
				continue
			}
			entry := a[i][j] / (unit[i] * unit[j])
			for k := range j {
				entry -= l[i][k] * l[j][k]
			}
			l[i][j] = entry / l[j][j]
			diagonal -= l[i][j] * l[i][j]
			sum -= l[i][j] * y[j]
		}
		if !(diagonal > 1e-12) {
			return costVector{}, false
		}
		l[i][i] = math.Sqrt(diagonal)
		y[i] = sum / l[i][i]
	}
	for i := costTerms - 1; i >= 0; i-- {
		if used&(1<<i) == 0 {
			continue
		}
		for j := i + 1; j < costTerms; j++ {
			y[i] -= l[j][i] * y[j]
		}
		y[i] /= l[i][i]
		if c[i] = y[i] / unit[i]; !(c[i] >= 0) {
			return costVector{}, false
		}
	}
	return c, true
}
