package queueing_test

import (
	"fmt"
	"math"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku/batch/queueing"
)

// R. Bronson, Schaum's Outline of Operations Research (1982), solved problems
// 23.14, 23.3, 24.6.
func TestBronsonsProblems(t *testing.T) {
	q := queueing.MM1{ArrivalRate: 30, ServiceRate: 40} // per hour
	require.InDelta(t, 2.25, q.MeanWaiting(), 1e-12)
	require.InDelta(t, 4.5, q.MeanWait()*60, 1e-12)
	require.InDelta(t, 1.0/6, queueing.MM1{ArrivalRate: 24, ServiceRate: 30}.MeanSojourn(), 1e-12)

	c := queueing.MMC{ArrivalRate: 300, ServiceRate: 182.5, Servers: 3} // per year
	require.InDelta(t, 0.352, c.MeanWaiting(), 5e-4)
	require.InDelta(t, 0.001175, c.MeanWait(), 5e-6)
	require.InDelta(t, 0.006654, c.MeanSojourn(), 5e-6)
}

// A call centre with 0.2 calls per second of 240 s and 55 agents, an example
// that several pages on Erlang C work out (Expected Waiting Time Formulas in
// Maxima is one): P(W>0) = 0.2387, a mean wait of 8.184 s, 84.59% answered
// within 15 s.
func TestCallCentre(t *testing.T) {
	q := queueing.MMC{ArrivalRate: 0.2, ServiceRate: 1.0 / 240, Servers: 55}
	require.InDelta(t, 0.2387, q.Delayed(), 5e-5)
	require.InDelta(t, 8.184, q.MeanWait(), 5e-4)
	require.InDelta(t, 0.8459, 1-q.WaitTail(15), 5e-5)
}

// Two servers have a closed form without sums: C = 2ρ²/(1+ρ); three servers at
// 2 erlangs wait with probability 4/9.
func TestErlangCOfFewServers(t *testing.T) {
	for _, rho := range []float64{0.1, 0.5, 0.9, 0.999} {
		q := queueing.MMC{ArrivalRate: 2 * rho, ServiceRate: 1, Servers: 2}
		require.InEpsilon(t, 2*rho*rho/(1+rho), q.Delayed(), 1e-12)
	}
	require.InEpsilon(t, 4.0/9, queueing.MMC{ArrivalRate: 2, ServiceRate: 1, Servers: 3}.Delayed(), 1e-12)
}

// The textbook's sum overflows a float64 from about 170 servers on; here it is
// added up with 200 digits.
func TestErlangCOfManyServers(t *testing.T) {
	for _, servers := range []int{170, 500, 2000} {
		for _, rho := range []float64{0.5, 0.9, 0.99} {
			num := func(x float64) *big.Float { return new(big.Float).SetPrec(700).SetFloat64(x) }
			offered := num(rho * float64(servers))
			term, sum := num(1), num(0)
			for k := range servers {
				sum.Add(sum, term)
				term.Quo(term.Mul(term, offered), num(float64(k+1)))
			}
			term.Quo(term, num(1).Sub(num(1), num(1).Quo(offered, num(float64(servers)))))
			want, _ := num(0).Quo(term, num(0).Add(sum, term)).Float64()
			got := queueing.MMC{ArrivalRate: rho * float64(servers), ServiceRate: 1, Servers: servers}.Delayed()
			require.InEpsilon(t, want, got, 1e-9, "%d servers at %g", servers, rho)
		}
	}
}

// With c = n + β√n servers for n erlangs, C tends to 1/(1+βΦ(β)/φ(β)): Halfin
// and Whitt, Operations Research 29 (1981).
func TestErlangCOfAMillionServers(t *testing.T) {
	q := queueing.MMC{ArrivalRate: 1e6 - 1000, ServiceRate: 1, Servers: 1e6}
	cdf, density := (1+math.Erf(math.Sqrt(.5)))/2, math.Exp(-.5)/math.Sqrt(2*math.Pi)
	require.InDelta(t, 1/(1+cdf/density), q.Delayed(), 1e-3)
}

// Erlang's own result by partial sums with alternating signs, fit for short
// times only: P(W ≤ t) = (1−ρ)·Σ e^(ρ(t−k))·(−ρ(t−k))^k/k!, t in service times.
func TestConstantServiceAgreesWithErlang(t *testing.T) {
	for _, rho := range []float64{0.1, 0.5, 0.9} {
		for at := 0.0; at < 8; at += 0.37 {
			var sum, factorial float64 = 0, 1
			for k := 0; k <= int(at); k++ {
				y := rho * (at - float64(k))
				sum += math.Exp(y) * math.Pow(-y, float64(k)) / factorial
				factorial *= float64(k + 1)
			}
			require.InDelta(t, 1-(1-rho)*sum, queueing.MG1{ArrivalRate: rho, MeanService: 1}.WaitTail(at), 1e-9, "ρ %g, t %g", rho, at)
		}
	}
}

// The mean is the area under the tail, near and far.
func TestConstantServiceTailHasTheExactMean(t *testing.T) {
	for _, rho := range []float64{0.01, 0.5, 0.9, 0.99, 0.9999} {
		q := queueing.MG1{ArrivalRate: rho, MeanService: 1}
		area, step := 0.0, 1.0/64
		for at := 0.0; ; at += step {
			if at >= 64 {
				step = 1 / (1 - rho) / 512
			}
			// Simpson's rule; a step never spans a whole service time, where
			// the tail has a kink, before 64.
			part := step / 6 * (q.WaitTail(at) + 4*q.WaitTail(at+step/2) + q.WaitTail(at+step*(1-1e-12)))
			if area += part; part < 1e-12 {
				break
			}
		}
		require.InEpsilon(t, q.MeanWait(), area, 1e-3, "ρ %g", rho)
	}
}

func TestMG1IsMM1AtSCVOne(t *testing.T) {
	for _, rho := range []float64{0.1, 0.5, 0.95} {
		g, m := queueing.MG1{ArrivalRate: 100 * rho, MeanService: .01, SCV: 1}, queueing.MM1{ArrivalRate: 100 * rho, ServiceRate: 100}
		c := queueing.MMC{ArrivalRate: 100 * rho, ServiceRate: 100, Servers: 1}
		for _, at := range []float64{0, .001, .02, .3} {
			require.InDelta(t, m.WaitTail(at), g.WaitTail(at), 1e-12)
			require.InDelta(t, m.SojournTail(at), g.SojournTail(at), 1e-12)
			require.InDelta(t, m.WaitTail(at), c.WaitTail(at), 1e-12)
			require.InDelta(t, m.SojournTail(at), c.SojournTail(at), 1e-12)
		}
	}
}

func TestMaxArrivalRateOfMM1(t *testing.T) {
	q := queueing.MM1{ServiceRate: 100}
	// e^(−(μ−λ)t) = p has the solution λ = μ − ln(1/p)/t.
	require.InDelta(t, 100-math.Log(20)/.2, q.MaxArrivalRate(queueing.SLO{Within: .2, Misses: .05, Of: queueing.Sojourn}), 1e-9)
	require.Zero(t, q.MaxArrivalRate(queueing.SLO{Within: .001, Misses: .05, Of: queueing.Sojourn}), "service alone is too long")
	require.Equal(t, 100.0, q.MaxArrivalRate(queueing.SLO{Within: .001, Misses: 1}))
	require.InDelta(t, 5, q.MaxArrivalRate(queueing.SLO{Misses: .05}), 1e-9, "P(W>0) is ρ")
}

func TestOverloadHasNoStationaryState(t *testing.T) {
	for _, q := range []closedForm{
		queueing.MM1{ArrivalRate: 100, ServiceRate: 100}, queueing.MM1{ArrivalRate: 101, ServiceRate: 100},
		queueing.MMC{ArrivalRate: 200, ServiceRate: 100, Servers: 2}, queueing.MG1{ArrivalRate: 1, MeanService: 1},
		queueing.MG1{ArrivalRate: 2, MeanService: 1, SCV: 2},
		queueing.MM1{}, queueing.MMC{}, queueing.MG1{},
		queueing.MM1{ArrivalRate: math.NaN(), ServiceRate: 1}, queueing.MMC{ArrivalRate: 1, ServiceRate: 1, Servers: -3},
		queueing.MG1{ArrivalRate: 1, MeanService: .1, SCV: math.NaN()}, queueing.MG1{ArrivalRate: 1, MeanService: math.Inf(1)},
	} {
		require.GreaterOrEqual(t, q.Utilization(), 1.0, "%#v", q)
		for _, infinite := range []float64{q.MeanWait(), q.MeanSojourn(), q.MeanWaiting(), q.WaitQuantile(.5), q.SojournQuantile(.5)} {
			require.True(t, math.IsInf(infinite, 1), "%#v: %g", q, infinite)
		}
		require.Equal(t, 1.0, q.WaitTail(1e9))
		require.Equal(t, 1.0, q.SojournTail(1e9))
	}
}

// anyFloat draws ordinary numbers and those that break formulas.
var anyFloat = rapid.OneOf(rapid.Float64Range(0, 1000), rapid.Float64(), rapid.SampledFrom([]float64{
	0, 1, -1, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64, 1e-300, 1e300, 1e-308, 1.7e308}))

var anyModel = rapid.Custom(func(t *rapid.T) closedForm {
	rate, service := anyFloat.Draw(t, "rate"), anyFloat.Draw(t, "service")
	return rapid.SampledFrom([]closedForm{
		queueing.MM1{ArrivalRate: rate, ServiceRate: service},
		queueing.MMC{ArrivalRate: rate, ServiceRate: service, Servers: rapid.IntRange(-1, 300).Draw(t, "servers")},
		queueing.MG1{ArrivalRate: rate, MeanService: 1 / service, SCV: anyFloat.Draw(t, "scv")},
	}).Draw(t, "model")
})

func TestNoResultIsNaNOrNegative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q, x := anyModel.Draw(t, "q"), anyFloat.Draw(t, "x")
		slo := queueing.SLO{Within: x, Misses: anyFloat.Draw(t, "misses"), Of: rapid.SampledFrom([]queueing.Measure{queueing.Wait, queueing.Sojourn}).Draw(t, "of")}
		for name, v := range map[string]float64{
			"utilisation": q.Utilization(), "mean wait": q.MeanWait(), "mean sojourn": q.MeanSojourn(), "waiting": q.MeanWaiting(),
			"wait tail": q.WaitTail(x), "sojourn tail": q.SojournTail(x), "wait quantile": q.WaitQuantile(x),
			"sojourn quantile": q.SojournQuantile(x), "max rate": q.MaxArrivalRate(slo),
		} {
			if !(v >= 0) || strings.Contains(name, "tail") && v > 1 {
				t.Fatalf("%#v at %g: %s is %g", q, x, name, v)
			}
		}
	})
}

// What random parameters have found: intermediate results beyond a float64.
func TestExtremeParametersGiveLimits(t *testing.T) {
	require.Zero(t, queueing.MG1{ArrivalRate: 1, MeanService: 1e-300, SCV: math.SmallestNonzeroFloat64}.SojournTail(1))
	require.Zero(t, queueing.MG1{MeanService: 6e-309, SCV: 1}.WaitQuantile(.5))
	require.Zero(t, queueing.MG1{ArrivalRate: 9e-13, MeanService: 2.0 / 3, SCV: 1}.SojournTail(1.7e308))
}

// sane draws a stable queue of any kind around a service time of 1.
var sane = rapid.Custom(func(t *rapid.T) closedForm {
	rho := rapid.Float64Range(0.01, 0.99).Draw(t, "rho")
	c := rapid.IntRange(1, 50).Draw(t, "servers")
	return rapid.SampledFrom([]closedForm{
		queueing.MM1{ArrivalRate: rho, ServiceRate: 1},
		queueing.MMC{ArrivalRate: rho * float64(c), ServiceRate: 1, Servers: c},
		queueing.MG1{ArrivalRate: rho, MeanService: 1},
		queueing.MG1{ArrivalRate: rho, MeanService: 1, SCV: rapid.Float64Range(0.01, 9).Draw(t, "scv")},
	}).Draw(t, "model")
})

func TestTailsFallAndQuantilesInvertThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := sane.Draw(t, "q")
		a, b := rapid.Float64Range(0, 60).Draw(t, "a"), rapid.Float64Range(0, 60).Draw(t, "b")
		a, b = min(a, b), max(a, b)
		const rounding = 1e-9
		require.LessOrEqual(t, q.WaitTail(b), q.WaitTail(a)+rounding)
		require.LessOrEqual(t, q.SojournTail(b), q.SojournTail(a)+rounding)
		require.LessOrEqual(t, q.WaitTail(a), q.SojournTail(a)+rounding, "waiting is part of the sojourn")
		share := rapid.Float64Range(0.01, 0.999).Draw(t, "share")
		require.LessOrEqual(t, q.WaitTail(q.WaitQuantile(share)), 1-share+rounding)
		require.LessOrEqual(t, q.SojournTail(q.SojournQuantile(share)), 1-share+rounding)
		require.GreaterOrEqual(t, q.SojournTail(q.SojournQuantile(share)*(1-1e-6)), 1-share-rounding)
	})
}

func TestMaxArrivalRateIsTheEdge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slo := queueing.SLO{
			Within: rapid.Float64Range(0.1, 50).Draw(t, "within"), Misses: rapid.Float64Range(0.001, 0.5).Draw(t, "misses"),
			Of: rapid.SampledFrom([]queueing.Measure{queueing.Wait, queueing.Sojourn}).Draw(t, "of"),
		}
		var at func(rate float64) closedForm
		q := sane.Draw(t, "q")
		switch m := q.(type) {
		case queueing.MM1:
			at = func(rate float64) closedForm { m.ArrivalRate = rate; return m }
		case queueing.MMC:
			at = func(rate float64) closedForm { m.ArrivalRate = rate; return m }
		case queueing.MG1:
			at = func(rate float64) closedForm { m.ArrivalRate = rate; return m }
		}
		missed := func(rate float64) float64 {
			if slo.Of == queueing.Sojourn {
				return at(rate).SojournTail(slo.Within)
			}
			return at(rate).WaitTail(slo.Within)
		}
		rate := q.MaxArrivalRate(slo)
		if rate > 0 {
			require.LessOrEqual(t, missed(rate), slo.Misses)
		}
		require.Greater(t, missed(rate*(1+1e-6)+1e-9), slo.Misses-1e-9)
	})
}

// shortcutTable computes the table of the package's documentation.
func shortcutTable() string {
	var b strings.Builder
	const within, service = 0.2, 100.0
	fmt.Fprintf(&b, "%2s  %12s  %14s  %8s  %14s\n", "λ", "P(wait > t)", "P(sojourn > t)", "shortcut", "wait/shortcut")
	for _, rate := range []float64{85, 90, 92, 95} {
		q := queueing.MM1{ArrivalRate: rate, ServiceRate: service}
		rho := q.Utilization()
		shortcut := rho * rho * math.Exp(-2*(service-rate)*within)
		fmt.Fprintf(&b, "%2g  %11.4f%%  %13.4f%%  %7.4f%%  %13.1f×\n",
			rate, 100*q.WaitTail(within), 100*q.SojournTail(within), 100*shortcut, q.WaitTail(within)/shortcut)
	}
	return b.String()
}

func TestDocumentationHoldsTheComputedTable(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	require.Contains(t, string(doc), "//\t"+strings.ReplaceAll(strings.TrimSuffix(shortcutTable(), "\n"), "\n", "\n//\t")+"\n")
}

func TestDurationSaturates(t *testing.T) {
	require.Equal(t, 1500*time.Millisecond, queueing.Duration(1.5))
	require.Equal(t, time.Duration(math.MaxInt64), queueing.Duration(math.Inf(1)))
	require.Zero(t, queueing.Duration(-1))
	require.Zero(t, queueing.Duration(math.NaN()))
}
