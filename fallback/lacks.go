package fallback

import (
	"context"
	"slices"

	"github.com/intelliparadigm/haiku"
)

// TakesExtensions returns nil if one of the models takes the request's
// extensions, else what the first says of them. The others are no candidates.
func (c *Chain) TakesExtensions(req *haiku.Request) error {
	var first error
	for i, m := range c.members {
		err := haiku.TakesExtensions(m.model, req)
		if err == nil {
			return nil
		}
		if i == 0 {
			first = err
		}
	}
	return first
}

// Recall passes on what the first model has at hand, which needs no breaker.
func (c *Chain) Recall(ctx context.Context, w *haiku.StreamWriter, req *haiku.Request) ([]haiku.Token, bool) {
	first := c.members[0]
	m, able := first.model.(haiku.Recaller)
	if !able {
		return nil, false
	}
	tokens, ok := m.Recall(ctx, w, req)
	if ok {
		first.stats.recalled.Add(1)
		w.SetHeader(HeaderServedBy, first.name)
	}
	return tokens, ok
}

// lacks says which feature of the request a model does not have, as an error for
// the client, or nil. What only the model itself can tell it tells by an error.
func (c *Chain) lacks(place int, req *haiku.Request) error {
	m := c.members[place].model
	if place == 0 {
		return haiku.TakesExtensions(m, req)
	}
	if err := haiku.TakesExtensions(m, c.insisting(req)); err != nil {
		return err
	}
	if param := inTokens(req); param != "" && !c.opts.SameTokens {
		return haiku.ErrUnsupported.With(param, "the model that stands in has other token numbers")
	}
	if c.adapter(req) && !lists(m, req.Model) {
		return haiku.ModelNotFound(req.Model)
	}
	if bases := basesOf(m); len(bases) == 1 {
		room := bases[0].ContextTokens
		if asked := len(req.PromptTokens) + req.MaxTokens; room > 0 && asked > room {
			return haiku.ErrContextLength.With("max_tokens", "the request asks for %d tokens and the context of the model that stands in holds %d", asked, room)
		}
	}
	return nil
}

// insisting is req in which those of its optional extensions are needed that the
// first model takes: one that stands in and ignores them would answer another
// question.
func (c *Chain) insisting(req *haiku.Request) *haiku.Request {
	own := *req
	for i := range req.Extensions {
		one := req.Extensions[i]
		if !one.Optional {
			continue
		}
		one.Optional = false
		if haiku.TakesExtensions(c.members[0].model, &haiku.Request{Model: req.Model, Extensions: []haiku.Extension{one}}) != nil {
			continue
		}
		if &own.Extensions[0] == &req.Extensions[0] {
			own.Extensions = slices.Clone(req.Extensions)
		}
		own.Extensions[i] = one
	}
	return &own
}

// inTokens names what in a request is said in token numbers, if anything is.
func inTokens(req *haiku.Request) string {
	switch {
	case len(req.PromptTokens) > 0:
		return "prompt"
	case len(req.Sampling.LogitBias) > 0:
		return "logit_bias"
	case req.Sampling.Mask != nil:
		return "response_format"
	}
	return ""
}

// adapter reports whether a request is for an adapter of the first model.
func (c *Chain) adapter(req *haiku.Request) bool {
	if req.Model == "" {
		return false
	}
	if req.AdapterScale != nil {
		return true
	}
	return slices.ContainsFunc(haiku.ModelsOf(c.members[0].model), func(i haiku.ModelInfo) bool { return i.ID == req.Model && i.Parent != "" })
}

// lists reports whether a model knows a name.
func lists(m haiku.Model, name string) bool {
	return slices.ContainsFunc(haiku.ModelsOf(m), func(i haiku.ModelInfo) bool { return i.ID == name })
}

// basesOf returns what a model lists that is no adapter of another.
func basesOf(m haiku.Model) []haiku.ModelInfo {
	return slices.DeleteFunc(slices.Clone(haiku.ModelsOf(m)), func(i haiku.ModelInfo) bool { return i.Parent != "" })
}

// forPlace is the request as the model at a place is asked: the name is the first
// one's, and means nothing to those that stand in unless it is an adapter's.
func (c *Chain) forPlace(place int, req *haiku.Request) *haiku.Request {
	if place == 0 || req.Model == "" || c.adapter(req) {
		return req
	}
	own := *req
	own.Model = ""
	return &own
}
