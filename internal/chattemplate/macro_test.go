package chattemplate

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The expected texts follow from Jinja's rules for macros.
func TestMacros(t *testing.T) {
	for name, c := range map[string]struct{ source, want string }{
		"arguments by place, by name and by default": {
			"{% macro m(a, b='B', c=b ~ '!') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m('x') }}{{ m('x', 'y') }}{{ m(c=1, a=2) }}", "[xBB!][xyy!][2B1]"},
		"an argument that is not given is not defined": {"{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}", "False"},
		"a macro sees what stands around its definition": {
			"{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}{% for x in [3] %}{{ m() }}{% endfor %}", "22"},
		"what a macro sets stays inside":    {"{% set x = 1 %}{% macro m() %}{% set x = 2 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}", "21"},
		"a macro calls another":             {"{% macro a(x) %}<{{ x }}>{% endmacro %}{% macro b(x) %}{{ a(x) ~ a(x) }}{% endmacro %}{{ b(7) }}", "<7><7>"},
		"a macro calls itself":              {"{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}", "3210"},
		"a value that filters take":         {"{% macro m() %} a {% endmacro %}{{ m()|trim|upper }}{{ m()|length }}", "A3"},
		"a macro that is not called":        {"{% macro m() %}{{ nowhere() }}{% endmacro %}x", "x"},
		"white space":                       {"{%- macro m(x) -%}\n  {{- x -}}\n{%- endmacro -%}\n{{ m(1) }}", "1"},
		"content through a macro, as Qwen3": {"{%- macro render_content(c) %}{%- if c is string %}{{- c }}{%- else %}?{%- endif %}{%- endmacro %}{% for m in messages %}{%- set content = render_content(m.content) %}{{ m.role ~ ':' ~ content|trim }};{% endfor %}", "system:Be brief.;user:Hi {{ x }};assistant:Hello;user:Bye;"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, render(t, c.source, conversation))
		})
	}
}

func TestMacrosHaveLimits(t *testing.T) {
	for source, want := range map[string]error{
		"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}":                                                                                   ErrLimit,
		"{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}":                                             ErrLimit,
		"{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(19) }}":                                ErrLimit,
		"{% macro m(x) %}{{ x ~ x }}{% endmacro %}{% set n = namespace(s='a') %}{% for i in range(99) %}{% set n.s = m(n.s) %}{% endfor %}": ErrLimit,
		"{% macro m(x) %}{% for i in range(999) %}{{ x }}{% endfor %}{% endmacro %}{{ m(m(m('abcdefgh'))) }}":                               ErrLimit,
		"{% macro m() %}{{ raise_exception('no') }}{% endmacro %}{{ m() }}":                                                                 ErrRaised,
	} {
		tpl, err := Compile(source, Limits{OutputBytes: 1 << 20})
		require.NoError(t, err, source)
		_, err = tpl.Render(t.Context(), conversation)
		require.ErrorIs(t, err, want, source)
	}
	for _, source := range []string{
		"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
		"{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}",
		"{% macro m(a) %}{% endmacro %}{{ m(b=2) }}",
		"{% macro m() %}{% break %}{% endmacro %}{% for i in [1, 2] %}{{ i }}{{ m() }}{% endfor %}",
	} {
		tpl, err := Compile(source, Limits{})
		require.NoError(t, err, source)
		_, err = tpl.Render(t.Context(), conversation)
		require.ErrorContains(t, err, "macro m", source)
	}
	for _, source := range []string{"{% macro m(*a) %}{% endmacro %}", "{% macro m(**a) %}{% endmacro %}", "{% macro %}{% endmacro %}", "{% macro m( %}{% endmacro %}", "{% macro m() %}"} {
		_, err := Compile(source, Limits{})
		require.ErrorIs(t, err, ErrTemplate, source)
	}
}
