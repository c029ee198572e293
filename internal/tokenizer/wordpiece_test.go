package tokenizer

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func toyWordPiece(t testing.TB, mod func(*WordPieceConfig)) *WordPiece {
	t.Helper()
	cfg := WordPieceConfig{
		Pieces: []string{"[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "##a", "able", "e", "!", "中", "##s", "{u}"},
		Types:  []int32{3, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4},
		BOS:    1, EOS: 2, UNK: 0, Continuation: "##", MaxWordRunes: 20,
	}
	if mod != nil {
		mod(&cfg)
	}
	w, err := NewWordPiece(cfg)
	require.NoError(t, err)
	return w
}

func TestTheLongestPieceIsTakenAgainAndAgain(t *testing.T) {
	w := toyWordPiece(t, nil)
	for text, want := range map[string][]int32{
		"":                      nil,
		"unaffable":             {3, 4, 5},
		"UNAFFABLE":             {3, 4, 5},
		"unaa un":               {3, 6, 6, 3},
		"ables  able\n":         {7, 11, 7},
		"unx able":              {0, 7},
		"é!!":                   {8, 9, 9},
		"中e中":                   {10, 8, 10},
		"un\x00able\ufffd":      {3, 5},
		strings.Repeat("a", 21): {0},
		"[CLS]un":               {0, 0, 0, 3},
		"un{u}able":             {3, 12, 7},
	} {
		require.Equal(t, want, w.Encode(nil, text, false), "%q", text)
	}
	require.Equal(t, []int32{3, 4, 5}, w.Encode(nil, "u\u0300na\u0308ffa\u0302ble\u0301", false), "accents are stripped")
	require.Equal(t, []int32{1, 3, 2}, w.Encode(nil, "[CLS]un[SEP]", true))
	require.Equal(t, " unaffable", string(w.Decode([]int32{1, 3, 4, 5, 2})))
	cased := toyWordPiece(t, func(c *WordPieceConfig) { c.KeepCase, c.KeepAccents = true, true })
	require.Equal(t, []int32{0, 3, 0}, cased.Encode(nil, "UN un é", false))
	silent := toyWordPiece(t, func(c *WordPieceConfig) { c.UNK = -1 })
	require.Equal(t, []int32{3}, silent.Encode(nil, "xyz un", false))
}

const tokenizerFile = `{
	"added_tokens": [{"id": 1, "content": "[CLS]", "special": true}, {"id": 4, "content": "{u}", "special": false}],
	"normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
	"pre_tokenizer": {"type": "BertPreTokenizer"},
	"model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
		"vocab": {"[UNK]": 0, "[CLS]": 1, "un": 2, "##able": 3}}}`

func TestATokenizerFileIsRead(t *testing.T) {
	w, err := ParseWordPiece([]byte(tokenizerFile))
	require.NoError(t, err)
	require.Equal(t, 5, w.VocabSize())
	require.Equal(t, []int32{2, 3, 4, 0}, w.Encode(nil, "Ünable{u}x", false))
	require.Equal(t, []int32{1, 2}, w.Encode(nil, "[CLS]un", true))
}

// What Hugging Face's BertNormalizer keeps, drops and splits at: vowel signs are
// marks, but no accents; white space is control characters too, save three.
func TestWordsAreThoseOfHuggingFace(t *testing.T) {
	types := []int32{TypeUnknown, TypeNormal, TypeNormal, TypeNormal, TypeNormal, TypeNormal, TypeNormal}
	w, err := NewWordPiece(WordPieceConfig{
		Pieces: []string{"[UNK]", "ह", "##ि", "##न", "ab", "a", "b"}, Types: types, Continuation: "##", BOS: -1, EOS: -1, UNK: 0,
	})
	require.NoError(t, err)
	for text, want := range map[string][]int32{
		"हिन": {1, 2, 3}, "a\vb": {4}, "a\u0085b": {4}, "a\tb\r\n": {5, 6}, "a\u00a0b": {5, 6}, "a\u0301b": {4}, "a\x00b": {4},
	} {
		require.Equal(t, want, w.Encode(nil, text, false), "%q", text)
	}
}

func TestATokenizerFileThatAsksForMoreIsRefused(t *testing.T) {
	for says, change := range map[string][2]string{
		`the model is "BPE"`:       {`"WordPiece"`, `"BPE"`},
		`with prefix ""`:           {`"##"`, `""`},
		"the normalizer is not":    {`"BertNormalizer"`, `"NFC"`},
		"isolates Chinese":         {`"handle_chinese_chars": true`, `"handle_chinese_chars": false`},
		"the pre_tokenizer is not": {`"BertPreTokenizer"`, `"Whitespace"`},
		`token "{u}" has id 9`:     {`"id": 4`, `"id": 9`},
		`has id 2, which is taken`: {`"##able": 3`, `"##able": 2`},
		`has id -1`:                {`"##able": 3`, `"##able": -1`},
		`token "{u}" has id 4`:     {`, "##able": 3`, ``},
		"invalid character":        {`"model"`, `model`},
		"cannot unmarshal":         {`"##able": 3`, `"##able": "3"`},
	} {
		require.Equal(t, 1, strings.Count(tokenizerFile, change[0]), says)
		_, err := ParseWordPiece([]byte(strings.Replace(tokenizerFile, change[0], change[1], 1)))
		require.ErrorIs(t, err, ErrVocabulary)
		require.ErrorContains(t, err, says)
	}
}

func TestTheSharedTokenizerFileIsRead(t *testing.T) {
	data, err := os.ReadFile("../../../shared/models/potion-base-4M-int8/tokenizer.json")
	if err != nil {
		t.Skip("the shared models are not here: ", err)
	}
	w, err := ParseWordPiece(data)
	require.NoError(t, err)
	require.Equal(t, 29528, w.VocabSize())
	require.Equal(t, " how do i reset my password ?", string(w.Decode(w.Encode(nil, "How do I reset my password?", false))))
}

func FuzzWordPiece(f *testing.F) {
	w := toyWordPiece(f, nil)
	for _, s := range []string{"", "unaffable", "[CLS]", "é中 \x00\xff", "{u}", strings.Repeat("e", 30), "\u0300\u0345"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, id := range w.Encode(nil, text, false) {
			require.True(t, id == 0 || !w.IsControl(id))
		}
	})
}

func FuzzParseWordPiece(f *testing.F) {
	f.Add([]byte(tokenizerFile))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		w, err := ParseWordPiece(data)
		if err != nil {
			require.ErrorIs(t, err, ErrVocabulary)
			return
		}
		require.True(t, json.Valid(data))
		w.Encode(nil, string(data), true)
	})
}
