package infer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/intelliparadigm/haiku/internal/gguf"
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
