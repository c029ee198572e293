//go:build unix

package main

import (
	"errors"
	"fmt"
	"regexp"
	"time"
)

// chaosTokens is how many tokens an answer of the chaos table has, and chaosAt the
// one at which streams come to grief.
const (
	chaosTokens = 8
	chaosAt     = 4
)

// chaosFaults are the ways in which the main model is sick.
func chaosFaults() []fault {
	const slow = 400 * time.Millisecond
	return []fault{
		{Name: "killed", Killed: true},
		{Name: "stalled, no headers", Late: true, Deed: stall},
		{Name: "stalled behind the headers", Deed: stall},
		{Name: "stalled at token 4", At: chaosAt, Deed: stall},
		{Name: "slow, headers with the first token", Late: true, First: slow},
		{Name: "slow, headers at once", First: slow},
		{Name: "status 500", Status: 500},
		{Name: "error event at token 4", At: chaosAt, Deed: event},
		{Name: "cut at token 4", At: chaosAt, Deed: cut},
		{Name: "half-open", Gone: true},
	}
}

// chaosRun is how the table is made.
type chaosRun struct {
	requests int
	rate     float64
	limits   chaosLimits
	slo      slo
	patience time.Duration
	faults   []fault
	again    int // cells that had to be measured again
}

var errUnreliable = errors.New("an answer was lost, doubled or torn")

// chaosTable makes the main model sick in all ways under an even load, with each
// way to serve it and a small one that stays healthy. It fails if an answer of
// Haiku's is not whole and does not say so.
func chaosTable(s settings) error {
	run := chaosRun{
		requests: 10_000, rate: 2000, patience: 2 * time.Second, faults: chaosFaults(),
		limits: chaosLimits{first: 120 * time.Millisecond, openFor: time.Second, stall: 500 * time.Millisecond},
		slo:    slo{first: 250 * time.Millisecond, gap: 200 * time.Millisecond},
	}
	if s.quick {
		run.requests, run.rate, run.patience, run.limits.openFor = 300, 500, time.Second, 100*time.Millisecond
		run.faults = []fault{run.faults[0], run.faults[8], run.faults[9]}
	}
	wanted, err := regexp.Compile(s.faults)
	if err != nil {
		return err
	}
	fmt.Printf("%d requests in each row, %.0f a second, %d tokens each; first token due after %v, gaps at most %v\n\n",
		run.requests, run.rate, chaosTokens, run.slo.first, run.slo.gap)
	fmt.Print(chaosHead)
	var failed []error
	for _, f := range run.faults {
		if !wanted.MatchString(f.Name) {
			continue
		}
		for _, way := range chaosWays() {
			if way.hedged && !f.early() {
				continue // its only difference has nothing to do
			}
			cell, err := run.calmCell(f, way)
			if err != nil {
				failed = append(failed, fmt.Errorf("%s, %s: %w", f.Name, way.name, err))
			}
			if cell != nil {
				fmt.Print(cell.row(f.Name, way.name))
			}
		}
	}
	fmt.Printf("\n%d rows were measured again because the machine was busy before the fault came\n", run.again)
	return errors.Join(failed...)
}

// early reports whether a fault shows before the first token.
func (f fault) early() bool { return f.At == 0 && f.Status == 0 }

// calmTries is how often a cell is measured at most, and calm the share of good
// answers before the fault from which on the machine was not busy with other work.
const (
	calmTries = 3
	calm      = 0.999
)

// calmCell measures until nothing disturbs it. An unreliable answer of Haiku's is an
// error at every try.
func (r *chaosRun) calmCell(f fault, way chaosWay) (*chaosCell, error) {
	for try := 1; ; try++ {
		cell, err := r.cell(f, way)
		if err != nil {
			return nil, err
		}
		if way.reliable && !cell.reliable() {
			return cell, errUnreliable
		}
		if try == calmTries || shareOf(cell.before(), cell.slo.met) >= calm {
			return cell, nil
		}
		r.again++
	}
}

// cell measures one way under one fault: for a quarter of the requests the main
// model is healthy, for three tenths sick, and then healthy again.
func (r *chaosRun) cell(f fault, way chaosWay) (*chaosCell, error) {
	main := &chaosProcess{script: chaosScript{Model: "main", First: 20 * time.Millisecond, Pace: 5 * time.Millisecond, Tokens: chaosTokens}}
	small := &chaosProcess{script: chaosScript{Model: "small", First: 10 * time.Millisecond, Pace: 5 * time.Millisecond, Tokens: chaosTokens}}
	for _, p := range []*chaosProcess{main, small} {
		if err := p.start(); err != nil {
			return nil, err
		}
		defer p.stop()
	}
	handler, closeAll, err := way.open(main.url(), small.url(), r.limits)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	url, stop, err := listen(handler)
	if err != nil {
		return nil, err
	}
	defer stop()
	return r.measure(url, main, f)
}

// measure sends the load and makes the main model sick meanwhile.
func (r *chaosRun) measure(url string, main *chaosProcess, f fault) (*chaosCell, error) {
	l := chaosLoad{URL: url, Start: time.Now().Add(200 * time.Millisecond), Requests: r.requests, Rate: r.rate, Tokens: chaosTokens, Patience: r.patience}
	cell := &chaosCell{slo: r.slo}
	done := make(chan error, 1)
	go func() {
		var err error
		cell.answers, err = l.send()
		done <- err
	}()
	whole := seconds(float64(r.requests) / r.rate)
	sick := func() (err error) {
		time.Sleep(time.Until(l.Start.Add(whole * 25 / 100)))
		on := time.Since(l.Start)
		if err = main.be(f); err != nil {
			return err
		}
		time.Sleep(time.Until(l.Start.Add(whole * 55 / 100)))
		err = main.be(fault{})
		cell.on, cell.off = on, time.Since(l.Start)
		return err
	}
	err := sick()
	if failed := <-done; failed != nil {
		return nil, failed
	}
	return cell, err
}
