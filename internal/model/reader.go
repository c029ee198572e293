package model

import (
	"errors"
	"fmt"
	"math"

	"github.com/intelliparadigm/haiku/internal/gguf"
)

// maxDimension bounds every hyper-parameter, so that products of two of them
// cannot overflow; no model comes near it.
const maxDimension = 1 << 28

// reader reads metadata keys below an architecture's name and keeps the first
// error.
type reader struct {
	file   *gguf.File
	prefix string // the architecture's name and a dot
	err    error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) invalid(format string, args ...any) {
	r.fail(fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...))
}

func (r *reader) unsupported(format string, args ...any) {
	r.fail(fmt.Errorf("%w: "+format, append([]any{ErrUnsupported}, args...)...))
}

// missing reports an absent key as true; any other error is kept, and true too.
func (r *reader) missing(err error) bool {
	if err != nil && !errors.Is(err, gguf.ErrMissingKey) {
		r.fail(fmt.Errorf("%w: %w", ErrInvalid, err))
	}
	return err != nil
}

// count reads a number from 1 to maxDimension, or returns missing if the key
// is absent and missing is not zero.
func (r *reader) count(key string, missing int) int {
	n, err := r.file.Int(r.prefix + key)
	switch {
	case err != nil && (missing == 0 || !errors.Is(err, gguf.ErrMissingKey)):
		r.fail(fmt.Errorf("%w: %w", ErrInvalid, err))
		return 1
	case err != nil:
		return missing
	case n < 1 || n > maxDimension:
		r.invalid("%s%s is %d, want 1 to %d", r.prefix, key, n, maxDimension)
		return 1
	}
	return n
}

// perLayer reads a count that may also be an array of layers equal counts.
func (r *reader) perLayer(key string, layers, missing int) int {
	list, err := r.file.Ints(r.prefix + key)
	if err != nil {
		return r.count(key, missing)
	}
	if len(list) != layers {
		r.invalid("%s%s has %d values for %d layers", r.prefix, key, len(list), layers)
		return 1
	}
	for _, n := range list {
		if n != list[0] {
			r.unsupported("%s%s differs between layers: %v", r.prefix, key, list[:min(len(list), 8)])
			return 1
		}
	}
	if n := int(list[0]); n >= 1 && n <= maxDimension {
		return n
	}
	r.invalid("%s%s is %d, want 1 to %d", r.prefix, key, list[0], maxDimension)
	return 1
}

// number reads a finite, positive float; missing stands for an absent key,
// unless it is zero.
func (r *reader) number(key string, missing float64) float64 {
	x, err := r.file.Float(r.prefix + key)
	switch {
	case err != nil && missing != 0 && errors.Is(err, gguf.ErrMissingKey):
		return missing
	case err != nil:
		r.fail(fmt.Errorf("%w: %w", ErrInvalid, err))
		return 1
	case !(x > 0) || math.IsInf(x, 0):
		r.invalid("%s%s is %g, want a positive number", r.prefix, key, x)
		return 1
	}
	return x
}

// optional reads a finite float of zero or more, zero where it has no effect.
func (r *reader) optional(key string, missing float64) float32 {
	x, err := r.file.Float(r.prefix + key)
	switch {
	case r.missing(err):
		return float32(missing)
	case !(x >= 0) || math.IsInf(float64(float32(x)), 0):
		r.invalid("%s%s is %g, want zero or a positive number", r.prefix, key, x)
	}
	return float32(x)
}

// number64 reads an integer or a float.
func (r *reader) number64(key string) (float64, error) {
	if n, err := r.file.Int(r.prefix + key); err == nil {
		return float64(n), nil
	}
	return r.file.Float(r.prefix + key)
}
