package upstream

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/intelliparadigm/haiku"
)

// listing is what is known of the engine's models.
type listing struct {
	mu       sync.Mutex
	list     []haiku.ModelInfo
	at       time.Time // when list came, zero for never
	tried    time.Time // when it was asked for last
	underway bool
}

// staleLists is how many times its age may exceed Options.ModelsTTL before a
// list is not shown any more.
const staleLists = 10

// Models implements haiku.Lister. It never waits for the network: it returns the
// list that is known, and if that is older than Options.ModelsTTL has it asked
// for beside the request. Before the first list has come, and when the engine
// has been silent for too long, it knows of the model that Options name alone.
// [Engine.Refresh] waits.
func (e *Engine) Models() []haiku.ModelInfo {
	l := &e.models
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.underway && now.Sub(l.tried) >= e.opts.ModelsTTL {
		l.underway = e.beside(func(ctx context.Context) {
			_ = e.Refresh(ctx) // the next one to ask has it tried again
			l.mu.Lock()
			defer l.mu.Unlock()
			l.underway = false
		})
		l.tried = now
	}
	if l.at.IsZero() || e.opts.ModelsTTL > 0 && now.Sub(l.at) > staleLists*e.opts.ModelsTTL {
		return e.configured()
	}
	return slices.Clone(l.list)
}

// configured is the model that Options name.
func (e *Engine) configured() []haiku.ModelInfo {
	for _, name := range []string{e.opts.Name, e.opts.Model} {
		if name != "" {
			return []haiku.ModelInfo{{ID: name}}
		}
	}
	return nil
}

// modelsJSON is the answer to GET /models.
type modelsJSON struct {
	Data []struct {
		ID      string  `json:"id"`
		Created float64 `json:"created"`
		OwnedBy string  `json:"owned_by"`
		Parent  string  `json:"parent"`
		Length  float64 `json:"max_model_len"`
		Meta    struct {
			Length  float64 `json:"n_ctx"`
			Trained float64 `json:"n_ctx_train"`
		} `json:"meta"`
	} `json:"data"`
}

// refreshWithin bounds one request for the list.
const refreshWithin = 10 * time.Second

// Refresh asks the engine for its models and waits for the answer. It is also a
// probe of whether the engine is there.
func (e *Engine) Refresh(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, refreshWithin)
	defer cancel()
	data, err := e.fetch(limited, &call{method: http.MethodGet, path: pathModels}, envelope{})
	if err != nil {
		return wireError(ctx, "", err)
	}
	var j modelsJSON
	if err := json.Unmarshal(data, &j, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return wireError(ctx, "", fmt.Errorf("%w: list of models: %w", ErrMalformed, err))
	}
	list := e.named(&j)
	l := &e.models
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list, l.at = list, time.Now()
	return nil
}

// named is the list as clients see it: of an engine that Options give a model or a
// name, that one alone, with its adapters.
func (e *Engine) named(j *modelsJSON) []haiku.ModelInfo {
	all := make([]haiku.ModelInfo, len(j.Data))
	for i := range j.Data {
		m := &j.Data[i]
		all[i] = haiku.ModelInfo{ID: m.ID, Parent: m.Parent, OwnedBy: m.OwnedBy, Created: int64(m.Created)}
		for _, n := range []float64{m.Length, m.Meta.Length, m.Meta.Trained} {
			if all[i].ContextTokens == 0 && n > 0 {
				all[i].ContextTokens = int(n)
			}
		}
	}
	if e.opts.Model == "" && e.opts.Name == "" {
		return all
	}
	base := slices.IndexFunc(all, func(m haiku.ModelInfo) bool {
		return m.ID == e.opts.Model || e.opts.Model == "" && m.Parent == ""
	})
	if base < 0 {
		return e.configured()
	}
	own := all[base].ID
	all[base].ID = cmp.Or(e.opts.Name, own)
	list := []haiku.ModelInfo{all[base]}
	for _, m := range all {
		if m.Parent == own {
			m.Parent = list[0].ID
			list = append(list, m)
		}
	}
	return list
}

// adapter reports whether the engine lists name as an adapter of its model.
func (e *Engine) adapter(name string) bool {
	if name == "" {
		return false
	}
	l := &e.models
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.list, func(m haiku.ModelInfo) bool { return m.ID == name && m.Parent != "" })
}

// fetch makes a call whose answer is no stream, and returns its body.
func (e *Engine) fetch(ctx context.Context, c *call, env envelope) (data []byte, err error) {
	if env.client == nil {
		env.client = clientHeaders(ctx)
	}
	if c.header, err = e.headers(ctx, env); err != nil {
		return nil, err
	}
	return e.fetchCall(ctx, c, true)
}

// fetchCall is fetch for a call that has its headers. timed bounds it by
// Options.FirstToken.
func (e *Engine) fetchCall(ctx context.Context, c *call, timed bool) (data []byte, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := newWatch(cancel)
	watch.untimed = !timed
	defer watch.stop()
	resp, err := e.send(ctx, c, watch)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	defer e.observe(resp)()
	if resp.StatusCode != http.StatusOK {
		return nil, statusError(resp).of(c.path)
	}
	data, err = readBody(resp.Body, e.opts.MaxBodyBytes)
	if cause := context.Cause(ctx); cause != nil && err != nil {
		err = cause
	}
	return data, err
}

// readBody reads an answer that is no stream.
func readBody(src io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(src, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrIncomplete, hide(err))
	case int64(len(data)) > limit:
		return nil, fmt.Errorf("%w: a body of more than %d bytes", ErrMalformed, limit)
	}
	return data, nil
}
