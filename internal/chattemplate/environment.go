package chattemplate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/exec"
)

// namespace is what namespace() makes: the only value whose attributes a
// template may set.
type namespace map[string]any

// environment is what templates may use. What can make a long value from a
// short one is left out or bounded.
func environment() *exec.Environment {
	globals := map[string]any{
		"namespace": func(args *exec.VarArgs) *exec.Value {
			space := namespace{}
			for name, v := range args.KwArgs {
				space[name] = v
			}
			return exec.AsValue(space)
		},
		"dict": func(args *exec.VarArgs) *exec.Value {
			made := map[string]any{}
			for name, v := range args.KwArgs {
				made[name] = v
			}
			return exec.AsValue(made)
		},
		"strftime_now": now,
	}
	maps.Copy(globals, functions)
	return &exec.Environment{
		Context:           exec.NewContext(globals),
		Filters:           filters(),
		Tests:             tests(),
		ControlStructures: controlTags(),
		Methods: exec.Methods{ // called by our own function instead, see method
			Bool:  exec.NewMethodSet(map[string]exec.Method[bool]{}),
			Int:   exec.NewMethodSet(map[string]exec.Method[int]{}),
			Float: exec.NewMethodSet(map[string]exec.Method[float64]{}),
			List:  exec.NewMethodSet(map[string]exec.Method[[]any]{}),
			Dict:  exec.NewMethodSet(map[string]exec.Method[map[string]any]{}),
			Str:   exec.NewMethodSet(map[string]exec.Method[string]{}),
		},
	}
}

// Bounds on what filters do again and again, so that one filter cannot take
// long: the engine compares elements pairwise, and takes the path of an
// attribute apart for every element.
const (
	maxSorted     = 1000 // elements to compare with each other
	maxCharacters = 10_000
	maxPathBytes  = 64
)

func filters() *exec.FilterSet {
	set := map[string]exec.FilterFunction{
		"replace": paying(replaceFilter), "join": paying(joinFilter), "trim": paying(trimFilter),
		"reverse": paying(reverseFilter), "items": paying(itemsFilter),
	}
	for name, bound := range map[string]func(in *exec.Value, args *exec.VarArgs) error{
		"abs": free, "capitalize": free, "count": free, "d": free, "default": free, "float": free, "int": free,
		"length": free, "lower": free, "safe": free, "string": free, "title": free, "upper": free,
		"first": eachElement, "last": eachElement, "list": eachElement,
		"map": eachNamed, "reject": eachNamed, "rejectattr": eachNamed, "select": eachNamed, "selectattr": eachNamed,
		"max": eachPair, "min": eachPair, "sort": eachPair, "unique": eachPair,
	} {
		if f, ok := builtins.Filters.Get(name); ok {
			set[name] = paying(bounded(f, bound))
		}
	}
	return exec.NewFilterSet(set)
}

// bounded makes a filter refuse what would take it long.
func bounded(f exec.FilterFunction, bound func(*exec.Value, *exec.VarArgs) error) exec.FilterFunction {
	return func(e *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
		if err := bound(in, args); err != nil {
			return exec.AsValue(budgetOf(e.Environment.Context).refuse(err))
		}
		return f(e, in, args)
	}
}

// free is for filters whose work grows with their value alone.
func free(*exec.Value, *exec.VarArgs) error { return nil }

// eachElement is for filters that look at every element.
func eachElement(in *exec.Value, args *exec.VarArgs) error {
	if in.IsString() && in.Len() > maxCharacters {
		return fmt.Errorf("%w: %d characters, one by one", ErrLimit, in.Len())
	}
	return path(args.KwArgs["attribute"])
}

// eachNamed is for filters whose first argument names what to do with every
// element: an attribute, a test or a filter.
func eachNamed(in *exec.Value, args *exec.VarArgs) error {
	if len(args.Args) > 0 {
		if err := path(args.Args[0]); err != nil {
			return err
		}
	}
	return eachElement(in, args)
}

// eachPair is for filters that compare elements with each other.
func eachPair(in *exec.Value, args *exec.VarArgs) error {
	if n := in.Len(); n > maxSorted {
		return fmt.Errorf("%w: a list of %d items to compare", ErrLimit, n)
	}
	for _, a := range args.Args {
		if err := path(a); err != nil {
			return err
		}
	}
	return eachElement(in, args)
}

// path checks the path of an attribute, or another name.
func path(v *exec.Value) error {
	if v != nil && v.IsString() && len(v.String()) > maxPathBytes {
		return fmt.Errorf("%w: a name of %d bytes", ErrLimit, len(v.String()))
	}
	return nil
}

// paying makes a filter run only while the budget lasts, and pay for its value.
func paying(f exec.FilterFunction) exec.FilterFunction {
	return func(e *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
		b := budgetOf(e.Environment.Context)
		if err := b.check(); err != nil {
			return exec.AsValue(err)
		}
		if in.IsError() {
			return in
		}
		value := f(e, in, args)
		if value.IsError() {
			return value
		}
		if err := b.charge(value); err != nil {
			return exec.AsValue(err)
		}
		return value
	}
}

// tests are the engine's, run only while the budget lasts: select('in', list)
// runs one for each of many items.
func tests() *exec.TestSet {
	set := map[string]exec.TestFunction{}
	for _, name := range []string{
		"==", "!=", "<", "<=", ">", ">=", "boolean", "defined", "divisibleby", "eq", "equalto", "even", "false", "float", "ge",
		"greaterthan", "gt", "in", "integer", "iterable", "le", "lessthan", "lower", "lt", "mapping", "ne", "none", "number",
		"odd", "sameas", "sequence", "string", "true", "undefined", "upper",
	} {
		any, _ := builtins.Tests.Get(name)
		test, ok := any.(func(*exec.Context, *exec.Value, *exec.VarArgs) (bool, error))
		if !ok {
			continue
		}
		set[name] = func(c *exec.Context, in *exec.Value, args *exec.VarArgs) (bool, error) {
			if err := budgetOf(c).check(); err != nil {
				return false, err
			}
			return test(c, in, args)
		}
	}
	return exec.NewTestSet(set)
}

// replaceFilter is replace(old, new[, count]).
func replaceFilter(e *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
	s, err := replace(budgetOf(e.Environment.Context), in.String(), args.Args)
	if err != nil {
		return fail(e, err)
	}
	return exec.AsValue(s)
}

// joinFilter is join(separator).
func joinFilter(e *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
	separator := ""
	if len(args.Args) == 1 {
		separator = args.Args[0].String()
	}
	if len(args.Args) > 1 || len(args.KwArgs) > 0 {
		return fail(e, errors.New("join takes a separator"))
	}
	s, err := join(budgetOf(e.Environment.Context), separator, in)
	if err != nil {
		return fail(e, err)
	}
	return exec.AsValue(s)
}

// trimFilter is trim([characters]). What is not a string is written out first.
func trimFilter(e *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
	if characters, ok := text(args.Args, 0); ok {
		s, err := stripped(in.String(), "strip", characters)
		if err != nil {
			return fail(e, err)
		}
		return exec.AsValue(s)
	}
	return exec.AsValue(strings.TrimSpace(in.String()))
}

// reverseFilter is reverse of a string or a list.
func reverseFilter(_ *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value {
	if in.IsString() {
		runes := []rune(in.String())
		slices.Reverse(runes)
		return exec.AsValue(string(runes))
	}
	list := exec.ValuesList{}
	each(in, func(parts ...*exec.Value) bool {
		list = append(list, parts[0])
		return true
	})
	slices.Reverse(list)
	return exec.AsValue(list)
}

// itemsFilter is items of a dictionary; nothing has none.
func itemsFilter(e *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value {
	if !in.IsDict() && !in.IsNil() {
		return fail(e, errors.New("items takes a dictionary"))
	}
	list, _ := dictMethod(in, "items", nil)
	return exec.ToValue(list)
}

// replace is text with old replaced by new, count times if that is given. The
// result's size is known before it is made.
func replace(b *budget, text string, args []*exec.Value) (string, error) {
	if len(args) != 2 && len(args) != 3 {
		return "", errors.New("replace takes the old and the new text, and a count")
	}
	old, with, times := args[0].String(), args[1].String(), -1
	if len(args) == 3 && args[2].IsInteger() {
		times = args[2].Integer()
	}
	found := strings.Count(text, old)
	if times >= 0 {
		found = min(found, times)
	}
	if err := b.hold(len(text) + found*len(with)); err != nil {
		return "", err
	}
	return strings.Replace(text, old, with, times), nil
}

func join(b *budget, separator string, list *exec.Value) (string, error) {
	if !list.IsIterable() {
		return "", errors.New("join takes a list")
	}
	items, err := b.elements(list, false)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for i, item := range items {
		if i > 0 {
			out.WriteString(separator)
		}
		out.WriteString(item.String())
		if err := b.hold(out.Len()); err != nil {
			return "", err
		}
	}
	return out.String(), nil
}
