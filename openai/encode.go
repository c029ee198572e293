package openai

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/intelliparadigm/haiku"
)

// newID makes an id for an answer.
func newID(prefix string) string {
	var b [12]byte
	rand.Read(b[:]) // never fails: it aborts the program when the system has no randomness
	var room [64]byte
	return string(hex.AppendEncode(append(room[:0], prefix...), b[:]))
}

// dialect is where the two kinds of completion differ on the wire.
type dialect struct {
	chunkObject, wholeObject string
	// open and shut stand around the escaped text of a streamed delta, and
	// around the text of a whole answer, with its quotes, and its members.
	deltaOpen, deltaShut string
	wholeOpen, wholeShut string
	// chat: a first chunk says whose turn it is, and a delta may have members
	// beside its text.
	chat         bool
	emptyDelta   string
	logprobs     func(dst []byte, st *choiceState, lps []haiku.TokenLogprob) []byte
	logprobsOpen string
	logprobsShut func(dst []byte, st *choiceState) []byte
}

// encoder writes one answer. It belongs to one stream.
type encoder struct {
	*dialect
	stream, usage, logs bool
	model               string // if the stream's head does not tell
	created             int64
	head                []byte // of every chunk, up to the index of its choice
	tail                []byte // of every text chunk, from the end of its text on
	choices             []choiceState
	chunk               []byte // reused for log-probabilities
}

// choiceState is what is known of one choice so far.
type choiceState struct {
	begun  []byte // the head of its text chunks, up to the text
	text   []byte // of a whole answer, escaped
	lps    []byte // of a whole answer, encoded
	merged merged // of a whole answer
	finish haiku.FinishReason
	legacy legacyLogprobs
}

func newEncoder(d *dialect, p *Params, req *haiku.Request) *encoder {
	return &encoder{
		dialect: d,
		stream:  p.Stream,
		usage:   p.StreamOptions != nil && p.StreamOptions.IncludeUsage,
		logs:    req.Logprobs,
		model:   req.Model,
		created: time.Now().Unix(),
		choices: make([]choiceState, max(req.Choices, 1)),
	}
}

// ContentType is that of an event stream or of JSON, as the request asked.
func (e *encoder) ContentType() string {
	if e.stream {
		return "text/event-stream"
	}
	return "application/json"
}

// Begin prepares the bytes that all chunks share.
func (e *encoder) Begin(dst []byte, h haiku.Head) []byte {
	if h.Model != "" {
		e.model = h.Model
	}
	object, head := e.wholeObject, make([]byte, 0, usualHead)
	if e.stream {
		object = e.chunkObject
		head = append(head, "data: "...)
	}
	head = append(head, `{"id":`...)
	head = appendJSON(head, h.ID)
	head = append(head, `,"object":"`...)
	head = append(head, object...)
	head = append(head, `","created":`...)
	head = strconv.AppendInt(head, e.created, 10)
	head = append(head, `,"model":`...)
	head = appendJSON(head, e.model)
	head = append(head, `,"choices":[`...)
	tail := append(head[len(head):], e.deltaShut...)
	tail = e.endChunk(append(tail, `,"logprobs":null`...), "null")
	e.head, e.tail = head[:len(head):len(head)], tail[:len(tail):len(tail)]
	return dst
}

// usualHead is room for the head and the tail of a chunk with the usual names.
const usualHead = 320

// appendJSON appends s as a JSON string. What is not UTF-8 is replaced, and
// what ends a line for some readers is escaped.
func appendJSON(dst []byte, s string) []byte {
	if longer, err := jsontext.AppendQuote(dst, s); err == nil && !strings.Contains(s, "\u2028") && !strings.Contains(s, "\u2029") {
		return longer
	}
	b, err := json.Marshal(s, jsontext.AllowInvalidUTF8(true), jsontext.EscapeForJS(true))
	if err != nil { // a string, and all of them accepted
		return append(dst, `""`...)
	}
	return append(dst, b...)
}

// Token writes a delta as one chunk, and its finish reason as another; a whole
// answer keeps it for End.
func (e *encoder) Token(dst []byte, d *haiku.Delta) []byte {
	st := &e.choices[d.Choice]
	if !e.stream {
		st.text = append(st.text, d.Escaped...)
		if len(d.Members) > 0 && e.chat {
			st.merged.add(d.Members)
		}
		if e.logs {
			st.lps = e.logprobs(st.lps, st, d.Logprobs)
		}
		if d.Finish != "" {
			st.finish = d.Finish
		}
		return dst
	}
	if st.begun == nil {
		dst = e.beginChoice(dst, d.Choice)
	}
	if len(d.Members) > 0 && e.chat {
		dst = e.chunkHead(dst, d.Choice)
		dst = append(append(dst, `"delta":{`...), d.Members...)
		dst = e.endChunk(append(dst, `},"logprobs":null`...), "null")
	}
	if len(d.Escaped) > 0 || len(d.Logprobs) > 0 {
		dst = append(dst, st.begun...)
		dst = append(dst, d.Escaped...)
		if e.logs {
			dst = e.appendLogprobs(append(dst, e.deltaShut...), st, d.Logprobs)
			dst = e.endChunk(dst, "null")
		} else {
			dst = append(dst, e.tail...)
		}
	}
	if d.Finish != "" {
		dst = e.chunkHead(dst, d.Choice)
		dst = append(dst, e.emptyDelta...)
		dst = append(dst, `,"logprobs":null`...)
		dst = e.endChunk(dst, finishWord(d.Finish))
	}
	return dst
}

// beginChoice prepares a choice's text chunks and says whose turn it is.
func (e *encoder) beginChoice(dst []byte, choice int) []byte {
	st := &e.choices[choice]
	st.begun = e.chunkHead(make([]byte, 0, len(e.head)+len(e.deltaOpen)+16), choice)
	st.begun = append(st.begun, e.deltaOpen...)
	if !e.chat {
		return dst
	}
	dst = e.chunkHead(dst, choice)
	dst = append(dst, `"delta":{"role":"assistant","content":""},"logprobs":null`...)
	return e.endChunk(dst, "null")
}

func (e *encoder) chunkHead(dst []byte, choice int) []byte {
	dst = append(dst, e.head...)
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(choice), 10)
	return append(dst, ',')
}

func (e *encoder) appendLogprobs(dst []byte, st *choiceState, lps []haiku.TokenLogprob) []byte {
	e.chunk = e.logprobs(e.chunk[:0], st, lps)
	dst = append(dst, `,"logprobs":`+e.logprobsOpen...)
	dst = append(dst, e.chunk...)
	return e.logprobsShut(dst, st)
}

// endChunk closes a chunk. With include_usage, chunks but the last say that
// their usage is null, as OpenAI's do.
func (e *encoder) endChunk(dst []byte, finish string) []byte {
	dst = append(dst, `,"finish_reason":`...)
	dst = append(dst, finish...)
	if e.usage {
		return append(dst, "}],\"usage\":null}\n\n"...)
	}
	return append(dst, "}]}\n\n"...)
}

// finishWord is a finish reason as JSON.
func finishWord(f haiku.FinishReason) string {
	switch f {
	case "":
		return "null"
	case haiku.FinishStop:
		return `"stop"`
	case haiku.FinishLength:
		return `"length"`
	default:
		return string(appendJSON(nil, string(f)))
	}
}

// End writes the usage and the end mark of a stream, or the whole answer, or
// the error.
func (e *encoder) End(dst []byte, u haiku.Usage, err *haiku.Error) []byte {
	switch {
	case err != nil && e.stream:
		dst = append(dst, "data: "...)
		dst = haiku.AppendError(dst, err)
		return append(dst, "\n\n"...)
	case err != nil:
		return haiku.AppendError(dst, err)
	case !e.stream:
		return e.whole(dst, u)
	}
	if e.usage {
		dst = append(dst, e.head...)
		dst = append(dst, `],"usage":`...)
		dst = appendUsage(dst, u)
		dst = append(dst, "}\n\n"...)
	}
	return append(dst, "data: [DONE]\n\n"...)
}

func (e *encoder) whole(dst []byte, u haiku.Usage) []byte {
	dst = append(dst, e.head...)
	for i := range e.choices {
		st := &e.choices[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"index":`...)
		dst = strconv.AppendInt(dst, int64(i), 10)
		dst = append(dst, ',')
		dst = e.appendMessage(dst, st)
		dst = append(dst, `,"logprobs":`...)
		if e.logs {
			dst = append(dst, e.logprobsOpen...)
			dst = append(dst, st.lps...)
			dst = e.logprobsShut(dst, st)
		} else {
			dst = append(dst, "null"...)
		}
		dst = append(dst, `,"finish_reason":`...)
		dst = append(dst, finishWord(st.finish)...)
		dst = append(dst, '}')
	}
	dst = append(dst, `],"usage":`...)
	dst = appendUsage(dst, u)
	return append(dst, '}')
}

// appendMessage appends what one choice says. Calls without a text have none, as
// OpenAI's do.
func (e *encoder) appendMessage(dst []byte, st *choiceState) []byte {
	dst = append(dst, e.wholeOpen...)
	if len(st.text) == 0 && len(st.merged.calls) > 0 {
		dst = append(dst, "null"...)
	} else {
		dst = append(append(append(dst, '"'), st.text...), '"')
	}
	if e.chat {
		dst = st.merged.appendTo(dst)
	}
	return append(dst, e.wholeShut...)
}

func appendUsage(dst []byte, u haiku.Usage) []byte {
	dst = append(dst, `{"prompt_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.PromptTokens), 10)
	dst = append(dst, `,"completion_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.CompletionTokens), 10)
	dst = append(dst, `,"total_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.PromptTokens+u.CompletionTokens), 10)
	dst = append(dst, `,"prompt_tokens_details":{"cached_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.CachedTokens), 10)
	return append(dst, "}}"...)
}
