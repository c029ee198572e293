//go:build unix

package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/intelliparadigm/haiku/batch"
)

// windowLoads are shares of the capacity with batches of windowSize.
var windowLoads = []float64{0.1, 0.3, 0.5, 0.7, 0.9}

const (
	windowSize  = 8
	windowDelay = 5 * time.Millisecond
)

// windows are the rules that are compared. The adaptive one has the bounds of
// the wider fixed one.
var windows = []struct {
	name string
	rule batch.Window
}{
	{"adaptive", batch.Window{MaxDelay: windowDelay, MaxBatchSize: windowSize}},
	{"fixed 5 ms, 8", batch.Window{MaxDelay: windowDelay, MaxBatchSize: windowSize, Fixed: true}},
	{"fixed 2 ms, 4", batch.Window{MaxDelay: 2 * time.Millisecond, MaxBatchSize: 4, Fixed: true}},
	{"no window", batch.Window{MaxBatchSize: windowSize}},
}

// windowCosts are batches that cost the more by their mere number, the further
// down. The first is the one whose table is printed in full.
var windowCosts = []line{
	{500 * time.Microsecond, 4 * time.Millisecond},
	{time.Millisecond, time.Millisecond},
	{100 * time.Microsecond, 8 * time.Millisecond},
}

// measured is one row: a load, and what became of it.
type measured struct {
	load       float64
	oracle     time.Duration
	hindsight  time.Duration // mean of the best threshold
	mean, p99  []time.Duration
	throughput []float64 // items per second; all as windows
}

// adaptiveOf returns the adaptive mean over the better fixed one's and over the
// oracle's.
func (m measured) adaptiveOf() (fixed, oracle float64) {
	return float64(m.mean[0]) / float64(min(m.mean[1], m.mean[2])), float64(m.mean[0]) / float64(m.oracle)
}

// windowTable compares windows in virtual time: no clock of the machine is read.
func windowTable(s settings) error {
	fmt.Printf("One worker, virtual time. A batch of n takes %v·n + %v; load is the share of the capacity with batches of %d.\n",
		windowCosts[0].perItem, windowCosts[0].perBatch, windowSize)
	fmt.Println("Mean and p99 in ms, items per second. \"Oracle\" knows all arrivals; \"threshold\" is the best fixed least size, chosen in hindsight.")
	for _, src := range sources(s.azure) {
		rows, err := measureWindows(src, windowCosts[0], s.quick)
		if errors.Is(err, errNoTrace) {
			fmt.Printf("\n%s: %v\n", src.title, err)
			continue
		}
		if err != nil {
			return err
		}
		printWindows(src, rows)
		if err := plotWindows(s.plots, src, rows); err != nil {
			return err
		}
	}
	return windowSummary(s)
}

func measureWindows(src source, cost line, quick bool) ([]measured, error) {
	count := 40_000
	if quick {
		count = 4_000
	}
	var rows []measured
	for i, load := range windowLoads {
		arrivals, err := src.make(rand.New(rand.NewPCG(uint64(i), 8)), count, load*cost.capacity(windowSize))
		if err != nil {
			return nil, err
		}
		m := measured{load: load, oracle: oracle(arrivals, cost, windowSize), hindsight: math.MaxInt64}
		for least := 1; least <= windowSize; least++ {
			m.hindsight = min(m.hindsight, mean(latencies(arrivals, cost, threshold(arrivals, cost, least, windowSize))))
		}
		for _, w := range windows {
			batches := simulate(arrivals, cost, w.rule)
			all := latencies(arrivals, cost, batches)
			last := batches[len(batches)-1]
			m.mean = append(m.mean, mean(all))
			m.p99 = append(m.p99, percentile(all, 0.99))
			m.throughput = append(m.throughput, float64(len(all))/(last.at+cost.of(last.size)-arrivals[0]).Seconds())
		}
		rows = append(rows, m)
	}
	return rows, nil
}

func printWindows(src source, rows []measured) {
	fmt.Printf("\n### %s\n\n| load |", src.title)
	for _, w := range windows {
		fmt.Printf(" %s: mean | p99 | /s |", w.name)
	}
	fmt.Print(" oracle | adaptive ÷ better fixed | adaptive ÷ oracle | threshold ÷ oracle |\n| --- |")
	for range 3*len(windows) + 4 {
		fmt.Print(" ---: |")
	}
	fmt.Println()
	for _, m := range rows {
		fmt.Printf("| %.0f%% |", 100*m.load)
		for i := range windows {
			fmt.Printf(" %.2f | %.1f | %.0f |", millis(m.mean[i]), millis(m.p99[i]), m.throughput[i])
		}
		fixed, best := m.adaptiveOf()
		fmt.Printf(" %.2f | %.3f | %.3f | %.3f |\n", millis(m.oracle), fixed, best, float64(m.hindsight)/float64(m.oracle))
	}
}

func millis(d time.Duration) float64 { return d.Seconds() * 1e3 }

// windowSummary prints the two ratios alone for the other costs.
func windowSummary(s settings) error {
	fmt.Print("\n### Other costs: adaptive ÷ better fixed, adaptive ÷ oracle\n\n| batch | arrivals |")
	for _, load := range windowLoads {
		fmt.Printf(" %.0f%% |", 100*load)
	}
	fmt.Print("\n| --- | --- | ---: | ---: | ---: | ---: | ---: |\n")
	for _, cost := range windowCosts[1:] {
		for _, src := range sources(s.azure) {
			rows, err := measureWindows(src, cost, s.quick)
			if errors.Is(err, errNoTrace) {
				continue
			}
			if err != nil {
				return err
			}
			fmt.Printf("| %v·n + %v | %s |", cost.perItem, cost.perBatch, src.name)
			for _, m := range rows {
				fixed, best := m.adaptiveOf()
				fmt.Printf(" %.3f, %.3f |", fixed, best)
			}
			fmt.Println()
		}
	}
	return nil
}

// plotWindows draws the means over the oracle's, and the p99, by load.
func plotWindows(dir string, src source, rows []measured) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	means := chart{title: src.title, xLabel: "load, % of capacity", yLabel: "mean latency ÷ that of an oracle", maxY: 2}
	tails := chart{title: src.title, xLabel: "load, % of capacity", yLabel: "p99 latency, ms", logY: true}
	for i, w := range windows {
		m, p := series{name: w.name}, series{name: w.name}
		for _, row := range rows {
			m.x = append(m.x, 100*row.load)
			m.y = append(m.y, float64(row.mean[i])/float64(row.oracle))
			p.y = append(p.y, millis(row.p99[i]))
		}
		p.x = m.x
		means.series, tails.series = append(means.series, m), append(tails.series, p)
	}
	if err := means.write(filepath.Join(dir, "window-"+src.name+"-mean.svg")); err != nil {
		return err
	}
	return tails.write(filepath.Join(dir, "window-"+src.name+"-p99.svg"))
}
