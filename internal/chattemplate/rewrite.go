package chattemplate

import (
	"errors"
	"fmt"
	"math"

	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// Names of the functions that the rewritten tree calls. No template can write
// them.
const (
	checkName      = "\x00check"
	chargedName    = "\x00charged"
	timedName      = "\x00timed"
	methodName     = "\x00method"
	itemName       = "\x00item"
	arithmeticName = "\x00arithmetic"
	definedName    = "\x00defined"
)

// Limits of a template's tree, which evaluation follows by recursion and, for
// dictionaries, more than once.
const (
	maxTreeDepth = 200
	maxPairs     = 256
)

// rewriter turns the tree of a template into one that pays for what it does:
// each operation becomes an argument of a function that is reached only while
// the budget lasts and that charges for the operation's value.
type rewriter struct{ depth int }

func (w *rewriter) enter() error {
	if w.depth++; w.depth > maxTreeDepth {
		return errors.New("it is nested too deeply")
	}
	return nil
}

// nodes rewrites what stands between two tags.
func (w *rewriter) nodes(list []nodes.Node) error {
	if err := w.enter(); err != nil {
		return err
	}
	defer func() { w.depth-- }()
	for _, n := range list {
		var err error
		switch n := n.(type) {
		case *nodes.Data, *nodes.Comment:
		case *nodes.Output:
			err = w.in(&n.Expression, &n.Condition, &n.Alternative)
			n.Expression, n.Alternative = defined(n.Expression), defined(n.Alternative)
		case *nodes.ControlStructureBlock:
			if s, ok := n.ControlStructure.(structure); ok {
				err = s.rewrite(w)
			}
		default:
			err = fmt.Errorf("%T is not supported", n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// wrappers rewrites the bodies of a control structure.
func (w *rewriter) wrappers(list ...*nodes.Wrapper) error {
	for _, body := range list {
		if body == nil {
			continue
		}
		if err := w.nodes(body.Nodes); err != nil {
			return err
		}
	}
	return nil
}

// in rewrites expressions where they stand. Absent ones are nil.
func (w *rewriter) in(places ...*nodes.Expression) error {
	for _, place := range places {
		if *place == nil {
			continue
		}
		e, err := w.expression(*place)
		if err != nil {
			return err
		}
		*place = e
	}
	return nil
}

// nodesIn is in for the fields that the engine declares as nodes.
func (w *rewriter) nodesIn(places ...*nodes.Node) error {
	for _, place := range places {
		if *place == nil {
			continue
		}
		e, err := w.expression(*place)
		if err != nil {
			return err
		}
		*place = e
	}
	return nil
}

func (w *rewriter) arguments(args []nodes.Expression, named map[string]nodes.Expression) error {
	for i := range args {
		if err := w.in(&args[i]); err != nil {
			return err
		}
	}
	for name, e := range named {
		if err := w.in(&e); err != nil {
			return err
		}
		named[name] = e
	}
	return nil
}

// expression returns what stands for e.
func (w *rewriter) expression(e nodes.Expression) (nodes.Expression, error) {
	if err := w.enter(); err != nil {
		return nil, err
	}
	defer func() { w.depth-- }()
	switch n := e.(type) {
	case *nodes.Name, *nodes.String, *nodes.Integer, *nodes.Float, *nodes.Bool, *nodes.None:
		return e, nil
	case *nodes.List:
		return call(chargedName, n), w.arguments(n.Val, nil)
	case *nodes.Tuple:
		return call(chargedName, n), w.arguments(n.Val, nil)
	case *nodes.Dict:
		return call(chargedName, n), w.pairs(n.Pairs)
	case *nodes.Call:
		return w.call(n)
	case *nodes.GetItem:
		if n.Arg == nil {
			return nil, errors.New("brackets without an index")
		}
		if err := w.nodesIn(&n.Node, &n.Arg); err != nil {
			return nil, err
		}
		return call(itemName, n.Node, n.Arg), nil
	case *nodes.GetAttribute:
		return n, w.nodesIn(&n.Node)
	case *nodes.GetSlice:
		return call(chargedName, n), w.nodesIn(&n.Node, &n.Start, &n.End, &n.Step)
	case *nodes.Negation:
		return n, w.in(&n.Term)
	case *nodes.UnaryExpression:
		return n, w.in(&n.Term)
	case *nodes.BinaryExpression:
		return w.binary(n)
	case *nodes.FilteredExpression:
		for _, f := range n.Filters { // filters pay for themselves
			if err := w.arguments(f.Args, f.Kwargs); err != nil {
				return nil, err
			}
		}
		return call(timedName, n), w.in(&n.Expression)
	case *nodes.TestExpression:
		if err := w.arguments(n.Test.Args, n.Test.Kwargs); err != nil {
			return nil, err
		}
		return call(timedName, n), w.in(&n.Expression)
	default:
		return nil, fmt.Errorf("%T is not supported", e)
	}
}

func (w *rewriter) pairs(pairs []*nodes.Pair) error {
	if len(pairs) > maxPairs {
		return fmt.Errorf("a dictionary has more than %d entries", maxPairs)
	}
	for _, p := range pairs {
		if err := w.in(&p.Key, &p.Value); err != nil {
			return err
		}
	}
	return nil
}

// call rewrites a call. The engine evaluates what a method belongs to twice,
// which doubles with every link of a chain, so methods are called by a
// function of ours.
func (w *rewriter) call(n *nodes.Call) (nodes.Expression, error) {
	if err := w.arguments(n.Args, n.Kwargs); err != nil {
		return nil, err
	}
	attribute, ok := n.Func.(*nodes.GetAttribute)
	if !ok || attribute.Attribute == "" {
		return call(chargedName, n), w.nodesIn(&n.Func)
	}
	if err := w.nodesIn(&attribute.Node); err != nil {
		return nil, err
	}
	method := call(methodName, attribute.Node, &nodes.String{Location: n.Location, Val: attribute.Attribute})
	method.Args = append(method.Args, n.Args...)
	method.Kwargs = n.Kwargs
	return call(chargedName, method), nil
}

func (w *rewriter) binary(n *nodes.BinaryExpression) (nodes.Expression, error) {
	if err := w.in(&n.Left, &n.Right); err != nil {
		return nil, err
	}
	switch n.Operator.Token.Type {
	case tokens.Multiply, tokens.Division, tokens.FloorDivision, tokens.Modulo:
		operator := &nodes.String{Location: n.Operator.Token, Val: n.Operator.Token.Val}
		return call(arithmeticName, operator, n.Left, n.Right), nil
	case tokens.Addition, tokens.Tilde:
		n.Left, n.Right = defined(n.Left), defined(n.Right)
		return call(chargedName, n), nil
	default:
		return call(timedName, n), nil
	}
}

// defined makes the use of a variable that does not exist an error. Only what
// is printed or joined is asked: a condition may well look at such a variable.
func defined(e nodes.Expression) nodes.Expression {
	name, ok := e.(*nodes.Name)
	if !ok {
		return e
	}
	return call(definedName, &nodes.String{Location: name.Name, Val: name.Name.Val}, name)
}

// call makes a call of a function that is reached only while the budget lasts:
// the function's name is the right side of an "and", whose left side checks.
func call(function string, args ...nodes.Expression) *nodes.Call {
	at := args[0].Position()
	name := func(s string) *nodes.Name { return &nodes.Name{Name: &tokens.Token{Type: tokens.Name, Val: s}} }
	return &nodes.Call{
		Location: at,
		Func: &nodes.BinaryExpression{
			Left:     &nodes.Call{Location: at, Func: name(checkName)},
			Right:    name(function),
			Operator: &nodes.BinOperator{Token: &tokens.Token{Type: tokens.And, Val: "and"}},
		},
		Args: args,
	}
}

// functions are what rewritten trees call.
var functions = map[string]any{
	checkName: func(e *exec.Evaluator, _ *exec.VarArgs) *exec.Value {
		if err := budgetOf(e.Environment.Context).check(); err != nil {
			return exec.AsValue(err)
		}
		return exec.AsValue(true)
	},
	chargedName: func(e *exec.Evaluator, args *exec.VarArgs) *exec.Value {
		if bad := elementError(args.Args[0]); bad != nil {
			return bad
		}
		if err := budgetOf(e.Environment.Context).charge(args.Args[0]); err != nil {
			return exec.AsValue(err)
		}
		return args.Args[0]
	},
	timedName: func(e *exec.Evaluator, args *exec.VarArgs) *exec.Value {
		if err := budgetOf(e.Environment.Context).check(); err != nil {
			return exec.AsValue(err)
		}
		return args.Args[0]
	},
	itemName: func(e *exec.Evaluator, args *exec.VarArgs) *exec.Value {
		found, err := item(args.Args[0], args.Args[1])
		if err != nil {
			return fail(e, err)
		}
		return found
	},
	arithmeticName: func(e *exec.Evaluator, args *exec.VarArgs) *exec.Value {
		result, err := arithmetic(args.Args[0].String(), args.Args[1], args.Args[2])
		if err != nil {
			return fail(e, err)
		}
		return exec.AsValue(result)
	},
	definedName: func(e *exec.Evaluator, args *exec.VarArgs) *exec.Value {
		if name := args.Args[0].String(); !e.Environment.Context.Has(name) {
			return fail(e, fmt.Errorf("the variable %q is not defined", name))
		}
		return args.Args[1]
	},
	methodName: func(e *exec.Evaluator, args *exec.VarArgs) *exec.Value {
		result, err := method(budgetOf(e.Environment.Context), args.Args[0], args.Args[1].String(), args.Args[2:], args.KwArgs)
		if err != nil {
			return fail(e, err)
		}
		return exec.ToValue(result)
	},
}

// item is v[key], nothing if there is no such item. It is our own because the
// engine does not find the first element from behind, as in [x][-1], and takes
// bytes for characters.
func item(v, key *exec.Value) (*exec.Value, error) {
	switch {
	case v.IsNil():
		return nil, errors.New("nothing has no items")
	case key.IsInteger() && (v.IsString() || v.IsList()):
		i, n := key.Integer(), v.Len()
		if i < 0 {
			i += n
		}
		if i < 0 || i >= n {
			return exec.AsValue(nil), nil
		}
		return v.Index(i), nil
	case !key.IsInteger() && !key.IsString():
		return nil, errors.New("an index is a number or a string")
	}
	found, ok := v.GetItem(key.Interface())
	if !ok && key.IsString() {
		found, ok = v.GetAttribute(key.String())
	}
	if !ok {
		return exec.AsValue(nil), nil
	}
	return found, nil
}

// fail ends the rendering. Templates cannot catch errors, so the first is the
// one to tell, in words without the engine's around them.
func fail(e *exec.Evaluator, err error) *exec.Value {
	b := budgetOf(e.Environment.Context)
	if b.err == nil {
		err = fmt.Errorf("chattemplate: %w", err)
	}
	return exec.AsValue(b.refuse(err))
}

// arithmetic evaluates * / // and % as Python does, where the last two round
// down, but on numbers only: a text times a number can be of any size.
func arithmetic(operator string, a, b *exec.Value) (any, error) {
	switch {
	case !a.IsNumber() || !b.IsNumber():
		return nil, fmt.Errorf("%s is for numbers", operator)
	case operator != "*" && b.Float() == 0:
		return nil, errors.New("division by zero")
	case operator == "/":
		return a.Float() / b.Float(), nil
	case a.IsFloat() || b.IsFloat():
		x, y := a.Float(), b.Float()
		down := math.Floor(x / y)
		return map[string]float64{"*": x * y, "//": down, "%": x - y*down}[operator], nil
	}
	x, y := a.Integer(), b.Integer()
	if operator == "*" {
		return x * y, nil
	}
	down, rest := x/y, x%y
	if rest != 0 && (rest < 0) != (y < 0) {
		down, rest = down-1, rest+y
	}
	return map[string]int{"//": down, "%": rest}[operator], nil
}

// elementError returns the element of a list that is an error: the engine
// keeps those as elements.
func elementError(v *exec.Value) *exec.Value {
	list, _ := v.Interface().(exec.ValuesList)
	for _, item := range list {
		if item.IsError() {
			return item
		}
	}
	return nil
}
