package chattemplate

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// method calls a method of a value, with Python's meaning. They are our own
// because the engine's copy what they belong to at each call, have no access
// to the budget, and differ from Python's in their defaults.
func method(b *budget, self *exec.Value, name string, args []*exec.Value, named map[string]*exec.Value) (any, error) {
	if len(named) > 0 {
		return nil, fmt.Errorf("the method %s takes no named arguments", name)
	}
	var result any
	found := false
	switch info, isLoop := self.Interface().(*loopInfo); {
	case isLoop && name == "cycle" && len(args) > 0:
		return args[info.index%len(args)], nil
	case self.IsString():
		s := self.String()
		if result, found = stringProperty(s, name, args); found {
			return result, nil
		}
		return stringMethod(b, s, name, args)
	case self.IsDict():
		if result, found = dictMethod(self, name, args); found {
			return result, nil
		}
	}
	return nil, fmt.Errorf("there is no method %q here", name)
}

// text returns argument i as a string, and whether it is one.
func text(args []*exec.Value, i int) (string, bool) {
	if i >= len(args) || !args[i].IsString() {
		return "", false
	}
	return args[i].String(), true
}

// stringProperty evaluates the methods without effect on memory.
func stringProperty(s, name string, args []*exec.Value) (any, bool) {
	all := func(is func(rune) bool) (any, bool) {
		return s != "" && strings.IndexFunc(s, func(r rune) bool { return !is(r) }) < 0, len(args) == 0
	}
	switch name {
	case "isdigit":
		return all(unicode.IsDigit)
	case "isalpha":
		return all(unicode.IsLetter)
	case "isalnum":
		return all(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
	case "isspace":
		return all(unicode.IsSpace)
	case "isupper":
		return s == strings.ToUpper(s) && s != strings.ToLower(s), len(args) == 0
	case "islower":
		return s == strings.ToLower(s) && s != strings.ToUpper(s), len(args) == 0
	case "startswith":
		return anyAffix(s, args, strings.HasPrefix)
	case "endswith":
		return anyAffix(s, args, strings.HasSuffix)
	}
	of, ok := text(args, 0)
	if !ok || len(args) != 1 {
		return nil, false
	}
	switch name {
	case "find":
		if at := strings.Index(s, of); at >= 0 {
			return utf8.RuneCountInString(s[:at]), true
		}
		return -1, true
	case "count":
		return strings.Count(s, of), true
	case "removeprefix":
		return strings.TrimPrefix(s, of), true
	case "removesuffix":
		return strings.TrimSuffix(s, of), true
	}
	return nil, false
}

// anyAffix is startswith and endswith, which take a string or a tuple of them.
func anyAffix(s string, args []*exec.Value, has func(s, affix string) bool) (any, bool) {
	if len(args) != 1 {
		return nil, false
	}
	if of, ok := text(args, 0); ok {
		return has(s, of), true
	}
	found := false
	each(args[0], func(parts ...*exec.Value) bool {
		found = parts[0].IsString() && has(s, parts[0].String())
		return !found
	})
	return found, args[0].IsList()
}

// stringMethod evaluates the methods that make strings and lists.
func stringMethod(b *budget, s, name string, args []*exec.Value) (any, error) {
	of, given := text(args, 0)
	switch {
	case name == "replace":
		return replace(b, s, args)
	case name == "join" && len(args) == 1:
		return join(b, s, args[0])
	case name == "split" || name == "rsplit":
		return split(b, s, name == "rsplit", args)
	case len(args) > 1 || (len(args) == 1 && !given):
		return nil, fmt.Errorf("the method %s does not take these arguments", name)
	case given && strings.HasSuffix(name, "strip"):
		return stripped(s, name, of)
	case given:
		return nil, fmt.Errorf("there is no method %q of strings that takes an argument", name)
	}
	switch name {
	case "strip":
		return strings.TrimSpace(s), nil
	case "lstrip":
		return strings.TrimLeftFunc(s, unicode.IsSpace), nil
	case "rstrip":
		return strings.TrimRightFunc(s, unicode.IsSpace), nil
	case "upper":
		return strings.ToUpper(s), nil
	case "lower":
		return strings.ToLower(s), nil
	case "title":
		return titled(s), nil
	case "capitalize":
		_, n := utf8.DecodeRuneInString(s)
		return strings.ToUpper(s[:n]) + strings.ToLower(s[n:]), nil
	case "splitlines":
		s = strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
		if s == "" {
			return []string{}, nil
		}
		s = strings.TrimSuffix(s, "\n")
		if err := b.hold(itemBytes * strings.Count(s, "\n")); err != nil {
			return nil, err
		}
		return strings.Split(s, "\n"), nil
	}
	return nil, fmt.Errorf("there is no method %q of strings", name)
}

// stripped is strip, lstrip or rstrip of certain characters. It looks through all
// of them for each character of s.
func stripped(s, name, characters string) (string, error) {
	if len(characters) > maxPathBytes {
		return "", fmt.Errorf("%w: %d bytes of characters to strip", ErrLimit, len(characters))
	}
	switch name {
	case "strip":
		return strings.Trim(s, characters), nil
	case "lstrip":
		return strings.TrimLeft(s, characters), nil
	case "rstrip":
		return strings.TrimRight(s, characters), nil
	}
	return "", fmt.Errorf("there is no method %q of strings", name)
}

// titled makes the first letter of each word upper case and the others lower.
func titled(s string) string {
	inWord := false
	return strings.Map(func(r rune) rune {
		first := !inWord
		inWord = unicode.IsLetter(r)
		if first {
			return unicode.ToTitle(r)
		}
		return unicode.ToLower(r)
	}, s)
}

// split is s.split([separator[, times]]) or rsplit.
func split(b *budget, s string, fromRight bool, args []*exec.Value) (any, error) {
	times := -1
	if len(args) == 2 && args[1].IsInteger() {
		times = args[1].Integer()
	}
	separator, given := text(args, 0)
	switch {
	case len(args) > 2, given && separator == "", len(args) > 0 && !given && !args[0].IsNil(), !given && times >= 0:
		return nil, fmt.Errorf("split takes a separator that is not empty, and how often to split")
	case !given:
		if err := b.hold(itemBytes * strings.Count(s, " ")); err != nil {
			return nil, err
		}
		return strings.Fields(s), nil
	}
	found := strings.Count(s, separator)
	if times >= 0 {
		found = min(found, times)
	}
	if err := b.hold(itemBytes * found); err != nil {
		return nil, err
	}
	if !fromRight {
		return strings.SplitN(s, separator, found+1), nil
	}
	parts := make([]string, found+1)
	for i := found; i > 0; i-- {
		at := strings.LastIndex(s, separator)
		parts[i], s = s[at+len(separator):], s[:at]
	}
	parts[0] = s
	return parts, nil
}

// dictMethod evaluates the methods of dictionaries.
func dictMethod(self *exec.Value, name string, args []*exec.Value) (any, bool) {
	if name == "get" && (len(args) == 1 || len(args) == 2) {
		if v, ok := self.GetItem(args[0].Interface()); ok {
			return v, true
		}
		if len(args) == 2 {
			return args[1], true
		}
		return nil, true
	}
	if len(args) > 0 {
		return nil, false
	}
	list := exec.ValuesList{}
	each(self, func(parts ...*exec.Value) bool {
		switch name {
		case "keys":
			list = append(list, parts[0])
		case "values":
			list = append(list, parts[1])
		default:
			list = append(list, exec.AsValue(exec.ValuesList(parts)))
		}
		return true
	})
	return list, name == "items" || name == "keys" || name == "values"
}
