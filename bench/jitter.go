//go:build unix

package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

var lifePolicies = []lifePolicy{
	{name: "a draw in each tier, which looks at no other", short: "tiers apart", apart: true},
	{name: "a draw in each tier, visible while all have it", short: "least of all tiers", least: true},
	{name: "one draw for a record", short: "one draw"},
	{name: "one draw, exact hits refresh", short: "+ exact refresh", refresh: 0.05},
	{name: "one draw, all hits refresh", short: "+ all refresh", refresh: 0.05, similar: true},
	{name: "no draw, all hits refresh from a drawn time on", short: "drawn refresh", refresh: 0.05, similar: true, early: true},
}

const (
	lifeTTL   = time.Hour
	lifeTakes = 2 * time.Second // a generation
	lifeFrom  = 2 * lifeTTL     // when counting begins
)

// timetable is the traffic in which jitter costs most: its period is a little
// shorter than a life.
var timetable = waves{asks: 2.5, period: lifeTTL * 95 / 100, width: 2 * time.Minute}

// lifeTraffic is requests for groups of phrasings, and how they come.
type lifeTraffic struct {
	name, title string
	groups      []phrasings
	asks        []ask
	threshold   float64
}

func (t lifeTraffic) serve(p lifePolicy, jitter float64, keys bool) lifeOutcome {
	run := lifeRun{lifePolicy: p, ttl: lifeTTL, jitter: jitter, takes: lifeTakes, threshold: t.threshold}
	if keys {
		return run.runAll(t.groups, asKeys(t.asks), lifeFrom)
	}
	return run.runAll(t.groups, t.asks, lifeFrom)
}

var jitters = []float64{0, 0.05, 0.15}

// jitterTable shows what jitter of the entries' lives costs in hits and what it
// is for, in virtual time, by how the tiers go about it.
func jitterTable(s settings) error {
	texts, err := allGroups(s)
	if err != nil {
		return err
	}
	e, threshold, done, err := bestEmbedding(s)
	if err != nil {
		return err
	}
	defer done()
	during := 48 * time.Hour
	if s.quick {
		texts, during = texts[:min(len(texts), 200)], 12*time.Hour
	}
	groups, err := phrase(texts, 8, e.embed)
	if err != nil {
		return err
	}
	fmt.Printf("%d groups of phrasings that share an answer, from the labelled pairs; those of fewer than 8 are filled up with copies that lack a word or two. "+
		"A phrasing finds another of its group at a similarity of %.2f (%s). Entries live for %s, a generation takes %s; virtual time, %s, the first %s not counted.\n",
		len(groups), threshold, e.name, brief(lifeTTL), brief(lifeTakes), brief(during), brief(lifeFrom))
	for _, t := range []lifeTraffic{
		{"steady", "Independent requests, 2 a second, popularity by Zipf's law", groups, steadyAsks(groups, 2, during), threshold},
		{"waves", fmt.Sprintf("Waves: each group %g times within %s, every %s", timetable.asks, brief(timetable.width), brief(timetable.period)), groups, timetable.make(groups, during), threshold},
	} {
		if err := printLives(s, t); err != nil {
			return err
		}
	}
	if err := printPeaks(s, groups, threshold); err != nil {
		return err
	}
	if err := printPhrasings(texts, e, threshold, during); err != nil {
		return err
	}
	if err := printPeriods(s, groups, threshold, during); err != nil {
		return err
	}
	return printStorms(groups, threshold, during)
}

// printLives prints hit rates by policy and jitter.
func printLives(s settings, t lifeTraffic) error {
	fmt.Printf("\n### %s\n\n", t.title)
	fmt.Println("| lives | groups, hits at ±0% | ±5% | ±15% | keys, hits at ±0% | ±5% | ±15% | groups, generations per 100 requests at ±0% | ±5% | ±15% |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	for _, p := range lifePolicies {
		fmt.Printf("| %s |", p.name)
		var costs []float64
		for _, j := range jitters {
			o := t.serve(p, j, false)
			fmt.Printf(" %.1f%% |", o.hits())
			costs = append(costs, o.cost(lifeFrom))
		}
		for _, j := range jitters {
			fmt.Printf(" %.1f%% |", t.serve(p, j, true).hits())
		}
		for _, c := range costs {
			fmt.Printf(" %.1f |", c)
		}
		fmt.Println()
	}
	picture := chart{title: t.title, xLabel: "jitter, ±%", yLabel: "hits, %"}
	for _, p := range lifePolicies {
		picture.series = append(picture.series, byJitter(p.short, func(j float64) float64 { return t.serve(p, j, false).hits() }))
	}
	for _, p := range []lifePolicy{lifePolicies[2], lifePolicies[5]} {
		picture.series = append(picture.series, byJitter("keys: "+p.short, func(j float64) float64 { return t.serve(p, j, true).hits() }))
	}
	return s.plot("jitter-"+t.name, picture)
}

// byJitter is a line over the jitter.
func byJitter(name string, value func(jitter float64) float64) series {
	line := series{name: name}
	for percent := 0.0; percent <= 20; percent += 2.5 {
		line.x, line.y = append(line.x, percent), append(line.y, value(percent/100))
	}
	return line
}

// printPeaks begins with an empty cache under heavy traffic, so that the entries
// of popular questions are written together and would end together.
func printPeaks(s settings, groups []phrasings, threshold float64) error {
	const perSecond = 100
	during := 4 * lifeTTL
	if s.quick {
		during = 3 * lifeTTL
	}
	t := lifeTraffic{"peak", fmt.Sprintf("An empty cache, %d requests a second", perSecond), groups, steadyAsks(groups, perSecond, during), threshold}
	fmt.Printf("\n### %s\n\nMost generations that begin within a second, after the cache has filled (from half a life on):\n\n", t.title)
	fmt.Println("| lives | groups at ±0% | ±5% | ±15% | keys at ±0% | ±5% | ±15% | groups, hits at ±0% | ±15% |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	picture := chart{title: t.title, xLabel: "jitter, ±%", yLabel: "most generations within a second"}
	for _, p := range lifePolicies {
		fmt.Printf("| %s |", p.name)
		var hits []float64
		for _, keys := range []bool{false, true} {
			for _, j := range jitters {
				o := t.serve(p, j, keys)
				fmt.Printf(" %d |", o.peak(lifeTTL/2))
				hits = append(hits, o.hits())
			}
		}
		fmt.Printf(" %.1f%% | %.1f%% |\n", hits[0], hits[2])
		if s.plots != "" {
			picture.series = append(picture.series, byJitter(p.short, func(j float64) float64 { return float64(t.serve(p, j, false).peak(lifeTTL / 2)) }))
		}
	}
	return s.plot("jitter-peak", picture)
}

// printPhrasings shows what the number of phrasings does in waves.
func printPhrasings(texts [][]string, e embedding, threshold float64, during time.Duration) error {
	fmt.Printf("\n### The same waves, by the number of phrasings\n\nHits at ±0%% and ±15%%, and what is lost between:\n\n")
	fmt.Println("| phrasings of a group | tiers apart | lost | one draw | lost | drawn refresh | lost |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
	row := func(name string, groups []phrasings) {
		t := lifeTraffic{groups: groups, asks: timetable.make(groups, during), threshold: threshold}
		fmt.Printf("| %s |", name)
		for _, p := range []lifePolicy{lifePolicies[0], lifePolicies[2], lifePolicies[5]} {
			without, with := t.serve(p, 0, false).hits(), t.serve(p, 0.15, false).hits()
			fmt.Printf(" %.1f%% → %.1f%% | %.1f |", without, with, without-with)
		}
		fmt.Println()
	}
	row("one: keys", friends(len(texts), 1))
	for _, least := range []int{2, 8, 20} {
		groups, err := phrase(texts, least, e.embed)
		if err != nil {
			return err
		}
		total := 0
		for _, g := range groups {
			total += len(g.similarity)
		}
		row(fmt.Sprintf("%.1f on average", float64(total)/float64(len(groups))), groups)
	}
	row("20, all of which find each other", friends(len(texts), 20))
	return nil
}

// friends are groups of made-up phrasings that are all similar to each other,
// each to others in another order.
func friends(groups, size int) []phrasings {
	r := rand.New(rand.NewPCG(7, 7))
	all := make([]phrasings, groups)
	for i := range all {
		for range size {
			row := make([]float64, size)
			for j := range row {
				row[j] = 0.9 + 0.1*r.Float64()
			}
			all[i].similarity = append(all[i].similarity, row)
		}
	}
	return all
}

// printPeriods draws what the period of waves does.
func printPeriods(s settings, groups []phrasings, threshold float64, during time.Duration) error {
	if s.plots == "" {
		return nil
	}
	picture := chart{title: "Waves, hits of groups by their period", xLabel: "period of the waves, of a life", yLabel: "hits, %"}
	for _, line := range []struct {
		name   string
		policy lifePolicy
		jitter float64
	}{
		{"no jitter", lifePolicies[2], 0},
		{"one draw ±15%", lifePolicies[2], 0.15},
		{"tiers apart ±15%", lifePolicies[0], 0.15},
		{"all refresh ±15%", lifePolicies[4], 0.15},
		{"drawn refresh ±15%", lifePolicies[5], 0.15},
	} {
		plotted := series{name: line.name}
		for percent := 30; percent <= 130; percent += 5 {
			w := timetable
			w.period = lifeTTL * time.Duration(percent) / 100
			t := lifeTraffic{groups: groups, asks: w.make(groups, during), threshold: threshold}
			plotted.x, plotted.y = append(plotted.x, float64(percent)/100), append(plotted.y, t.serve(line.policy, line.jitter, false).hits())
		}
		picture.series = append(picture.series, plotted)
	}
	return s.plot("jitter-period", picture)
}

// printStorms shows waves that come while the first of their answers is still
// computed.
func printStorms(groups []phrasings, threshold float64, during time.Duration) error {
	sudden := waves{asks: 8, period: lifeTTL * 120 / 100, width: time.Second}
	t := lifeTraffic{groups: groups, asks: sudden.make(groups, during), threshold: threshold}
	fmt.Printf("\n### Sudden waves: each group %g times within %s, every %s\n\n", sudden.asks, brief(sudden.width), brief(sudden.period))
	fmt.Println("| a question under way is joined by | generations per 100 requests, groups | keys |\n| --- | ---: | ---: |")
	for _, row := range []struct {
		name string
		join bool
	}{{"the same question", false}, {"similar ones too", true}} {
		p := lifePolicies[2]
		p.join = row.join
		fmt.Printf("| %s | %.1f | %.1f |\n", row.name, t.serve(p, 0.1, false).cost(lifeFrom), t.serve(p, 0.1, true).cost(lifeFrom))
	}
	return nil
}

// brief is a duration without the zeros at its end.
func brief(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
