// Package chattemplate renders conversations through the Jinja templates that
// come with models, and keeps what users write apart from what the template
// says.
//
// The one idea: a template is a program from a file that somebody downloaded.
// It runs without loaders or anything that reaches outside but the date, under
// limits on time, output and the size of every value; and message content is
// data: never parsed, and never mistaken for control tokens (see [Guard]).
package chattemplate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
)

var (
	// ErrTemplate is matched by errors about a template that cannot be compiled.
	ErrTemplate = errors.New("chattemplate: unsupported template")
	// ErrRaised is matched when the template itself refuses a conversation by
	// raise_exception.
	ErrRaised = errors.New("chattemplate: refused by the template")
	// ErrLimit is matched when rendering needs more time or space than allowed.
	ErrLimit = errors.New("chattemplate: over the limit")
)

// Limits bound one rendering. Zero fields have defaults.
type Limits struct {
	// OutputBytes bounds the output and every value made on the way, and 32
	// times as much all values together; 0 means 4 MiB.
	OutputBytes int
	// Time bounds the rendering; 0 means one second.
	Time time.Duration
	// Items bounds the steps of all loops and what range() yields, together; 0
	// means 250,000.
	Items int
}

func (l Limits) withDefaults() Limits {
	if l.OutputBytes <= 0 {
		l.OutputBytes = 4 << 20
	}
	if l.Time <= 0 {
		l.Time = time.Second
	}
	if l.Items <= 0 {
		l.Items = 250_000
	}
	return l
}

// Message is one turn of a conversation.
type Message struct {
	Role, Name, Content string
}

// Vars is what a template sees.
type Vars struct {
	Messages            []Message
	BOS, EOS            string // bos_token and eos_token
	AddGenerationPrompt bool
}

// Template is a compiled template, safe for concurrent use.
type Template struct {
	tpl    *exec.Template
	limits Limits
}

// Compile checks and compiles a template with the settings that Hugging Face
// uses (trim_blocks and lstrip_blocks). Errors match [ErrTemplate].
func Compile(source string, limits Limits) (t *Template, err error) {
	defer func() {
		if v := recover(); v != nil {
			t, err = nil, fmt.Errorf("%w: the compiler panicked: %v", ErrTemplate, v)
		}
	}()
	if err := checkSource(source); err != nil {
		return nil, err
	}
	cfg := config.New()
	cfg.TrimBlocks = true // prepared has done lstrip_blocks
	source = prepared(source)
	tpl, err := exec.NewTemplate(sourceName, cfg, sourceLoader(source), environment())
	if err == nil {
		err = (&rewriter{source: source}).nodes(tpl.Root().Nodes)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrTemplate, cause(err))
	}
	return &Template{tpl: tpl, limits: limits.withDefaults()}, nil
}

// Limits of a template's source, which the parser follows by recursion.
const (
	maxSourceBytes = 64 << 10
	maxNesting     = 100
)

// checkSource refuses what the parser should not see.
func checkSource(source string) error {
	switch {
	case len(source) > maxSourceBytes:
		return fmt.Errorf("%w: %d bytes of source, at most %d are read", ErrTemplate, len(source), maxSourceBytes)
	case !utf8.ValidString(source):
		return fmt.Errorf("%w: the source is not UTF-8", ErrTemplate)
	case strings.ContainsFunc(source, isReserved):
		return fmt.Errorf("%w: the source holds noncharacters U+FDD0 to U+FDEF", ErrTemplate)
	}
	depth := 0
	for i := range len(source) {
		switch source[i] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth = max(depth-1, 0)
		}
		if depth > maxNesting {
			return fmt.Errorf("%w: brackets are nested more than %d deep", ErrTemplate, maxNesting)
		}
	}
	return nil
}

// Render renders a conversation. It returns an error matching ctx's when that
// ends, [ErrLimit], [ErrRaised], or one about the template's own failure.
func (t *Template) Render(ctx context.Context, v Vars) (text string, err error) {
	b := &budget{ctx: ctx, limits: t.limits, until: time.Now().Add(t.limits.Time)}
	defer func() {
		if p := recover(); p != nil {
			text, err = "", fmt.Errorf("chattemplate: the template panicked: %v", p)
		}
	}()
	out := &limitedBuffer{budget: b}
	err = t.tpl.Execute(out, b.variables(v))
	switch {
	case b.err != nil: // the first cause; the engine wraps it in its own words
		return "", b.err
	case err != nil:
		return "", fmt.Errorf("chattemplate: %s", cause(err))
	}
	return out.String(), nil
}

// cause returns the innermost message of an error that was wrapped with the
// template's source at each step.
func cause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if v, ok := err.(*exec.Value); ok { // the engine's values are errors too
			inner, _ = v.Interface().(error)
		}
		if inner == nil {
			return shortened(err.Error())
		}
		err = inner
	}
}

// maxErrorBytes bounds what an error quotes from a template.
const maxErrorBytes = 200

func shortened(text string) string {
	if len(text) <= maxErrorBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxErrorBytes], "") + "…"
}

func (b *budget) variables(v Vars) *exec.Context {
	messages := make([]any, 0, len(v.Messages))
	for _, m := range v.Messages {
		message := map[string]any{"role": m.Role, "content": m.Content}
		if m.Name != "" {
			message["name"] = m.Name
		}
		messages = append(messages, message)
	}
	return exec.NewContext(map[string]any{
		"messages":              messages,
		"bos_token":             v.BOS,
		"eos_token":             v.EOS,
		"add_generation_prompt": v.AddGenerationPrompt,
		"raise_exception":       b.raise,
		"range":                 b.rangeOf,
		budgetKey:               b,
	})
}

// limitedBuffer is the output of a template or of a block that is captured.
type limitedBuffer struct {
	bytes.Buffer
	budget *budget
}

func (l *limitedBuffer) Write(p []byte) (int, error) {
	if err := l.budget.hold(l.Len() + len(p)); err != nil {
		return 0, err
	}
	return l.Buffer.Write(p)
}

// WriteString is what io.WriteString calls.
func (l *limitedBuffer) WriteString(s string) (int, error) {
	if err := l.budget.hold(l.Len() + len(s)); err != nil {
		return 0, err
	}
	return l.Buffer.WriteString(s)
}

// sourceLoader gives the engine the one source there is.
type sourceLoader string

const sourceName = "template"

var errNoFiles = errors.New("a chat template cannot load another")

// Read returns the source, whatever is asked for by its one name.
func (s sourceLoader) Read(name string) (io.Reader, error) {
	if name != sourceName {
		return nil, errNoFiles
	}
	return strings.NewReader(string(s)), nil
}

// Resolve refuses every other template.
func (s sourceLoader) Resolve(string) (string, error) { return "", errNoFiles }

// Inherit refuses every other template.
func (s sourceLoader) Inherit(string) (loaders.Loader, error) { return s, nil }
