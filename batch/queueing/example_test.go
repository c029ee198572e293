package queueing_test

import (
	"fmt"
	"math"

	"github.com/intelliparadigm/haiku/batch/queueing"
)

// How far the popular shortcut is from the true tail at μ = 100 per second.
func ExampleMM1_WaitTail() {
	const within = 0.2 // seconds
	for _, rate := range []float64{85, 90, 92, 95} {
		q := queueing.MM1{ArrivalRate: rate, ServiceRate: 100}
		rho := q.Utilization()
		shortcut := rho * rho * math.Exp(-2*(q.ServiceRate-q.ArrivalRate)*within)
		fmt.Printf("λ %g: wait %.2f%%, sojourn %.2f%%, shortcut %.2f%%\n",
			rate, 100*q.WaitTail(within), 100*q.SojournTail(within), 100*shortcut)
	}
	// Output:
	// λ 85: wait 4.23%, sojourn 4.98%, shortcut 0.18%
	// λ 90: wait 12.18%, sojourn 13.53%, shortcut 1.48%
	// λ 92: wait 18.57%, sojourn 20.19%, shortcut 3.45%
	// λ 95: wait 34.95%, sojourn 36.79%, shortcut 12.21%
}

// The load at which 95% of requests are answered within 200 ms.
func ExampleMM1_MaxArrivalRate() {
	q := queueing.MM1{ServiceRate: 100}
	rate := q.MaxArrivalRate(queueing.SLO{Within: 0.2, Misses: 0.05, Of: queueing.Sojourn})
	fmt.Printf("%.1f requests per second\n", rate)
	// Output: 85.0 requests per second
}

// Eight workers that share one queue, against one worker's share of the load.
func ExampleMMC() {
	pooled := queueing.MMC{ArrivalRate: 72, ServiceRate: 10, Servers: 8}
	alone := queueing.MM1{ArrivalRate: 9, ServiceRate: 10}
	fmt.Println("pooled:", queueing.Duration(pooled.MeanWait()).Round(1e6), queueing.Duration(pooled.WaitQuantile(.99)).Round(1e6))
	fmt.Println("alone: ", queueing.Duration(alone.MeanWait()).Round(1e6), queueing.Duration(alone.WaitQuantile(.99)).Round(1e6))
	// Output:
	// pooled: 88ms 531ms
	// alone:  900ms 4.5s
}

// Equal service times halve the wait of exponential ones.
func ExampleMG1() {
	for _, scv := range []float64{0, 1, 4} {
		q := queueing.MG1{ArrivalRate: 80, MeanService: 0.01, SCV: scv}
		fmt.Printf("SCV %g: mean wait %v\n", scv, queueing.Duration(q.MeanWait()).Round(1e6))
	}
	// Output:
	// SCV 0: mean wait 20ms
	// SCV 1: mean wait 40ms
	// SCV 4: mean wait 100ms
}
