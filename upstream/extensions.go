package upstream

import (
	"fmt"
	"slices"

	"github.com/intelliparadigm/haiku"
)

// extensions are the parameters beyond haiku.Request that engines get, unless
// Options.Extensions names more. They shape an answer and nothing else. A list
// of what is not let through would not do: engines have parameters that choose
// the host which keys and values come from, code that filters logits, or
// another request to be ended.
var extensions = []string{
	"tools", "tool_choice", "parallel_tool_calls", "functions", "function_call",
	"response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "grammar", "json_schema",
	"reasoning", "reasoning_effort", "reasoning_format", "include_reasoning", "separate_reasoning", "thinking", "enable_thinking",
	"chat_template_kwargs", "verbosity", "modalities", "audio", "prediction", "web_search_options",
	"min_tokens", "ignore_eos", "stop_token_ids", "skip_special_tokens", "bad_words",
	"user", "metadata", "store", "service_tier", "safety_identifier", "suffix", "echo", "best_of",
}

// TakesExtensions reports which of a request's extensions does not go to the
// engine. It implements haiku.Extended.
func (e *Engine) TakesExtensions(req *haiku.Request) error {
	for i := range req.Extensions {
		if name := req.Extensions[i].Name; !slices.Contains(extensions, name) && !slices.Contains(e.opts.Extensions, name) {
			return unsupported(clean(name, maxWordBytes), "%s is not passed on to this model's engine", clean(name, maxWordBytes))
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

// extensions writes those of a request.
func (b *body) extensions(list []haiku.Extension) {
	for i := range list {
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
	b.extensions(m.Extensions)
}
