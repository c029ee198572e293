package queueing

import "math"

// MM1 is a queue with Poisson arrivals, exponential service times and one
// server. All its results are exact.
type MM1 struct {
	// ArrivalRate is λ, requests per second.
	ArrivalRate float64
	// ServiceRate is μ, requests per second that a busy server completes; 1/μ
	// is the mean service time.
	ServiceRate float64
}

// Utilization returns ρ = λ/μ. From 1 on the queue has no stationary state.
func (q MM1) Utilization() float64 { return load(q.ArrivalRate, q.ServiceRate) }

func (q MM1) wait() delayed {
	rho := q.Utilization()
	if rho >= 1 {
		return delayed{share: 1}
	}
	return delayed{share: rho, rate: q.ServiceRate - q.ArrivalRate}
}

// MeanWait returns ρ/(μ−λ), the mean time in the queue.
func (q MM1) MeanWait() float64 { return q.wait().mean() }

// MeanSojourn returns 1/(μ−λ), the mean time in the queue and in service.
func (q MM1) MeanSojourn() float64 { return meanSojourn(q.MeanWait(), 1/q.ServiceRate) }

// MeanWaiting returns ρ²/(1−ρ), the mean number of requests in the queue, not
// counting the one in service.
func (q MM1) MeanWaiting() float64 { return littlesLaw(q.ArrivalRate, q.MeanWait()) }

// WaitTail returns P(W > t) = ρ·e^(−(μ−λ)t) of the wait W.
func (q MM1) WaitTail(t float64) float64 { return q.wait().tail(t) }

// SojournTail returns P(T > t) = e^(−(μ−λ)t) of the sojourn time T.
func (q MM1) SojournTail(t float64) float64 { return q.sojourn().tail(t) }

// WaitQuantile returns the time that the given share of waits does not exceed:
// 0.99 asks for the 99th percentile. It is 0 for a share up to 1−ρ, since so
// many do not wait at all.
func (q MM1) WaitQuantile(share float64) float64 { return q.wait().quantile(share) }

// SojournQuantile returns the time that the given share of sojourn times does
// not exceed.
func (q MM1) SojournQuantile(share float64) float64 { return q.sojourn().quantile(share) }

// sojourn is exponential, like a wait that nobody is spared.
func (q MM1) sojourn() delayed { return delayed{share: 1, rate: q.wait().rate} }

// MaxArrivalRate returns the largest λ that keeps the objective at the
// queue's ServiceRate; its own ArrivalRate does not count. It is 0 if not even
// a lone request keeps it, and never more than the capacity μ.
func (q MM1) MaxArrivalRate(slo SLO) float64 {
	return largestRate(q.ServiceRate, slo, func(rate float64) float64 {
		q.ArrivalRate = rate
		if slo.Of == Sojourn {
			return q.SojournTail(slo.Within)
		}
		return q.WaitTail(slo.Within)
	})
}

// littlesLaw returns L = λ·W, where nobody comes to an endless queue too.
func littlesLaw(rate, wait float64) float64 {
	if math.IsInf(wait, 1) {
		return wait
	}
	return rate * wait
}

// meanSojourn adds the service to a wait; an endless wait stays so, whatever
// the parameters that made it.
func meanSojourn(wait, service float64) float64 {
	if math.IsInf(wait, 1) {
		return wait
	}
	return wait + service
}
