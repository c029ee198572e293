package chattemplate

import (
	"errors"
	"fmt"

	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/tokens"
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
type rewriter struct {
	source string // what the tree was made of
	depth  int
}

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
func (w *rewriter) in(places ...*nodes.Expression) error { return rewriteAll(w, places) }

// nodesIn is in for the fields that the engine declares as nodes.
func (w *rewriter) nodesIn(places ...*nodes.Node) error { return rewriteAll(w, places) }

func rewriteAll[N nodes.Node](w *rewriter, places []*N) error {
	for _, place := range places {
		if any(*place) == nil {
			continue
		}
		e, err := w.expression(any(*place).(nodes.Expression))
		if err != nil {
			return err
		}
		*place = any(e).(N)
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
		if member := w.membership(n); member != nil {
			return w.expression(member)
		}
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
	if left, ok := n.Left.(*nodes.BinaryExpression); ok && compares(left) && compares(n) && !w.closes(left.Operator.Token, n.Operator.Token) {
		return nil, errors.New("comparisons cannot be chained")
	}
	if err := w.in(&n.Left, &n.Right); err != nil {
		return nil, err
	}
	switch n.Operator.Token.Type {
	case tokens.Multiply, tokens.Division, tokens.FloorDivision, tokens.Modulo, tokens.Power:
		operator := &nodes.String{Location: n.Operator.Token, Val: n.Operator.Token.Val}
		return call(arithmeticName, operator, n.Left, n.Right), nil
	case tokens.Addition, tokens.Tilde:
		n.Left, n.Right = defined(n.Left), defined(n.Right)
		return call(chargedName, n), nil
	default:
		return call(timedName, n), nil
	}
}

func compares(n *nodes.BinaryExpression) bool {
	switch n.Operator.Token.Type {
	case tokens.Equals, tokens.Ne, tokens.GreaterThan, tokens.GreaterThanOrEqual, tokens.LowerThan, tokens.LowerThanOrEqual:
		return true
	}
	return false
}

// membership returns what "a in b | filter" means in Jinja, where the filter
// belongs to b, nil if n is something else. The engine takes it for
// "(a in b) | filter".
func (w *rewriter) membership(n *nodes.FilteredExpression) nodes.Expression {
	test, ok := n.Expression.(*nodes.TestExpression)
	negation, negated := n.Expression.(*nodes.Negation)
	if negated {
		test, ok = negation.Term.(*nodes.TestExpression)
	}
	if !ok || test.Test.Name != "in" || len(test.Test.Args) != 1 || w.closes(test.Test.Token, n.Filters[0].Token) {
		return nil
	}
	test.Test.Args[0] = &nodes.FilteredExpression{Expression: test.Test.Args[0], Filters: n.Filters}
	return n.Expression
}

// closes reports whether a bracket that was opened before one token is closed
// before the other.
func (w *rewriter) closes(from, to *tokens.Token) bool {
	if from.Pos < 0 || to.Pos > len(w.source) {
		return false
	}
	depth := 0
	for text := w.source[from.Pos:max(from.Pos, to.Pos)]; text != ""; {
		n := 1
		switch text[0] {
		case '\'', '"':
			n = literal(text)
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		}
		if depth < 0 {
			return true
		}
		text = text[n:]
	}
	return false
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
