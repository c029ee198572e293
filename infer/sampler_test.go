package infer

import (
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

func TestNucleusEqualsTheOneFoundBySortingEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		logits := rapid.SliceOfN(rapid.Float32Range(-8, 8), 1, 300).Draw(t, "logits")
		p := rapid.Float64Range(0.01, 0.99).Draw(t, "p")
		best, err := argmax(logits)
		require.NoError(t, err)
		s := newSampler(haiku.Sampling{Temperature: 1, TopP: p}, 0, 0, nil)
		got := s.candidates(nil, logits, logits[best])

		all := newSampler(haiku.Sampling{Temperature: 1, TopK: len(logits) - 1}, 0, 0, nil)
		sorted := all.candidates(nil, logits, logits[best])
		if len(logits) == 1 {
			require.Len(t, got, 1)
			return
		}
		sum := 0.0
		for _, l := range logits {
			sum += math.Exp(float64(l - logits[best]))
		}
		require.Equal(t, nucleus(sorted, p, sum), got[:min(len(got), len(sorted))])
	})
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

func TestLogprobsAreThoseOfTheDistributionSampledFrom(t *testing.T) {
	s := newSampler(haiku.Sampling{Temperature: 2, LogitBias: map[int32]float32{3: -1000}}, 0, 0, nil)
	logits := []float32{2 * logOf(2), 2 * logOf(1), 2 * logOf(1), 7}
	var tmp scratch
	_, err := s.next(logits, 0, &tmp)
	require.NoError(t, err)

	lp := s.logprob(logits, 1, 4, &tmp)

	require.InDelta(t, math.Log(0.25), lp.Logprob, 1e-6)
	require.EqualValues(t, 1, lp.ID)
	var ids []int32
	for _, top := range lp.Top {
		ids = append(ids, top.ID)
	}
	require.Equal(t, []int32{0, 1, 2, 3}, ids, "best first, equal ones by id")
	require.InDelta(t, math.Log(0.5), lp.Top[0].Logprob, 1e-6)
	require.InDelta(t, -993.0/2-math.Log(2)-math.Log(2), lp.Top[3].Logprob, 1e-3)
}

func BenchmarkSample32kVocabulary(b *testing.B) {
	logits := make([]float32, 32000)
	for i := range logits {
		logits[i] = float32(uniform(1, 0, i)) * 12
	}
	for name, o := range map[string]haiku.Sampling{
		"greedy":     {},
		"plain":      {Temperature: 1},
		"top-p 0.9":  {Temperature: 0.8, TopP: 0.9},
		"top-k 40":   {Temperature: 0.8, TopK: 40},
		"min-p 0.05": {Temperature: 0.8, MinP: 0.05},
	} {
		b.Run(name, func(b *testing.B) {
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
