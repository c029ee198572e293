//go:build unix

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/intelliparadigm/haiku/batch"
	"github.com/intelliparadigm/haiku/haikutest"
	"github.com/intelliparadigm/haiku/internal/schedule"
)

// plentyOfBlocks is KV memory that never runs out in these tables.
const plentyOfBlocks = 1 << 16

// chunkedTable mixes streams of short prompts with prompts of 4,096 tokens, and
// computes prompts in chunks or whole.
func chunkedTable(s settings) error {
	fmt.Println("A device of 8 ms a step, 20 µs a prompt token, 50 µs a decode; 6 chats a second (128 tokens in, 200 out) and, " +
		"twice a second on average, a prompt of 4,096; virtual time.")
	fmt.Println()
	fmt.Println("| prompts | first token of chats, p50 | p99 | first token of long prompts, p50 | p99 | gap between tokens, p50 | p99 | longest |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	span := 10 * time.Minute
	if s.quick {
		span = time.Minute
	}
	plot := chart{title: "Prompts of 4,096 tokens among chats", xLabel: "prompt tokens in a step, at most", yLabel: "ms"}
	plot.series = []series{{name: "first token of chats, p99"}, {name: "gap between tokens, p99"}}
	for _, c := range []struct {
		name   string
		budget int
	}{{"whole, as they come", 1 << 20}, {"in chunks, 2,048 tokens a step", 2048}, {"in chunks, 512 tokens a step", 512}, {"in chunks, 256 tokens a step", 256}} {
		random := rand.New(rand.NewPCG(1, 2))
		chats := poissonVisits(random, 6, span, func(*rand.Rand) (int, int) { return 128, 200 })
		long := poissonVisits(random, 2, span, func(*rand.Rand) (int, int) { return 4096, 32 })
		for i, v := range long {
			v.prompt[0] = int32(1_000_000 + i)
		}
		all := slices.Concat(chats, long)
		slices.SortFunc(all, func(a, b *visit) int { return int(a.at - b.at) })
		sim := simulation{device: gpu, Config: schedule.Config{BlockTokens: 16, Blocks: plentyOfBlocks, MaxSequences: 64, StepTokens: c.budget}}
		sim.run(all)
		fmt.Printf("| %s | %s | %s | %s | %s | %s | %s | %s |\n", c.name, quantile(first(chats), 0.5), quantile(first(chats), 0.99),
			quantile(first(long), 0.5), quantile(first(long), 0.99), quantile(gaps(all), 0.5), quantile(gaps(all), 0.99), quantile(gaps(all), 1))
		for i, list := range [][]time.Duration{first(chats), gaps(all)} {
			plot.series[i].x = append(plot.series[i].x, float64(min(c.budget, 4096)))
			plot.series[i].y = append(plot.series[i].y, millis(percentile(list, 0.99)))
		}
	}
	return s.plot("chunked", plot)
}

func first(visits []*visit) (list []time.Duration) {
	for _, v := range visits {
		if !v.refused {
			list = append(list, v.ttft())
		}
	}
	return list
}

func gaps(visits []*visit) (list []time.Duration) {
	for _, v := range visits {
		for i := 1; i < len(v.tokens); i++ {
			list = append(list, v.tokens[i]-v.tokens[i-1])
		}
	}
	return list
}

func quantile(list []time.Duration, q float64) string {
	if len(list) == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f ms", millis(percentile(list, q)))
}

// overloadTable offers more than the device can do and counts the requests that
// get their first token within the objective.
func overloadTable(s settings) error {
	const objective = 2 * time.Second
	shape := func(r *rand.Rand) (int, int) { return 100 + r.IntN(900), 1 + int(r.ExpFloat64()*100) }
	config := schedule.Config{BlockTokens: 16, Blocks: plentyOfBlocks, MaxSequences: 32, StepTokens: 512}
	span := 5 * time.Minute
	if s.quick {
		span = time.Minute
	}
	rush := poissonVisits(rand.New(rand.NewPCG(3, 4)), 1e6, time.Millisecond, shape) // about a thousand at once
	capacity := float64(len(rush)) / (&simulation{Config: config, device: gpu}).run(rush).Seconds()
	fmt.Printf("The same device, 32 places; prompts of 100 to 1,000 tokens, answers of 100 on average; its capacity is %.1f requests a second. "+
		"Good is a first token within %v. Virtual time.\n\n", capacity, objective)
	fmt.Println("| offered, of the capacity | good with admission, of the capacity | admitted that are late | first token, p99 | good without admission | first token, p99 |")
	fmt.Println("| ---: | ---: | ---: | ---: | ---: | ---: |")
	plot := chart{title: "Goodput under overload", xLabel: "offered load, of the capacity", yLabel: "within the objective, of the capacity"}
	plot.series = []series{{name: "with admission"}, {name: "without"}}
	for _, load := range []float64{0.5, 0.8, 1, 1.2, 1.5, 2, 3} {
		var share [2]float64
		var late, answered int
		var p99 [2]string
		for i, admission := range []*batch.Admission{{}, nil} {
			visits := poissonVisits(rand.New(rand.NewPCG(7, 8)), load*capacity, span, shape)
			sim := simulation{Config: config, device: gpu, admission: admission, objective: objective}
			sim.run(visits)
			good := 0
			for _, v := range visits {
				switch {
				case v.refused:
				case v.ttft() <= objective:
					good++
					answered++
				case i == 0:
					late++
				}
			}
			share[i] = float64(good) / span.Seconds() / capacity
			p99[i] = quantile(first(visits), 0.99)
			plot.series[i].x, plot.series[i].y = append(plot.series[i].x, load), append(plot.series[i].y, share[i])
		}
		fmt.Printf("| %.0f%% | %.0f%% | %.1f%% | %s | %.0f%% | %s |\n", load*100, share[0]*100, 100*float64(late)/float64(max(1, late+answered)), p99[0], share[1]*100, p99[1])
	}
	return s.plot("overload", plot)
}

// prefixTable replays the prefix blocks of the Mooncake trace, in order of
// arrival, one request at a time: a block of the trace, of 512 tokens, is one
// of the cache.
func prefixTable(s settings) error {
	requests, err := traceIfThere(s.mooncake, haikutest.ReadMooncake)
	if err != nil || requests == nil {
		return err
	}
	unbounded := prefixHits(requests, 1<<20)
	fmt.Printf("%d requests of the Mooncake conversation trace. An unbounded cache finds %.3f of their blocks.\n\n", len(requests), unbounded)
	fmt.Println("| KV blocks of 512 tokens | found | of what an unbounded cache finds |")
	fmt.Println("| ---: | ---: | ---: |")
	plot := chart{title: "Prefix cache on the Mooncake trace", xLabel: "thousand blocks of 512 tokens", yLabel: "share of blocks found"}
	line := series{name: "found"}
	for _, blocks := range []int{500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000} {
		hits := prefixHits(requests, blocks)
		fmt.Printf("| %d | %.3f | %.0f%% |\n", blocks, hits, 100*hits/unbounded)
		line.x, line.y = append(line.x, float64(blocks)/1000), append(line.y, hits)
	}
	plot.series = []series{line}
	return s.plot("prefix", plot)
}

func prefixHits(requests []haikutest.Visit, blocks int) float64 {
	cache := newPrefixCache(blocks)
	total := 0
	for i := range requests {
		total += len(requests[i].Prefix)
		cache.ask(&requests[i])
	}
	return float64(cache.found()) / float64(total)
}

// prefixCache is a prefix cache that is asked one request at a time.
type prefixCache struct {
	plan *schedule.Scheduler
	asks int32
}

func newPrefixCache(blocks int) *prefixCache {
	return &prefixCache{plan: schedule.New(schedule.Config{BlockTokens: 1, Blocks: blocks, MaxSequences: 1, StepTokens: 1 << 20})}
}

// ask computes a prompt, and returns how many of its blocks were there.
func (c *prefixCache) ask(v *haikutest.Visit) int {
	before := c.found()
	q := &schedule.Seq{Limit: len(v.Prefix) + 1}
	for _, id := range v.Prefix {
		q.Tokens = append(q.Tokens, int32(id))
	}
	c.asks++
	q.Tokens = append(q.Tokens, -c.asks) // an end of its own
	c.plan.Add(q, time.Time{})
	for len(q.Tokens) > q.Computed {
		step := c.plan.Next(time.Time{})
		for j := range step.Items {
			c.plan.Done(step.Items[j].Seq, step.Items[j].N)
		}
	}
	c.plan.Remove(q)
	return c.found() - before
}

// found is how many blocks were there in all.
func (c *prefixCache) found() int { return int(c.plan.Counts().ReusedTokens) }

// decisionTable measures what the scheduler itself costs in a step.
func decisionTable(s settings) error {
	fmt.Println("| sequences that decode | requests that wait | µs per step |")
	fmt.Println("| ---: | ---: | ---: |")
	plot := chart{title: "The scheduler's own cost", xLabel: "sequences that decode", yLabel: "µs per step"}
	line := series{name: "nobody waits"}
	for _, c := range []struct{ running, waiting int }{{16, 0}, {64, 0}, {256, 0}, {256, 100}, {256, 1000}} {
		var best time.Duration
		for range s.rounds {
			if took := decide(c.running, c.waiting); best == 0 || took < best {
				best = took
			}
		}
		fmt.Printf("| %d | %d | %.1f |\n", c.running, c.waiting, float64(best.Nanoseconds())/1000)
		if c.waiting == 0 {
			line.x, line.y = append(line.x, float64(c.running)), append(line.y, float64(best.Nanoseconds())/1000)
		}
	}
	plot.series = []series{line}
	return s.plot("decision", plot)
}

// decide is the mean time of a step in which all sequences decode.
func decide(running, waiting int) time.Duration {
	plan := schedule.New(schedule.Config{BlockTokens: 16, Blocks: running * 400, MaxSequences: running, StepTokens: 4 * running})
	for i := range running + waiting {
		plan.Add(&schedule.Seq{Tenant: strconv.Itoa(i % 10), Tokens: newVisit(0, i, 500, 1).prompt, Limit: 6000}, time.Time{})
	}
	onward := func() {
		step := plan.Next(time.Time{})
		for i := range step.Items {
			last := step.Items[i].Last()
			plan.Done(step.Items[i].Seq, step.Items[i].N)
			if last {
				plan.Append(step.Items[i].Seq, int32(i))
			}
		}
	}
	for range 300 {
		onward()
	}
	const steps = 2000
	start := time.Now()
	for range steps {
		onward()
	}
	return time.Since(start) / steps
}
