package chattemplate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// budget is what one rendering may still use. Every operation of a template
// asks it before and tells it after, so that whatever can repeat or grow is
// bounded without a goroutine that would have to be left behind. It belongs to
// one rendering and is not safe for concurrent use.
type budget struct {
	ctx    context.Context
	limits Limits
	until  time.Time
	items  int   // loop iterations and what range() yielded
	made   int   // bytes of all values made so far
	calls  int   // macros that run, each called by the one before
	err    error // the first refusal; everything after it is refused too
}

// budgetKey is where the budget lies among the variables: no template can
// write this name.
const budgetKey = "\x00budget"

func budgetOf(c *exec.Context) *budget {
	v, _ := c.Get(budgetKey)
	b, _ := v.(*budget)
	return b
}

// check refuses to go on when the time is up, the context has ended, or
// something was refused before.
func (b *budget) check() error {
	switch {
	case b.err != nil:
	case b.ctx.Err() != nil:
		b.err = b.ctx.Err()
	case time.Now().After(b.until):
		b.err = fmt.Errorf("%w: more than %v", ErrLimit, b.limits.Time)
	}
	return b.err
}

// refuse ends the rendering with err, unless it has ended before.
func (b *budget) refuse(err error) error {
	if b.err == nil {
		b.err = err
	}
	return b.err
}

// hold checks the size of one thing about to be held.
func (b *budget) hold(bytes int) error {
	if bytes > b.limits.OutputBytes {
		return b.refuse(fmt.Errorf("%w: more than %d bytes", ErrLimit, b.limits.OutputBytes))
	}
	return b.check()
}

// madePerOutput is how many times the output's limit all values of a rendering
// may take together.
const madePerOutput = 32

// charge pays for a value that was just made.
func (b *budget) charge(v *exec.Value) error {
	held, err := heldBytes(v, b.limits.OutputBytes, 0)
	if err != nil {
		return b.refuse(fmt.Errorf("chattemplate: %w", err))
	}
	if b.made += held; b.made/madePerOutput > b.limits.OutputBytes {
		return b.refuse(fmt.Errorf("%w: values of more than %d bytes together", ErrLimit, madePerOutput*b.limits.OutputBytes))
	}
	return b.hold(held)
}

// iterate pays for a step of a loop.
func (b *budget) iterate() error {
	if b.items++; b.items > b.limits.Items {
		return b.refuse(fmt.Errorf("%w: loops of more than %d steps together", ErrLimit, b.limits.Items))
	}
	return b.check()
}

// raise is raise_exception(message).
func (b *budget) raise(_ *exec.Evaluator, args *exec.VarArgs) *exec.Value {
	return exec.AsValue(b.refuse(fmt.Errorf("%w: %s", ErrRaised, shortened(args.First().String()))))
}

// rangeOf is range([start,] stop [, step]).
func (b *budget) rangeOf(e *exec.Evaluator, args *exec.VarArgs) *exec.Value {
	bounds := []int{0, 0, 1}
	for i, a := range args.Args {
		if i >= len(bounds) || !a.IsInteger() {
			return fail(e, errors.New("range takes up to three integers"))
		}
		bounds[i] = a.Integer()
	}
	if len(args.Args) == 1 {
		bounds[0], bounds[1] = 0, bounds[0]
	}
	start, stop, step := bounds[0], bounds[1], bounds[2]
	if step == 0 || len(args.Args) == 0 {
		return fail(e, errors.New("range needs a stop and a step other than 0"))
	}
	list := []any{}
	for i := start; (step > 0 && i < stop) || (step < 0 && i > stop); i += step {
		if err := b.iterate(); err != nil {
			return exec.AsValue(err)
		}
		list = append(list, i)
	}
	return exec.AsValue(list)
}

const (
	itemBytes     = 64 // about what the engine keeps for an element beside its content
	maxValueDepth = 64
)

var errNesting = errors.New("a value is nested too deeply, or holds a namespace")

// heldBytes is about how much memory a value takes written out, counted up to
// just over limit. A value within another counts each time it occurs.
// Namespaces, the only values that change, may not be within others: so no
// value can come to hold itself, nor grow after it was counted.
func heldBytes(v *exec.Value, limit, depth int) (int, error) {
	if _, ok := v.Interface().(namespace); depth > maxValueDepth || (ok && depth > 0) {
		return 0, errNesting
	}
	if v.IsError() { // the engine takes errors for elements
		return 0, errors.New(cause(v))
	}
	if v.IsString() {
		return len(v.String()), nil
	}
	held, err := itemBytes, error(nil)
	each(v, func(parts ...*exec.Value) bool {
		for _, part := range parts {
			n := 0
			n, err = heldBytes(part, limit-held, depth+1)
			held += itemBytes + n
		}
		return err == nil && held <= limit
	})
	return held, err
}

// each calls yield for every element of a list, or key and value of a
// dictionary, until it returns false.
func each(v *exec.Value, yield func(...*exec.Value) bool) {
	if d, ok := v.Interface().(*exec.Dict); ok { // its own iteration is quadratic
		for _, p := range d.Pairs {
			if !yield(p.Key, p.Value) {
				return
			}
		}
		return
	}
	if !v.IsList() && !v.IsDict() {
		return
	}
	v.Iterate(func(_, _ int, key, value *exec.Value) bool {
		if value == nil {
			return yield(key)
		}
		return yield(key, value)
	}, func() {})
}
