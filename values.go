package haiku

import (
	"context"
	"log/slog"
)

// Identity is who a request is from, as verified by the host or a middleware.
type Identity struct {
	// Subject names the caller.
	Subject string
	// Tenant names whose budget and cache partition the request uses.
	Tenant string
	// Scopes are the permissions granted.
	Scopes []string
}

type (
	identityKey struct{}
	modelKey    struct{}
	streamKey   struct{}
	loggerKey   struct{}
)

// WithIdentity returns a context that carries a verified identity.
func WithIdentity(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, id)
}

// IdentityFrom returns the verified identity in ctx, or the zero Identity.
func IdentityFrom(ctx context.Context) Identity {
	id, _ := ctx.Value(identityKey{}).(Identity)
	return id
}

// WithModel returns a context whose streams come from m.
func WithModel(ctx context.Context, m Model) context.Context {
	return context.WithValue(ctx, modelKey{}, m)
}

// ModelFrom returns the model that [WithModel] or [Provide] put into ctx.
func ModelFrom(ctx context.Context) (Model, bool) {
	m, ok := ctx.Value(modelKey{}).(Model)
	return m, ok
}

// WithStreamOptions returns a context whose streams follow o.
func WithStreamOptions(ctx context.Context, o StreamOptions) context.Context {
	return context.WithValue(ctx, streamKey{}, o)
}

// StreamOptionsFrom returns the options in ctx, or the zero StreamOptions.
func StreamOptionsFrom(ctx context.Context) StreamOptions {
	o, _ := ctx.Value(streamKey{}).(StreamOptions)
	return o
}

// WithLogger returns a context whose requests are logged to l.
func WithLogger(ctx context.Context, l *slog.Logger) context.Context {
	return context.WithValue(ctx, loggerKey{}, l)
}

// LoggerFrom returns the logger in ctx, or slog's default logger.
func LoggerFrom(ctx context.Context) *slog.Logger {
	if l, ok := ctx.Value(loggerKey{}).(*slog.Logger); ok && l != nil {
		return l
	}
	return slog.Default()
}
