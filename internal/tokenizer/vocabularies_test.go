package tokenizer

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku/internal/gguf"
)

// encoder is what all kinds of tokenizer do.
type encoder interface {
	Encode(dst []int32, text string, parseSpecial bool) []int32
	Decode(ids []int32) []byte
	IsControl(id int32) bool
}

// vocabularyFile is the vocabulary of a GGUF file.
type vocabularyFile struct {
	model, pre      string
	pieces, merges  []string
	scores          []float32
	types           []int32
	bos, eos, unk   int32
	withSpacePrefix bool
}

func readVocabulary(t testing.TB, path string) (v vocabularyFile) {
	t.Helper()
	f, err := gguf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	given := func(err error) {
		if !errors.Is(err, gguf.ErrMissingKey) {
			require.NoError(t, err)
		}
	}
	v.model, err = f.String("tokenizer.ggml.model")
	require.NoError(t, err)
	v.pieces, err = f.Strings("tokenizer.ggml.tokens")
	require.NoError(t, err)
	v.types, err = f.Ints("tokenizer.ggml.token_type")
	require.NoError(t, err)
	v.pre, err = f.String("tokenizer.ggml.pre")
	given(err)
	v.merges, err = f.Strings("tokenizer.ggml.merges")
	given(err)
	v.scores, err = f.Floats("tokenizer.ggml.scores")
	given(err)
	v.withSpacePrefix = true
	if prefix, err := f.Bool("tokenizer.ggml.add_space_prefix"); err == nil {
		v.withSpacePrefix = prefix
	}
	v.bos, v.eos, v.unk = -1, -1, -1
	for key, id := range map[string]*int32{"bos": &v.bos, "eos": &v.eos, "unknown": &v.unk} {
		if n, err := f.Int("tokenizer.ggml." + key + "_token_id"); err == nil {
			*id = int32(n)
		}
	}
	return v
}

func (v vocabularyFile) tokenizer(t testing.TB) (e encoder) {
	t.Helper()
	var err error
	switch v.model {
	case "llama":
		e, err = NewSPM(Config{
			Pieces: v.pieces, Scores: v.scores, Types: v.types, BOS: v.bos, EOS: v.eos, UNK: v.unk, AddSpacePrefix: v.withSpacePrefix,
		})
	case "gpt2":
		e, err = NewBPE(BPEConfig{Pieces: v.pieces, Merges: v.merges, Types: v.types, Pre: v.pre, BOS: v.bos, EOS: v.eos, UNK: v.unk})
	case "bert":
		e, err = NewWordPiece(WordPieceConfig{Pieces: v.pieces, Types: v.types, BOS: v.bos, EOS: v.eos, UNK: v.unk})
	default:
		require.Fail(t, "unknown kind", v.model)
	}
	require.NoError(t, err)
	return e
}

func spmFromGGUF(t testing.TB, path string) *SPM {
	t.Helper()
	return readVocabulary(t, path).tokenizer(t).(*SPM)
}

// sharedVocabulary is where llama.cpp's vocabulary tests lie where they are
// available.
func sharedVocabulary(name string) string {
	return "../../../shared/data/vocab/ggml-vocab-" + name + ".gguf"
}

var sharedNames = []string{"llama-spm", "phi-3", "gpt-2", "mpt", "falcon", "refact", "deepseek-coder", "bert-bge"}

// TestLlamaCppVectors runs every case of llama.cpp's vocabulary tests.
func TestLlamaCppVectors(t *testing.T) {
	for _, name := range sharedNames {
		t.Run(name, func(t *testing.T) {
			base := sharedVocabulary(name)
			inputs, err := os.ReadFile(base + ".inp")
			if err != nil {
				t.Skip("the vocabularies of the shared data directory are not beside the repository")
			}
			outputs, err := os.ReadFile(base + ".out")
			require.NoError(t, err)
			e := readVocabulary(t, base).tokenizer(t)
			cases := strings.Split(string(inputs), "\n__ggml_vocab_test__\n")
			lines := strings.Split(string(outputs), "\n")
			require.GreaterOrEqual(t, len(lines), len(cases)-1)
			for i, text := range cases[:len(cases)-1] {
				require.Equal(t, idsOf(t, lines[i]), e.Encode(nil, text, false), "case %d %q", i, text)
			}
		})
	}
}

func idsOf(t testing.TB, line string) (ids []int32) {
	t.Helper()
	for _, f := range strings.Fields(line) {
		id, err := strconv.Atoi(f)
		require.NoError(t, err)
		ids = append(ids, int32(id))
	}
	return ids
}

// toys returns one small tokenizer of each kind, with as many control tokens
// as vocabularies have that reserve some.
func toys(t testing.TB) map[string]encoder {
	t.Helper()
	reserve := func(add func(text string)) {
		for i := range 2000 {
			add(fmt.Sprintf("a[control_%d]", i))
		}
	}
	spm := toy(t, func(c *Config) {
		reserve(func(text string) {
			c.Pieces, c.Scores, c.Types = append(c.Pieces, text), append(c.Scores, 0), append(c.Types, TypeControl)
		})
	})
	bpe := toyBPE(t, func(c *BPEConfig) {
		reserve(func(text string) { c.Pieces, c.Types = append(c.Pieces, text), append(c.Types, TypeControl) })
	})
	pieces := toyWordPiece(t, func(c *WordPieceConfig) {
		reserve(func(text string) { c.Pieces, c.Types = append(c.Pieces, text), append(c.Types, TypeControl) })
	})
	return map[string]encoder{"SPM": spm, "BPE": bpe, "WordPiece": pieces}
}

// TestTheCostPerByteDoesNotGrow compares the time for 64 times as much text: a
// cost that grew with the square would be 64 times as high per byte.
func TestTheCostPerByteDoesNotGrow(t *testing.T) {
	for kind, e := range toys(t) {
		perByte := func(unit, end string, n int) float64 {
			text := strings.Repeat(unit, n) + end
			best := math.Inf(1)
			for range 5 {
				start := time.Now()
				e.Encode(nil, text, true)
				best = min(best, time.Since(start).Seconds()/float64(len(text)))
			}
			return best
		}
		for _, unit := range []string{"a", " ", "🦙", "ab", "a[", "1", "\n", " \n", "!", "'", "é"} {
			for _, end := range []string{"", "x"} {
				require.Less(t, perByte(unit, end, 1<<16), 20*perByte(unit, end, 1<<10), "%s: %q and %q", kind, unit, end)
			}
		}
	}
}

// BenchmarkEncode shows that the cost per byte does not grow: but for prose
// these inputs are the worst for an algorithm that looks for the best pair
// again and again.
func BenchmarkEncode(b *testing.B) {
	tokenizers := map[string]encoder{"haiku-tiny": spmFromGGUF(b, tinyPath)}
	for _, name := range []string{"gpt-2", "deepseek-coder", "bert-bge"} {
		if _, err := os.Stat(sharedVocabulary(name)); err == nil {
			tokenizers[name] = readVocabulary(b, sharedVocabulary(name)).tokenizer(b)
		}
	}
	for name, e := range tokenizers {
		for what, unit := range map[string]string{"letter": "a", "spaces": " ", "emoji": "🦙", "digits": "7", "prose": "the old leaf waits for morning, "} {
			for _, size := range []int{1 << 16, 1 << 20} {
				text := strings.Repeat(unit, size/len(unit))
				b.Run(fmt.Sprintf("%s/%s/%dKiB", name, what, size>>10), func(b *testing.B) {
					b.ReportAllocs()
					b.SetBytes(int64(len(text)))
					var ids []int32
					for b.Loop() {
						ids = e.Encode(ids[:0], text, false)
					}
				})
			}
		}
	}
}
