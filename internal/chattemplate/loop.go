package chattemplate

import (
	"errors"
	"fmt"

	controlStructures "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// loop is {% for target in over if condition %}…{% else %}…{% endfor %}. It is
// our own because the engine's keeps a context for each item before the first
// is looked at, and cannot be stopped between two.
type loop struct {
	at        *tokens.Token
	targets   []string // one or two
	over      nodes.Expression
	condition nodes.Expression
	body      *nodes.Wrapper
	empty     *nodes.Wrapper
}

func parseFor(p, args *parser.Parser) (nodes.ControlStructure, error) {
	at := p.Current()
	f, err := parsed[*controlStructures.ForControlStructure]("for", p, args)
	if err != nil {
		return nil, err
	}
	if f.Recursive {
		return nil, errors.New("recursive loops are not supported")
	}
	l := &loop{at: at, targets: []string{f.Key}, over: f.ObjectEvaluator, condition: f.IfCondition, body: f.BodyWrapper, empty: f.EmptyWrapper}
	if f.Value != "" {
		l.targets = append(l.targets, f.Value)
	}
	return l, nil
}

// Position is where the tag begins.
func (l *loop) Position() *tokens.Token { return l.at }

// String names the tag in errors.
func (l *loop) String() string { return fmt.Sprintf("for at line %d", l.at.Line) }

func (l *loop) rewrite(w *rewriter) error {
	if err := w.in(&l.over, &l.condition); err != nil {
		return err
	}
	return w.wrappers(l.body, l.empty)
}

// Execute runs the body for each item.
func (l *loop) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	b := budgetOf(r.Environment.Context)
	items, err := l.items(r, b)
	if err != nil {
		return err
	}
	if len(items) == 0 && l.empty != nil {
		return r.ExecuteWrapper(l.empty)
	}
	info := &loopInfo{items: items, depth: 1}
	if outer, ok := r.Environment.Context.Get("loop"); ok {
		if outer, ok := outer.(*loopInfo); ok {
			info.depth = outer.depth + 1
		}
	}
	for i, item := range items {
		if err := b.check(); err != nil {
			return err
		}
		sub := r.Inherit()
		if err := l.bind(sub, item); err != nil {
			return err
		}
		info.index = i
		sub.Environment.Context.Set("loop", info)
		err := sub.ExecuteWrapper(l.body)
		var end *controlStructures.LoopBreakError
		var next *controlStructures.LoopContinueError
		switch {
		case errors.As(err, &end):
			return nil
		case err != nil && !errors.As(err, &next):
			return err
		}
	}
	return nil
}

// items returns the items that fulfil the condition.
func (l *loop) items(r *exec.Renderer, b *budget) ([]*exec.Value, error) {
	over := r.Eval(l.over)
	switch {
	case over.IsError():
		return nil, over
	case over.IsNil(): // so is a variable that does not exist
		return nil, b.check()
	case !over.IsIterable():
		return nil, fmt.Errorf("%s cannot be iterated over", l.over)
	}
	all, err := b.elements(over, len(l.targets) == 2)
	if err != nil || l.condition == nil {
		return all, err
	}
	var kept []*exec.Value
	for _, item := range all {
		sub := r.Inherit()
		if err := l.bind(sub, item); err != nil {
			return nil, err
		}
		switch ok := sub.Eval(l.condition); {
		case ok.IsError():
			return nil, ok
		case ok.IsTrue():
			kept = append(kept, item)
		}
	}
	return kept, nil
}

// elements returns the characters of a string, the elements of a list, or the
// keys of a dictionary, with their values if asked for pairs.
func (b *budget) elements(v *exec.Value, pairs bool) (list []*exec.Value, err error) {
	if v.IsString() {
		for _, r := range v.String() {
			if err := b.iterate(); err != nil {
				return nil, err
			}
			list = append(list, exec.AsValue(string(r)))
		}
		return list, b.check()
	}
	each(v, func(parts ...*exec.Value) bool {
		err = b.iterate()
		item := parts[0]
		if len(parts) == 2 && pairs {
			item = exec.AsValue(exec.ValuesList(parts))
		}
		list = append(list, item)
		return err == nil
	})
	return list, err
}

// bind sets the loop's variables.
func (l *loop) bind(r *exec.Renderer, item *exec.Value) error {
	if len(l.targets) == 1 {
		r.Environment.Context.Set(l.targets[0], item)
		return nil
	}
	if !item.IsList() || item.Len() != 2 {
		return errors.New("an item is not a pair, as the loop's two variables want")
	}
	r.Environment.Context.Set(l.targets[0], item.Index(0))
	r.Environment.Context.Set(l.targets[1], item.Index(1))
	return nil
}

// loopInfo is the variable loop inside a body.
type loopInfo struct {
	items []*exec.Value
	index int // from 0
	depth int // from 1
}

// GetAttribute gives loop's attributes to the engine.
func (l *loopInfo) GetAttribute(name string) (*exec.Value, bool) {
	near := func(i int) (*exec.Value, bool) {
		if i < 0 || i >= len(l.items) {
			return exec.AsValue(nil), false
		}
		return l.items[i], true
	}
	attributes := map[string]any{
		"index": l.index + 1, "index0": l.index,
		"revindex": len(l.items) - l.index, "revindex0": len(l.items) - l.index - 1,
		"first": l.index == 0, "last": l.index == len(l.items)-1,
		"length": len(l.items), "depth": l.depth, "depth0": l.depth - 1,
	}
	switch name {
	case "previtem":
		return near(l.index - 1)
	case "nextitem":
		return near(l.index + 1)
	}
	v, ok := attributes[name]
	return exec.AsValue(v), ok
}
