//go:build unix

package main

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/intelliparadigm/haiku/internal/vectors"
)

// collection is vectors to be indexed and queries of one or two kinds.
type collection struct {
	name    string
	vectors [][]float32 // of which the first n are taken
	queries []queryKind
}

// queryKind makes the query numbered i against the first n vectors.
type queryKind struct {
	name, short string // the short name is for the plot
	make        func(i, n int) []float32
}

const (
	vectorQueries = 500
	// largestEf is where the search for the ef that is needed gives up.
	largestEf = 1 << 14
)

// measure is what a number of searches took and found.
type measure struct {
	times  []float64 // µs, sorted
	recall float64
}

func (m measure) quantile(q float64) float64 { return m.times[int(q*float64(len(m.times)-1))] }

// randomVectorsTable shows the indexes over vectors without any structure, the
// hardest there are for a graph.
func randomVectorsTable(s settings) error {
	const dim = 384
	rng := rand.New(rand.NewPCG(1, 1))
	c := collection{name: "random"}
	for range slices.Max(vectorSizes(s)) {
		c.vectors = append(c.vectors, gaussian(rng, dim, 1))
	}
	c.queries = []queryKind{
		{"near one (cosine 0.95)", "near one", func(i, n int) []float32 {
			q := gaussian(rng, dim, 0.33/math.Sqrt(dim))
			v := c.vectors[i*7919%n]
			scale := float32(1 / math.Sqrt(norm2(v)))
			for j := range q {
				q[j] += v[j] * scale
			}
			return q
		}},
		{"independent", "independent", func(int, int) []float32 { return gaussian(rng, dim, 1) }},
	}
	fmt.Printf("%d dimensions, Gaussian. ", dim)
	return vectorsTable(s, c)
}

func gaussian(rng *rand.Rand, dim int, deviation float64) []float32 {
	v := make([]float32, dim)
	for i := range v {
		v[i] = float32(deviation * rng.NormFloat64())
	}
	return v
}

func norm2(v []float32) (sum float64) {
	for _, e := range v {
		sum += float64(e) * float64(e)
	}
	return sum
}

func vectorSizes(s settings) []int {
	if s.quick {
		return []int{1000, 10_000}
	}
	return []int{1000, 10_000, 100_000}
}

// vectorsTable measures both indexes over growing parts of a collection.
func vectorsTable(s settings, c collection) error {
	fmt.Printf("One goroutine, %d queries, k = 1. HNSW with M = 16 and EfConstruction = 200, at its default ef of 200 and at the\n"+
		"least power of two with a recall of 0.95.\n\n", vectorQueries)
	fmt.Println("| vectors | query | index | build s | p50 µs | p99 µs | recall@1 | flat p50 ÷ p50 |\n| ---: | --- | --- | ---: | ---: | ---: | ---: | ---: |")
	lines := map[string]*series{}
	for _, n := range vectorSizes(s) {
		if n = min(n, len(c.vectors)); n == 0 {
			break
		}
		if err := c.compare(n, lines); err != nil {
			return err
		}
	}
	plot := chart{title: "Nearest of n vectors, " + c.name, xLabel: "log₁₀ n", yLabel: "p50, µs", logY: true}
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		plot.series = append(plot.series, *lines[name])
	}
	return s.plot("vectors-"+c.name, plot)
}

// compare prints the rows for the first n vectors.
func (c collection) compare(n int, lines map[string]*series) error {
	dim := len(c.vectors[0])
	flat, err := vectors.NewFlat(dim, 0)
	if err != nil {
		return err
	}
	graph, err := vectors.NewHNSW(dim, vectors.Options{})
	if err != nil {
		return err
	}
	var built [2]time.Duration
	for i, x := range []vectors.Index{flat, graph} {
		if built[i], err = build(x, c.vectors[:n]); err != nil {
			return err
		}
	}
	for _, kind := range c.queries {
		queries := make([][]float32, vectorQueries)
		for i := range queries {
			queries[i] = kind.make(i, n)
		}
		truth := make([]vectors.Match, len(queries))
		exact := searchAll(queries, truth, true, func(dst []vectors.Match, q []float32) ([]vectors.Match, error) { return flat.Search(dst, q, 1, nil) })
		row := func(index string, built time.Duration, m measure) {
			fmt.Printf("| %d | %s | %s | %.3f | %.0f | %.0f | %.3f | %.2f |\n", n, kind.name, index, built.Seconds(),
				m.quantile(0.5), m.quantile(0.99), m.recall, exact.quantile(0.5)/m.quantile(0.5))
		}
		at := func(ef int) measure {
			return searchAll(queries, truth, false, func(dst []vectors.Match, q []float32) ([]vectors.Match, error) {
				return graph.SearchEf(dst, q, 1, ef, nil)
			})
		}
		row("flat", built[0], exact)
		byDefault := at(200)
		row("HNSW, ef 200", built[1], byDefault)
		ef, enough := leastEf(at)
		row("HNSW, ef "+strconv.Itoa(ef), built[1], enough)
		add(lines, "flat", n, exact)
		add(lines, "ef 200", n, byDefault)
		add(lines, "0.95, "+kind.short, n, enough)
	}
	return nil
}

// leastEf doubles ef until the nearest is found 19 times of 20.
func leastEf(at func(ef int) measure) (ef int, m measure) {
	for ef = 1; ; ef *= 2 {
		if m = at(ef); m.recall >= 0.95 || ef == largestEf {
			return ef, m
		}
	}
}

func build(x vectors.Index, list [][]float32) (time.Duration, error) {
	start := time.Now()
	for id, v := range list {
		if err := x.Add(uint64(id), v); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// searchAll runs the queries and either notes what they find as the truth or
// compares it with that: another vector that is equally similar is as good.
func searchAll(queries [][]float32, truth []vectors.Match, note bool, search func([]vectors.Match, []float32) ([]vectors.Match, error)) (m measure) {
	found := make([]vectors.Match, 0, 1)
	hits := 0
	for i, q := range queries {
		start := time.Now()
		found, _ = search(found[:0], q) // queries are as the index wants them
		m.times = append(m.times, float64(time.Since(start).Nanoseconds())/1e3)
		if note {
			truth[i] = found[0]
		}
		if len(found) > 0 && found[0].Similarity == truth[i].Similarity {
			hits++
		}
	}
	slices.Sort(m.times)
	m.recall = float64(hits) / float64(len(queries))
	return m
}

// add appends a point to the line of a name; a second one for the same n, of
// another kind of query, is not drawn.
func add(lines map[string]*series, name string, n int, m measure) {
	line := lines[name]
	if line == nil {
		line = &series{name: name}
		lines[name] = line
	}
	if x := math.Log10(float64(n)); !slices.Contains(line.x, x) {
		line.x, line.y = append(line.x, x), append(line.y, m.quantile(0.5))
	}
}
