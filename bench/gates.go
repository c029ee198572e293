//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/internal/likeness"
	"github.com/intelliparadigm/haiku/model2vec"
)

// labelled is two prompts and whether they ask for the same answer, with what
// each rule looks at.
type labelled struct {
	a, b         string
	same         bool
	strict, fact bool // likeness.Same and likeness.SameFacts
	cosine       float64
}

// corpus is a set of labelled pairs.
type corpus struct {
	name, title string
	pairs       []labelled
}

// embedText turns texts into vectors of length one.
type embedText func([]string) ([][]float32, error)

var gateThresholds = []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.99}

// gatesTable prints how many wrong and true hits each rule gives.
func gatesTable(s settings) error {
	corpora, err := labelledCorpora(s.texts)
	if err != nil {
		return err
	}
	for i := range corpora {
		for j := range corpora[i].pairs {
			p := &corpora[i].pairs[j]
			a, b := likeness.Of(p.a), likeness.Of(p.b)
			p.strict, _ = likeness.Same(a, b)
			p.fact, _ = likeness.SameFacts(a, b)
		}
	}
	fmt.Println("Wrong hits as a share of the pairs that ask for something else, true hits as a share of the others.")
	fmt.Println("\"Facts\" are all gates but the last (likeness.SameFacts), \"gates\" are all (likeness.Same).")
	return withEmbeddings(s, func(e embedding) error { return gatesWith(s, corpora, e.name, e.embed) })
}

func model2vecEmbed(m *model2vec.Model) embedText {
	return func(texts []string) ([][]float32, error) {
		req := haiku.EmbeddingRequest{}
		for _, t := range texts {
			req.Inputs = append(req.Inputs, haiku.EmbeddingInput{Text: t})
		}
		out, err := m.Embed(context.Background(), &req)
		if err != nil {
			return nil, err
		}
		return out.Vectors, nil
	}
}

func gatesWith(s settings, corpora []corpus, name string, embed embedText) error {
	for _, c := range corpora {
		for i := range c.pairs {
			p := &c.pairs[i]
			v, err := embed([]string{p.a, p.b})
			if err != nil {
				return err
			}
			p.cosine = cosine(v[0], v[1])
		}
		fmt.Printf("\n### %s, %s\n\n", c.title, name)
		if err := printGates(s, c, name); err != nil {
			return err
		}
		printBudget(c, s.quick)
	}
	return nil
}

func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		ab += float64(a[i]) * float64(b[i])
		aa += float64(a[i]) * float64(a[i])
		bb += float64(b[i]) * float64(b[i])
	}
	if aa == 0 || bb == 0 {
		return 0
	}
	return ab / math.Sqrt(aa*bb)
}

// outcome counts hits.
type outcome struct{ right, wrong int }

func (c corpus) outcome(hit func(labelled) bool) (o outcome) {
	for _, p := range c.pairs {
		switch {
		case !hit(p):
		case p.same:
			o.right++
		default:
			o.wrong++
		}
	}
	return o
}

func printGates(s settings, c corpus, name string) error {
	all := c.outcome(func(labelled) bool { return true })
	rules := []struct {
		name string
		pass func(labelled) bool
	}{
		{"cosine", func(labelled) bool { return true }},
		{"cosine and facts", func(p labelled) bool { return p.fact }},
		{"cosine and gates", func(p labelled) bool { return p.strict }},
	}
	fmt.Printf("%d pairs ask for the same, %d do not.\n\n| threshold | cosine: wrong | true | and facts: wrong | true | and gates: wrong | true |\n| ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n", all.right, all.wrong)
	picture := chart{title: c.title + ", " + name, xLabel: "threshold of cosine similarity", yLabel: "share of pairs, %"}
	lines := make([]series, 2*len(rules))
	for _, threshold := range gateThresholds {
		fmt.Printf("| %.2f |", threshold)
		for i, rule := range rules {
			o := c.outcome(func(p labelled) bool { return p.cosine >= threshold && rule.pass(p) })
			wrong, right := share(o.wrong, all.wrong), share(o.right, all.right)
			fmt.Printf(" %d (%.1f%%) | %d (%.1f%%) |", o.wrong, wrong, o.right, right)
			for j, v := range []float64{wrong, right} {
				line := &lines[2*i+j]
				line.name = strings.TrimPrefix(rule.name, "cosine and ") + [...]string{": wrong", ": true"}[j]
				line.x, line.y = append(line.x, threshold), append(line.y, v)
			}
		}
		fmt.Println()
	}
	for _, l := range lines {
		if len(l.x) > 0 {
			picture.series = append(picture.series, l)
		}
	}
	return s.plot("gates-"+c.name+"-"+name, picture)
}

func share(n, of int) float64 { return 100 * float64(n) / float64(max(of, 1)) }

// printBudget asks for the pairs of a corpus in random order, again and again,
// each first text being an entry, with a budget alone and behind gates.
func printBudget(c corpus, quick bool) {
	asks := 20_000
	if quick {
		asks = 4_000
	}
	fmt.Printf("\nBudget of 1%% wrong hits, %d asks in random order, the last half:\n\n| rule | wrong of all asks | hits of all asks | wrong of hits |\n| --- | ---: | ---: | ---: |\n", asks)
	for _, rule := range []struct {
		name   string
		pass   func(labelled) bool
		perHit bool
	}{
		{"budget", func(labelled) bool { return true }, false},
		{"budget behind facts", func(p labelled) bool { return p.fact }, false},
		{"budget behind gates", func(p labelled) bool { return p.strict }, false},
		{"budget per hit, behind facts", func(p labelled) bool { return p.fact }, true},
	} {
		o := spend(c, rule.pass, likeness.NewBudget(likeness.BudgetOptions{PerHit: rule.perHit, Seed: 1}), asks)
		fmt.Printf("| %s | %.2f%% | %.1f%% | %.2f%% |\n", rule.name, share(o.wrong, asks/2), share(o.right+o.wrong, asks/2), share(o.wrong, o.right+o.wrong))
	}
}

func spend(c corpus, pass func(labelled) bool, budget *likeness.Budget, asks int) (late outcome) {
	entries, keys := map[string]*likeness.Entry{}, map[string]uint64{}
	for _, p := range c.pairs {
		if entries[p.a] == nil {
			entries[p.a], keys[p.a] = &likeness.Entry{}, uint64(len(keys))
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range asks {
		p := c.pairs[rng.IntN(len(c.pairs))]
		if !pass(p) {
			continue
		}
		switch budget.Decide(entries[p.a], keys[p.a], p.cosine) {
		case likeness.Explore:
			budget.Observe(entries[p.a], p.cosine, p.same)
		case likeness.Hit:
			if i < asks/2 {
				continue
			}
			if p.same {
				late.right++
			} else {
				late.wrong++
			}
		}
	}
	return late
}

// labelledCorpora reads the project's own pairs and, where they are present,
// those of others.
func labelledCorpora(dir string) ([]corpus, error) {
	own, err := ownPairs(filepath.Join("internal", "likeness", "testdata", "pairs.txt"))
	if err != nil {
		return nil, err
	}
	out := []corpus{{"own", "The project's labelled prompts", own}}
	var sts []labelled
	for _, name := range []string{"sts-dev.csv", "sts-train.csv"} {
		pairs, err := stsPairs(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		sts = append(sts, pairs...)
	}
	if len(sts) > 0 {
		out = append(out, corpus{"sts", "STS benchmark (score ≥ 4.5 against ≤ 3)", sts})
	}
	mock, err := gptcachePairs(filepath.Join(dir, "gptcache_mock_data.json"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if len(mock) > 0 {
		out = append(out, corpus{"gptcache", "GPTCache's pairs (each original against its rewording, and the next original)", mock})
	}
	return out, nil
}

func ownPairs(path string) (pairs []labelled, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("run from the project's root: %w", err)
	}
	var a string
	for line := range strings.Lines(string(raw)) {
		mark, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch mark {
		case "?":
			a = rest
		case "=":
			pairs = append(pairs, labelled{a: a, b: rest, same: true})
		case "!":
			_, b, _ := strings.Cut(rest, ": ")
			pairs = append(pairs, labelled{a: a, b: b})
		}
	}
	return pairs, nil
}

// stsPairs are those of the STS benchmark that are clearly the one or the other.
func stsPairs(path string) (pairs []labelled, err error) {
	all, err := scoredPairs(path)
	for _, p := range all {
		if p.score >= 4.5 || p.score <= 3 {
			pairs = append(pairs, labelled{a: p.a, b: p.b, same: p.score >= 4.5})
		}
	}
	return pairs, err
}

// scored is two sentences and how much they mean the same, from 0 to 5.
type scored struct {
	a, b  string
	score float64
}

func scoredPairs(path string) (pairs []scored, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		f := strings.Split(lines.Text(), "\t")
		if len(f) < 7 {
			continue
		}
		if score, err := strconv.ParseFloat(f[4], 64); err == nil {
			pairs = append(pairs, scored{a: f[5], b: f[6], score: score})
		}
	}
	return pairs, lines.Err()
}

func gptcachePairs(path string) (pairs []labelled, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []struct{ Origin, Similar string }
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	for i, p := range all {
		next := all[(i+1)%len(all)].Origin
		pairs = append(pairs, labelled{a: p.Origin, b: p.Similar, same: true}, labelled{a: p.Origin, b: next})
	}
	return pairs, nil
}
