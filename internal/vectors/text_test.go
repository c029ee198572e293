package vectors

import (
	"context"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/model2vec"
)

const shared = "../../../shared/"

// sentenceVectors returns embeddings of the sentence pairs' different sentences,
// in random order.
func sentenceVectors(t *testing.T, rng *rand.Rand) (list [][]float32) {
	t.Helper()
	m, err := model2vec.Open(shared + "models/potion-base-4M-int8")
	if os.IsNotExist(err) || err != nil && strings.Contains(err.Error(), "no such file") {
		t.Skip("the model potion-base-4M-int8 is not in ../shared/models")
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	data, err := os.ReadFile(shared + "data/text/sts-train.csv")
	if os.IsNotExist(err) {
		t.Skip("the sentences are not in ../shared/data/text")
	}
	require.NoError(t, err)
	req, known := &haiku.EmbeddingRequest{}, map[string]bool{}
	for line := range strings.Lines(string(data)) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		for _, text := range fields[min(5, len(fields)):min(7, len(fields))] {
			if !known[text] {
				known[text] = true
				req.Inputs = append(req.Inputs, haiku.EmbeddingInput{Text: text})
			}
		}
	}
	out, err := m.Embed(context.Background(), req)
	require.NoError(t, err)
	for _, v := range out.Vectors {
		if _, err := unit(nil, v, len(v)); err == nil {
			list = append(list, v)
		}
	}
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// TestRecallOnSentences asks for sentences that are not in the index.
func TestRecallOnSentences(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	list := sentenceVectors(t, rng)
	require.Greater(t, len(list), 9000)
	queries, list := list[:300], list[300:6000]
	if testing.Short() {
		list = list[:1500]
	}
	h, exact := both(t, list)
	require.GreaterOrEqual(t, recallAt1(t, h, exact, queries, 200), 0.98, "other sentences, default ef")
	require.GreaterOrEqual(t, recallAt1(t, h, exact, nearUnits(rng, list, 300), 200), 0.99, "nearly the same")
	require.InDelta(t, 1, h.reachable(), 0.001)
}
