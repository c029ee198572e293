package upstream

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/intelliparadigm/haiku"
)

// chatLogprob is an element of the chat API's logprobs.content.
type chatLogprob struct {
	Token   string        `json:"token"`
	Logprob float64       `json:"logprob"`
	Bytes   []int         `json:"bytes"`
	Top     []chatLogprob `json:"top_logprobs"`
}

// logprobsJSON is a choice's log-probabilities, of the chat API or in the
// parallel lists of the completions API.
type logprobsJSON struct {
	Content  []chatLogprob        `json:"content"`
	Tokens   []string             `json:"tokens"`
	Logprobs []*float64           `json:"token_logprobs"`
	Top      []map[string]float64 `json:"top_logprobs"`
}

// logprobs pushes a delta with the log-probabilities of its tokens: one piece a
// token, if together they make up the text.
func (r *reading) logprobs(c *choice, d *delta, finish haiku.FinishReason) error {
	list, err := readLogprobs(d.logprobs)
	if err != nil {
		return err
	}
	whole := ""
	for i := range list {
		whole += string(list[i].Bytes)
	}
	rest := string(d.text)
	if whole == rest {
		rest = ""
	}
	for i := range list {
		p := haiku.Piece{Choice: d.choice, ID: haiku.NoToken, Logprob: &list[i]}
		if rest == "" {
			p.Text = string(list[i].Bytes)
		}
		if err := r.push(c, p); err != nil || c.finished {
			return err
		}
	}
	return r.push(c, haiku.Piece{Choice: d.choice, ID: haiku.NoToken, Text: rest, Delta: d.more, Finish: finish})
}

func readLogprobs(text []byte) ([]haiku.TokenLogprob, error) {
	var j logprobsJSON
	if err := json.Unmarshal(text, &j, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, fmt.Errorf("%w: log-probabilities: %w", ErrMalformed, err)
	}
	var list []haiku.TokenLogprob
	for i := range j.Content {
		lp := j.Content[i].own()
		for k := range j.Content[i].Top {
			lp.Top = append(lp.Top, j.Content[i].Top[k].own())
		}
		list = append(list, lp)
	}
	for i, token := range j.Tokens {
		lp := haiku.TokenLogprob{ID: haiku.NoToken, Bytes: []byte(token)}
		if i < len(j.Logprobs) && j.Logprobs[i] != nil {
			lp.Logprob = float32(*j.Logprobs[i])
		}
		if i < len(j.Top) {
			lp.Top = topOf(j.Top[i])
		}
		list = append(list, lp)
	}
	return list, nil
}

// own is the token without its alternatives. Engines give its bytes, or only a
// text in which half characters are lost.
func (l *chatLogprob) own() haiku.TokenLogprob {
	lp := haiku.TokenLogprob{ID: haiku.NoToken, Logprob: float32(l.Logprob), Bytes: []byte(l.Token)}
	if l.Bytes != nil {
		lp.Bytes = make([]byte, len(l.Bytes))
		for i, b := range l.Bytes {
			lp.Bytes[i] = byte(b)
		}
	}
	return lp
}

// topOf is the alternatives of the completions API, the most probable first.
func topOf(m map[string]float64) (top []haiku.TokenLogprob) {
	for token, logprob := range m {
		top = append(top, haiku.TokenLogprob{ID: haiku.NoToken, Logprob: float32(logprob), Bytes: []byte(token)})
	}
	slices.SortFunc(top, func(a, b haiku.TokenLogprob) int {
		return cmp.Or(cmp.Compare(b.Logprob, a.Logprob), bytes.Compare(a.Bytes, b.Bytes))
	})
	return top
}
