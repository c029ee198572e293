//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/model2vec"
)

// Where sentences and a model to embed them lie where they are available.
const (
	sharedTexts = "../shared/data/text"
	sharedModel = "../shared/models/potion-base-4M-int8"
)

// textVectorsTable shows the indexes over embeddings of sentences.
func textVectorsTable(s settings) error {
	texts, err := sentences(sharedTexts)
	if err != nil {
		fmt.Printf("Left out: %v\n", err)
		return nil
	}
	rng := rand.New(rand.NewPCG(1, 1))
	rng.Shuffle(len(texts), func(i, j int) { texts[i], texts[j] = texts[j], texts[i] })
	asked, kept := texts[:vectorQueries], texts[vectorQueries:]
	real := len(kept)
	queries, err := embed(asked)
	if err != nil {
		fmt.Printf("Left out: %v\n", err)
		return nil
	}
	stored, err := embed(variants(rng, kept, slices.Max(vectorSizes(s))))
	if err != nil {
		return err
	}
	rephrased, err := embed(variants(rng, kept, real+vectorQueries)[real:])
	if err != nil {
		return err
	}
	fmt.Printf("%d dimensions: %d sentences, embedded by potion-base-4M-int8, and variants of them with words left out. ", len(queries[0]), real)
	return vectorsTable(s, collection{name: "text", vectors: stored, queries: []queryKind{
		{"variant of a sentence", "variant", func(i, _ int) []float32 { return rephrased[i] }},
		{"other sentence", "other", func(i, _ int) []float32 { return queries[i] }},
	}})
}

// sentences reads the different ones of the data sets in a folder.
func sentences(folder string) ([]string, error) {
	var all []string
	for _, name := range []string{"sts-train.csv", "sts-dev.csv"} {
		data, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(data)) {
			if fields := strings.Split(strings.TrimSpace(line), "\t"); len(fields) >= 7 {
				all = append(all, fields[5], fields[6])
			}
		}
	}
	data, err := os.ReadFile(filepath.Join(folder, "gptcache_mock_data.json"))
	if err != nil {
		return nil, err
	}
	var pairs []struct{ Origin, Similar string }
	if err := json.Unmarshal(data, &pairs); err != nil {
		return nil, err
	}
	for _, p := range pairs {
		all = append(all, p.Origin, p.Similar)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// variants returns the texts and, up to n of all, copies without one or two of
// their words.
func variants(rng *rand.Rand, texts []string, n int) []string {
	all := slices.Clone(texts)
	for i := 0; len(all) < n; i++ {
		words := strings.Fields(texts[i%len(texts)])
		for range 1 + rng.IntN(2) {
			if len(words) > 3 {
				at := rng.IntN(len(words))
				words = slices.Delete(words, at, at+1)
			}
		}
		all = append(all, strings.Join(words, " "))
	}
	return all
}

// embed returns the embeddings of those texts that have one.
func embed(texts []string) (vectors [][]float32, err error) {
	m, err := model2vec.Open(sharedModel)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	req := &haiku.EmbeddingRequest{}
	for _, text := range texts {
		req.Inputs = append(req.Inputs, haiku.EmbeddingInput{Text: text})
	}
	out, err := m.Embed(context.Background(), req)
	if err != nil {
		return nil, err
	}
	for _, v := range out.Vectors {
		if norm2(v) == 0 {
			v[0] = 1 // no word of it is known; it stays in its place
		}
	}
	return out.Vectors, nil
}
