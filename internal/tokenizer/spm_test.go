package tokenizer

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const tinyPath = "../../tinymodel/haiku-tiny.q8_0.gguf"

// toy is a vocabulary small enough to think through.
func toy(t testing.TB, mod func(*Config)) *SPM {
	t.Helper()
	cfg := Config{BOS: 1, EOS: 2, UNK: 0}
	add := func(piece string, score float32, kind int32) {
		cfg.Pieces = append(cfg.Pieces, piece)
		cfg.Scores = append(cfg.Scores, score)
		cfg.Types = append(cfg.Types, kind)
	}
	add("<unk>", 0, TypeUnknown)
	add("<s>", 0, TypeControl)
	add("</s>", 0, TypeControl)
	for b := range 256 {
		add(fmt.Sprintf("<0x%02X>", b), 0, TypeByte) // id 3+b
	}
	for i, p := range []string{"a", "b", "c", space, "ab", "bc", "abc", space + "a", "<s", "s>", "<", "s", ">", "x"} {
		add(p, -float32(i), TypeNormal) // id 259+i
	}
	add("{u}", 0, TypeUserDefined) // id 273
	if mod != nil {
		mod(&cfg)
	}
	spm, err := NewSPM(cfg)
	require.NoError(t, err)
	return spm
}

func TestTheBestPairIsMergedFirstAndTheLeftmostOfEquals(t *testing.T) {
	spm := toy(t, nil)
	for text, want := range map[string][]int32{
		"":      nil,
		"a":     {259},
		"abc":   {265}, // ab (-4) before bc (-5), then abc
		"bc":    {264},
		"abab":  {263, 263},
		"cab":   {261, 263},
		"a a":   {259, 266},
		"é":     {3 + 0xC3, 3 + 0xA9},
		"a\x00": {259, 3},
		"\xff":  {3 + 0xFF},
		"  ":    {262, 262},
	} {
		require.Equal(t, want, spm.Encode(nil, text, false), "%q", text)
	}
	equal := toy(t, func(c *Config) {
		c.Scores[264] = c.Scores[263] // ab and bc alike
		c.Types[265] = TypeUnused     // no abc
	})
	require.Equal(t, []int32{263, 261}, equal.Encode(nil, "abc", false))
}

func TestSpecialsComeFromTemplatesOnly(t *testing.T) {
	spm := toy(t, nil)
	require.Equal(t, []int32{259, 1, 260}, spm.Encode(nil, "a<s>b", true))
	require.Equal(t, []int32{259, 267, 271, 260}, spm.Encode(nil, "a<s>b", false), "the text of <s> stays text")
	require.Equal(t, []int32{259, 273, 260}, spm.Encode(nil, "a{u}b", false), "user-defined tokens are found anywhere")
	require.Equal(t, []string{"<unk>", "</s>", "<s>"}, spm.Specials())
	require.Equal(t, []bool{true, true, false, false}, []bool{spm.IsControl(0), spm.IsControl(1), spm.IsControl(273), spm.IsControl(-1)})
}

// TestWhatSteersTheModelIsControlWhateverItsType takes the types that files
// are known to give their end of text and their chat marks.
func TestWhatSteersTheModelIsControlWhateverItsType(t *testing.T) {
	spm := toy(t, func(c *Config) {
		c.Types[1], c.Types[2] = TypeNormal, TypeUserDefined // <s>, </s>
		for _, piece := range []string{"<|x|>", "<start_of_turn>", "<b>"} {
			c.Pieces = append(c.Pieces, piece) // ids 274 to 276
			c.Scores = append(c.Scores, 0)
			c.Types = append(c.Types, TypeUserDefined)
		}
	})
	const all = "<s></s><|x|><start_of_turn><b>"
	require.Equal(t, []int32{1, 2, 274, 275, 276}, spm.Encode(nil, all, true))
	for _, id := range spm.Encode(nil, all, false) {
		require.False(t, spm.IsControl(id))
	}
	require.Equal(t, all, string(spm.Decode(spm.Encode(nil, all, false))), "as text")
	require.Equal(t, "<b>", string(spm.Decode([]int32{1, 2, 274, 275, 276})), "as tokens")
	require.Equal(t, []string{"<start_of_turn>", "<unk>", "<|x|>", "</s>", "<s>"}, spm.Specials())
}

func TestTheLongestSpecialAtTheFirstPlaceIsFound(t *testing.T) {
	spm := toy(t, func(c *Config) {
		for _, piece := range []string{"[a", "[ab", "[abc]", "b]"} {
			c.Pieces = append(c.Pieces, piece) // ids 274 to 277
			c.Scores = append(c.Scores, 0)
			c.Types = append(c.Types, TypeControl)
		}
	})
	for text, want := range map[string][]int32{
		"[abc]": {276}, "[abc": {275, 261}, "[ab]": {275, 3 + ']'}, "[aa": {274, 259}, "[": {3 + '['}, "b]": {277}, "a[": {259, 3 + '['},
	} {
		require.Equal(t, want, spm.Encode(nil, text, true), "%q", text)
	}
}

func TestOfTokensWithTheSameTextTheLastCounts(t *testing.T) {
	spm := toy(t, func(c *Config) {
		c.Pieces = append(c.Pieces, "ab") // id 274
		c.Scores = append(c.Scores, -100)
		c.Types = append(c.Types, TypeNormal)
	})
	require.Equal(t, []int32{274}, spm.Encode(nil, "ab", false))
	require.Equal(t, []int32{265}, spm.Encode(nil, "abc", false), "by way of bc, which now comes first")
}

// TestWordsMayBeMergedOneByOne checks that doing so changes nothing, and that a
// vocabulary with tokens across words is not treated so.
func TestWordsMayBeMergedOneByOne(t *testing.T) {
	spm := spmFromGGUF(t, tinyPath)
	require.True(t, spm.byWord)
	whole := *spm
	whole.byWord = false
	rapid.Check(t, func(t *rapid.T) {
		parts := []string{" ", "  ", "a", "autumn", "the", " haiku", "é", "\n", "▁", "\xff", ".", "🦙"}
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom(parts)).Draw(t, "text"), "")
		require.Equal(t, whole.Encode(nil, text, false), spm.Encode(nil, text, false))
	})
	across := toy(t, func(c *Config) {
		c.Pieces = append(c.Pieces, "a"+space) // id 274
		c.Scores = append(c.Scores, 1)
		c.Types = append(c.Types, TypeNormal)
	})
	require.Equal(t, []int32{274, 260}, across.Encode(nil, "a b", false))
}

func TestASpacePrefixComesFirstAndAfterSpecials(t *testing.T) {
	spm := toy(t, func(c *Config) { c.AddSpacePrefix = true })
	require.Equal(t, []int32{266}, spm.Encode(nil, "a", false))
	require.Equal(t, []int32{266, 1, 266}, spm.Encode(nil, "a<s>a", true))
	require.Empty(t, spm.Encode(nil, "", false))
}

func TestDecodeGivesBackTheBytes(t *testing.T) {
	spm := toy(t, nil)
	for _, text := range []string{"abc ab", "  x ", "naïve 🦙 \xff\xfe", "a\x00b", "\n\t", "<s>{u}"} {
		require.Equal(t, text, string(spm.Decode(spm.Encode(nil, text, false))))
	}
	require.Empty(t, spm.Piece(1), "a control token shows nothing")
	require.Nil(t, spm.Piece(-1))
	require.Nil(t, spm.Piece(9999))
}

func TestAVocabularyThatCannotWorkIsRefused(t *testing.T) {
	good := Config{Pieces: []string{"a"}, Scores: []float32{0}, Types: []int32{TypeNormal}, BOS: -1, EOS: -1, UNK: 0}
	_, err := NewSPM(good)
	require.NoError(t, err)
	for name, mod := range map[string]func(*Config){
		"empty":          func(c *Config) { *c = Config{} },
		"no scores":      func(c *Config) { c.Scores = nil },
		"types too long": func(c *Config) { c.Types = []int32{1, 1} },
		"BOS outside":    func(c *Config) { c.BOS = 1 },
		"EOS below -1":   func(c *Config) { c.EOS = -2 },
		"unknown type":   func(c *Config) { c.Types = []int32{99} },
		"type 0":         func(c *Config) { c.Types = []int32{0} },
		"byte name":      func(c *Config) { c.Types, c.UNK = []int32{TypeByte}, -1 },
		"byte sign":      func(c *Config) { c.Types, c.UNK, c.Pieces = []int32{TypeByte}, -1, []string{"<0x+A>"} },
		"byte digits":    func(c *Config) { c.Types, c.UNK, c.Pieces = []int32{TypeByte}, -1, []string{"<0xAG>"} },
		"byte length":    func(c *Config) { c.Types, c.UNK, c.Pieces = []int32{TypeByte}, -1, []string{"<0x0AA>"} },
		"no bytes":       func(c *Config) { c.UNK = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			mod(&bad)
			_, err := NewSPM(bad)
			require.ErrorIs(t, err, ErrVocabulary)
		})
	}
}

func TestWithoutByteTokensTheUnknownTokenStandsIn(t *testing.T) {
	cfg := Config{Pieces: []string{"<unk>", "a"}, Scores: []float32{0, 0}, Types: []int32{TypeUnknown, TypeNormal}, BOS: -1, EOS: -1, UNK: 0}
	spm, err := NewSPM(cfg)
	require.NoError(t, err)
	require.Equal(t, []int32{1, 0}, spm.Encode(nil, "az", false))
}

// TestTheTinyModelsPromptsAreLlamaCpps compares with ids that llama.cpp gave
// for the same prompts.
func TestTheTinyModelsPromptsAreLlamaCpps(t *testing.T) {
	data, err := os.ReadFile("testdata/haiku-tiny.json")
	require.NoError(t, err)
	var file struct {
		Cases []struct {
			Prompt string
			IDs    []int32
		}
	}
	require.NoError(t, json.Unmarshal(data, &file))
	require.Len(t, file.Cases, 7)
	spm := spmFromGGUF(t, tinyPath)
	for _, c := range file.Cases {
		require.Equal(t, c.IDs, spm.Encode([]int32{spm.BOS()}, c.Prompt, true), "%q", c.Prompt)
	}
}

func FuzzSPM(f *testing.F) {
	spm := spmFromGGUF(f, tinyPath)
	for _, s := range []string{"", "autumn wind", "<|user|>", "<s></s>", "é🦙\xff", "   ", "▁", "<0x0A>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ids := spm.Encode(nil, text, false)
		for _, id := range ids {
			require.False(t, spm.IsControl(id), "%q became %v", text, ids)
		}
		// A space and U+2581 are the same to SentencePiece.
		require.Equal(t, strings.ReplaceAll(text, space, " "), string(spm.Decode(ids)))
	})
}
