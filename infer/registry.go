package infer

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/intelliparadigm/haiku"
)

// Registry is a [haiku.Model] that passes each request to the model of its
// name. The zero Registry is empty and ready to use; its methods may be called
// at any time by any goroutine.
type Registry struct {
	mu       sync.RWMutex
	models   map[string]haiku.Model
	fallback string // the name an empty one stands for
}

// Add makes m answer requests for name, in place of a model of that name
// before it. The first name added is also the one that requests without a
// name mean.
func (r *Registry) Add(name string, m haiku.Model) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.models == nil {
		r.models = make(map[string]haiku.Model)
		r.fallback = name
	}
	r.models[name] = m
}

// Remove forgets name. Requests that run go on. If name is the one that
// requests without a name mean, those are refused until it is added again.
func (r *Registry) Remove(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.models, name)
}

// Lookup returns the model for a name, where empty means the first one added.
func (r *Registry) Lookup(name string) (haiku.Model, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if name == "" {
		name = r.fallback
	}
	m, ok := r.models[name]
	return m, ok
}

// Generate passes req on. The model is not told the name it was found under,
// which may be an alias; it reports its own.
func (r *Registry) Generate(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
	m, ok := r.Lookup(req.Model)
	if !ok {
		return haiku.ErrModelNotFound.With("model", "the model %q does not exist", clip(req.Model))
	}
	inner := *req
	inner.Model = ""
	w.SetModel(req.Model)
	return m.Generate(ctx, w, &inner)
}

// Models lists the names in alphabetical order, with what their models tell.
func (r *Registry) Models() []haiku.ModelInfo {
	r.mu.RLock()
	models := maps.Clone(r.models)
	r.mu.RUnlock() // a model may ask the registry in turn
	list := make([]haiku.ModelInfo, 0, len(models))
	for name, m := range models {
		info := haiku.ModelInfo{OwnedBy: "haiku"}
		if l, ok := haiku.ModelAs[haiku.Lister](m); ok {
			if models := l.Models(); len(models) == 1 {
				info = models[0]
			}
		}
		info.ID = name
		list = append(list, info)
	}
	slices.SortFunc(list, func(a, b haiku.ModelInfo) int { return strings.Compare(a.ID, b.ID) })
	return list
}
