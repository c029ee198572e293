package model

import "math"

// Rotation is a rotary embedding: how far each pair of a head turns from one
// position to the next, and what the turned pair is multiplied by.
type Rotation struct {
	Frequencies []float64 // [RopeDims/2] radians per position
	Magnitude   float32
}

// Ropes that were stretched beyond the context they were trained in.
const (
	ropeNone   = "none"
	ropeLinear = "linear" // Chen et al. 2023: all positions are squeezed
	ropeYarn   = "yarn"   // Peng et al. 2023: slow pairs are squeezed, fast ones left, those between mixed
)

// ropeScaling is how a rotation is stretched.
type ropeScaling struct {
	factor        float64 // positions are divided by it
	yarn          bool
	context       float64 // positions the model was first trained for
	fast, slow    float64 // turns within context above, and below, which a pair is fast, or slow
	extrapolation float64 // share of the ramp's effect
	attention     float64 // multiplies the magnitude
}

// rope fills in RopeDims, RopeHalves and Rotations.
func (r *reader) rope(c *Config, arch architecture, w windows) {
	c.RopeHalves = arch.rotatesHalves
	c.RopeDims = r.count("rope.dimension_count", c.HeadDim)
	if limit := min(c.HeadDim, maxRopeDims); c.RopeDims%2 != 0 || c.RopeDims > limit {
		r.invalid("%srope.dimension_count is %d, want an even number up to %d", r.prefix, c.RopeDims, limit)
	}
	if r.err != nil {
		return
	}
	base := r.number("rope.freq_base", 10000)
	c.Rotations = []Rotation{rotation(c.RopeDims, base, r.ropeScaling(c))}
	if w.size > 0 && w.period > 0 && arch.localRopeBase > 0 {
		local := r.number("rope.freq_base_swa", arch.localRopeBase)
		c.Rotations = append(c.Rotations, rotation(c.RopeDims, local, ropeScaling{factor: 1, attention: 1}))
	}
	for _, rot := range c.Rotations {
		if !rot.finite() {
			r.invalid("the frequencies that %srope gives are not finite", r.prefix)
		}
	}
}

// maxRopeDims bounds the tables that are made before any tensor has been seen.
const maxRopeDims = 1 << 14

// finite reports whether every angle up to the largest position is a number.
func (rot *Rotation) finite() bool {
	for _, f := range rot.Frequencies {
		if !(math.Abs(f) <= maxFrequency) {
			return false
		}
	}
	return rot.Magnitude > 0 && rot.Magnitude <= math.MaxFloat32
}

// maxFrequency, in radians per position, leaves angles at any position exact
// enough to mean something; a rotation turns a pair by one at most.
const maxFrequency = 1 << 20

func (r *reader) ropeScaling(c *Config) ropeScaling {
	s := ropeScaling{factor: 1, attention: r.number("rope.scaling.attn_factor", 1)}
	kind, err := r.file.String(r.prefix + "rope.scaling.type")
	if r.missing(err) {
		s.factor = r.number("rope.scaling.factor", r.number("rope.scale_linear", 1))
		return s
	}
	switch kind {
	case ropeNone:
	case ropeLinear:
		s.factor = r.number("rope.scaling.factor", 0)
	case ropeYarn:
		s.yarn = true
		s.factor = r.number("rope.scaling.factor", 0)
		s.context = float64(r.count("rope.scaling.original_context_length", c.Context))
		s.fast = r.number("rope.scaling.yarn_beta_fast", 32)
		s.slow = r.number("rope.scaling.yarn_beta_slow", 1)
		s.extrapolation = r.number("rope.scaling.yarn_ext_factor", 1)
		s.attention *= r.number("rope.scaling.yarn_attn_factor", 1)
	default:
		r.unsupported("%srope.scaling.type is %q, implemented are %q, %q and %q", r.prefix, kind, ropeNone, ropeLinear, ropeYarn)
	}
	return s
}

// rotation returns base^(-2i/dims) for each pair i, stretched.
func rotation(dims int, base float64, s ropeScaling) Rotation {
	rot := Rotation{Frequencies: make([]float64, dims/2), Magnitude: float32(s.attention)}
	for i := range rot.Frequencies {
		frequency := math.Pow(base, -2*float64(i)/float64(dims))
		kept := 0.0
		if s.yarn {
			kept = s.extrapolation * (1 - s.ramp(i, dims, base))
		}
		rot.Frequencies[i] = frequency*kept + frequency/s.factor*(1-kept)
	}
	if s.yarn {
		rot.Magnitude *= float32(1 + 0.1*math.Log(s.factor))
	}
	return rot
}

// ramp is 0 for pairs that turn fast turns or more within the context the
// model was first trained for, 1 for those that turn slow turns or fewer, and
// straight between.
func (s ropeScaling) ramp(pair, dims int, base float64) float64 {
	pairOf := func(turns float64) float64 { // the one that turns so often
		return float64(dims) * math.Log(s.context/(turns*2*math.Pi)) / (2 * math.Log(base))
	}
	low := max(0, math.Floor(pairOf(s.fast)))
	high := min(float64(dims-1), math.Ceil(pairOf(s.slow)))
	return min(1, max(0, (float64(pair)-low)/max(0.001, high-low)))
}

// divide divides the frequencies by factors, as Llama 3 scales them.
func (rot *Rotation) divide(factors []float32) {
	for i, f := range factors {
		rot.Frequencies[i] /= float64(f)
	}
}
