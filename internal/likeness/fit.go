package likeness

import "math"

// The curves that are compared: the chance of a right answer at level x is
// (1-lapse)·sigmoid(slope·(middle-x)). They are few enough to try all.
const (
	middles = levels/2 + 1
	slopes  = 5
	lapses  = 28
	reach   = levels + 1 // the largest |middle-x|
)

// slopeOf is per level; lapseOf grows by 1.35 from 1/2000 on, after none at all.
var slopeOf = [slopes]float64{4, 1, 0.5, 0.25, 0.12}

func lapseOf(i int) float64 {
	if i == 0 {
		return 0
	}
	return min(0.0005*math.Pow(1.35, float64(i-1)), 1)
}

// fitter holds logarithms of all curves, 150 kB, and is not changed after init.
type fitter struct {
	drop  float64                              // of the log-likelihood that is still believed
	rises [slopes][2*reach + 1]float64         // sigmoid, by slope and middle-x
	keeps [slopes][2*reach + 1]float64         // its logarithm
	fails [slopes][2*reach + 1][lapses]float64 // log of the chance of a wrong answer
	stays [lapses]float64                      // log(1-lapse)
}

// init prepares for a confidence of 1-doubt: by Wilks' theorem twice the drop
// has a chi-squared distribution of three degrees of freedom, whose quantile is
// that of Wilson and Hilferty (1931).
func (f *fitter) init(doubt float64) {
	z := math.Sqrt2 * math.Erfinv(1-2*doubt)
	f.drop = 1.5 * math.Pow(1-2.0/27+z*math.Sqrt(2.0/27), 3)
	for l := range lapses {
		f.stays[l] = math.Log(max(1-lapseOf(l), 1e-12))
	}
	for s := range slopes {
		for d := range 2*reach + 1 {
			p := 1 / (1 + math.Exp(-slopeOf[s]*(float64(d-reach)-0.5)))
			f.rises[s][d] = p
			f.keeps[s][d] = math.Log(max(p, 1e-12))
			for l := range lapses {
				f.fails[s][d][l] = math.Log(max(1-(1-lapseOf(l))*p, 1e-12))
			}
		}
	}
}

// likelihoods are those of all curves.
type likelihoods [middles][slopes][lapses]float64

func (f *fitter) likelihoods(seen *evidence) (all *likelihoods, best float64) {
	all, best = new(likelihoods), math.Inf(-1)
	for m := range middles {
		for s := range slopes {
			row := &all[m][s]
			kept, rights := 0.0, 0.0
			for x := range levels {
				d := 2*m - x + reach
				kept, rights = kept+float64(seen.right[x])*f.keeps[s][d], rights+float64(seen.right[x])
				if wrong := float64(seen.wrong[x]); wrong > 0 {
					for l := range lapses {
						row[l] += wrong * f.fails[s][d][l]
					}
				}
			}
			for l := range lapses {
				row[l] += kept + rights*f.stays[l]
			}
			for _, v := range row {
				best = max(best, v)
			}
		}
	}
	return all, best
}

// curve returns for each level the largest chance of a wrong answer among the
// curves that the evidence does not reject. Between the lapses that were tried
// the larger counts.
func (f *fitter) curve(seen *evidence) (risk [levels]float32) {
	all, best := f.likelihoods(seen)
	for m := range middles {
		for s := range slopes {
			worst := -1
			for l, v := range all[m][s] {
				if v >= best-f.drop {
					worst = l
				}
			}
			if worst < 0 {
				continue
			}
			stays := 1 - lapseOf(worst+1)
			for x := range levels {
				risk[x] = max(risk[x], float32(1-stays*f.rises[s][2*m-x+reach]))
			}
		}
	}
	// More distance is never less risk.
	for x := 1; x < levels; x++ {
		risk[x] = max(risk[x], risk[x-1])
	}
	return risk
}
