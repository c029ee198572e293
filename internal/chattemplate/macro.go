package chattemplate

import (
	"errors"
	"fmt"

	controlStructures "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
)

// maxCalls is how deep macros may call each other, or themselves.
const maxCalls = 20

// macro is {% macro name(parameter, parameter=default) %}…{% endmacro %}. It is
// our own because the engine's writes to memory that nobody bounds, and calls
// itself until the stack ends.
type macro struct {
	*nodes.Macro
}

func parseMacro(p, args *parser.Parser) (nodes.ControlStructure, error) {
	known, err := parsed[*controlStructures.MacroControlStructure]("macro", p, args)
	if err != nil {
		return nil, err
	}
	if known.VarArgsName != "" || known.KwArgsName != "" {
		return nil, errors.New("macros with * or ** parameters are not supported")
	}
	return macro{known.Macro}, nil
}

func (m macro) rewrite(w *rewriter) error {
	for _, parameter := range m.Kwargs {
		if err := w.in(&parameter.Value); err != nil {
			return err
		}
	}
	return w.wrappers(m.Wrapper)
}

// Execute makes the macro a function from here on.
func (m macro) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	b := budgetOf(r.Environment.Context)
	r.Environment.Context.Set(m.Name, func(args *exec.VarArgs) *exec.Value {
		text, err := m.call(r, b, args)
		if err != nil {
			// Not wrapped: a break or continue outside of a loop is a mistake
			// here, and would end a loop of the caller's.
			return exec.AsValue(b.refuse(fmt.Errorf("chattemplate: macro %s: %s", m.Name, cause(err))))
		}
		return exec.AsSafeValue(text)
	})
	return nil
}

// call renders the body, which sees what the place of the definition sees.
func (m macro) call(r *exec.Renderer, b *budget, args *exec.VarArgs) (string, error) {
	if b.calls++; b.calls > maxCalls {
		return "", b.refuse(fmt.Errorf("%w: macros call each other more than %d deep", ErrLimit, maxCalls))
	}
	defer func() { b.calls-- }()
	if err := b.check(); err != nil {
		return "", err
	}
	out := &limitedBuffer{budget: b}
	sub := r.Inherit()
	sub.Output = out
	if err := m.bind(sub, args); err != nil {
		return "", err
	}
	if err := sub.ExecuteWrapper(m.Wrapper); err != nil {
		return "", err
	}
	return out.String(), nil
}

// bind sets the parameters: by place, then by name, then by default, which is
// evaluated for each call and sees the parameters before it.
func (m macro) bind(sub *exec.Renderer, args *exec.VarArgs) error {
	if len(args.Args) > len(m.Kwargs) {
		return fmt.Errorf("%d arguments for %d parameters", len(args.Args), len(m.Kwargs))
	}
	named := 0
	for i, parameter := range m.Kwargs {
		name := parameter.Key.(*nodes.String).Val
		value, ok := args.KwArgs[name]
		switch {
		case ok && i < len(args.Args):
			return fmt.Errorf("parameter %q is given twice", name)
		case ok:
			named++
		case i < len(args.Args):
			value = args.Args[i]
		default:
			value = sub.Eval(parameter.Value)
		}
		if value.IsError() {
			return value
		}
		sub.Environment.Context.Set(name, value)
	}
	if named < len(args.KwArgs) {
		return errors.New("a named argument is not a parameter")
	}
	return nil
}
