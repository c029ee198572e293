package infer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/internal/lora"
)

// ErrAdapter is matched by errors of [Engine.AddAdapter] and
// [Engine.RemoveAdapter] about the name, which is taken, unknown or no name, or
// about a file that is nil.
var ErrAdapter = errors.New("infer: adapter")

// OpenAdapter reads a low-rank adapter: a GGUF file, or what PEFT has written,
// by the path of its folder or of its safetensors file. Nothing is kept open.
func OpenAdapter(path string) (*AdapterFile, error) { return lora.Open(path) }

// maxAdapterScale bounds a request's own scale: ten times an adapter is beyond
// what any is trained for.
const maxAdapterScale = 10

// maxAdapterName bounds the name of an adapter, in bytes.
const maxAdapterName = 256

// adapter is one that requests may ask for by its name.
type adapter struct {
	name    string
	id      AdapterID
	created int64 // Unix seconds

	// The rest is guarded by Engine.mu.
	state   adapterState
	users   int  // requests that use it
	removed bool // it is unloaded when the last of them ends

	// Of those that are loaded when they are needed.
	source  AdapterSource // nil for the others
	bytes   int64         // taken of the budget
	used    time.Time     // when it was used last
	waiting []*job        // for the load under way
	failure error         // of the last load
}

// adapterState says where an adapter is.
type adapterState uint8

const (
	absent  adapterState = iota // known, and not on the device; its id is 0
	loading                     // on its way
	ready
)

// LoadAdapter reads the adapter at path, as [OpenAdapter] does, and adds it
// under name.
func (e *Engine) LoadAdapter(ctx context.Context, name, path string) error {
	file, err := OpenAdapter(path)
	if err != nil {
		return fmt.Errorf("infer: adapter %q: %w", name, err)
	}
	return e.AddAdapter(ctx, name, file)
}

// AddAdapter makes an adapter available: a request whose Model is name is
// answered by the engine's model with it. It may be called at any time, by any
// goroutine; requests go on meanwhile.
//
// Errors match [ErrAdapter] for a name that is taken, also by a load that is
// under way, [ErrUnsupportedModel] for an adapter that does not fit or an
// executor that knows none, [ErrClosed] once Shutdown or Close has begun, or come from the executor.
// A failed load leaves nothing behind.
func (e *Engine) AddAdapter(ctx context.Context, name string, file *AdapterFile) error {
	if err := e.adaptable(name, file != nil); err != nil {
		return err
	}
	a, err := e.reserve(name)
	if err != nil {
		return err
	}
	defer e.loads.Done()
	err = loadAdapter(ctx, e.exec.(AdapterExecutor), a.id, file)
	e.mu.Lock()
	defer e.mu.Unlock()
	if a.state = ready; err != nil {
		delete(e.adapters, name)
		return fmt.Errorf("infer: adapter %q: %w", name, err)
	}
	return nil
}

// adaptable reports why there can be no adapter of this name.
func (e *Engine) adaptable(name string, given bool) error {
	if _, able := e.exec.(AdapterExecutor); !able {
		return fmt.Errorf("infer: adapter %q: %w: executor %s applies none", name, ErrUnsupportedModel, e.spec.Name)
	}
	switch {
	case !given:
		return fmt.Errorf("%w: there is no file for %.40q", ErrAdapter, name)
	case name == "" || len(name) > maxAdapterName || !utf8.ValidString(name):
		return fmt.Errorf("%w: %.40q is no name for one", ErrAdapter, name)
	}
	return nil
}

// reserve takes a name for an adapter that is about to be loaded.
func (e *Engine) reserve(name string) (*adapter, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.life != accepting:
		return nil, fmt.Errorf("infer: adapter %q: %w", name, ErrClosed)
	case name == e.opts.Name || e.adapters[name] != nil:
		return nil, fmt.Errorf("%w: the name %q is taken", ErrAdapter, name)
	}
	e.lastAdapter++
	a := &adapter{name: name, id: e.lastAdapter, created: time.Now().Unix(), state: loading}
	if e.adapters == nil {
		e.adapters = make(map[string]*adapter)
	}
	e.adapters[name] = a
	e.loads.Add(1)
	return a, nil
}

// loadAdapter keeps an executor's panic over a strange file from the host.
func loadAdapter(ctx context.Context, exec AdapterExecutor, id AdapterID, file *AdapterFile) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &haiku.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return exec.LoadAdapter(ctx, id, file)
}

// RemoveAdapter makes name unknown at once. Requests that run with the adapter
// go on; its memory is freed when the last of them has ended. The name can be
// used again right away. Errors match [ErrAdapter] for a name that is not
// there, or still being loaded.
func (e *Engine) RemoveAdapter(name string) error {
	e.mu.Lock()
	a := e.adapters[name]
	if a == nil || a.state == loading {
		e.mu.Unlock()
		return fmt.Errorf("%w: there is none called %.40q", ErrAdapter, name)
	}
	delete(e.adapters, name)
	a.removed = true
	unload := a.state == ready && a.users == 0 && e.beginUnload()
	if a.users == 0 {
		e.giveBack(a)
	}
	e.mu.Unlock()
	if unload {
		e.unloadAdapter(a.id)
	}
	return nil
}

// use returns the adapter that req asks for and its id, nil for the model itself.
// One that is not loaded begins to load. It is kept until done is called with it.
func (e *Engine) use(req *haiku.Request) (*adapter, AdapterID, error) {
	if req.Model == "" || req.Model == e.opts.Name {
		if req.AdapterScale != nil {
			return nil, 0, haiku.ErrInvalidRequest.With("adapter_scale", "adapter_scale needs an adapter as the model")
		}
		return nil, 0, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.adapters[req.Model]
	if a == nil || (a.state != ready && a.source == nil) {
		return nil, 0, haiku.ModelNotFound(req.Model)
	}
	if s := req.AdapterScale; s != nil && !(math.Abs(*s) <= maxAdapterScale) {
		return nil, 0, haiku.ErrInvalidRequest.With("adapter_scale", "adapter_scale must lie from -%d to %d", maxAdapterScale, maxAdapterScale)
	}
	if a.state == absent {
		if err := e.fetch(a); err != nil {
			return nil, 0, err
		}
	}
	a.users++
	return a, a.id, nil
}

// done ends the use of an adapter, or of none.
func (e *Engine) done(a *adapter) {
	if a == nil {
		return
	}
	e.mu.Lock()
	e.letGo(a)
	unload := a.users == 0 && a.removed && a.state == ready && e.beginUnload()
	if a.users == 0 && a.removed {
		e.giveBack(a)
	}
	e.mu.Unlock()
	if unload {
		e.unloadAdapter(a.id)
	}
}

// giveBack returns what a removed adapter has taken of the budget. The caller
// holds mu.
func (e *Engine) giveBack(a *adapter) {
	e.adapterBytes -= a.bytes
	a.bytes = 0
	e.released()
}

// beginUnload reports whether an adapter may still be unloaded: an executor that
// is closed, or about to be, frees all of them itself. If so, unloadAdapter has
// to follow, which Close waits for. The caller holds mu.
func (e *Engine) beginUnload() bool {
	if e.life == killed {
		return false
	}
	e.loads.Add(1)
	return true
}

func (e *Engine) unloadAdapter(id AdapterID) {
	defer e.loads.Done()
	defer func() {
		if v := recover(); v != nil {
			e.opts.Logger.Error("haiku: the executor panicked in UnloadAdapter", "panic", v)
		}
	}()
	e.exec.(AdapterExecutor).UnloadAdapter(id)
}

// Models lists the engine's model and, in alphabetical order, the adapters that
// requests may ask for.
func (e *Engine) Models() []haiku.ModelInfo {
	base := haiku.ModelInfo{ID: e.opts.Name, OwnedBy: "haiku", ContextTokens: e.spec.ContextTokens}
	list := []haiku.ModelInfo{base}
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, a := range e.adapters {
		if a.state == ready || a.source != nil {
			info := base
			info.ID, info.Parent, info.Created = name, base.ID, a.created
			list = append(list, info)
		}
	}
	slices.SortFunc(list[1:], func(a, b haiku.ModelInfo) int { return strings.Compare(a.ID, b.ID) })
	return list
}
