package chattemplate

import (
	"errors"
	"fmt"

	"github.com/nikolalohinski/gonja/v2/builtins"
	controlStructures "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// structure is a control structure that holds expressions or bodies.
type structure interface {
	exec.ControlStructure
	// rewrite makes what it holds pay for itself.
	rewrite(w *rewriter) error
}

// controlTags are the tags there are. None of them reaches a file.
func controlTags() *exec.ControlStructureSet {
	tags := map[string]parser.ControlStructureParser{"if": parseIf, "for": parseFor, "set": parseSet, "macro": parseMacro, "generation": parseGeneration}
	for _, name := range []string{"break", "continue", "raw"} {
		if parse, ok := builtins.ControlStructures.Get(name); ok {
			tags[name] = parse
		}
	}
	return exec.NewControlStructureSet(tags)
}

// branch is {% if %}…{% elif %}…{% else %}…{% endif %}.
type branch struct {
	*controlStructures.IfControlStructure
}

func parseIf(p, args *parser.Parser) (nodes.ControlStructure, error) {
	known, err := parsed[*controlStructures.IfControlStructure]("if", p, args)
	return branch{known}, err
}

// parsed parses a tag as the engine does, whose type of it is T.
func parsed[T nodes.ControlStructure](tag string, p, args *parser.Parser) (known T, err error) {
	parse, _ := builtins.ControlStructures.Get(tag)
	inner, err := parse(p, args)
	if err != nil {
		return known, err
	}
	known, ok := inner.(T)
	if !ok {
		return known, fmt.Errorf("%s is a %T", tag, inner)
	}
	return known, nil
}

func (b branch) rewrite(w *rewriter) error {
	for i := range b.Conditions {
		if err := w.in(&b.Conditions[i]); err != nil {
			return err
		}
	}
	return w.wrappers(b.Wrappers...)
}

// generation is {% generation %}…{% endgeneration %}, with which templates mark
// what an assistant said, for training. Here it is its body.
type generation struct {
	at   *tokens.Token
	body *nodes.Wrapper
}

func parseGeneration(p, args *parser.Parser) (nodes.ControlStructure, error) {
	g := &generation{at: p.Current()}
	var err error
	if g.body, _, err = p.WrapUntil("endgeneration"); err != nil {
		return nil, err
	}
	if !args.End() {
		return nil, errors.New("generation takes no arguments")
	}
	return g, nil
}

func (g *generation) Position() *tokens.Token { return g.at }

func (g *generation) String() string { return "generation" }

func (g *generation) rewrite(w *rewriter) error { return w.wrappers(g.body) }

func (g *generation) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	return r.ExecuteIfWrapper(g.body)
}

// assignment is {% set target = expression %} or {% set name %}…{% endset %}.
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

func (a *assignment) rewrite(w *rewriter) error {
	if attribute, ok := a.target.(*nodes.GetAttribute); ok {
		if err := w.nodesIn(&attribute.Node); err != nil {
			return err
		}
	}
	if err := w.in(&a.value, &a.test, &a.other); err != nil {
		return err
	}
	return w.wrappers(a.body)
}

// Execute evaluates and assigns. As in Jinja, attributes are those of
// namespaces; and a namespace holds no other, so that none can hold itself.
func (a *assignment) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	b := budgetOf(r.Environment.Context)
	if err := b.check(); err != nil {
		return err
	}
	value, err := a.evaluate(r, b)
	if err != nil {
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
	space, ok := object.Interface().(namespace)
	if !ok {
		return fmt.Errorf("%s is not a namespace", attribute.Node)
	}
	if _, err := heldBytes(value, b.limits.OutputBytes, 1); err != nil {
		return err
	}
	space[attribute.Attribute] = value.Interface()
	return nil
}

func (a *assignment) evaluate(r *exec.Renderer, b *budget) (*exec.Value, error) {
	if a.body != nil {
		captured := &limitedBuffer{budget: b}
		sub := r.Inherit()
		sub.Output = captured
		if err := sub.ExecuteWrapper(a.body); err != nil {
			return nil, err
		}
		value := exec.AsSafeValue(captured.String())
		return value, b.charge(value)
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
