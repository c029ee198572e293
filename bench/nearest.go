//go:build unix

package main

import (
	"fmt"
	"path/filepath"

	"github.com/intelliparadigm/haiku/internal/likeness"
	"github.com/intelliparadigm/haiku/internal/vectors"
)

// neighbours is how many of a question's neighbours are looked at, as in
// package cache.
const neighbours = 8

// asked is a question and what a cache finds near it.
type asked struct {
	near []candidate // the most similar first
}

type candidate struct {
	similarity float64
	own        bool // has the question's own answer
	fact       bool // likeness.SameFacts lets it pass
}

// nearestThresholds asks a cache that holds one phrasing of each of GPTCache's
// questions for the other phrasings.
func nearestThresholds(s settings) error {
	pairs, err := gptcachePairs(filepath.Join(s.texts, "gptcache_mock_data.json"))
	if err != nil {
		return err
	}
	groups := groupsOf(pairs)
	return withEmbeddings(s, func(e embedding) error {
		questions, err := askAll(groups, e.embed)
		if err != nil {
			return err
		}
		fmt.Printf("\n### A cache of GPTCache's questions, %s\n\nIt holds %d answers, under one phrasing each, and is asked for %d other phrasings.\n\n", e.name, len(groups), len(questions))
		return printNearest(s, questions, e.name)
	})
}

// askAll keeps the first text of each group, asks for the others, and returns
// what is near each.
func askAll(groups [][]string, embed embedText) ([]asked, error) {
	var kept []string
	for _, g := range groups {
		kept = append(kept, g[0])
	}
	stored, err := embed(kept)
	if err != nil {
		return nil, err
	}
	index, err := vectors.NewFlat(len(stored[0]), len(stored))
	if err != nil {
		return nil, err
	}
	for i, v := range stored {
		if err := index.Add(uint64(i), v); err != nil {
			return nil, err
		}
	}
	var all []asked
	for group, texts := range groups {
		queries, err := embed(texts[1:])
		if err != nil {
			return nil, err
		}
		for i, query := range queries {
			// One more than are looked at, for the table without the own answer.
			matches, err := index.Search(nil, query, neighbours+1, nil)
			if err != nil {
				return nil, err
			}
			states := likeness.Of(texts[1+i])
			var q asked
			for _, m := range matches {
				c := candidate{similarity: float64(m.Similarity), own: int(m.ID) == group}
				c.fact, _ = likeness.SameFacts(states, likeness.Of(kept[m.ID]))
				q.near = append(q.near, c)
			}
			all = append(all, q)
		}
	}
	return all, nil
}

// serve is what a cache serves: the first of the neighbours above a threshold
// that passes. without leaves the question's own answer out, as if nobody had
// asked for it yet.
func (q asked) serve(threshold float64, without bool, pass func(candidate) bool) (served candidate, hit bool) {
	looked := 0
	for _, c := range q.near {
		switch {
		case without && c.own:
			continue
		case looked == neighbours || c.similarity < threshold:
			return served, false
		case pass(c):
			return c, true
		}
		looked++
	}
	return served, false
}

func printNearest(s settings, questions []asked, name string) error {
	passes := []func(candidate) bool{func(candidate) bool { return true }, func(c candidate) bool { return c.fact }}
	fmt.Println("| threshold | own answer | another's | another's, own not kept | and facts: own answer | another's | another's, own not kept |\n| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	lines := []series{{name: "own answer"}, {name: "another's"}, {name: "… own not kept"}, {name: "facts: own answer"}, {name: "facts: another's"}, {name: "… own not kept"}}
	for _, at := range sweep {
		fmt.Printf("| %.2f |", at)
		for i, pass := range passes {
			for j, n := range served(questions, at, pass) {
				line, rate := &lines[3*i+j], share(n, len(questions))
				fmt.Printf(" %.1f%% |", rate)
				line.x, line.y = append(line.x, at), append(line.y, rate)
			}
		}
		fmt.Println()
	}
	return s.plot("threshold-cache-"+name, chart{
		title: "A cache of GPTCache's questions, " + name, xLabel: "threshold of cosine similarity", yLabel: "share of the questions, %", series: lines,
	})
}

// served counts the questions that get their own answer, another's, and another's
// were their own not kept.
func served(questions []asked, threshold float64, pass func(candidate) bool) (counts [3]int) {
	for _, q := range questions {
		if c, hit := q.serve(threshold, false, pass); hit && c.own {
			counts[0]++
		} else if hit {
			counts[1]++
		}
		if _, hit := q.serve(threshold, true, pass); hit {
			counts[2]++
		}
	}
	return counts
}
