package chattemplate

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// big sets x to two million characters.
const big = "{% set ns = namespace(x='abcdefgh') %}{% for i in range(18) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{% set x = ns.x %}"

// list sets l to a thousand of something.
const list = "{% set ns = namespace(l=[1]) %}{% for i in range(10) %}{% set ns.l = ns.l + ns.l %}{% endfor %}{% set l = ns.l %}"

// hostile templates: each is refused when it is compiled, or stopped when it
// runs, by an error that contains the text named.
var hostile = map[string]struct{ source, want string }{
	"an endless loop":              {"{% for i in range(1000000000) %}{% endfor %}", "limit"},
	"nested loops":                 {"{% for i in range(9000) %}{% for j in range(9000) %}{% endfor %}{% endfor %}", "limit"},
	"loops over a list":            {list + "{% for a in l %}{% for b in l %}{% for c in l %}{% endfor %}{% endfor %}{% endfor %}", "limit"},
	"a loop over characters":       {big + "{% for c in x %}{% endfor %}", "limit"},
	"a loop's condition":           {list + "{% for a in l if (l + l + l + l) | sort | length == 0 %}{% endfor %}", "limit"},
	"a loop over a number":         {"{% for i in 5 %}{% endfor %}", "iterated"},
	"a loop that unpacks no pairs": {"{% for a, b in [1] %}{% endfor %}", "pair"},
	"100 MB of output":             {"{% for i in range(90000) %}" + strings.Repeat("x", 2000) + "{% endfor %}", "limit"},
	"captured output":              {"{% set x %}{% for i in range(90000) %}" + strings.Repeat("x", 2000) + "{% endfor %}{% endset %}", "limit"},
	"a string that doubles":        {"{% set ns = namespace(x='ab') %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", "limit"},
	"a list that doubles":          {"{% set ns = namespace(x=[1,2]) %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", "limit"},
	"a list of itself":             {"{% set ns = namespace(x=[1]) %}{% for i in range(64) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}", "limit"},
	"a deep list":                  {"{% set ns = namespace(x=[1]) %}{% for i in range(900) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}", "nested"},
	"a namespace in itself":        {"{% set ns = namespace(x=1) %}{% set ns.x = ns %}{{ ns }}", "namespace"},
	"a namespace in its list":      {"{% set ns = namespace(x=1) %}{% set ns.x = [[ns]] %}{{ ns }}", "namespace"},
	"a namespace in a namespace":   {"{% set a = namespace(x=1) %}{% set b = namespace(a=a) %}{% set a.x = b %}{{ a }}", "namespace"},
	"a namespace in a dictionary":  {"{% set a = namespace(x=1) %}{% set a.x = dict(a=a) %}{{ a }}", "namespace"},
	"an attribute of a message":    {"{% set m = messages[0] %}{% set m.content = messages %}{{ messages }}", "not a namespace"},
	"a wide literal":               {big + "{{ [" + strings.Repeat("x,", 9000) + "] }}", "limit"},
	"a wide dictionary":            {"{{ {" + strings.Repeat("1:1,", 9000) + "2:2} }}", "dictionary"},
	"many additions":               {big + "{{ x" + strings.Repeat("+x", 190) + " }}", "limit"},
	"too many additions":           {"{{ x" + strings.Repeat("+x", 9000) + " }}", "nested"},
	"many values at once":          {big + "{{ [" + strings.Repeat("x|upper,", 900) + "]|length }}", "limit"},
	"many filters":                 {big + "{{ x" + strings.Repeat("|upper", 9000) + "|length }}", "limit"},
	"many comparisons":             {big + "{{ [" + strings.Repeat("(x<ns.x+'a'),", 4000) + "]|length }}", "limit"},
	"many elements mapped":         {big + list + "{{ l | map('default', x, true) | list | length }}{{ l | map('string') | map('replace', '1', x) | list | length }}", "limit"},
	"tests on many elements":       {list + "{% set l = range(5000) %}{{ l | select('in', l) | list | length }}{{ l | select('in', l) | list | length }}{{ l | select('in', l) | list | length }}", "limit"},
	"a long chain of methods":      {"{{ 'a'" + strings.Repeat(".upper()", 90) + strings.Repeat(".nope()", 2) + " }}", "nope"},
	"a split into characters":      {big + "{{ x.split('a') | length }}", "limit"},
	"a long list to sort":          {"{{ range(20000) | sort | first }}", "limit"},
	"elements to compare in lists": {"{% set l = range(9000) %}{{ l | reject('in', l) | list }}{{ l | reject('in', l) | list }}", "limit"},
	"a long attribute to sort by":  {big + "{{ range(900) | sort(attribute=x) | first }}", "a name"},
	"a long attribute to select":   {big + "{{ messages | selectattr(x) | list }}", "a name"},
	"a long attribute to map":      {big + "{{ messages | map(attribute=x) | list }}", "a name"},
	"a long name of a test":        {big + "{{ messages | select(x) | list }}", "a name"},
	"a list of characters":         {big + "{{ x | list | length }}", "one by one"},
	"an error in a list":           {"{{ [1] | map('round') | list }}", "'round' not found"},
	"many characters to strip":     {big + "{{ x.strip(x) }}", "limit"},
	"many characters to trim":      {big + "{{ x | trim(x) }}", "limit"},
	"a macro's error is no value":  {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) is defined }}", "2 arguments"},
	"repetition":                   {"{{ 'x' * 1000000000 }}", "is for numbers"},
	"a power":                      {"{{ ('x' ** 9) + nope }}", "is for numbers"},
	"division by zero":             {"{{ 1 % 0 }}", "division by zero"},
	"replacement":                  {big + "{{ x | replace('a', x) }}", "limit"},
	"replacement by a method":      {big + "{{ x.replace('', x) }}", "limit"},
	"joining":                      {big + list + "{{ l | join(x) }}", "limit"},
	"padding":                      {"{{ 'x' | center(1000000000) }}", "filter 'center' not found"},
	"padding by a method":          {"{{ 'x'.ljust(1000000000) }}", "ljust"},
	"formatting":                   {"{{ '%1000000000d' | format(1) }}", "format"},
	"a message that is raised":     {big + "{{ raise_exception(x) }}", "refused"},
	"recursion":                    {"{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}", "recursive"},
	"a macro":                      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "macro"},
	"a block":                      {"{% block a %}{{ self.a() }}{% endblock %}", "block"},
	"deep brackets":                {"{{ " + strings.Repeat("(", 5000) + "1" + strings.Repeat(")", 5000) + " }}", "nested"},
	"a chain of conditionals":      {"{{ (" + strings.Repeat("1 if x else ", 5000) + "1) }}", "Unbalanced"},
	"deep blocks":                  {strings.Repeat("{% if 1 %}", 3000) + strings.Repeat("{% endif %}", 3000), "nested"},
	"an unknown function":          {"{{ system('id') }}", "not callable"},
	"an unknown filter":            {"{{ 'x' | attr('y') }}", "filter 'attr' not found"},
	"an unknown test":              {"{{ 'x' is filter }}", "filter"},
	"an unknown variable":          {"[{{ missing }}]", `"missing" is not defined`},
	"an unknown variable joined":   {"{{ 'a' + missing }}", `"missing" is not defined`},
	"Python's inner life":          {"{{ ''.__class__.__mro__ }}", "None"},
	"a function as text":           {"{{ 'a'.upper.__globals__() }}", "__globals__"},
	"chained comparisons":          {"{{ 1 < 2 < 3 }}", "chained"},
	"an index that is missing":     {"{{ messages[] }}", "index"},
	"an index of nothing":          {"{{ missing['x'] }}", "no items"},
	"items of a number":            {"{{ 1 | items }}", "dictionary"},
	"another file":                 {"{% include '/etc/passwd' %}", "include"},
	"an imported file":             {"{% import '/etc/passwd' as x %}", "import"},
	"names from a file":            {"{% from '/etc/passwd' import x %}", "from"},
	"a base template":              {"{% extends '/etc/passwd' %}", "extends"},
	"something after a set":        {"{% set x = 1 2 %}", ""},
	"a set of an item":             {"{% set x[1] = 2 %}", ""},
	"an unfinished tag":            {"{% for", ""},
	"an unclosed block":            {"{% if true %}", ""},
	"a huge source":                {strings.Repeat("x", maxSourceBytes+1), "source"},
	"source that is not text":      {"\xff", "UTF-8"},
	"the guard's marks":            {"\uFDD0", "noncharacters"},
}

func TestATemplateThatCannotBeTrustedIsRefusedOrStopped(t *testing.T) {
	for name, c := range hostile {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			tpl, err := Compile(c.source, Limits{Time: 300 * time.Millisecond})
			if err == nil {
				_, err = tpl.Render(t.Context(), conversation)
			}
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			require.ErrorContains(t, err, c.want)
			require.Less(t, len(err.Error()), 400, "the error does not repeat the source")
			require.Less(t, took, 5*time.Second)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(512<<20))
			t.Logf("%v, %d MiB: %v", took, (after.TotalAlloc-before.TotalAlloc)>>20, err)
		})
	}
}

func TestALimitIsNamed(t *testing.T) {
	limits := Limits{OutputBytes: 1000, Time: time.Hour, Items: 400}
	short := "{% for i in 'abcdefghij' %}"
	for want, source := range map[string]string{
		"more than 1000 bytes":            "{% for i in 'abcde' %}" + strings.Repeat("x", 300) + "{% endfor %}",
		"values of more than 32000 bytes": short + short + "{% set x = [i, i, i, i] %}{% endfor %}{% endfor %}",
		"loops of more than 400 steps":    short + short + short + "{% endfor %}{% endfor %}{% endfor %}",
	} {
		t.Run(want, func(t *testing.T) {
			tpl, err := Compile(source, limits)
			require.NoError(t, err)
			_, err = tpl.Render(t.Context(), conversation)
			require.ErrorIs(t, err, ErrLimit)
			require.ErrorContains(t, err, want)
		})
	}
}

func TestNothingLeadsOutOfATemplate(t *testing.T) {
	require.Empty(t, render(t, "{{ ''.__class__ }}{{ messages.__init__ }}{{ namespace.x }}"+
		"{{ range.__globals__ }}{{ raise_exception.__self__ }}", conversation))
}
