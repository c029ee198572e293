package tokenizer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// toyBPE has a token for each byte, by its number, and then:
//
//	256 ab, 257 bc, 258 abc, 259 Ġa (a space and a), 260 <s>, 261 {u}, 262 aa, 263 aaaa
func toyBPE(t testing.TB, mod func(*BPEConfig)) *BPE {
	t.Helper()
	cfg := BPEConfig{Pre: "gpt-2", BOS: 260, EOS: 260, UNK: -1}
	characters := make([]string, 256)
	for r, b := range byteCharacters() {
		characters[b] = string(r)
	}
	cfg.Pieces = append(characters, "ab", "bc", "abc", "Ġa", "<s>", "{u}", "aa", "aaaa")
	cfg.Types = make([]int32, len(cfg.Pieces))
	for i := range cfg.Types {
		cfg.Types[i] = TypeNormal
	}
	cfg.Types[260], cfg.Types[261] = TypeControl, TypeUserDefined
	cfg.Merges = []string{"a b", "b c", "ab c", "a bc", "Ġ a", "a a", "aa aa"}
	if mod != nil {
		mod(&cfg)
	}
	bpe, err := NewBPE(cfg)
	require.NoError(t, err)
	return bpe
}

func TestBytesAreMergedByRankWithinWords(t *testing.T) {
	bpe := toyBPE(t, nil)
	for text, want := range map[string][]int32{
		"":         nil,
		"abc":      {258},
		"bc":       {257},
		"bcab":     {257, 256},
		"a a":      {'a', 259},
		"aaaaa":    {263, 'a'},
		"é":        {0xc3, 0xa9},
		"\xff\x00": {0xff, 0},
		"ab1ab":    {256, '1', 256},
	} {
		require.Equal(t, want, bpe.Encode(nil, text, false), "%q", text)
	}
}

func TestAWordThatIsATokenMayIgnoreMerges(t *testing.T) {
	withoutMerges := func(pre string) *BPE {
		return toyBPE(t, func(c *BPEConfig) { c.Pre, c.Merges = pre, nil })
	}
	require.Equal(t, []int32{'a', 'b', 'c'}, withoutMerges("gpt-2").Encode(nil, "abc", false))
	require.Equal(t, []int32{258}, withoutMerges("llama-bpe").Encode(nil, "abc", false))
	require.Equal(t, [2]bool{false, true}, [2]bool{withoutMerges("qwen2").AddsBOS(), withoutMerges("llama-bpe").AddsBOS()})
}

func TestBPESpecialsComeFromTemplatesOnly(t *testing.T) {
	bpe := toyBPE(t, nil)
	require.Equal(t, []int32{'a', 260, 'b'}, bpe.Encode(nil, "a<s>b", true))
	require.Equal(t, []int32{'a', '<', 's', '>', 'b'}, bpe.Encode(nil, "a<s>b", false))
	require.Equal(t, []int32{'a', 261, 'b'}, bpe.Encode(nil, "a{u}b", false))
	require.Equal(t, []string{"<s>"}, bpe.Specials())
	require.Equal(t, "{u}", string(bpe.Decode([]int32{260, 261})))
	turns := toyBPE(t, func(c *BPEConfig) {
		for _, text := range []string{"<|im_end|>", "<｜Assistant｜>"} {
			c.Pieces, c.Types = append(c.Pieces, text), append(c.Types, TypeUserDefined)
		}
	})
	require.True(t, turns.IsControl(264) && turns.IsControl(265), "marks are control tokens whatever their type")
}

func TestABPEVocabularyThatCannotWorkIsRefused(t *testing.T) {
	for says, mod := range map[string]func(*BPEConfig){
		"it has no tokens":                 func(c *BPEConfig) { c.Pieces, c.Types = nil, nil },
		"264 tokens and 1 types":           func(c *BPEConfig) { c.Types = []int32{1} },
		"token 3 has type 9":               func(c *BPEConfig) { c.Types[3] = 9 },
		`the pre-tokeniser "klingon"`:      func(c *BPEConfig) { c.Pre = "klingon" },
		`merge 0 is "ab", want two pieces`: func(c *BPEConfig) { c.Merges = []string{"ab"} },
		`merge 1 is ""`:                    func(c *BPEConfig) { c.Merges = []string{"a b", ""} },
		`merge 0 is " "`:                   func(c *BPEConfig) { c.Merges = []string{" "} },
		`merge 0 is "a "`:                  func(c *BPEConfig) { c.Merges = []string{"a "} },
		"BOS token 264 of 264":             func(c *BPEConfig) { c.BOS = 264 },
		"EOS token -2 of 264":              func(c *BPEConfig) { c.EOS = -2 },
	} {
		t.Run(says, func(t *testing.T) {
			cfg := BPEConfig{}
			toyBPE(t, func(c *BPEConfig) { cfg = *c })
			cfg.Types = append([]int32{}, cfg.Types...)
			mod(&cfg)
			_, err := NewBPE(cfg)
			require.ErrorIs(t, err, ErrVocabulary)
			require.ErrorContains(t, err, says)
		})
	}
}

// Merges of what is no token are never made, and of two for the same pair the
// first counts.
func TestUselessMergesAreIgnored(t *testing.T) {
	bpe := toyBPE(t, func(c *BPEConfig) { c.Merges = []string{"x y", "zz z", "b c", "a b", "b c"} })
	require.Equal(t, []int32{'a', 257, 'x', 'y'}, bpe.Encode(nil, "abcxy", false), "bc comes before ab")
}

func TestBytesWithoutATokenAreLeftOut(t *testing.T) {
	bpe := toyBPE(t, func(c *BPEConfig) { c.Pieces[0xff] = "unused" })
	require.Equal(t, []int32{'a', 'b'}, bpe.Encode(nil, "a\xffb", false), "and what lies around them is not merged")
}

// Short words are merged by another algorithm than long ones.
func TestShortAndLongWordsAreMergedAlike(t *testing.T) {
	bpe := toyBPE(t, nil)
	rapid.Check(t, func(r *rapid.T) {
		word := string(rapid.SliceOfN(rapid.SampledFrom([]byte("abc \xc3")), 1, 60).Draw(r, "word"))
		short, long := byteMerger{bpe: bpe}, byteMerger{bpe: bpe}
		short.short(word)
		long.long(word)
		require.Equal(r, short.dst, long.dst)
	})
}

func FuzzBPE(f *testing.F) {
	tokenizers := map[string]*BPE{}
	for _, pre := range []string{"gpt-2", "llama-bpe", "qwen2", "starcoder", "falcon", "default", "deepseek-coder", "deepseek-llm", "deepseek-v3"} {
		tokenizers[pre] = toyBPE(f, func(c *BPEConfig) { c.Pre = pre })
	}
	for _, s := range []string{"", "abc abc", "<s>", "don't I'LL", "12345", "  \n\r\n x", "é🦙\xff", "한국어 漢字　!", "{u}ͅ\u00a0\u3000"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for pre, bpe := range tokenizers {
			ids := bpe.Encode(nil, text, false)
			for _, id := range ids {
				require.False(t, bpe.IsControl(id), "%s: %q became %v", pre, text, ids)
			}
			require.Equal(t, text, string(bpe.Decode(ids)), pre)
		}
	})
}

// FuzzNewBPE builds vocabularies of any texts, types and merges.
func FuzzNewBPE(f *testing.F) {
	f.Add("a\nb\nab", "\x01\x01\x01", "a b", "gpt-2", int32(0))
	f.Add("<s>\n\n\n", "\x03\x01\x04\x06", "a b\n\n ", "default", int32(-1))
	f.Fuzz(func(t *testing.T, pieces, types, merges, pre string, bos int32) {
		cfg := BPEConfig{Pieces: strings.Split(pieces, "\n"), Merges: strings.Split(merges, "\n"), Pre: pre, BOS: bos, EOS: -1, UNK: -1}
		for _, kind := range []byte(types) {
			cfg.Types = append(cfg.Types, int32(int8(kind)))
		}
		bpe, err := NewBPE(cfg)
		if err != nil {
			require.ErrorIs(t, err, ErrVocabulary)
			return
		}
		for _, id := range bpe.Encode(nil, pieces+merges, true) {
			require.Less(t, int(id), bpe.VocabSize())
		}
	})
}
