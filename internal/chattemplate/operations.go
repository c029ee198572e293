package chattemplate

import (
	"errors"
	"fmt"
	"math"

	"github.com/nikolalohinski/gonja/v2/exec"
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

// functions are what rewritten trees call.
var functions = map[string]any{
	checkName: func(e *exec.Evaluator, _ *exec.VarArgs) *exec.Value {
		if err := budgetOf(e.Environment.Context).check(); err != nil {
			return exec.AsValue(err)
		}
		return exec.AsValue(true)
	},
	chargedName: func(e *exec.Evaluator, args *exec.VarArgs) *exec.Value {
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

// arithmetic evaluates ** * / // and % as Python does, where the last two round
// down, but on numbers only: a text times a number can be of any size.
func arithmetic(operator string, a, b *exec.Value) (any, error) {
	switch {
	case !a.IsNumber() || !b.IsNumber():
		return nil, fmt.Errorf("%s is for numbers", operator)
	case operator == "**":
		power := math.Pow(a.Float(), b.Float())
		if a.IsInteger() && b.IsInteger() && b.Integer() >= 0 && math.Abs(power) < 1<<53 {
			return int(power), nil
		}
		return power, nil
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
