package queueing

// MMC is the M/M/c queue: Poisson arrivals, exponential service times, one
// queue before several servers of the same speed (Erlang's delay system). All
// its results are exact. Each call takes time proportional to Servers: a
// million need a few milliseconds.
type MMC struct {
	// ArrivalRate is λ, requests per second to all servers together.
	ArrivalRate float64
	// ServiceRate is μ, requests per second that one busy server completes.
	ServiceRate float64
	// Servers is c, at least 1.
	Servers int
}

// capacity is what all servers complete together, 0 if that makes no sense.
func (q MMC) capacity() float64 { return float64(max(0, q.Servers)) * q.ServiceRate }

// Utilization returns ρ = λ/(cμ), the share of time that a server is busy. From
// 1 on the queue has no stationary state.
func (q MMC) Utilization() float64 { return load(q.ArrivalRate, q.capacity()) }

// Delayed returns Erlang's C formula, the probability P(W > 0) that a request
// has to wait.
//
// It is B/(1−ρ(1−B)), where B is Erlang's loss formula by its recursion over
// servers; no factorial or power occurs, so that nothing overflows for large c.
func (q MMC) Delayed() float64 {
	rho := q.Utilization()
	if rho >= 1 {
		return 1
	}
	offered := q.ArrivalRate / q.ServiceRate
	loss := 1.0
	for server := 1; server <= q.Servers; server++ {
		loss = offered * loss / (float64(server) + offered*loss)
	}
	return loss / (1 - rho*(1-loss))
}

func (q MMC) wait() delayed {
	if q.Utilization() >= 1 {
		return delayed{share: 1}
	}
	return delayed{share: q.Delayed(), rate: q.capacity() - q.ArrivalRate}
}

// MeanWait returns C/(cμ−λ), the mean time in the queue.
func (q MMC) MeanWait() float64 { return q.wait().mean() }

// MeanSojourn returns the mean time in the queue and in service.
func (q MMC) MeanSojourn() float64 { return meanSojourn(q.MeanWait(), 1/q.ServiceRate) }

// MeanWaiting returns the mean number of requests in the queue, not counting
// those in service.
func (q MMC) MeanWaiting() float64 { return littlesLaw(q.ArrivalRate, q.MeanWait()) }

// WaitTail returns P(W > t) = C·e^(−(cμ−λ)t) of the wait W.
func (q MMC) WaitTail(t float64) float64 { return q.wait().tail(t) }

// SojournTail returns P(T > t) of the sojourn time T, the sum of the wait and
// an exponential service time.
func (q MMC) SojournTail(t float64) float64 { return q.wait().sumTail(t, q.ServiceRate) }

// WaitQuantile returns the time that the given share of waits does not exceed.
// It is 0 for a share up to 1−C, since so many do not wait at all.
func (q MMC) WaitQuantile(share float64) float64 { return q.wait().quantile(share) }

// SojournQuantile returns the time that the given share of sojourn times does
// not exceed.
func (q MMC) SojournQuantile(share float64) float64 {
	wait, mean := q.wait(), q.MeanSojourn()
	return quantileOf(func(t float64) float64 { return wait.sumTail(t, q.ServiceRate) }, share, mean)
}

// MaxArrivalRate returns the largest λ that keeps the objective with these
// servers; the queue's own ArrivalRate does not count. It is 0 if not even a
// lone request keeps it, and never more than the capacity cμ.
func (q MMC) MaxArrivalRate(slo SLO) float64 {
	return largestRate(q.capacity(), slo, func(rate float64) float64 {
		q.ArrivalRate = rate
		if slo.Of == Sojourn {
			return q.SojournTail(slo.Within)
		}
		return q.WaitTail(slo.Within)
	})
}
