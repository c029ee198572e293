package infer

import (
	"cmp"
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
	_, m, ok := r.lookup(name)
	return m, ok
}

func (r *Registry) lookup(asked string) (name string, m haiku.Model, ok bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	name = cmp.Or(asked, r.fallback)
	m, ok = r.models[name]
	return name, m, ok
}

// Generate passes req on. The model is not told the name it was found under,
// which may be an alias; it reports its own.
func (r *Registry) Generate(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) error {
	name, m, own, ok := r.route(req.Model)
	if !ok {
		return haiku.ModelNotFound(req.Model)
	}
	inner := *req
	inner.Model = own
	if err := haiku.TakesExtensions(m, &inner); err != nil { // another may have the name by now
		return err
	}
	w.SetModel(name)
	return m.Generate(ctx, w, &inner)
}

// TakesExtensions asks the model that req would be passed to.
func (r *Registry) TakesExtensions(req *haiku.Request) error {
	_, m, own, ok := r.route(req.Model)
	if !ok {
		return haiku.ModelNotFound(req.Model)
	}
	inner := *req
	inner.Model = own
	return haiku.TakesExtensions(m, &inner)
}

// Recall passes req on to a model that may have the answer at hand.
func (r *Registry) Recall(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) ([]haiku.Token, bool) {
	name, m, own, _ := r.route(req.Model)
	recaller, able := m.(haiku.Recaller)
	if !able {
		return nil, false
	}
	inner := *req
	inner.Model = own
	w.SetModel(name)
	return recaller.Recall(ctx, w, &inner)
}

// route returns the name that asked stands for, the model that answers for it,
// and what that is asked for: nothing or, by name, one of its adapters.
func (r *Registry) route(asked string) (name string, m haiku.Model, own string, ok bool) {
	if name, m, ok = r.lookup(asked); ok {
		return name, m, "", true
	}
	m, ok = r.adapted(asked)
	return asked, m, asked, ok
}

// Embed passes req on, as Generate does. A model that makes no embeddings is an
// error for the client.
func (r *Registry) Embed(ctx context.Context, req *haiku.EmbeddingRequest) (*haiku.Embeddings, error) {
	_, m, own, ok := r.route(req.Model)
	if !ok {
		return nil, haiku.ModelNotFound(req.Model)
	}
	inner := *req
	inner.Model = own
	embedder, able := haiku.ModelAs[haiku.Embedder](m)
	if !able {
		return nil, haiku.ErrUnsupported.With("model", "this model makes no embeddings")
	}
	return embedder.Embed(ctx, &inner)
}

// adapted returns the model that lists name as one of its adapters. Of several
// it is the first in the order of their own names.
func (r *Registry) adapted(name string) (haiku.Model, bool) {
	models := r.all()
	for _, own := range slices.Sorted(maps.Keys(models)) {
		if slices.ContainsFunc(adaptersOf(models[own]), func(a haiku.ModelInfo) bool { return a.ID == name }) {
			return models[own], true
		}
	}
	return nil, false
}

// all returns the models by name. They are asked without the lock: a model may
// ask the registry in turn.
func (r *Registry) all() map[string]haiku.Model {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return maps.Clone(r.models)
}

// adaptersOf returns what m lists as adapters of another model.
func adaptersOf(m haiku.Model) []haiku.ModelInfo {
	return slices.DeleteFunc(slices.Clone(haiku.ModelsOf(m)), func(i haiku.ModelInfo) bool { return i.Parent == "" })
}

// Models lists the names in alphabetical order, with what their models tell,
// and the adapters of each that have not a name of their own here.
func (r *Registry) Models() []haiku.ModelInfo {
	models := r.all()
	byName := make(map[string]haiku.ModelInfo, len(models))
	for _, name := range slices.Sorted(maps.Keys(models)) {
		m := models[name]
		for _, a := range adaptersOf(m) {
			if _, taken := byName[a.ID]; !taken {
				a.Parent = name
				byName[a.ID] = a
			}
		}
	}
	for name, m := range models {
		var info haiku.ModelInfo
		bases := slices.DeleteFunc(slices.Clone(haiku.ModelsOf(m)), func(i haiku.ModelInfo) bool { return i.Parent != "" })
		if len(bases) == 1 {
			info = bases[0]
		}
		info.ID, info.OwnedBy = name, cmp.Or(info.OwnedBy, "haiku")
		byName[name] = info
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b haiku.ModelInfo) int { return strings.Compare(a.ID, b.ID) })
}
