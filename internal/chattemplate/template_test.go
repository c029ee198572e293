package chattemplate

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var conversation = Vars{
	Messages: []Message{
		{Role: "system", Content: "Be brief."},
		{Role: "user", Content: "  Hi {{ x }} "},
		{Role: "assistant", Content: "Hello"},
		{Role: "user", Content: "Bye"},
	},
	BOS: "<s>", EOS: "</s>", AddGenerationPrompt: true,
}

func render(t *testing.T, source string, v Vars) string {
	t.Helper()
	tpl, err := Compile(source, Limits{})
	require.NoError(t, err)
	text, err := tpl.Render(t.Context(), v)
	require.NoError(t, err)
	return text
}

// The expected texts follow from Jinja2's rules with trim_blocks and
// lstrip_blocks; the templates use the features that those of well-known
// model families use.
func TestTemplatesOfModelFamilies(t *testing.T) {
	for name, c := range map[string]struct{ source, want string }{
		"haiku-tiny": {
			`{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] + ('</s>' if m['role']=='assistant' else '\n') }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}`,
			"<|system|>\nBe brief.\n<|user|>\n  Hi {{ x }} \n<|assistant|>\nHello</s><|user|>\nBye\n<|assistant|>\n",
		},
		"chatml": {
			"{% for message in messages %}\n{{'<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n'}}\n{% endfor %}\n{% if add_generation_prompt %}\n{{ '<|im_start|>assistant\\n' }}\n{% endif %}\n",
			"<|im_start|>system\nBe brief.<|im_end|>\n\n<|im_start|>user\n  Hi {{ x }} <|im_end|>\n\n<|im_start|>assistant\nHello<|im_end|>\n\n<|im_start|>user\nBye<|im_end|>\n\n<|im_start|>assistant\n\n",
		},
		"llama-2": {
			"{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}" +
				"{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}" +
				"{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}" +
				"{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
			"<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n  Hi {{ x }} [/INST] Hello </s><s>[INST] Bye [/INST]",
		},
		"a namespace counts across iterations": {
			"{%- set ns = namespace(users=0) -%}\n{%- for m in messages if m.role == 'user' -%}\n{%- set ns.users = ns.users + 1 -%}\n{{ ns.users ~ ':' ~ (m.content | trim) }}{{ ',' if not loop.last }}\n{%- endfor -%}",
			"1:Hi {{ x }},2:Bye",
		},
		"variables that are not there": {
			"{% if tools is defined %}tools{% else %}none{% endif %}{% if tools %}x{% endif %}[{{ missing }}]",
			"none[]",
		},
		"a captured block": {
			"{% set x %}<{{ messages|length }}>{% endset %}{{ x }}{{ x }}",
			"<4><4>",
		},
		"range": {
			"{% for i in range(3) %}{{ i }}{% endfor %}{% for i in range(5, 0, -2) %}{{ i }}{% endfor %}",
			"012531",
		},
		"conditionals inside brackets": {
			`{{ ('a' if false else 'b' if true else 'c') + ['x' if true else 'y'][0] }}{% for m in (messages if true else []) %}{{ (loop.index if loop.first) ~ ',' }}{% endfor %}{{ "(1 if x else 2)" }}{# (1 if #}{% raw %}{{ (1 if x else 2) }}{% endraw %}`,
			"bx1,,,,(1 if x else 2){{ (1 if x else 2) }}",
		},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, render(t, c.source, conversation)) })
	}
}

func TestATemplateThatCannotBeTrustedIsRefusedOrStopped(t *testing.T) {
	for name, source := range map[string]string{
		"an endless loop":         "{% for i in range(1000000000) %}{% endfor %}",
		"nested loops":            "{% for i in range(9000) %}{% for j in range(9000) %}{% endfor %}{% endfor %}",
		"loops over a list":       "{% set l = range(300) %}{% for a in l %}{% for b in l %}{% for c in l %}{% for d in l %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}",
		"100 MB of output":        "{% for i in range(90000) %}" + strings.Repeat("x", 2000) + "{% endfor %}",
		"captured output":         "{% set x %}{% for i in range(90000) %}" + strings.Repeat("x", 2000) + "{% endfor %}{% endset %}",
		"a string that doubles":   "{% set ns = namespace(x='ab') %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
		"a list that doubles":     "{% set ns = namespace(x=[1,2]) %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
		"repetition":              "{{ 'x' * 1000000000 }}",
		"replacement":             "{% set x %}{% for i in range(5000) %}xxxxxxxxxxxxxxxxxxxx{% endfor %}{% endset %}{{ x | replace('x', x) }}",
		"padding":                 "{{ 'x' | center(1000000000) }}",
		"padding by a method":     "{{ 'x'.ljust(1000000000) }}",
		"formatting":              "{{ '%1000000000d' | format(1) }}",
		"recursion":               "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
		"a macro":                 "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
		"deep nesting":            "{{ " + strings.Repeat("(", 5000) + "1" + strings.Repeat(")", 5000) + " }}",
		"an unknown function":     "{{ system('id') }}",
		"an unknown filter":       "{{ 'x' | attr('y') }}",
		"Python's inner life":     "{{ ''.__class__.__mro__ }}",
		"another file":            "{% include '/etc/passwd' %}",
		"an imported file":        "{% import '/etc/passwd' as x %}",
		"a base template":         "{% extends '/etc/passwd' %}",
		"something after a set":   "{% set x = 1 2 %}",
		"an unfinished tag":       "{% for",
		"an unclosed block":       "{% if true %}",
		"a huge source":           strings.Repeat("x", maxSourceBytes+1),
		"source that is not text": "\xff",
		"the guard's marks":       "\uFDD0",
		"an error in a loop":      "{% for i in 5 %}{{ nope() }}{% endfor %}{{ nope() }}",
	} {
		t.Run(name, func(t *testing.T) {
			tpl, err := Compile(source, Limits{Time: 300 * time.Millisecond})
			if err == nil {
				_, err = tpl.Render(t.Context(), conversation)
			}
			require.Error(t, err)
			require.Less(t, len(err.Error()), 400, "the error does not repeat the source")
		})
	}
}

func TestWhatATemplateRaisesIsToldApart(t *testing.T) {
	tpl, err := Compile("{% if messages[0].role != 'user' %}{{ raise_exception('the first turn is the user\\'s') }}{% endif %}", Limits{})
	require.NoError(t, err)
	_, err = tpl.Render(t.Context(), conversation)
	require.ErrorIs(t, err, ErrRaised)
	require.ErrorContains(t, err, "the first turn is the user's")
}

func TestRenderingEndsWithItsContextAndItsTime(t *testing.T) {
	tpl, err := Compile("{% for m in messages %}{% endfor %}", Limits{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = tpl.Render(ctx, conversation)
	require.ErrorIs(t, err, context.Canceled)

	synctest.Test(t, func(t *testing.T) {
		b := &budget{ctx: t.Context(), limits: Limits{}.withDefaults(), until: time.Now().Add(time.Second)}
		require.NoError(t, b.spend(1))
		<-time.After(2 * time.Second)
		require.ErrorIs(t, b.spend(1), ErrLimit)
	})
}

func TestMessagesAreDataNotTemplates(t *testing.T) {
	v := Vars{Messages: []Message{{Role: "user", Content: "{{ 1 + 1 }}{% raw %}"}}}
	require.Equal(t, "{{ 1 + 1 }}{% raw %}", render(t, "{{ messages[0].content }}", v))
}

func TestATemplateMayBeRenderedByManyAtOnce(t *testing.T) {
	tpl, err := Compile("{% set n = namespace(x=0) %}{% for m in messages %}{% set n.x = n.x + 1 %}{{ n.x }}{% endfor %}", Limits{})
	require.NoError(t, err)
	for range 8 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			for range 50 {
				text, err := tpl.Render(t.Context(), conversation)
				require.NoError(t, err)
				require.Equal(t, "1234", text)
			}
		})
	}
}

func FuzzTemplate(f *testing.F) {
	for _, s := range []string{"", "{{ x }}", "{% for m in messages %}{{ m.content }}{% endfor %}", "{% set x = [1,2] %}{{ x|join(',') }}", "{{ messages[0]['role'][::-1] }}", "{%- if a -%}b{%- endif -%}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, source string) {
		tpl, err := Compile(source, Limits{Time: 100 * time.Millisecond, OutputBytes: 1 << 16, RangeItems: 1000})
		if err != nil {
			require.ErrorIs(t, err, ErrTemplate)
			return
		}
		text, err := tpl.Render(t.Context(), conversation)
		if err == nil {
			require.LessOrEqual(t, len(text), 1<<16)
		}
	})
}
