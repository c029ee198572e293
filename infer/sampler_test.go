package infer

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku"
)

var negInf = float32(math.Inf(-1))

// next samples once from a copy of logits.
func next(t require.TestingT, o haiku.Sampling, seed uint64, position int, logits ...float32) int32 {
	s := newSampler(o, seed, 0, nil)
	id, err := s.next(slices.Clone(logits), position, &scratch{})
	require.NoError(t, err)
	return id
}

func TestGreedyTakesTheBestAndTheLowestOfEquals(t *testing.T) {
	require.EqualValues(t, 2, next(t, haiku.Sampling{}, 1, 0, 0, 1, 3, 2))
	require.EqualValues(t, 1, next(t, haiku.Sampling{}, 1, 0, 0, 3, 3, 2))
	require.EqualValues(t, 0, next(t, haiku.Sampling{}, 1, 0, -5, negInf, negInf))
}

func TestLogitsThatAreNoDistributionAreAnError(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for name, logits := range map[string][]float32{
		"none":             {},
		"NaN first":        {nan, 1, 2},
		"NaN last":         {1, 2, nan},
		"plus infinity":    {1, inf, 2},
		"all forbidden":    {negInf, negInf},
		"NaN among minus∞": {negInf, nan, negInf},
	} {
		t.Run(name, func(t *testing.T) {
			for _, temperature := range []float64{0, 1} {
				s := newSampler(haiku.Sampling{Temperature: temperature}, 1, 0, nil)
				_, err := s.next(slices.Clone(logits), 0, &scratch{})
				require.ErrorIs(t, err, errBadLogits)
			}
		})
	}
}

func TestPenaltiesAndBias(t *testing.T) {
	t.Run("repetition divides positive and multiplies negative logits of prompt and answer", func(t *testing.T) {
		s := newSampler(haiku.Sampling{RepetitionPenalty: 2}, 0, 0, []int32{0, 1})
		logits := []float32{4, -4, 4, -4}
		s.adjust(logits)
		require.Equal(t, []float32{2, -8, 4, -4}, logits)
	})
	t.Run("presence counts once and frequency each time, in the answer only", func(t *testing.T) {
		s := newSampler(haiku.Sampling{PresencePenalty: 1, FrequencyPenalty: 0.5}, 0, 0, []int32{2})
		for range 2 {
			_, err := s.next([]float32{9, 0, 0}, 0, &scratch{})
			require.NoError(t, err)
		}
		logits := []float32{9, 0, 0}
		s.adjust(logits)
		require.Equal(t, []float32{7, 0, 0}, logits)
	})
	t.Run("bias is added and can forbid", func(t *testing.T) {
		o := haiku.Sampling{LogitBias: map[int32]float32{0: -100, 2: 5}}
		require.EqualValues(t, 2, next(t, o, 0, 0, 9, 1, 5))
	})
}

func TestTruncationKeepsWhatItsNameSays(t *testing.T) {
	// Shares 8:4:2:1, probabilities 0.533 0.267 0.133 0.067, out of order.
	logits := []float32{logOf(2), logOf(8), logOf(1), logOf(4)}
	kept := func(o haiku.Sampling) []int32 {
		o.Temperature = 1
		best, err := argmax(logits)
		require.NoError(t, err)
		var ids []int32
		for _, c := range newSampler(o, 0, 0, nil).candidates(nil, logits, logits[best]) {
			ids = append(ids, c.id)
		}
		slices.Sort(ids)
		return ids
	}
	require.Equal(t, []int32{0, 1, 2, 3}, kept(haiku.Sampling{}))
	require.Equal(t, []int32{0, 1, 2, 3}, kept(haiku.Sampling{TopK: 9, TopP: 1}))
	require.Equal(t, []int32{1, 3}, kept(haiku.Sampling{TopK: 2}))
	require.Equal(t, []int32{1}, kept(haiku.Sampling{TopP: 0.5}))
	require.Equal(t, []int32{1, 3}, kept(haiku.Sampling{TopP: 0.6}))
	require.Equal(t, []int32{0, 1, 3}, kept(haiku.Sampling{TopP: 0.9}))
	require.Equal(t, []int32{1}, kept(haiku.Sampling{TopP: 1e-9}))
	require.Equal(t, []int32{1, 3}, kept(haiku.Sampling{MinP: 0.4}))
	require.Equal(t, []int32{1}, kept(haiku.Sampling{MinP: 1}))
	require.Equal(t, []int32{1, 3}, kept(haiku.Sampling{TopK: 3, TopP: 0.7}), "top-p is of what top-k has left")
}

func logOf(x float64) float32 { return float32(math.Log(x)) }

// distribution computes steps 5 to 9 plainly: everything is sorted, and each
// step renormalises what the one before it has left. It returns probabilities
// by token.
func distribution(logits []float32, o haiku.Sampling) map[int32]float64 {
	type token struct {
		id int32
		p  float64
	}
	var left []token
	best := slices.Max(logits)
	for id, l := range logits {
		if p := math.Exp(float64(l-best) / o.Temperature); p > 0 {
			left = append(left, token{int32(id), p})
		}
	}
	renormalise := func() {
		sum := 0.0
		for _, t := range left {
			sum += t.p
		}
		for i := range left {
			left[i].p /= sum
		}
	}
	until := func(p float64) {
		reached := 0.0
		for i, t := range left {
			if reached += t.p; reached >= p {
				left = left[:i+1]
				return
			}
		}
	}
	renormalise()
	slices.SortStableFunc(left, func(a, b token) int { return cmp.Compare(b.p, a.p) })
	if o.TopK > 0 {
		left = left[:min(o.TopK, len(left))]
		renormalise()
	}
	if o.TopP > 0 && o.TopP < 1 {
		until(o.TopP)
		renormalise()
	}
	if o.MinP > 0 {
		least := o.MinP * left[0].p
		left = slices.DeleteFunc(left, func(t token) bool { return t.p < least })
		renormalise()
	}
	if o.TypicalP > 0 && o.TypicalP < 1 {
		entropy := 0.0
		for _, t := range left {
			entropy -= t.p * math.Log(t.p)
		}
		slices.SortStableFunc(left, func(a, b token) int {
			return cmp.Compare(math.Abs(-math.Log(a.p)-entropy), math.Abs(-math.Log(b.p)-entropy))
		})
		until(o.TypicalP)
		renormalise()
	}
	all := make(map[int32]float64)
	for _, t := range left {
		all[t.id] = t.p
	}
	return all
}

// Logits that lie apart, so that rounding does not decide what is cut off.
func drawLogits(t *rapid.T) []float32 {
	steps := rapid.SliceOfNDistinct(rapid.IntRange(-2000, 2000), 1, 200, rapid.ID[int]).Draw(t, "logits")
	logits := make([]float32, len(steps))
	for i, s := range steps {
		logits[i] = float32(s)/200 + float32(s%7)/1e4
	}
	if len(logits) > 2 && rapid.Bool().Draw(t, "forbidden") {
		logits[1] = negInf
	}
	return logits
}

func TestThePipelineEqualsThePlainOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		logits := drawLogits(t)
		o := haiku.Sampling{Temperature: rapid.Float64Range(0.2, 3).Draw(t, "temperature")}
		if rapid.Bool().Draw(t, "k") {
			o.TopK = rapid.IntRange(1, 250).Draw(t, "top-k")
		}
		for name, p := range map[string]*float64{"top-p": &o.TopP, "min-p": &o.MinP, "typical": &o.TypicalP} {
			if rapid.Bool().Draw(t, name+"?") {
				*p = float64(rapid.IntRange(1, 999).Draw(t, name))/1000 + 1e-7
			}
		}
		want := distribution(logits, o)
		best, err := argmax(logits)
		require.NoError(t, err)
		cs := newSampler(o, 0, 0, nil).candidates(nil, logits, logits[best])
		got := make(map[int32]float64)
		for _, c := range cs {
			got[c.id] = c.share / total(cs)
		}
		require.Len(t, got, len(want), "%+v", o)
		for id, p := range want {
			require.InDelta(t, p, got[id], 1e-9, "token %d of %+v", id, o)
		}
	})
}

// TestTypicalKeepsWhatIsNearestToTheEntropy has probabilities 1/2, 1/4, 1/8 and
// 1/8: an entropy of 1.75 bits, to which 2 bits are nearest, then 1, then 3.
func TestTypicalKeepsWhatIsNearestToTheEntropy(t *testing.T) {
	logits := []float32{logOf(1), logOf(4), logOf(2), logOf(1)}
	kept := func(p float64) []int32 {
		var ids []int32
		for _, c := range newSampler(haiku.Sampling{Temperature: 1, TypicalP: p}, 0, 0, nil).candidates(nil, logits, logits[1]) {
			ids = append(ids, c.id)
		}
		return ids
	}
	require.Equal(t, []int32{2}, kept(0.2))
	require.Equal(t, []int32{2, 1}, kept(0.7))
	require.Equal(t, []int32{2, 1, 0}, kept(0.8))
	require.Equal(t, []int32{0, 1, 2, 3}, kept(1), "all, in their own order")
}

func TestAMaskLeavesOnlyItsTokens(t *testing.T) {
	mask := haiku.NewTokenMask(70)
	mask.Allow(3, 69)
	require.True(t, mask.Allows(69) && !mask.Allows(68))
	logits := make([]float32, 70)
	logits[5], logits[69] = 50, 1
	require.EqualValues(t, 69, next(t, haiku.Sampling{Mask: mask}, 1, 0, logits...))
	seen := map[int32]bool{}
	for position := range 100 {
		seen[next(t, haiku.Sampling{Mask: mask, Temperature: 1}, 1, position, logits...)] = true
	}
	require.Equal(t, map[int32]bool{3: true, 69: true}, seen)
	logits[3], logits[69] = negInf, negInf
	_, err := newSampler(haiku.Sampling{Mask: mask}, 1, 0, nil).next(logits, 0, &scratch{})
	require.ErrorIs(t, err, errBadLogits)
}

// Whatever the logits and the options, next returns a token that has a share,
// or the one error there is.
func TestNoLogitsLeadAstray(t *testing.T) {
	numbers := []float32{0, 1, -1, 1e-30, 3e38, -3e38, negInf, float32(math.Inf(1)), float32(math.NaN()), 88, -104}
	rapid.Check(t, func(t *rapid.T) {
		logits := rapid.SliceOfN(rapid.SampledFrom(numbers), 1, 9).Draw(t, "logits")
		o := haiku.Sampling{
			Temperature: rapid.SampledFrom([]float64{0, 1e-6, 1, 100}).Draw(t, "temperature"),
			TopK:        rapid.SampledFrom([]int{0, 1, 3, 1 << 30}).Draw(t, "k"),
			TopP:        rapid.SampledFrom([]float64{0, 1e-300, 0.5, 1}).Draw(t, "p"), MinP: rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "min"),
			TypicalP:          rapid.SampledFrom([]float64{0, 1e-300, 0.5}).Draw(t, "typical"),
			RepetitionPenalty: rapid.SampledFrom([]float64{0, 0.01, 2, 100}).Draw(t, "repetition"),
			PresencePenalty:   rapid.SampledFrom([]float64{0, -100, 100}).Draw(t, "presence"),
			LogitBias:         map[int32]float32{0: rapid.SampledFrom([]float32{0, 100, -100, negInf}).Draw(t, "bias")},
		}
		s := newSampler(o, 1, 0, []int32{0})
		var tmp scratch
		for position := range 3 {
			own := slices.Clone(logits)
			id, err := s.next(own, position, &tmp)
			if err != nil {
				require.ErrorIs(t, err, errBadLogits)
				return
			}
			require.Greater(t, own[id], negInf)
			lp := s.logprob(own, id, 3, &tmp)
			require.True(t, lp.Logprob <= 0 && lp.Logprob >= -9999, "%v", lp.Logprob)
			for _, top := range lp.Top {
				require.True(t, top.Logprob <= 0 && top.Logprob >= -9999)
			}
		}
	})
}

// TestRandomNumbersNeverChange holds the numbers that seeds have always given:
// another sequence would change every answer that a seed was given for.
func TestRandomNumbersNeverChange(t *testing.T) {
	for _, c := range []struct {
		seed             uint64
		choice, position int
		want             float64
	}{} {
		require.Equal(t, c.want, uniform(c.seed, c.choice, c.position))
	}
	var buckets [16]int
	sum := 0.0
	for i := range 160000 {
		u := uniform(uint64(i%7), i%3, i)
		require.True(t, u >= 0 && u < 1)
		sum += u
		buckets[int(u*16)]++
	}
	require.InDelta(t, 0.5, sum/160000, 0.005)
	for _, n := range buckets {
		require.InDelta(t, 10000, n, 400, "four deviations")
	}
}

func TestATokenDependsOnSeedChoiceAndPositionAlone(t *testing.T) {
	logits := make([]float32, 50)
	o := haiku.Sampling{Temperature: 1}
	first := next(t, o, 7, 3, logits...)
	for range 5 {
		require.Equal(t, first, next(t, o, 7, 3, logits...))
	}
	differ := func(other func(i int) int32) bool {
		for i := range 20 {
			if other(i) != first {
				return true
			}
		}
		return false
	}
	require.True(t, differ(func(i int) int32 { return next(t, o, uint64(8+i), 3, logits...) }), "seed")
	require.True(t, differ(func(i int) int32 { return next(t, o, 7, 4+i, logits...) }), "position")
	require.True(t, differ(func(i int) int32 {
		s := newSampler(o, 7, 1+i, nil)
		id, err := s.next(slices.Clone(logits), 3, &scratch{})
		require.NoError(t, err)
		return id
	}), "choice")
}

func TestDrawsFollowTheDistribution(t *testing.T) {
	// Chi-square over 4 cells; 16.27 is the 0.999 quantile for 3 degrees of
	// freedom, and the seeds are fixed, so the test is deterministic.
	shares := []float64{8, 4, 2, 1}
	logits := []float32{logOf(8), logOf(4), logOf(2), logOf(1)}
	const draws = 30000
	var counts [4]float64
	for i := range draws {
		counts[next(t, haiku.Sampling{Temperature: 1}, 42, i, logits...)]++
	}
	chi := 0.0
	for i, share := range shares {
		want := draws * share / 15
		chi += (counts[i] - want) * (counts[i] - want) / want
	}
	require.Less(t, chi, 16.27)
}

func TestTinyTemperaturesAreGreedyAndHugeOnesUniform(t *testing.T) {
	for position := range 50 {
		require.EqualValues(t, 1, next(t, haiku.Sampling{Temperature: 1e-300}, 3, position, 1, 1.001, -1))
	}
	seen := make(map[int32]bool)
	for position := range 200 {
		seen[next(t, haiku.Sampling{Temperature: 1e308}, 3, position, 100, -100, 0)] = true
	}
	require.Len(t, seen, 3)
}

func TestLogprobsAreThoseOfTheDistributionDrawnFrom(t *testing.T) {
	s := newSampler(haiku.Sampling{Temperature: 2, TopK: 3, LogitBias: map[int32]float32{3: -1000}}, 0, 0, nil)
	logits := []float32{2 * logOf(2), 2 * logOf(1), 2 * logOf(1), 7}
	var tmp scratch
	_, err := s.next(logits, 0, &tmp)
	require.NoError(t, err)
	lp := s.logprob(logits, 1, 4, &tmp)
	require.EqualValues(t, 1, lp.ID)
	require.InDelta(t, math.Log(0.25), lp.Logprob, 1e-6)
	var ids []int32
	var probabilities []float64
	for _, top := range lp.Top {
		ids, probabilities = append(ids, top.ID), append(probabilities, math.Exp(float64(top.Logprob)))
	}
	require.Equal(t, []int32{0, 1, 2}, ids, "best first, equal ones by id, and none that was cut off")
	require.InDeltaSlice(t, []float64{0.5, 0.25, 0.25}, probabilities, 1e-6)
}

func TestGreedyLogprobsAreThoseAtTemperatureOne(t *testing.T) {
	s := newSampler(haiku.Sampling{TopK: 1, LogitBias: map[int32]float32{3: -1000}}, 0, 0, nil)
	logits := []float32{logOf(2), logOf(1), logOf(1), 7}
	var tmp scratch
	id, err := s.next(logits, 0, &tmp)
	require.NoError(t, err)
	lp := s.logprob(logits, id, 2, &tmp)
	require.Zero(t, lp.ID)
	require.InDelta(t, math.Log(0.5), lp.Logprob, 1e-6)
	require.Len(t, lp.Top, 2)
	require.InDelta(t, math.Log(0.25), lp.Top[1].Logprob, 1e-6)
}

func TestSamplingAllocatesNothing(t *testing.T) {
	logits := make([]float32, 1000)
	for i := range logits {
		logits[i] = float32(uniform(1, 0, i)) * 12
	}
	for _, o := range []haiku.Sampling{
		{}, {Temperature: 1}, {Temperature: 1, TopK: 40, TopP: 0.9, MinP: 0.01}, {Temperature: 1, TopP: 0.9}, {Temperature: 1, TypicalP: 0.9},
	} {
		s, tmp := newSampler(o, 1, 0, nil), scratch{}
		require.Zero(t, testing.AllocsPerRun(20, func() {
			id, err := s.next(logits, 5, &tmp)
			if err != nil || s.logprob(logits, id, 5, &tmp) == nil {
				t.Error(err)
			}
		}), "%+v", o)
	}
}

func BenchmarkSample(b *testing.B) {
	for _, vocab := range []int{32000, 128000} {
		logits := make([]float32, vocab)
		for i := range logits {
			logits[i] = float32(uniform(1, 0, i)) * 12
		}
		for name, o := range map[string]haiku.Sampling{
			"greedy":                         {},
			"plain":                          {Temperature: 1},
			"top-p 0.9":                      {Temperature: 0.8, TopP: 0.9},
			"top-k 40":                       {Temperature: 0.8, TopK: 40},
			"top-k 40 top-p 0.95 min-p 0.05": {Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05},
			"min-p 0.05":                     {Temperature: 0.8, MinP: 0.05},
			"typical 0.9":                    {Temperature: 0.8, TypicalP: 0.9},
		} {
			b.Run(fmt.Sprintf("%s/%dk", name, vocab/1000), func(b *testing.B) {
				b.ReportAllocs()
				s := newSampler(o, 1, 0, nil)
				var tmp scratch
				for i := range b.N {
					if _, err := s.next(logits, i, &tmp); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func TestTypicalSamplingBearsSharesOfAlmostNothing(t *testing.T) {
	for _, tail := range []float32{-14.885, -20} { // a share that is denormal, and one that is 0
		h := float32(0.02 * math.Log(0.5))
		var list []candidate
		for id, logit := range []float32{0, h, h, h, tail} {
			list = append(list, candidate{id: int32(id), share: math.Exp(float64(logit) / 0.02)})
		}
		var kept []int32
		for _, c := range typical(list, 0.3) {
			kept = append(kept, c.id)
		}
		require.Equal(t, []int32{1, 2}, kept)
	}
}
