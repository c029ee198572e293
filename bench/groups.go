//go:build unix

package main

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"

	"github.com/intelliparadigm/haiku/model2vec"
)

// groupsOf joins the texts of pairs that are the same, in the order in which
// they are met. What is the same as a third is the same.
func groupsOf(pairs []labelled) [][]string {
	at := map[string]int{} // group of a text, from 1
	groups := [][]string{nil}
	for _, p := range pairs {
		if !p.same {
			continue
		}
		into := max(at[p.a], at[p.b])
		if into == 0 {
			groups = append(groups, nil)
			into = len(groups) - 1
		}
		for _, text := range []string{p.a, p.b} {
			switch from := at[text]; from {
			case into:
			case 0:
				at[text] = into
				groups[into] = append(groups[into], text)
			default:
				for _, moved := range groups[from] {
					at[moved] = into
				}
				groups[into] = append(groups[into], groups[from]...)
				groups[from] = nil
			}
		}
	}
	return slices.DeleteFunc(groups, func(g []string) bool { return len(g) < 2 })
}

// phrasings are texts that one answer is right for: similarity[asked][kept].
type phrasings struct{ similarity [][]float64 }

// allGroups are those of all labelled pairs, in random order.
func allGroups(s settings) (groups [][]string, err error) {
	corpora, err := labelledCorpora(s.texts)
	for _, c := range corpora {
		groups = append(groups, groupsOf(c.pairs)...)
	}
	rand.New(rand.NewPCG(3, 3)).Shuffle(len(groups), func(i, j int) { groups[i], groups[j] = groups[j], groups[i] })
	return groups, err
}

// phrase embeds groups of texts. Those of fewer than least are filled up with
// copies that lack a word or two.
func phrase(groups [][]string, least int, embed embedText) ([]phrasings, error) {
	random := rand.New(rand.NewPCG(4, 4))
	all := make([]phrasings, len(groups))
	for i, texts := range groups {
		vectors, err := embed(variants(random, texts, least))
		if err != nil {
			return nil, err
		}
		for _, asked := range vectors {
			row := make([]float64, len(vectors))
			for j, kept := range vectors {
				row[j] = cosine(asked, kept)
			}
			all[i].similarity = append(all[i].similarity, row)
		}
	}
	return all, nil
}

// bestEmbedding is model2vec's where that is available, with the threshold from
// which texts of one group shall find each other.
func bestEmbedding(s settings) (e embedding, threshold float64, done func() error, err error) {
	model, err := model2vec.Open(s.model2vec)
	if errors.Is(err, os.ErrNotExist) {
		return embedding{"lexical", lexicalEmbed}, 0.5, func() error { return nil }, nil
	}
	if err != nil {
		return e, 0, nil, err
	}
	return embedding{"model2vec", model2vecEmbed(model)}, 0.8, model.Close, nil
}
