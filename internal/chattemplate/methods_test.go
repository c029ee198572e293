package chattemplate

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The values are those of Python's methods.
func TestMethodsMeanWhatPythonMeans(t *testing.T) {
	for expression, want := range map[string]string{
		`'\n a \t'.strip() ~ '|'`:                           "a|",
		`'  a '.lstrip() ~ '|'`:                             "a |",
		`' a  '.rstrip() ~ '|'`:                             " a|",
		`'xxaxx'.strip('x')`:                                "a",
		`'xyaxy'.lstrip('xy')`:                              "axy",
		`'xyaxy'.rstrip('yx')`:                              "xya",
		`' a  b '.split()`:                                  "['a', 'b']",
		`'a,b,,c'.split(',')`:                               "['a', 'b', '', 'c']",
		`'a,b,c'.split(',', 1)`:                             "['a', 'b,c']",
		`'a,b,c'.rsplit(',', 1)`:                            "['a,b', 'c']",
		`'a,b,c'.rsplit(',')`:                               "['a', 'b', 'c']",
		`'<t>x</t>y'.split('</t>')[-1].split('<t>')[-1]`:    "y",
		`'a\nb\r\nc\n'.splitlines()`:                        "['a', 'b', 'c']",
		`''.splitlines()`:                                   "[]",
		`'abc'.startswith('ab')`:                            "True",
		`'abc'.startswith(('x', 'a'))`:                      "True",
		`'abc'.endswith(('x', 'a'))`:                        "False",
		`'aéb'.find('b')`:                                   "2",
		`'ab'.find('c')`:                                    "-1",
		`'banana'.count('an')`:                              "2",
		`'banana'.replace('an', 'o')`:                       "booa",
		`'banana'.replace('an', 'o', 1)`:                    "boana",
		`'ab'.removeprefix('a') ~ 'ab'.removesuffix('b')`:   "ba",
		`'hELLO wORLD'.title()`:                             "Hello World",
		`'hELLO wORLD'.capitalize()`:                        "Hello world",
		`''.capitalize()`:                                   "",
		`'aB'.upper() ~ 'aB'.lower()`:                       "ABab",
		`', '.join(['a', 'b'])`:                             "a, b",
		`'12'.isdigit() ~ ''.isdigit() ~ '1a'.isdigit()`:    "TrueFalseFalse",
		`'ab'.isalpha() ~ 'a1'.isalnum() ~ ' \n'.isspace()`: "TrueTrueTrue",
		`'AB1'.isupper() ~ 'ab'.islower() ~ '1'.isupper()`:  "TrueTrueFalse",
		`{'b': 1, 'a': 2}.items()`:                          "[['b', 1], ['a', 2]]",
		`{'b': 1, 'a': 2}.keys()`:                           "['b', 'a']",
		`{'b': 1, 'a': 2}.values()`:                         "[1, 2]",
		`{'b': 1}.get('b') ~ {'b': 1}.get('c', 3)`:          "13",
		`messages[0].get('missing') is none`:                "True",
		`messages[0].get('role')`:                           "system",
		`'' if false`:                                       "",
		`'a' if 'x' not in 'abc' and not 'x' in 'abc'`:      "a",
		`['a'][-1] ~ ['a', 'b'][-2] ~ 'é'[-1] ~ 'éb'[1] ~ ['a'][-2] ~ ['a'][1]`:                                  "aaéb",
		`'aéb'[1:] ~ 'abc'[:-1] ~ 'abc'[-2:] ~ [1, 2][5:]`:                                                       "ébabbc[]",
		`{'a': {'b': 'c'}}['a']['b'] ~ messages[0]['role']`:                                                      "csystem",
		`7 // 2 ~ ' ' ~ -7 // 2 ~ ' ' ~ -7 % 4 ~ ' ' ~ 7 % -4 ~ ' ' ~ 7 % 4`:                                     "3 -4 1 -1 3",
		`7 / 2 ~ ' ' ~ 7.5 // 2 ~ ' ' ~ -7.5 % 2 ~ ' ' ~ 2 * 3 ~ ' ' ~ 2 * 1.5`:                                  "3.5 3.0 0.5 6 3.0",
		`[1, 2, 3] | reverse | list`:                                                                             "[3, 2, 1]",
		`['b', 'a'] | sort | join('-')`:                                                                          "a-b",
		`[1, 1, 2] | unique | list | length`:                                                                     "2",
		`messages | selectattr('role', 'equalto', 'user') | list | length`:                                       "2",
		`(messages | rejectattr('role', 'equalto', 'user') | map(attribute='content') | first)`:                  "Be brief.",
		`['a', 'b'] | map('upper') | join`:                                                                       "AB",
		`'banana' | replace('an', 'o')`:                                                                          "booa",
		`none is none and 1 is number and 'a' is string and {} is mapping and [] is sequence and x is undefined`: "True",
	} {
		t.Run(expression, func(t *testing.T) {
			require.Equal(t, want, render(t, "{{ "+expression+" }}", conversation))
		})
	}
}

func TestMethodsRefuseWhatPythonRefuses(t *testing.T) {
	for _, expression := range []string{
		`'a'.split('')`, `'a'.split(1)`, `'a'.split(',', 1, 2)`, `'a'.strip(1)`, `'a'.upper('b')`, `'a'.replace('b')`, `'a'.nope()`,
		`'a'.join(1)`, `'a'.startswith()`, `'a'.startswith(1)`, `(1).upper()`, `[1].append(2)`, `{}.update({})`, `{}.get()`,
		`'a'.split(sep=',')`, `messages.pop()`, `'a' | replace('b')`, `1 | join`, `['a'] | join(',', 2)`, `[nope()]`, `-'a'`,
	} {
		t.Run(expression, func(t *testing.T) {
			tpl, err := Compile("{{ "+expression+" }}", Limits{})
			require.NoError(t, err)
			text, err := tpl.Render(t.Context(), conversation)
			require.Error(t, err, text)
		})
	}
}
