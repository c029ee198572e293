package queueing

import "math"

// exactServices is how many service times back the M/D/1 tail is computed from
// queue lengths. Behind, the next term of its expansion is below 1e-12 of the
// first one, so that the first alone is the tail.
const exactServices = 32

// constantServiceTail returns P(W > t) of an M/D/1 queue of utilisation
// 0 ≤ rho < 1, t in service times.
func constantServiceTail(rho, t float64) float64 {
	if rho == 0 {
		return 0
	}
	if t < exactServices {
		// What 1 leaves of a sum close to it has few digits.
		if tail := franxTail(rho, t); tail > 1e-9 {
			return tail
		}
	}
	decay := constantServiceDecay(rho)
	return min(1, (1-rho)/(decay+rho-1)*math.Exp(-decay*t))
}

// franxTail counts requests at the last instant that is a whole number of
// services before the wait would exceed t. Of those in the queue then and the
// Poisson arrivals since, as many as services fit are served in time.
func franxTail(rho, t float64) float64 {
	services := int(t) + 1
	waiting := constantServiceQueue(rho, services)
	mean := rho * (float64(services) - t)
	poisson, within := math.Exp(-mean), 0.0
	for arrived := range services {
		within += poisson * waiting[services-1-arrived]
		poisson *= mean / float64(arrived+1)
	}
	return max(0, 1-within)
}

// constantServiceQueue returns P(number waiting ≤ j), for j below n, in the
// first n places: Ramaswami's recursion for the number in the system, where the
// flows up and down between j and j+1 must be equal.
func constantServiceQueue(rho float64, n int) (cumulative [exactServices]float64) {
	var more [exactServices + 1]float64 // P(arrivals in a service > j)
	none := math.Exp(-rho)
	for j, p, sum := 0, none, 0.0; j <= n; j++ {
		sum += p
		more[j] = max(0, 1-sum)
		p *= rho / float64(j+1)
	}
	var system [exactServices + 1]float64
	system[0] = 1 - rho
	total := system[0]
	for j := range n {
		up := system[0] * more[j]
		for i := 1; i <= j; i++ {
			up += system[i] * more[j+1-i]
		}
		system[j+1] = up / none
		total += system[j+1]
		cumulative[j] = total // waiting ≤ j is j+1 in the system at most
	}
	return cumulative
}

// constantServiceDecay returns the rate at which the tail falls per service
// time: the positive solution of rho·(e^x − 1) = x.
func constantServiceDecay(rho float64) float64 {
	below := func(x float64) bool { return rho*math.Expm1(x) < x }
	hi := 1.0
	for below(hi) {
		hi *= 2
	}
	return bisect(0, hi, below)
}
