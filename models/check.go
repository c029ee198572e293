package models

import (
	"errors"
	"fmt"
	"slices"
)

// check returns all that is wrong with a description, in its order.
func (c *Config) check(p *Parts) error {
	var wrong []error
	names := map[string]string{} // each name and alias, and whose it is
	byName := map[string]*Model{}
	for i := range c.Models {
		m := &c.Models[i]
		for _, name := range append([]string{m.Name}, m.Aliases...) {
			owner, taken := names[name]
			switch {
			case name == "":
				wrong = append(wrong, fmt.Errorf("model %d of %d has an empty name or alias", i+1, len(c.Models)))
			case taken:
				wrong = append(wrong, fmt.Errorf("%q is the name of two: a name or alias of %q and of %q", name, owner, m.Name))
			}
			names[name] = m.Name
		}
		byName[m.Name] = m
	}
	for i := range c.Models {
		for _, err := range c.Models[i].check(p, byName) {
			wrong = append(wrong, fmt.Errorf("model %q: %w", c.Models[i].Name, err))
		}
	}
	if len(c.offered()) == 0 {
		wrong = append(wrong, errors.New("no model is offered: there is none that is not hidden"))
	}
	if d, ok := byName[c.Default]; c.Default != "" && (!ok || d.Hidden) {
		wrong = append(wrong, fmt.Errorf("default: no model of the name %q is offered", c.Default))
	}
	return errors.Join(wrong...)
}

// offered are the models that can be asked for, the default one first.
func (c *Config) offered() []*Model {
	var all []*Model
	for i := range c.Models {
		m := &c.Models[i]
		switch {
		case m.Hidden:
		case m.Name == c.Default:
			all = slices.Insert(all, 0, m)
		default:
			all = append(all, m)
		}
	}
	return all
}

func (m *Model) check(p *Parts, all map[string]*Model) (wrong []error) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	switch local := m.Local != ""; {
	case local && len(m.Servers) > 0:
		say("it is local and has servers: say one")
	case !local && len(m.Servers) == 0:
		say("it is neither local nor has servers")
	case local && p.Models[m.Local] == nil:
		say("local: there is no %q among Parts.Models", m.Local)
	}
	if m.Hidden && len(m.Aliases)+len(m.Fallback)+len(m.Wrap) > 0 {
		say("it is hidden, so that it has no use for aliases, a fallback or wrappers")
	}
	for i, name := range m.Fallback {
		switch {
		case all[name] == nil:
			say("fallback: there is no model of the name %q", name)
		case name == m.Name || slices.Contains(m.Fallback[:i], name):
			say("fallback: %q is in the chain twice", name)
		}
	}
	if len(m.Fallback) == 0 && (m.FirstToken != 0 || m.HedgeAfter != 0 || m.OpenFor != 0) {
		say("first_token, hedge_after and open_for need a fallback")
	}
	if len(m.Fallback) == 0 && len(m.Servers) < 2 && m.Stall != 0 {
		say("stall needs a fallback or several servers")
	}
	for _, name := range m.Wrap {
		if p.Wrappers[name] == nil {
			say("wrap: there is no %q among Parts.Wrappers", name)
		}
	}
	return append(wrong, m.checkServers(p)...)
}

func (m *Model) checkServers(p *Parts) (wrong []error) {
	names := map[string]bool{}
	for i := range m.Servers {
		s := &m.Servers[i]
		say := func(format string, args ...any) {
			wrong = append(wrong, fmt.Errorf("servers[%d]: %w", i, fmt.Errorf(format, args...)))
		}
		if s.Key != "" && p.Key == nil {
			say("its key is %q, and there is no Parts.Key", s.Key)
		}
		for _, at := range []string{s.Metrics, s.Health} {
			if at != "" && at != none && at[0] != '/' {
				say("%q is neither a path that begins with / nor %q", at, none)
			}
		}
		if name := s.name(); names[name] {
			say("there is a server %q already: give them names", name)
		} else {
			names[name] = true
		}
	}
	return wrong
}
