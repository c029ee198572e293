package infer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/intelliparadigm/haiku/internal/gguf"
	"github.com/intelliparadigm/haiku/internal/tokenizer"
)

// Open loads a GGUF file with default options:
//
//	eng, err := infer.Open("model.gguf", cpu.New())
func Open(path string, b Backend) (*Engine, error) { return Options{}.Open(path, b) }

// OpenBytes loads a GGUF file that lies in memory, such as an embedded one,
// with default options. The caller keeps data unchanged until Close.
func OpenBytes(data []byte, b Backend) (*Engine, error) { return Options{}.OpenBytes(data, b) }

// Open loads the GGUF file at path onto b. The file is mapped, not read, and
// stays open until the Engine is closed. Without a Name in o the model is
// called what its file name is without the extension.
func (o Options) Open(path string, b Backend) (*Engine, error) {
	file, err := gguf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("infer: open model: %w", err)
	}
	if o.Name == "" {
		o.Name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	}
	return o.load(file, b)
}

// OpenBytes is [OpenBytes] with options. Without a Name in o the model is
// called what its metadata says.
func (o Options) OpenBytes(data []byte, b Backend) (*Engine, error) {
	file, err := gguf.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("infer: open model: %w", err)
	}
	if o.Name == "" {
		o.Name, _ = file.String("general.name")
	}
	return o.load(file, b)
}

// load closes file if it fails, and otherwise leaves that to the engine.
func (o Options) load(file *ModelFile, b Backend) (*Engine, error) {
	text, err := textFrom(file)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("infer: tokenizer: %w", err), file.Close())
	}
	if o.ChatTemplate != "" {
		text.ChatTemplate = o.ChatTemplate
	}
	exec, err := loadExecutor(file, b)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	e, err := New(exec, text, o)
	if err != nil {
		return nil, errors.Join(err, exec.Close(), file.Close())
	}
	e.unload = file.Close
	return e, nil
}

// loadExecutor keeps a backend's panic over a strange file from the host.
func loadExecutor(file *ModelFile, b Backend) (exec Executor, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: the backend panicked: %v", ErrUnsupportedModel, v)
		}
	}()
	return b.Load(context.Background(), file)
}

// textFrom reads the tokenizer and the chat template of a model.
func textFrom(file *ModelFile) (Text, error) {
	kind, err := file.String("tokenizer.ggml.model")
	if err != nil {
		return Text{}, err
	}
	if kind != "llama" {
		return Text{}, fmt.Errorf("%w: tokenizer.ggml.model %q, want \"llama\" (SentencePiece)", ErrUnsupportedModel, kind)
	}
	cfg, err := spmConfig(file)
	if err != nil {
		return Text{}, err
	}
	// Chat models may end a turn with another token than a text. Some files
	// call it a word: then users could end their turn and begin another's.
	eot := optionalID(file, "tokenizer.ggml.eot_token_id")
	if eot >= int32(min(len(cfg.Pieces), len(cfg.Types))) {
		eot = -1
	}
	if eot >= 0 && cfg.Types[eot] != tokenizer.TypeByte {
		cfg.Types[eot] = tokenizer.TypeControl
	}
	spm, err := tokenizer.NewSPM(cfg)
	if err != nil {
		return Text{}, err
	}
	text := Text{Tokenizer: spmText{spm, pieces(spm)}, Specials: spm.Specials()}
	if cfg.BOS >= 0 {
		text.BOSText = cfg.Pieces[cfg.BOS]
		if cfg.AddBOS {
			text.BOS = []int32{cfg.BOS}
		}
	}
	if cfg.EOS >= 0 {
		text.EOSText = cfg.Pieces[cfg.EOS]
		text.EOS = []int32{cfg.EOS}
	}
	if eot >= 0 {
		text.EOS = append(text.EOS, eot)
	}
	text.ChatTemplate, err = optional(file.String("tokenizer.chat_template"))("")
	return text, err
}

func spmConfig(file *ModelFile) (cfg tokenizer.Config, err error) {
	if cfg.Pieces, err = file.Strings("tokenizer.ggml.tokens"); err != nil {
		return cfg, err
	}
	if cfg.Scores, err = file.Floats("tokenizer.ggml.scores"); err != nil {
		return cfg, err
	}
	if cfg.Types, err = file.Ints("tokenizer.ggml.token_type"); err != nil {
		return cfg, err
	}
	cfg.BOS = optionalID(file, "tokenizer.ggml.bos_token_id")
	cfg.EOS = optionalID(file, "tokenizer.ggml.eos_token_id")
	cfg.UNK = optionalID(file, "tokenizer.ggml.unknown_token_id")
	if cfg.AddBOS, err = optional(file.Bool("tokenizer.ggml.add_bos_token"))(true); err != nil {
		return cfg, err
	}
	cfg.AddSpacePrefix, err = optional(file.Bool("tokenizer.ggml.add_space_prefix"))(true)
	return cfg, err
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

// spmText is a [Tokenizer] over a SentencePiece vocabulary.
type spmText struct {
	*tokenizer.SPM
	pieces [][]byte
}

// Pieces returns the bytes of each token, [vocab].
func (t spmText) Pieces() [][]byte { return t.pieces }

func pieces(spm *tokenizer.SPM) [][]byte {
	all := make([][]byte, spm.VocabSize())
	for id := range all {
		all[id] = spm.Piece(int32(id))
	}
	return all
}
