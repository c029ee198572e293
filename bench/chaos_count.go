//go:build unix

package main

import (
	"fmt"
	"slices"
	"time"
)

// slo is what a good answer is: whole, begun in time, and without a long gap.
type slo struct{ first, gap time.Duration }

func (s slo) met(a *chaosAnswer) bool {
	return a.Fate == wholly && a.First <= s.first && a.Gap <= s.gap
}

// chaosCell is what one way did under one fault.
type chaosCell struct {
	answers []chaosAnswer // as they were due
	on, off time.Duration // the fault's time, since the load's start
	slo     slo
}

// shareWindow is the span of time whose requests tell whether a way has switched
// or recovered.
const shareWindow = 100 * time.Millisecond

// due are the answers to requests of a span of time.
func (c *chaosCell) due(from, to time.Duration) []chaosAnswer {
	at := func(a chaosAnswer, t time.Duration) int { return int(a.At - t) }
	i, _ := slices.BinarySearchFunc(c.answers, from, at)
	k, _ := slices.BinarySearchFunc(c.answers, to, at)
	return c.answers[i:max(i, k)]
}

// shareOf is how many of some answers are as they should be, 1 of none.
func shareOf(answers []chaosAnswer, good func(*chaosAnswer) bool) float64 {
	if len(answers) == 0 {
		return 1
	}
	n := 0
	for i := range answers {
		if good(&answers[i]) {
			n++
		}
	}
	return float64(n) / float64(len(answers))
}

// before are the answers that had ended when the fault came.
func (c *chaosCell) before() []chaosAnswer {
	return slices.DeleteFunc(slices.Clone(c.due(0, c.on)), func(a chaosAnswer) bool { return a.At+a.End >= c.on })
}

// switched is the time from the fault's beginning to the first request from which
// on, while it lasts, all windows have 99% of their answers within the objective.
func (c *chaosCell) switched() (d time.Duration, ok bool) {
	during := c.due(c.on, c.off)
	at := 0 // in during, behind the last window that was bad
	for i := range during {
		from := during[i].At
		if from+shareWindow > c.off {
			break
		}
		if shareOf(c.due(from, from+shareWindow), c.slo.met) < 0.99 {
			at = i + 1
		}
	}
	if at == len(during) || during[at].At+shareWindow > c.off {
		return 0, false
	}
	if at == 0 {
		return 0, true
	}
	return during[at].At - c.on, true
}

// recovered is the time from the fault's end to the first window of which the main
// model has answered 90%.
func (c *chaosCell) recovered() (d time.Duration, ok bool) {
	last := c.answers[len(c.answers)-1].At
	for _, a := range c.due(c.off, last-shareWindow) {
		if shareOf(c.due(a.At, a.At+shareWindow), fromMain) >= 0.9 {
			return a.At - c.off, true
		}
	}
	return 0, false
}

func fromMain(a *chaosAnswer) bool { return a.Fate == wholly && a.Model == "main" }

// firstAt is a quantile of the times to first text, of the answers that have one.
func firstAt(answers []chaosAnswer, q float64) time.Duration {
	var first []time.Duration
	for i := range answers {
		if answers[i].First > 0 {
			first = append(first, answers[i].First)
		}
	}
	if len(first) == 0 {
		return 0
	}
	slices.Sort(first)
	return first[int(q*float64(len(first)-1))]
}

func (c *chaosCell) count(f fate) int {
	n := 0
	for i := range c.answers {
		if c.answers[i].Fate == f {
			n++
		}
	}
	return n
}

// reliable reports whether every answer was whole, or said that it was not.
func (c *chaosCell) reliable() bool {
	return c.count(lost)+c.count(doubled)+c.count(torn) == 0
}

const chaosHead = "| fault | way | within SLO | before | during | whole | error event | refused | lost | doubled | torn | first token p99 during, ms | to switch, ms | to recover, ms |\n" +
	"| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"

// row is the cell as a line of the table. Who never switched has nothing to recover
// from.
func (c *chaosCell) row(fault, way string) string {
	during := c.due(c.on, c.off)
	percent := func(answers []chaosAnswer) float64 { return 100 * shareOf(answers, c.slo.met) }
	toSwitch, toRecover := "never", "–"
	if d, ok := c.switched(); ok {
		toSwitch, toRecover = fmt.Sprint(d.Milliseconds()), "never"
		if d, ok := c.recovered(); ok {
			toRecover = fmt.Sprint(d.Milliseconds())
		}
	}
	return fmt.Sprintf("| %s | %s | %.2f%% | %.2f%% | %.2f%% | %d | %d | %d | %d | %d | %d | %d | %s | %s |\n", fault, way,
		percent(c.answers), percent(c.before()), percent(during),
		c.count(wholly), c.count(broken), c.count(refused), c.count(lost), c.count(doubled), c.count(torn),
		firstAt(during, 0.99).Milliseconds(), toSwitch, toRecover)
}
