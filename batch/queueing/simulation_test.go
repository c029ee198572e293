package queueing_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/batch/queueing"
)

// closedForm is what all the models offer.
type closedForm interface {
	Utilization() float64
	MeanWait() float64
	MeanSojourn() float64
	MeanWaiting() float64
	WaitTail(t float64) float64
	SojournTail(t float64) float64
	WaitQuantile(share float64) float64
	SojournQuantile(share float64) float64
	MaxArrivalRate(slo queueing.SLO) float64
}

var (
	_ closedForm = queueing.MM1{}
	_ closedForm = queueing.MMC{}
	_ closedForm = queueing.MG1{}
)

// sample is what one batch of a simulation measured.
type sample struct {
	busy, waiting  float64   // means over time: share of servers busy, requests in the queue
	wait, sojourn  float64   // means over requests
	waitTail, tail []float64 // shares of requests above each of the times
}

// simulation is a queue as a sequence of events: the next arrival, or the next
// end of a service, whichever comes first. It knows no formula.
type simulation struct {
	rng      *rand.Rand
	rate     float64
	service  func(*rand.Rand) float64
	ends     []float64 // of the services that run, +Inf for an idle server
	queue    []float64 // arrival times of those that wait
	now      float64
	arriving float64
}

// run lets requests arrive until so many have begun their service.
func (s *simulation) run(requests int, times []float64) sample {
	out := sample{waitTail: make([]float64, len(times)), tail: make([]float64, len(times))}
	began, start := 0, s.now
	for began < requests {
		first, busy := 0, 0
		for i, end := range s.ends {
			if end < s.ends[first] {
				first = i
			}
			if !math.IsInf(end, 1) {
				busy++
			}
		}
		next := min(s.ends[first], s.arriving)
		out.waiting += float64(len(s.queue)) * (next - s.now)
		out.busy += float64(busy) / float64(len(s.ends)) * (next - s.now)
		s.now = next
		if next == s.arriving {
			s.queue = append(s.queue, next)
			s.arriving += s.rng.ExpFloat64() / s.rate
		} else {
			s.ends[first] = math.Inf(1)
		}
		for i := 0; i < len(s.ends) && len(s.queue) > 0; i++ {
			if math.IsInf(s.ends[i], 1) {
				work := s.service(s.rng)
				s.ends[i] = s.now + work
				out.add(s.now-s.queue[0], work, times)
				s.queue = s.queue[1:]
				began++
			}
		}
	}
	out.scale(1/float64(requests), 1/(s.now-start))
	return out
}

func (o *sample) add(wait, service float64, times []float64) {
	o.wait += wait
	o.sojourn += wait + service
	for i, t := range times {
		if wait > t {
			o.waitTail[i]++
		}
		if wait+service > t {
			o.tail[i]++
		}
	}
}

func (o *sample) scale(perRequest, perTime float64) {
	o.waiting *= perTime
	o.busy *= perTime
	o.wait *= perRequest
	o.sojourn *= perRequest
	for i := range o.tail {
		o.waitTail[i] *= perRequest
		o.tail[i] *= perRequest
	}
}

// simulate returns batches that are long enough to be nearly independent.
func simulate(rate float64, servers int, service func(*rand.Rand) float64, times []float64) []sample {
	s := simulation{rng: rand.New(rand.NewPCG(7, 11)), rate: rate, service: service, ends: make([]float64, servers)}
	for i := range s.ends {
		s.ends[i] = math.Inf(1)
	}
	perBatch := 40_000
	if testing.Short() {
		perBatch = 8_000
	}
	s.run(perBatch, times) // from empty to the stationary state
	batches := make([]sample, 20)
	for i := range batches {
		batches[i] = s.run(perBatch, times)
	}
	return batches
}

// within fails unless want lies in the confidence interval of the batches'
// means: four standard errors, which a right formula leaves once in 1000 times
// (Student's t, 19 degrees of freedom), and slack for what is approximate.
func within(t *testing.T, want, slack float64, batches []sample, of func(sample) float64, what string) {
	t.Helper()
	var sum, squares float64
	for _, b := range batches {
		sum += of(b)
		squares += of(b) * of(b)
	}
	n := float64(len(batches))
	mean := sum / n
	deviation := math.Sqrt(max(0, squares/n-mean*mean) / (n - 1))
	require.InDelta(t, mean, want, 4*deviation+slack+1e-9, what)
}

func exponential(mean float64) func(*rand.Rand) float64 {
	return func(r *rand.Rand) float64 { return mean * r.ExpFloat64() }
}

func constant(mean float64) func(*rand.Rand) float64 {
	return func(*rand.Rand) float64 { return mean }
}

// erlang has SCV 1/phases.
func erlang(mean float64, phases int) func(*rand.Rand) float64 {
	return func(r *rand.Rand) (sum float64) {
		for range phases {
			sum += mean / float64(phases) * r.ExpFloat64()
		}
		return sum
	}
}

// twoSpeeds is one of two exponentials of balanced means.
func twoSpeeds(mean, scv float64) func(*rand.Rand) float64 {
	often := (1 + math.Sqrt((scv-1)/(scv+1))) / 2
	return func(r *rand.Rand) float64 {
		if r.Float64() < often {
			return mean / (2 * often) * r.ExpFloat64()
		}
		return mean / (2 * (1 - often)) * r.ExpFloat64()
	}
}

// Every formula against the simulation; slack is 0 where a tail is exact.
func TestClosedFormsAgreeWithSimulation(t *testing.T) {
	type test struct {
		name    string
		model   closedForm
		rate    float64
		servers int
		service func(*rand.Rand) float64
		slack   float64
	}
	var tests []test
	for _, rho := range []float64{0.5, 0.8} {
		tests = append(tests,
			test{"M/M/1", queueing.MM1{ArrivalRate: 100 * rho, ServiceRate: 100}, 100 * rho, 1, exponential(.01), 0},
			test{"M/M/3", queueing.MMC{ArrivalRate: 300 * rho, ServiceRate: 100, Servers: 3}, 300 * rho, 3, exponential(.01), 0},
			test{"M/M/16", queueing.MMC{ArrivalRate: 1600 * rho, ServiceRate: 100, Servers: 16}, 1600 * rho, 16, exponential(.01), 0},
			test{"M/D/1", queueing.MG1{ArrivalRate: 100 * rho, MeanService: .01}, 100 * rho, 1, constant(.01), 0},
			test{"M/G/1 exponential", queueing.MG1{ArrivalRate: 100 * rho, MeanService: .01, SCV: 1}, 100 * rho, 1, exponential(.01), 0},
			test{"M/E4/1", queueing.MG1{ArrivalRate: 100 * rho, MeanService: .01, SCV: .25}, 100 * rho, 1, erlang(.01, 4), .06},
			test{"M/E2/1", queueing.MG1{ArrivalRate: 100 * rho, MeanService: .01, SCV: .5}, 100 * rho, 1, erlang(.01, 2), .06},
			test{"M/H2/1", queueing.MG1{ArrivalRate: 100 * rho, MeanService: .01, SCV: 4}, 100 * rho, 1, twoSpeeds(.01, 4), .06},
		)
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s at %g", tt.name, tt.rate), func(t *testing.T) {
			const resolution = 2e-5 // of a tail that few requests, or none, reached
			var times []float64
			for i := range 12 {
				times = append(times, tt.model.MeanSojourn()*float64(i)/3)
			}
			batches := simulate(tt.rate, tt.servers, tt.service, times)
			within(t, tt.model.Utilization(), 0, batches, func(s sample) float64 { return s.busy }, "utilisation")
			within(t, tt.model.MeanWaiting(), 0, batches, func(s sample) float64 { return s.waiting }, "mean number waiting")
			within(t, tt.model.MeanWait(), 0, batches, func(s sample) float64 { return s.wait }, "mean wait")
			within(t, tt.model.MeanSojourn(), 0, batches, func(s sample) float64 { return s.sojourn }, "mean sojourn")
			for i, at := range times {
				within(t, tt.model.WaitTail(at), tt.slack+resolution, batches, func(s sample) float64 { return s.waitTail[i] }, fmt.Sprintf("P(W>%g)", at))
				within(t, tt.model.SojournTail(at), tt.slack+resolution, batches, func(s sample) float64 { return s.tail[i] }, fmt.Sprintf("P(T>%g)", at))
			}
		})
	}
}
