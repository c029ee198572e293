package openai

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/intelliparadigm/haiku"
)

var chatDialect = dialect{
	chunkObject: "chat.completion.chunk", wholeObject: "chat.completion",
	deltaOpen: `"delta":{"content":"`, deltaShut: `"}`,
	wholeOpen: `"message":{"role":"assistant","content":`, wholeShut: `}`,
	chat:         true,
	emptyDelta:   `"delta":{}`,
	logprobs:     appendChatLogprobs,
	logprobsOpen: `{"content":[`,
	logprobsShut: func(dst []byte, _ *choiceState) []byte { return append(dst, `],"refusal":null}`...) },
}

func newChatEncoder(r *ChatCompletionRequest, req *haiku.Request) haiku.Encoder {
	return newEncoder(&chatDialect, &r.Params, req)
}

var completionDialect = dialect{
	chunkObject: "text_completion", wholeObject: "text_completion",
	deltaOpen: `"text":"`, deltaShut: `"`,
	wholeOpen:    `"text":`,
	emptyDelta:   `"text":""`,
	logprobs:     appendLegacyLogprobs,
	logprobsOpen: "",
	logprobsShut: shutLegacyLogprobs,
}

func newCompletionEncoder(r *CompletionRequest, req *haiku.Request) haiku.Encoder {
	return newEncoder(&completionDialect, &r.Params, req)
}

// appendChatLogprobs appends the elements of logprobs.content.
func appendChatLogprobs(dst []byte, _ *choiceState, lps []haiku.TokenLogprob) []byte {
	for i := range lps {
		if len(dst) > 0 {
			dst = append(dst, ',')
		}
		dst = appendChatLogprob(dst, &lps[i])
		dst = append(dst, `,"top_logprobs":[`...)
		for j := range lps[i].Top {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = appendChatLogprob(dst, &lps[i].Top[j])
			dst = append(dst, '}')
		}
		dst = append(dst, "]}"...)
	}
	return dst
}

// appendChatLogprob leaves the object open.
func appendChatLogprob(dst []byte, lp *haiku.TokenLogprob) []byte {
	dst = append(dst, `{"token":`...)
	dst = appendJSON(dst, tokenText(lp.Bytes))
	dst = append(dst, `,"logprob":`...)
	dst = appendLogprob(dst, lp.Logprob)
	dst = append(dst, `,"bytes":[`...)
	for i, b := range lp.Bytes {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(b), 10)
	}
	return append(dst, ']')
}

// tokenText shows a token that is not whole characters as OpenAI does.
func tokenText(piece []byte) string {
	if utf8.Valid(piece) {
		return string(piece)
	}
	var b strings.Builder
	b.WriteString("bytes:")
	for _, c := range piece {
		b.WriteString(`\x`)
		b.WriteByte("0123456789abcdef"[c>>4])
		b.WriteByte("0123456789abcdef"[c&15])
	}
	return b.String()
}

// unlikely is what OpenAI writes for a token that is next to impossible.
const unlikely = -9999

// appendLogprob appends a log-probability. JSON has neither infinity nor NaN, and
// rounding may have put one a little over 0.
func appendLogprob(dst []byte, logprob float32) []byte {
	switch {
	case !(logprob >= unlikely):
		logprob = unlikely
	case logprob > 0:
		logprob = 0
	}
	return strconv.AppendFloat(dst, float64(logprob), 'g', -1, 32)
}

// charactersBegun counts the characters whose first byte is in piece, so that
// one which several tokens make up together counts once.
func charactersBegun(piece []byte) (n int) {
	for _, b := range piece {
		if utf8.RuneStart(b) {
			n++
		}
	}
	return n
}

// legacyLogprobs are the parallel lists of the completions API, and where the
// next token's text begins.
type legacyLogprobs struct {
	tokens, logprobs, top, offsets []byte
	offset                         int
}

// appendLegacyLogprobs collects the lists; shutLegacyLogprobs writes them.
func appendLegacyLogprobs(dst []byte, st *choiceState, lps []haiku.TokenLogprob) []byte {
	l := &st.legacy
	for i := range lps {
		lp := &lps[i]
		if len(l.tokens) > 0 {
			for _, list := range []*[]byte{&l.tokens, &l.logprobs, &l.top, &l.offsets} {
				*list = append(*list, ',')
			}
		}
		text := tokenText(lp.Bytes)
		l.tokens = appendJSON(l.tokens, text)
		l.logprobs = appendLogprob(l.logprobs, lp.Logprob)
		l.offsets = strconv.AppendInt(l.offsets, int64(l.offset), 10)
		l.offset += charactersBegun(lp.Bytes)
		l.top = append(l.top, '{')
		seen := make(map[string]bool, len(lp.Top))
		for j := range lp.Top {
			name := tokenText(lp.Top[j].Bytes)
			if seen[name] { // control tokens all read as nothing
				continue
			}
			seen[name] = true
			if len(seen) > 1 {
				l.top = append(l.top, ',')
			}
			l.top = appendJSON(l.top, name)
			l.top = append(l.top, ':')
			l.top = appendLogprob(l.top, lp.Top[j].Logprob)
		}
		l.top = append(l.top, '}')
	}
	return dst
}

func shutLegacyLogprobs(dst []byte, st *choiceState) []byte {
	l := &st.legacy
	for _, list := range []struct {
		name string
		text *[]byte
	}{{`{"tokens":[`, &l.tokens}, {`],"token_logprobs":[`, &l.logprobs}, {`],"top_logprobs":[`, &l.top}, {`],"text_offset":[`, &l.offsets}} {
		dst = append(dst, list.name...)
		dst = append(dst, *list.text...)
		*list.text = (*list.text)[:0]
	}
	return append(dst, "]}"...)
}
