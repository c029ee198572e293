package cache

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/intelliparadigm/haiku"
)

// Control is what a request asks of the cache. The zero value is the usual.
type Control struct {
	// NoCache computes the answer anew, and keeps it.
	NoCache bool
	// NoStore keeps nothing of the answer.
	NoStore bool
	// MaxAge is how old an answer may be; 0 is any age.
	MaxAge time.Duration
	// TTL is how long the answer is kept; 0 means Options.TTL.
	TTL time.Duration
	// Namespace separates entries of one tenant from each other.
	Namespace string
	// Random allows answers that were drawn at random, without a seed: whoever
	// asks again gets the same one.
	Random bool

	most time.Duration // the longest life that the client wants; 0 is any
}

type controlKey struct{}

// WithControl returns a context whose requests ask this of the cache.
func WithControl(ctx context.Context, c Control) context.Context {
	return context.WithValue(ctx, controlKey{}, c)
}

// ControlFrom returns the control in ctx, or the zero Control.
func ControlFrom(ctx context.Context) Control {
	c, _ := ctx.Value(controlKey{}).(Control)
	return c
}

// Middleware gives a route's requests c, and lets a client ask for less: by the
// directives no-cache, no-store and max-age of Cache-Control, by
// x-haiku-cache-ttl in seconds, and by x-haiku-cache-namespace. A client cannot
// ask for a longer life than the route's, nor for answers drawn at random.
func (c Control) Middleware() haiku.Middleware {
	return func(next haiku.InferenceHandler) haiku.InferenceHandler {
		return haiku.HandlerFunc(func(ctx *haiku.Context) {
			asked, err := c.asked(ctx.Request.Header)
			if err != nil {
				ctx.AbortWithError(err)
				return
			}
			ctx.Request = ctx.Request.WithContext(WithControl(ctx.Context(), asked))
			next.ServeInference(ctx)
		})
	}
}

// maxNamespaceBytes bounds a client's namespace.
const maxNamespaceBytes = 128

func (c Control) asked(h http.Header) (Control, error) {
	for _, line := range h.Values("Cache-Control") {
		for directive := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(directive)), "=")
			switch name {
			case "no-cache":
				c.NoCache = true
			case "no-store":
				c.NoStore = true
			case "max-age":
				age, err := seconds("Cache-Control", strings.Trim(value, `"`))
				if err != nil {
					return c, err
				}
				if age == 0 {
					c.NoCache = true
				} else if c.MaxAge == 0 || age < c.MaxAge {
					c.MaxAge = age
				}
			}
		}
	}
	if value := h.Get("x-haiku-cache-ttl"); value != "" {
		ttl, err := seconds("x-haiku-cache-ttl", value)
		if err != nil {
			return c, err
		}
		if ttl == 0 {
			c.NoStore = true
		} else {
			c.most = ttl
		}
	}
	if space := h.Get("x-haiku-cache-namespace"); space != "" {
		if len(space) > maxNamespaceBytes {
			return c, haiku.ErrInvalidRequest.With("x-haiku-cache-namespace", "the namespace has more than %d bytes", maxNamespaceBytes)
		}
		c.Namespace += "\x00" + space
	}
	return c, nil
}

// seconds reads a whole number of seconds, up to a year.
func seconds(header, value string) (time.Duration, error) {
	n, err := strconv.ParseUint(value, 10, 32)
	if err != nil || n > 366*24*60*60 {
		return 0, haiku.ErrInvalidRequest.With(header, "%s: %.20q is no number of seconds", header, value)
	}
	return time.Duration(n) * time.Second, nil
}
