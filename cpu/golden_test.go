package cpu

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/infer"
	"github.com/intelliparadigm/haiku/internal/lora"
)

// sharedModels lies beside the repository where it is available.
const sharedModels = "../../shared"

// golden is what llama.cpp answers to one prompt; see testdata/README.md.
type golden struct {
	Model, Adapter, Prompt string
	PromptIDs              []int32      `json:"prompt_ids"`
	Top5                   [][2]float64 // id, probability
	Greedy                 []int32
	Stopped                bool
	Text                   string
}

// endOfSequence is </s> in all golden models.
const endOfSequence = 2

func readGolden(t *testing.T, path string) []golden {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var list []golden
	require.NoError(t, json.Unmarshal(data, &list))
	require.NotEmpty(t, list)
	return list
}

func (g golden) quantised() bool {
	return strings.Contains(g.Model, "q8_0") || strings.Contains(g.Model, "q4_0")
}

// tolerance is the one of testdata/README.md.
func (g golden) tolerance() float64 {
	if g.quantised() {
		return 5e-3
	}
	return 1e-3
}

// check compares an executor with the golden values.
func (g golden) check(t *testing.T, e infer.Executor) {
	t.Helper()
	n, exact := 0, !g.quantised()
	id := infer.AdapterID(0)
	if g.Adapter != "" {
		id = 1
	}
	generate(t, e, id, g.PromptIDs, func(logits []float32, best int32) bool {
		p := softmax(logits)
		if n == 0 {
			for _, pair := range g.Top5 {
				require.InDelta(t, pair[1], p[int(pair[0])], g.tolerance(), "%s %q: token %v", g.Model, g.Prompt, pair[0])
			}
		}
		want := int32(endOfSequence)
		if n < len(g.Greedy) {
			want = g.Greedy[n]
		} else if !g.Stopped {
			return false
		}
		n++
		if best != want {
			require.False(t, exact, "%s %q: token %d is %d, want %d", g.Model, g.Prompt, n-1, best, want)
			require.InDelta(t, p[best], p[want], g.tolerance(), "%s %q: token %d is %d, want %d", g.Model, g.Prompt, n-1, best, want)
			return false
		}
		return n <= len(g.Greedy)
	})
}

func TestTinyModelAgreesWithLlamaCpp(t *testing.T) {
	file := open(t, tinyModel)
	for _, level := range levels() {
		e := load(t, at(level, Options{Threads: 2}), file)
		for _, g := range readGolden(t, "testdata/golden_tiny.json") {
			g.check(t, e)
		}
	}
}

func TestSharedModelsAgreeWithLlamaCpp(t *testing.T) {
	list := filepath.Join(sharedModels, "models/golden.json")
	if _, err := os.Stat(list); err != nil {
		t.Skip("the shared models are not here: ", err)
	}
	all := readGolden(t, list)
	require.Len(t, all, 30)
	for _, level := range levels() {
		for _, g := range all {
			t.Run(level.String()+"/"+filepath.Base(g.Model)+"/"+filepath.Base(g.Adapter), func(t *testing.T) {
				e := load(t, at(level, Options{Threads: 2}), open(t, filepath.Join(sharedModels, g.Model)))
				if g.Adapter != "" {
					file, err := lora.Open(filepath.Join(sharedModels, g.Adapter))
					require.NoError(t, err)
					loadAdapters(t, e, []*infer.AdapterFile{file})
				}
				g.check(t, e)
			})
		}
	}
}

func TestStoriesLogitsAreTheKnownOnes(t *testing.T) {
	path := filepath.Join(sharedModels, "models/stories260K/stories260K.gguf")
	if _, err := os.Stat(path); err != nil {
		t.Skip("the shared models are not here: ", err)
	}
	known := map[int]float64{432: 17.799398, 383: 14.281259, 322: 9.709650, 353: 9.587288, 323: 9.134244}
	for _, level := range levels() {
		logits := logitsOf(t, load(t, at(level, Options{Threads: 1, KV: KVF32}), open(t, path)), []int32{1, 403, 407, 261, 378})
		for id, want := range known {
			require.InDelta(t, want, logits[id], 1e-4, "%s: token %d", level, id)
		}
	}
}
