package infer

import (
	"errors"
	"fmt"

	"github.com/intelliparadigm/haiku/internal/gguf"
	"github.com/intelliparadigm/haiku/internal/tokenizer"
)

// modelTokenizer is what internal/tokenizer makes of each kind of vocabulary.
type modelTokenizer interface {
	Tokenizer
	Specials() []string
	Special(text string) (int32, bool)
	IsControl(id int32) bool
}

// modelVocabulary is what a model's file says about its tokens.
type modelVocabulary struct {
	file          *ModelFile
	pieces        []string // [vocab]
	types         []int32  // [vocab]
	bos, eos, unk int32    // -1 for none
	eot, eom      int32    // the ends of a turn and of a message, -1 for none
	addBOS        bool     // as the kind of vocabulary has it by default
}

// TokenizerOf returns the tokenizer of a model file, for programs that count or
// cut text without an executor. Errors match [ErrUnsupportedModel] for a kind
// of vocabulary that is not known.
func TokenizerOf(file *ModelFile) (Tokenizer, error) {
	text, err := textFrom(file)
	return text.Tokenizer, err
}

// textFrom reads the tokenizer and the chat template of a model.
func textFrom(file *ModelFile) (Text, error) {
	v, err := readVocabulary(file)
	if err != nil {
		return Text{}, err
	}
	tok, err := v.tokenizer()
	if err != nil {
		return Text{}, err
	}
	text := Text{Tokenizer: tok, Specials: tok.Specials(), EOS: v.ends(tok)}
	addBOS, err := optional(file.Bool("tokenizer.ggml.add_bos_token"))(v.addBOS)
	if err != nil {
		return Text{}, err
	}
	if v.bos >= 0 {
		text.BOSText = v.pieces[v.bos]
		if addBOS {
			text.BOS = []int32{v.bos}
		}
	}
	if v.eos >= 0 {
		text.EOSText = v.pieces[v.eos]
	}
	text.ChatTemplate, err = optional(file.String("tokenizer.chat_template"))("")
	return text, err
}

func readVocabulary(file *ModelFile) (v modelVocabulary, err error) {
	v.file = file
	if v.pieces, err = file.Strings("tokenizer.ggml.tokens"); err != nil {
		return v, err
	}
	if v.types, err = file.Ints("tokenizer.ggml.token_type"); err != nil {
		return v, err
	}
	v.bos = optionalID(file, "tokenizer.ggml.bos_token_id")
	v.eos = optionalID(file, "tokenizer.ggml.eos_token_id")
	v.unk = optionalID(file, "tokenizer.ggml.unknown_token_id")
	// Chat models may end a turn with another token than a text. Some files
	// call it a word: then users could end their turn and begin another's.
	for key, id := range map[string]*int32{"eot": &v.eot, "eom": &v.eom} {
		*id = optionalID(file, "tokenizer.ggml."+key+"_token_id")
		if *id >= int32(min(len(v.pieces), len(v.types))) {
			*id = -1
		}
		if *id >= 0 && v.types[*id] != tokenizer.TypeByte {
			v.types[*id] = tokenizer.TypeControl
		}
	}
	return v, nil
}

// tokenizer builds the kind that the file names.
func (v *modelVocabulary) tokenizer() (modelTokenizer, error) {
	kind, err := v.file.String("tokenizer.ggml.model")
	if err != nil {
		return nil, err
	}
	switch kind {
	case "llama":
		return v.spm()
	case "gpt2":
		return v.bpe()
	case "bert":
		v.addBOS = true
		lower, err := optional(v.file.Bool("tokenizer.ggml.normalizer.lowercase"))(true)
		if err != nil {
			return nil, err
		}
		strip, err := optional(v.file.Bool("tokenizer.ggml.normalizer.strip_accents"))(lower)
		if err != nil {
			return nil, err
		}
		return tokenizer.NewWordPiece(tokenizer.WordPieceConfig{
			Pieces: v.pieces, Types: v.types, BOS: v.bos, EOS: v.eos, UNK: v.unk, KeepCase: !lower, KeepAccents: !strip,
		})
	}
	return nil, fmt.Errorf("%w: tokenizer.ggml.model %q, want \"llama\" (SentencePiece), \"gpt2\" (byte-level BPE) or \"bert\" (WordPiece)", ErrUnsupportedModel, kind)
}

func (v *modelVocabulary) spm() (modelTokenizer, error) {
	v.addBOS = true
	cfg := tokenizer.Config{Pieces: v.pieces, Types: v.types, BOS: v.bos, EOS: v.eos, UNK: v.unk}
	var err error
	if cfg.Scores, err = v.file.Floats("tokenizer.ggml.scores"); err != nil {
		return nil, err
	}
	if cfg.AddSpacePrefix, err = optional(v.file.Bool("tokenizer.ggml.add_space_prefix"))(true); err != nil {
		return nil, err
	}
	return tokenizer.NewSPM(cfg)
}

func (v *modelVocabulary) bpe() (modelTokenizer, error) {
	cfg := tokenizer.BPEConfig{Pieces: v.pieces, Types: v.types, BOS: v.bos, EOS: v.eos, UNK: v.unk}
	var err error
	if cfg.Merges, err = v.file.Strings("tokenizer.ggml.merges"); err != nil {
		return nil, err
	}
	if cfg.Pre, err = optional(v.file.String("tokenizer.ggml.pre"))("default"); err != nil {
		return nil, err
	}
	bpe, err := tokenizer.NewBPE(cfg)
	if err != nil {
		return nil, err
	}
	v.addBOS = bpe.AddsBOS()
	return bpe, nil
}

// turnEnds are how chat templates of known models end a turn. Files are known
// to name another end only.
var turnEnds = []string{"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|endoftext|>", "<end_of_turn>", "<|end_of_text|>"}

// ends returns the tokens that end an answer, each once.
func (v *modelVocabulary) ends(tok modelTokenizer) (ids []int32) {
	add := func(id int32) {
		for _, known := range ids {
			if known == id {
				return
			}
		}
		if id >= 0 {
			ids = append(ids, id)
		}
	}
	add(v.eos)
	add(v.eot)
	add(v.eom)
	for _, text := range turnEnds {
		if id, found := tok.Special(text); found && tok.IsControl(id) {
			add(id)
		}
	}
	return ids
}

// optional makes a missing key the value given to the returned function.
func optional[T any](v T, err error) func(missing T) (T, error) {
	return func(missing T) (T, error) {
		if errors.Is(err, gguf.ErrMissingKey) {
			return missing, nil
		}
		return v, err
	}
}

// optionalID reads a token id, -1 for none.
func optionalID(file *ModelFile, key string) int32 {
	id, err := file.Int(key)
	if err != nil || id < 0 || id > 1<<30 {
		return -1
	}
	return int32(id)
}
