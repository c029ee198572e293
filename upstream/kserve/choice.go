package kserve

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/intelliparadigm/haiku/upstream"
)

// choice is one answer on its way.
type choice struct {
	echo   string // what is still to come of the prompt, before the text begins
	said   []byte // of a cumulative text, what has been handed on
	held   []byte // of a cumulative text, what may still become another character
	tokens int    // texts that were not empty
	done   bool
}

// replacement is what a tokenizer writes for bytes that are not a character,
// or not yet: the next token may complete it.
const replacement = "\uFFFD"

// fresh returns what of text, which came in one response, has not been handed on
// before and can be.
func (c *choice) fresh(text []byte, how *Answer, prompt string) ([]byte, error) {
	if how.Cumulative {
		return c.rest(text, how, prompt)
	}
	if c.echo == "" {
		return text, nil
	}
	n := min(len(text), len(c.echo))
	if string(text[:n]) != c.echo[:n] {
		return nil, errEcho
	}
	c.echo = c.echo[n:]
	return text[n:], nil
}

// errEcho must not become a text: what stands before the answer would be the
// host's prompt.
var errEcho = fmt.Errorf("%w: the text does not begin with the prompt", upstream.ErrMalformed)

// rest returns what is new in a text that is given from its beginning each time.
func (c *choice) rest(text []byte, how *Answer, prompt string) ([]byte, error) {
	if how.Echo {
		n := min(len(text), len(prompt))
		if string(text[:n]) != prompt[:n] {
			return nil, errEcho
		}
		text = text[n:]
	}
	if len(text) == 0 { // as in a last response that only ends the answer
		return nil, nil
	}
	if !bytes.HasPrefix(text, c.said) {
		return nil, fmt.Errorf("%w: the text changes what it has said before", upstream.ErrMalformed)
	}
	text = text[len(c.said):]
	whole := len(text)
	for bytes.HasSuffix(text[:whole], []byte(replacement)) {
		whole -= len(replacement)
	}
	c.said = append(c.said, text[:whole]...)
	c.held = append(c.held[:0], text[whole:]...)
	return text[:whole], nil
}

// word is a finish reason as servers write it, empty for none yet.
func word(reason []byte) string {
	switch string(reason) {
	case "", "None", "none", "null":
		return ""
	}
	return strings.ToLower(string(reason))
}
