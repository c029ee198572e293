package chattemplate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/builtins"
	controlStructures "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// budget is what one rendering may still use. Loops, assignments and writes
// draw on it, so that whatever can repeat is bounded without a goroutine that
// would have to be left behind.
type budget struct {
	ctx    context.Context
	limits Limits
	until  time.Time
	items  int // yielded by range()
	err    error
}

// budgetKey is where the budget lies among the variables: no template can
// write this name.
const budgetKey = "\x00budget"

func budgetOf(r *exec.Renderer) *budget {
	v, _ := r.Environment.Context.Get(budgetKey)
	b, _ := v.(*budget)
	return b
}

// spend checks time and the size of something about to be held.
func (b *budget) spend(bytes int) error {
	switch {
	case b.err != nil:
	case bytes > b.limits.OutputBytes:
		b.err = fmt.Errorf("%w: more than %d bytes", ErrLimit, b.limits.OutputBytes)
	case b.ctx.Err() != nil:
		b.err = b.ctx.Err()
	case time.Now().After(b.until):
		b.err = fmt.Errorf("%w: more than %v", ErrLimit, b.limits.Time)
	}
	return b.err
}

// raise is raise_exception(message).
func (b *budget) raise(_ *exec.Evaluator, args *exec.VarArgs) *exec.Value {
	if b.err == nil {
		b.err = fmt.Errorf("%w: %s", ErrRaised, args.First().String())
	}
	return exec.AsValue(b.err)
}

// rangeOf is range([start,] stop [, step]).
func (b *budget) rangeOf(_ *exec.Evaluator, args *exec.VarArgs) *exec.Value {
	bounds := []int{0, 0, 1}
	for i, a := range args.Args {
		if i >= len(bounds) || !a.IsInteger() {
			return exec.AsValue(exec.ErrInvalidCall(errors.New("range takes up to three integers")))
		}
		bounds[i] = a.Integer()
	}
	if len(args.Args) == 1 {
		bounds[0], bounds[1] = 0, bounds[0]
	}
	start, stop, step := bounds[0], bounds[1], bounds[2]
	if step == 0 || len(args.Args) == 0 {
		return exec.AsValue(exec.ErrInvalidCall(errors.New("range needs a stop and a step other than 0")))
	}
	list := []any{}
	for i := start; (step > 0 && i < stop) || (step < 0 && i > stop); i += step {
		if b.items++; b.items > b.limits.RangeItems && b.err == nil {
			b.err = fmt.Errorf("%w: range() over more than %d items", ErrLimit, b.limits.RangeItems)
		}
		if b.err != nil {
			return exec.AsValue(b.err)
		}
		list = append(list, i)
	}
	return exec.AsValue(list)
}

// environment is what templates may use. Filters and methods that can make a
// long value from a short one are left out or bounded.
func environment() *exec.Environment {
	structures := map[string]parser.ControlStructureParser{"set": parseSet}
	for _, name := range []string{"if", "for", "break", "continue", "raw"} {
		if parse, ok := builtins.ControlStructures.Get(name); ok {
			structures[name] = metered(parse)
		}
	}
	filters := map[string]exec.FilterFunction{"replace": boundedReplace, "join": boundedJoin}
	for _, name := range []string{
		"capitalize", "count", "d", "default", "dictsort", "first", "float", "int", "items", "last", "length", "list",
		"lower", "map", "max", "min", "reject", "rejectattr", "reverse", "safe", "select", "selectattr", "sort", "string",
		"title", "trim", "unique", "upper",
	} {
		if f, ok := builtins.Filters.Get(name); ok {
			filters[name] = f
		}
	}
	namespace, _ := builtins.GlobalFunctions.Get("namespace")
	dict, _ := builtins.GlobalFunctions.Get("dict")
	return &exec.Environment{
		Context:           exec.NewContext(map[string]any{"namespace": namespace, "dict": dict, conditionalName: conditional}),
		Filters:           exec.NewFilterSet(filters),
		Tests:             builtins.Tests,
		ControlStructures: exec.NewControlStructureSet(structures),
		Methods: exec.Methods{
			Bool:  exec.NewMethodSet(map[string]exec.Method[bool]{}),
			Int:   exec.NewMethodSet(map[string]exec.Method[int]{}),
			Float: exec.NewMethodSet(map[string]exec.Method[float64]{}),
			List:  exec.NewMethodSet(map[string]exec.Method[[]any]{}),
			Dict:  pick(builtins.Methods.Dict, "get", "items", "keys", "values"),
			Str: pick(builtins.Methods.Str, "capitalize", "count", "endswith", "find", "isalnum", "isalpha", "isdigit",
				"islower", "isspace", "isupper", "lower", "lstrip", "removeprefix", "removesuffix", "rsplit", "rstrip",
				"split", "splitlines", "startswith", "strip", "title", "upper"),
		},
	}
}

func pick[T any](from *exec.MethodSet[T], names ...string) *exec.MethodSet[T] {
	methods := make(map[string]exec.Method[T])
	for _, name := range names {
		if m, ok := from.Get(name); ok {
			methods[name] = m
		}
	}
	return exec.NewMethodSet(methods)
}

// boundedReplace is replace(old, new): the result's size is known before it is
// made.
func boundedReplace(e *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
	if in.IsError() || len(args.Args) != 2 {
		return exec.AsValue(exec.ErrInvalidCall(errors.New("replace takes the old and the new text")))
	}
	s, old, with := in.String(), args.Args[0].String(), args.Args[1].String()
	if err := evaluatorBudget(e).spend(len(s) + strings.Count(s, old)*len(with)); err != nil {
		return exec.AsValue(err)
	}
	return exec.AsValue(strings.ReplaceAll(s, old, with))
}

// boundedJoin is join(separator).
func boundedJoin(e *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
	if in.IsError() || len(args.Args) > 1 || !in.IsIterable() {
		return exec.AsValue(exec.ErrInvalidCall(errors.New("join takes a list and a separator")))
	}
	separator := ""
	if len(args.Args) == 1 {
		separator = args.Args[0].String()
	}
	var out strings.Builder
	var err error
	in.Iterate(func(i, _ int, item, _ *exec.Value) bool {
		text := item.String()
		if err = evaluatorBudget(e).spend(out.Len() + len(text) + len(separator)); err != nil {
			return false
		}
		if i > 0 {
			out.WriteString(separator)
		}
		out.WriteString(text)
		return true
	}, func() {})
	if err != nil {
		return exec.AsValue(err)
	}
	return exec.AsValue(out.String())
}

func evaluatorBudget(e *exec.Evaluator) *budget {
	v, _ := e.Environment.Context.Get(budgetKey)
	b, _ := v.(*budget)
	return b
}

// meteredStructure checks the budget before each run of a control structure.
type meteredStructure struct{ exec.ControlStructure }

func metered(parse parser.ControlStructureParser) parser.ControlStructureParser {
	return func(p, args *parser.Parser) (nodes.ControlStructure, error) {
		inner, err := parse(p, args)
		if err != nil {
			return nil, err
		}
		run, ok := inner.(exec.ControlStructure)
		if !ok { // it does nothing by itself
			return inner, nil
		}
		if loop, ok := inner.(*controlStructures.ForControlStructure); ok && loop.Recursive {
			return nil, errors.New("recursive loops are not supported")
		}
		return meteredStructure{run}, nil
	}
}

// Execute runs the structure if there is budget left.
func (m meteredStructure) Execute(r *exec.Renderer, tag *nodes.ControlStructureBlock) error {
	if err := budgetOf(r).spend(0); err != nil {
		return err
	}
	return m.ControlStructure.Execute(r, tag)
}

// assignment is {% set target = expression %} or {% set name %}…{% endset %},
// with a bound on the value's size.
type assignment struct {
	at     *tokens.Token
	target nodes.Expression
	value  nodes.Expression
	test   nodes.Expression // of value if test else other
	other  nodes.Expression
	body   *nodes.Wrapper
}

func parseSet(p, args *parser.Parser) (nodes.ControlStructure, error) {
	a := &assignment{at: p.Current()}
	var err error
	if a.target, err = args.ParseVariableOrLiteral(); err != nil {
		return nil, err
	}
	switch a.target.(type) {
	case *nodes.Name, *nodes.GetAttribute:
	default:
		return nil, fmt.Errorf("set assigns to a name or an attribute, not to %s", a.target)
	}
	if args.Match(tokens.Assign) == nil {
		body, end, err := p.WrapUntil("endset")
		if err != nil {
			return nil, err
		}
		if a.body = body; !args.End() || !end.End() {
			return nil, errors.New("set without = takes a name only")
		}
		return a, nil
	}
	if a.value, err = args.ParseExpression(); err != nil {
		return nil, err
	}
	if a.test, a.other, err = args.ParseCondition(); err != nil {
		return nil, err
	}
	if !args.End() {
		return nil, errors.New("set has something after its expression")
	}
	return a, nil
}

// Position is where the tag begins.
func (a *assignment) Position() *tokens.Token { return a.at }

// String names the tag in errors.
func (a *assignment) String() string { return fmt.Sprintf("set at line %d", a.at.Line) }

// Execute evaluates and assigns.
func (a *assignment) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	b := budgetOf(r)
	if err := b.spend(0); err != nil {
		return err
	}
	value, err := a.evaluate(r, b)
	if err != nil {
		return err
	}
	if err := b.spend(heldBytes(value, b.limits.OutputBytes)); err != nil {
		return err
	}
	if name, ok := a.target.(*nodes.Name); ok {
		r.Environment.Context.Set(name.Name.Val, value.Interface())
		return nil
	}
	attribute := a.target.(*nodes.GetAttribute)
	object := r.Eval(attribute.Node)
	if object.IsError() {
		return object
	}
	return object.Set(exec.AsValue(attribute.Attribute), value.Interface())
}

func (a *assignment) evaluate(r *exec.Renderer, b *budget) (*exec.Value, error) {
	if a.body != nil {
		captured := &limitedBuffer{budget: b}
		sub := r.Inherit()
		sub.Output = captured
		if err := sub.ExecuteWrapper(a.body); err != nil {
			return nil, err
		}
		return exec.AsSafeValue(captured.String()), nil
	}
	expression := a.value
	if a.test != nil {
		test := r.Eval(a.test)
		if test.IsError() {
			return nil, test
		}
		if !test.IsTrue() {
			expression = a.other
		}
	}
	if expression == nil {
		return exec.AsValue(nil), nil
	}
	value := r.Eval(expression)
	if value.IsError() {
		return nil, value
	}
	return value, nil
}

// heldBytes is about how much memory a value keeps, counted up to limit.
func heldBytes(v *exec.Value, limit int) int {
	switch {
	case v.IsString():
		return v.Len()
	case v.IsList() || v.IsDict():
		held := 16
		v.Iterate(func(_, _ int, key, item *exec.Value) bool {
			held += 16 + heldBytes(key, limit-held)
			if item != nil {
				held += heldBytes(item, limit-held)
			}
			return held <= limit
		}, func() {})
		return held
	default:
		return 16
	}
}
