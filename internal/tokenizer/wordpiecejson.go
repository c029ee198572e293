package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
)

// tokenizerJSON is what matters of Hugging Face's tokenizer.json to WordPiece.
type tokenizerJSON struct {
	AddedTokens []struct {
		ID      int
		Content string
		Special bool
	} `json:"added_tokens"`
	Normalizer *struct {
		Type         string
		CleanText    *bool `json:"clean_text"`
		Chinese      *bool `json:"handle_chinese_chars"`
		StripAccents *bool `json:"strip_accents"`
		Lowercase    *bool
	}
	PreTokenizer *struct{ Type string } `json:"pre_tokenizer"`
	Model        struct {
		Type         string
		Vocab        map[string]int
		Unknown      string `json:"unk_token"`
		Continuation string `json:"continuing_subword_prefix"`
		MaxRunes     int    `json:"max_input_chars_per_word"`
	}
}

// ParseWordPiece reads a tokenizer.json whose model is WordPiece, normalised
// and cut as for BERT. Errors match [ErrVocabulary] and say what else the file
// asks for.
func ParseWordPiece(data []byte) (*WordPiece, error) {
	var file tokenizerJSON
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrVocabulary, err)
	}
	cfg, err := file.config()
	if err != nil {
		return nil, fmt.Errorf("%w: tokenizer.json: %w", ErrVocabulary, err)
	}
	return NewWordPiece(cfg)
}

func (f *tokenizerJSON) config() (WordPieceConfig, error) {
	m := &f.Model
	cfg := WordPieceConfig{Continuation: m.Continuation, MaxWordRunes: m.MaxRunes, BOS: -1, EOS: -1, UNK: -1}
	if m.Type != "WordPiece" || m.Continuation == "" || m.MaxRunes < 0 {
		return cfg, fmt.Errorf("the model is %q with prefix %q, implemented is WordPiece with one", m.Type, m.Continuation)
	}
	if err := f.normalisation(&cfg); err != nil {
		return cfg, err
	}
	n := len(m.Vocab)
	for _, t := range f.AddedTokens {
		if _, known := m.Vocab[t.Content]; !known {
			n++
		}
	}
	cfg.Pieces, cfg.Types = make([]string, n), make([]int32, n)
	for text, id := range m.Vocab {
		if err := cfg.place(text, id, TypeNormal); err != nil {
			return cfg, err
		}
	}
	for _, t := range f.AddedTokens {
		kind := int32(TypeUserDefined)
		if t.Special {
			kind = TypeControl
		}
		if id, known := m.Vocab[t.Content]; known && id == t.ID {
			cfg.Types[id] = kind
		} else if err := cfg.place(t.Content, t.ID, kind); err != nil {
			return cfg, err
		}
	}
	if missing := slices.Index(cfg.Types, 0); missing >= 0 {
		return cfg, fmt.Errorf("no token has id %d", missing)
	}
	if id, known := m.Vocab[m.Unknown]; known {
		cfg.UNK = int32(id)
	}
	return cfg, nil
}

// place enters a token, whose id has to be free.
func (cfg *WordPieceConfig) place(text string, id int, kind int32) error {
	if id < 0 || id >= len(cfg.Pieces) || cfg.Types[id] != 0 {
		return fmt.Errorf("token %q has id %d, which is taken or not one of %d", text, id, len(cfg.Pieces))
	}
	cfg.Pieces[id], cfg.Types[id] = text, kind
	return nil
}

func (f *tokenizerJSON) normalisation(cfg *WordPieceConfig) error {
	isTrue := func(b *bool) bool { return b == nil || *b }
	n := f.Normalizer
	if n == nil || n.Type != "BertNormalizer" || !isTrue(n.CleanText) || !isTrue(n.Chinese) {
		return fmt.Errorf("the normalizer is not a BertNormalizer that cleans text and isolates Chinese characters")
	}
	if f.PreTokenizer == nil || f.PreTokenizer.Type != "BertPreTokenizer" {
		return fmt.Errorf("the pre_tokenizer is not a BertPreTokenizer")
	}
	cfg.KeepCase = !isTrue(n.Lowercase)
	cfg.KeepAccents = cfg.KeepCase // as null means
	if n.StripAccents != nil {
		cfg.KeepAccents = !*n.StripAccents
	}
	return nil
}
