//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/intelliparadigm/haiku/internal/likeness"
	"github.com/intelliparadigm/haiku/model2vec"
)

// sameScore is the score of the STS benchmark from which two sentences count as
// the same: by its own scale, 4 is "mostly equivalent, but some unimportant
// details differ", 3 "roughly equivalent, but some important information
// differs".
const sameScore = 4

// otherCuts are the other ones that are shown: 5 is "completely equivalent".
var otherCuts = []float64{3, sameScore, 4.5, 5}

// sweep are the thresholds: steps of 0.05, and of 0.01 above 0.9.
var sweep = func() (all []float64) {
	for i := 10; i < 90; i += 5 {
		all = append(all, float64(i)/100)
	}
	for i := 90; i < 100; i++ {
		all = append(all, float64(i)/100)
	}
	return all
}()

// embedding is a way to make vectors of texts.
type embedding struct {
	name  string
	embed embedText
}

// withEmbeddings calls f with each way there is on this machine.
func withEmbeddings(s settings, f func(embedding) error) error {
	if err := f(embedding{"lexical", lexicalEmbed}); err != nil {
		return err
	}
	model, err := model2vec.Open(s.model2vec)
	if errors.Is(err, os.ErrNotExist) {
		fmt.Printf("\nmodel2vec is left out: %v\n", err)
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f(embedding{"model2vec", model2vecEmbed(model)}), model.Close())
}

func lexicalEmbed(texts []string) (out [][]float32, err error) {
	for _, t := range texts {
		out = append(out, likeness.Lexical{}.Embed(t))
	}
	return out, nil
}

// thresholdTable prints how often similarity alone takes two different texts
// for the same, by the threshold, and what the gates leave of that.
func thresholdTable(s settings) error {
	pairs, err := allScored(s.texts)
	if err == nil {
		err = withEmbeddings(s, func(e embedding) error { return pairThresholds(s, pairs, e) })
	}
	if err == nil {
		err = nearestThresholds(s)
	}
	if errors.Is(err, os.ErrNotExist) {
		fmt.Printf("Left out: %v\n", err)
		return nil
	}
	return err
}

// allScored reads all pairs of the STS benchmark.
func allScored(dir string) (pairs []scored, err error) {
	for _, name := range []string{"sts-dev.csv", "sts-train.csv"} {
		some, err := scoredPairs(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, some...)
	}
	return pairs, nil
}

// pairThresholds is the table over single pairs, with one embedding.
func pairThresholds(s settings, pairs []scored, e embedding) error {
	judged := make([]labelled, len(pairs))
	for i, p := range pairs {
		v, err := e.embed([]string{p.a, p.b})
		if err != nil {
			return err
		}
		same, _ := likeness.Same(likeness.Of(p.a), likeness.Of(p.b))
		judged[i] = labelled{a: p.a, b: p.b, strict: same, cosine: cosine(v[0], v[1])}
	}
	cut := func(score float64) corpus {
		c := corpus{pairs: slices.Clone(judged)}
		for i := range c.pairs {
			c.pairs[i].same = pairs[i].score >= score
		}
		return c
	}
	c := cut(sameScore)
	all := c.outcome(func(labelled) bool { return true })
	fmt.Printf("\n### Pairs of the STS benchmark, %s\n\n%d pairs score %d or more, %d less.\n\n", e.name, all.right, sameScore, all.wrong)
	if err := printThresholds(s, c, e.name); err != nil {
		return err
	}
	fmt.Printf("\nCollisions and true hits of similarity alone, were the cut another:\n\n| the same from a score of | pairs | at 0.80 | at 0.90 | at 0.95 | at 0.99 |\n| ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, score := range otherCuts {
		c := cut(score)
		all := c.outcome(func(labelled) bool { return true })
		fmt.Printf("| %g | %d |", score, all.right)
		for _, at := range []float64{0.80, 0.90, 0.95, 0.99} {
			o := c.outcome(func(p labelled) bool { return p.cosine >= at })
			fmt.Printf(" %.2f%%, %.1f%% |", share(o.wrong, all.wrong), share(o.right, all.right))
		}
		fmt.Println()
	}
	return nil
}

// printThresholds prints one row for each threshold, and draws them.
func printThresholds(s settings, c corpus, name string) error {
	fmt.Println("| threshold | collisions | true hits | wrong of hits | with gates: collisions | true hits | wrong of hits |\n| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	all := c.outcome(func(labelled) bool { return true })
	lines := []series{{name: "collisions"}, {name: "true hits"}, {name: "with gates: collisions"}, {name: "with gates: true hits"}}
	for _, at := range sweep {
		fmt.Printf("| %.2f |", at)
		for i, pass := range []func(labelled) bool{func(labelled) bool { return true }, func(p labelled) bool { return p.strict }} {
			o := c.outcome(func(p labelled) bool { return p.cosine >= at && pass(p) })
			wrong, right := share(o.wrong, all.wrong), share(o.right, all.right)
			fmt.Printf(" %d (%.2f%%) | %d (%.1f%%) | %.1f%% |", o.wrong, wrong, o.right, right, share(o.wrong, o.wrong+o.right))
			lines[2*i].x, lines[2*i].y = append(lines[2*i].x, at), append(lines[2*i].y, wrong)
			lines[2*i+1].x, lines[2*i+1].y = append(lines[2*i+1].x, at), append(lines[2*i+1].y, right)
		}
		fmt.Println()
	}
	return s.plot("threshold-"+name, chart{
		title: "Pairs of the STS benchmark, " + name, xLabel: "threshold of cosine similarity", yLabel: "share of the pairs, %", series: lines,
	})
}
