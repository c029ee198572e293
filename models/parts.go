package models

import (
	"context"

	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/fallback"
	"github.com/intelliparadigm/haiku/upstream"
	"github.com/intelliparadigm/haiku/upstream/pool"
)

// Parts are what a [Config] refers to by name, and what only Go can say. The zero
// value is enough for one that refers to nothing.
type Parts struct {
	// Models are those in this process, or of other kinds, for Model.Local.
	Models map[string]haiku.Model
	// Wrappers put something around a model, such as a cache, for Model.Wrap: each
	// is called with the model's name, and returns what ends what it has made, or
	// nil.
	Wrappers map[string]func(name string, inner haiku.Model) (haiku.Model, func())
	// Key returns the secret of a name, for Server.Key. It is asked for each
	// request, so that keys can be rotated, and should not block.
	Key func(ctx context.Context, name string) (string, error)

	// Upstream, Pool and Fallback are the options for what Open makes. What a
	// Config says goes before them: names, dialects and keys are its own.
	Upstream upstream.Options
	Pool     pool.Options
	Fallback fallback.Options
}
