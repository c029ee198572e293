//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"strings"
)

// fate is what became of a request.
type fate string

const (
	wholly  fate = "whole"   // every token once and in order, of one model, with both end marks
	broken  fate = "broken"  // begun, and ended by an error event
	refused fate = "refused" // an error status or event, and no text
	lost    fate = "lost"    // neither text nor an error
	doubled fate = "doubled" // a token twice, or tokens of two models or of another request
	torn    fate = "torn"    // begun, without an end or with a gap
)

// heard is what a client got to hear.
type heard struct {
	status   int // 0 if there was no response
	text     strings.Builder
	finished bool // a finish reason has come
	done     bool // and the end mark
	after    bool // and text after one of them
	failed   bool // an error event
}

// read takes in a stream of events to its end, be it good or not, and calls said
// for each that holds text.
func (h *heard) read(body io.Reader, said func()) {
	lines := bufio.NewReaderSize(body, 16<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok && h.event(bytes.TrimSpace(data)) {
			said()
		}
		if err != nil {
			return
		}
	}
}

// event takes in one event, and reports whether it holds text.
func (h *heard) event(data []byte) bool {
	if string(data) == "[DONE]" {
		h.done = true
		return false
	}
	var chunk struct {
		Choices []struct {
			Delta        struct{ Content string }
			FinishReason *string `json:"finish_reason"`
		}
		Error json.RawMessage
	}
	if json.Unmarshal(data, &chunk) != nil {
		return false // half a line, which ends nothing
	}
	if len(chunk.Error) > 0 && string(chunk.Error) != "null" {
		h.failed = true
	}
	said := false
	for _, c := range chunk.Choices {
		if c.Delta.Content != "" {
			said, h.after = true, h.after || h.finished || h.done
			h.text.WriteString(c.Delta.Content)
		}
		h.finished = h.finished || c.FinishReason != nil
	}
	return said
}

// fate judges it, as the answer to a request that was to have a number of tokens,
// and names the model that began it.
func (h *heard) fate(request, tokens int) (f fate, model string) {
	said := h.text.String()
	if said == "" {
		if h.status >= 400 || h.failed {
			return refused, ""
		}
		return lost, ""
	}
	next, gap := 0, !strings.HasSuffix(said, " ")
	for token := range strings.FieldsSeq(said) {
		from, rest, _ := strings.Cut(token, ":")
		id, position, _ := strings.Cut(rest, ":")
		at, err := strconv.Atoi(position)
		if model == "" {
			model = from
		}
		switch {
		case err != nil: // a part of a token
			gap = true
		case from != model || id != strconv.Itoa(request) || at < next:
			return doubled, model
		case at > next:
			gap = true
		}
		next = at + 1
	}
	switch {
	case h.after:
		return doubled, model
	case gap:
		return torn, model
	case h.failed:
		return broken, model
	case next != tokens || !h.finished || !h.done:
		return torn, model
	}
	return wholly, model
}
