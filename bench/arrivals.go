//go:build unix

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/intelliparadigm/haiku/haikutest"
)

// source makes count arrivals at a mean rate per second, or fewer if it has no
// more.
type source struct {
	name  string
	title string
	make  func(r *rand.Rand, count int, rate float64) ([]time.Duration, error)
}

// sources are the kinds of arrivals; the last reads the trace at azurePath.
func sources(azurePath string) []source {
	return []source{
		{"poisson", "Poisson arrivals", poisson},
		{"bursty", "Bursty arrivals (3× the mean rate a quarter of the time, a third of it otherwise)", bursty},
		{"volleys", "Volleys of 1 to 7 items, 20 µs apart", volleys},
		{"azure", "Arrivals of the Azure trace", func(_ *rand.Rand, count int, rate float64) ([]time.Duration, error) {
			return azure(azurePath, count, rate)
		}},
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func poisson(r *rand.Rand, count int, rate float64) ([]time.Duration, error) {
	arrivals := make([]time.Duration, count)
	var now float64
	for i := range arrivals {
		now += r.ExpFloat64() / rate
		arrivals[i] = seconds(now)
	}
	return arrivals, nil
}

// bursty is a Poisson process whose rate a two-state Markov chain modulates:
// bursts last for 50 mean gaps on average, the times between for 150.
func bursty(r *rand.Rand, count int, rate float64) ([]time.Duration, error) {
	const high, low, burst, pause = 3.0, 1.0 / 3, 50.0, 150.0 // ×rate, and in mean gaps
	var arrivals []time.Duration
	now, change, factor, stay := 0.0, 0.0, high, burst
	for len(arrivals) < count {
		next := now + r.ExpFloat64()/(factor*rate)
		if next < change {
			now = next
			arrivals = append(arrivals, seconds(now))
			continue
		}
		now = change
		if factor == high {
			factor, stay = low, pause
		} else {
			factor, stay = high, burst
		}
		change = now + r.ExpFloat64()*stay/rate
	}
	return arrivals, nil
}

// volleys are what a client makes that sends the parts of a document at once.
func volleys(r *rand.Rand, count int, rate float64) ([]time.Duration, error) {
	const largest, mean, spacing = 7, 4.0, 20e-6
	var arrivals []time.Duration
	for start := 0.0; len(arrivals) < count; {
		start += r.ExpFloat64() * mean / rate
		for at, n := start, 1+r.IntN(largest); n > 0; n-- {
			arrivals = append(arrivals, seconds(at))
			at += r.ExpFloat64() * spacing
		}
	}
	slices.Sort(arrivals)
	return arrivals[:count], nil
}

// errNoTrace says that there is no trace to replay.
var errNoTrace = errors.New("left out: no trace, see -azure")

// azure replays the arrival times of a trace of Azure's LLM inference service,
// stretched to the rate.
func azure(path string, count int, rate float64) ([]time.Duration, error) {
	visits, err := trace(path, haikutest.ReadAzure)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", errNoTrace, err)
	}
	if err != nil {
		return nil, err
	}
	times := make([]time.Duration, len(visits))
	for i, v := range visits {
		times[i] = v.At
	}
	times = times[:min(count, len(times))]
	stretch := float64(len(times)) / rate / times[len(times)-1].Seconds()
	arrivals := make([]time.Duration, len(times))
	for i, at := range times {
		arrivals[i] = time.Duration(float64(at) * stretch)
	}
	return arrivals, nil
}
