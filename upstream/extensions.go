package upstream

import (
	"fmt"
	"slices"
	"strings"

	"github.com/intelliparadigm/haiku"
)

// extensions are the parameters beyond haiku.Request that engines get, unless
// Options.Extensions names more. They shape an answer and nothing else. A list
// of what is not let through would not do: engines have parameters that choose
// the host which keys and values come from, code that filters logits, or
// another request to be ended.
var extensions = []string{
	"tools", "tool_choice", "parallel_tool_calls", "functions", "function_call",
	"response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "grammar", "json_schema", "regex", "ebnf",
	"reasoning", "reasoning_effort", "reasoning_format", "include_reasoning", "separate_reasoning", "thinking", "enable_thinking",
	"chat_template_kwargs", "verbosity", "modalities", "audio", "prediction", "web_search_options",
	"add_generation_prompt", "continue_final_message", "length_penalty", "top_n_sigma", "xtc_probability", "xtc_threshold",
	"mirostat", "mirostat_tau", "mirostat_eta", "dry_multiplier", "dry_base", "dry_allowed_length",
	"min_tokens", "ignore_eos", "stop_token_ids", "skip_special_tokens", "bad_words",
	"user", "metadata", "store", "service_tier", "safety_identifier", "suffix", "echo", "best_of",
}

// lets reports whether a parameter beyond haiku.Request goes to the engine. What
// this side writes itself, in whatever case, never does: an engine may take the
// last of two, and these decide whose part of its cache a request sees.
func (e *Engine) lets(name string) bool {
	switch {
	case alike(name) || strings.ContainsRune(name, '\\'): // which could be an escape
		return false
	case slices.Contains(extensions, name), slices.Contains(e.opts.Extensions, name):
		return true
	}
	return slices.Contains(e.opts.Extensions, "*")
}

// leaves reports whether an extension stays here without a word: one that nobody
// insists on, and that the engine does not get, or would refuse a request for.
func (e *Engine) leaves(x *haiku.Extension) bool {
	return x.Optional && (!e.lets(x.Name) || e.dialect.strict && !slices.Contains(e.opts.Extensions, x.Name))
}

// TakesExtensions reports which of a request's extensions does not go to the
// engine, unless it is optional. It implements haiku.Extended.
func (e *Engine) TakesExtensions(req *haiku.Request) error {
	for i := range req.Extensions {
		if x := &req.Extensions[i]; !x.Optional && !e.lets(x.Name) {
			return unsupported(clean(x.Name, maxWordBytes), "%s is not passed on to this model's engine", clean(x.Name, maxWordBytes))
		}
	}
	for i := range req.Messages {
		for j := range req.Messages[i].Extensions {
			switch name := req.Messages[i].Extensions[j].Name; name {
			case "role", "name":
				return unsupported(fmt.Sprintf("messages[%d].%s", i, name), "an extension cannot be the %s", name)
			}
		}
	}
	return nil
}

// extensions writes those of a list that skip does not leave out.
func (b *body) extensions(list []haiku.Extension, skip func(*haiku.Extension) bool) {
	for i := range list {
		if skip != nil && skip(&list[i]) {
			continue
		}
		b.name(list[i].Name)
		b.b = append(b.b, list[i].Value...)
	}
}

// content writes a message's content, which may be among its extensions, and
// the others.
func (b *body) content(m *haiku.Message) {
	own := slices.ContainsFunc(m.Extensions, func(x haiku.Extension) bool { return x.Name == "content" })
	if !own {
		b.str("content", m.Content)
	}
	b.extensions(m.Extensions, nil)
}
