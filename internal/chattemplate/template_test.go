package chattemplate

import (
	"context"
	"encoding/json"
	"os"
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
			"{% if tools is defined %}tools{% else %}none{% endif %}{% if tools %}x{% endif %}[{{ missing | default('d') }}{{ messages[0].missing }}]",
			"none[d]",
		},
		"a captured block": {
			"{% set x %}<{{ messages|length }}>{% endset %}{{ x }}{{ x }}",
			"<4><4>",
		},
		"zephyr": {
			"{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
			"<|system|>\nBe brief.</s>\n<|user|>\n  Hi {{ x }} </s>\n<|assistant|>\nHello</s>\n<|user|>\nBye</s>\n<|assistant|>\n",
		},
		"mistral": {
			"{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}{%- set loop_messages = messages[1:] %}{%- else %}{%- set loop_messages = messages %}{%- endif %}\n{{- bos_token }}\n" +
				"{%- for message in loop_messages %}\n    {%- if message['role'] == 'user' %}\n        {%- if loop.last and system_message is defined %}\n            {{- '[INST] ' + system_message + '\\n\\n' + message['content'] + '[/INST]' }}\n        {%- else %}\n            {{- '[INST] ' + message['content'] + '[/INST]' }}\n        {%- endif %}\n    {%- elif message['role'] == 'assistant' %}\n        {{- ' ' + message['content'] + eos_token}}\n    {%- else %}\n        {{- raise_exception('Only user and assistant roles are supported!') }}\n    {%- endif %}\n{%- endfor %}\n",
			"<s>[INST]   Hi {{ x }} [/INST] Hello</s>[INST] Be brief.\n\nBye[/INST]",
		},
		"filters of tools that are not there": {
			"{% if tools %}{{ tools | tojson(indent=4) }}{% else %}{{ '**none** *' }}{% endif %}",
			"**none** *",
		},
		"what is marked for training": {
			"{% for m in messages %}{% generation %}{{ m.role[0] }}{% endgeneration %}{% endfor %}",
			"suau",
		},
		"loops": {
			"{% for m in messages if m.role != 'system' %}{{ loop.index }}/{{ loop.length }}{{ loop.cycle('a', 'b') }}{{ loop.previtem.role if not loop.first }}{{ loop.revindex0 }}{% for c in 'é!' %}{{ loop.depth }}{{ c }}{% endfor %};{% endfor %}{% for x in [] %}x{% else %}none{% endfor %}{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% endfor %}{% for i in range(9) %}{% if i == 1 %}{% continue %}{% elif i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
			"1/3a22é2!;2/3buser12é2!;3/3aassistant02é2!;nonea1b202",
		},
		"numbers": {
			"{{ 2 * 3 + 7 // 2 - 1 }} {{ 7 % 4 }} {{ 2 * 0.5 }} {{ 'ab'[::-1] }} {{ messages[-1].role }} {{ messages[1:3] | map(attribute='role') | join(',') }}",
			"8 3 1.0 ba user user,assistant",
		},
		"range": {
			"{% for i in range(3) %}{{ i }}{% endfor %}{% for i in range(5, 0, -2) %}{{ i }}{% endfor %}",
			"012531",
		},
		"a conditional evaluates one side": {
			"{{ ('a' if true else raise_exception('b')) ~ (none if true else 'x') ~ ('c' if false) ~ (raise_exception('d') if false else '') }}",
			"a",
		},
		"conditionals inside brackets": {
			`{{ ('a' if false else 'b' if true else 'c') + ['x' if true else 'y'][0] }}{% for m in (messages if true else []) %}{{ (loop.index if loop.first) ~ ',' }}{% endfor %}{{ "(1 if x else 2)" }}{# (1 if #}{% raw %}{{ (1 if x else 2) }}{% endraw %}`,
			"bx1,,,,(1 if x else 2){{ (1 if x else 2) }}",
		},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, render(t, c.source, conversation)) })
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
		require.NoError(t, b.check())
		<-time.After(2 * time.Second)
		require.ErrorIs(t, b.check(), ErrLimit)
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
		tpl, err := Compile(source, Limits{Time: 100 * time.Millisecond, OutputBytes: 1 << 16, Items: 1000})
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

// TestTemplatesRenderAsJinjaRendersThem compares with what Jinja2 made of the
// same templates.
func TestTemplatesRenderAsJinjaRendersThem(t *testing.T) {
	data, err := os.ReadFile("testdata/jinja.json")
	require.NoError(t, err)
	var file struct{ Cases [][2]string }
	require.NoError(t, json.Unmarshal(data, &file))
	require.Greater(t, len(file.Cases), 300)
	for _, c := range file.Cases {
		t.Run(c[0], func(t *testing.T) { require.Equal(t, c[1], render(t, c[0], conversation)) })
	}
}

func TestTheDateOfLlama31(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock stands still
		source := "{%- if not date_string is defined %}\n    {%- if strftime_now is defined %}\n        {%- set date_string = strftime_now(\"%d %b %Y\") %}\n    {%- else %}\n        {%- set date_string = \"26 Jul 2024\" %}\n    {%- endif %}\n{%- endif %}\nToday: {{ date_string }}\n"
		require.Equal(t, "Today: "+time.Now().Format("02 Jan 2006"), render(t, source, conversation))
	})
}

// The expected text is what C's strftime writes for the same time.
func TestStrftime(t *testing.T) {
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.FixedZone("CET", 3600))
	for format, want := range map[string]string{
		"%Y-%m-%d":                "2026-02-03",
		"%A, %B %-d, %y %j":       "Tuesday, February 3, 26 034",
		"%a %b %e %T %Y %z %Z":    "Tue Feb  3 04:05:06 2026 +0100 CET",
		"%H:%M:%S %I %p %R %F %D": "04:05:06 04 AM 04:05 2026-02-03 02/03/26",
		"%-H.%-I.%-M.%-S.%-m":     "4.4.5.6.2",
		"%c":                      "Tue Feb  3 04:05:06 2026",
		"100%% é 2006":            "100% é 2006",
		"":                        "",
	} {
		got, err := strftime(at, format)
		require.NoError(t, err, format)
		require.Equal(t, want, got, format)
	}
	for _, format := range []string{"%", "a%-", "%Q", "%é", "%-%"} {
		_, err := strftime(at, format)
		require.Error(t, err, format)
	}
}
