package upstream

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of what is read and kept of an engine's error.
const (
	maxErrorBytes   = 64 << 10
	maxMessageBytes = 1 << 10
	maxWordBytes    = 128
	maxRetryAfter   = 24 * time.Hour
)

// statusError reads the error that a response is.
func statusError(resp *http.Response) *StatusError {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes)) // what came counts
	e, ok := parseError(body)
	if !ok {
		e = &StatusError{}
		if kind := resp.Header.Get("Content-Type"); strings.HasPrefix(kind, "text/plain") {
			e.Message = clean(string(body), maxMessageBytes)
		}
	}
	e.Status = resp.StatusCode
	e.Dropped = clean(resp.Header.Get("X-Llm-D-Request-Dropped-Reason"), maxWordBytes)
	e.RetryAfter = retryAfter(resp.Header, time.Now())
	switch resp.Header.Get("X-Should-Retry") {
	case "true":
		e.Retry = 1
	case "false":
		e.Retry = -1
	}
	return e
}

// errorJSON is an error in the forms that engines give it: OpenAI's object
// under "error", the same at the top, a string under "error", and "detail" of
// FastAPI, a string or a list.
type errorJSON struct {
	Error   jsontext.Value `json:"error"`
	Object  jsontext.Value `json:"object"`
	Message jsontext.Value `json:"message"`
	Msg     jsontext.Value `json:"msg"`
	Type    jsontext.Value `json:"type"`
	Code    jsontext.Value `json:"code"`
	Param   jsontext.Value `json:"param"`
	Detail  jsontext.Value `json:"detail"`
	Details jsontext.Value `json:"error_message"`
}

// parseError reads an error object. ok is false for JSON that is none.
func parseError(body []byte) (e *StatusError, ok bool) {
	e = new(StatusError)
	return e, e.parse(body, 4)
}

func (e *StatusError) parse(body []byte, depth int) bool {
	var j errorJSON
	options := json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	value := jsontext.Value(body)
	if depth == 0 {
		return false
	}
	switch value.Kind() {
	case '"':
		e.Message = clean(stringOf(value), maxMessageBytes)
		return e.Message != ""
	case '[': // of errors, or of what FastAPI has found
		var list []jsontext.Value
		return json.Unmarshal(body, &list, options) == nil && len(list) > 0 && e.parse(list[0], depth-1)
	case '{':
	default:
		return false
	}
	if json.Unmarshal(body, &j, options) != nil {
		return false
	}
	for _, inner := range []jsontext.Value{j.Error, j.Detail} {
		if inner != nil && inner.Kind() != 'n' && e.parse(inner, depth-1) {
			e.take(&j)
			return true
		}
	}
	e.take(&j)
	return e.Message != "" || e.Code != "" && e.Type != ""
}

// take fills what is still unknown.
func (e *StatusError) take(j *errorJSON) {
	for _, m := range []jsontext.Value{j.Message, j.Msg, j.Details} {
		if e.Message == "" {
			e.Message = clean(stringOf(m), maxMessageBytes)
		}
	}
	if e.Type == "" {
		e.Type = clean(stringOf(j.Type), maxWordBytes)
	}
	if e.Param == "" {
		e.Param = clean(stringOf(j.Param), maxWordBytes)
	}
	if e.Code == "" {
		e.Code = clean(stringOf(j.Code), maxWordBytes)
	}
	if n, err := strconv.Atoi(e.Code); err == nil && n >= 400 && n <= 599 {
		e.Status = n
	}
}

// stringOf is the text of a JSON string or number, empty for anything else.
func stringOf(v jsontext.Value) string {
	switch v.Kind() {
	case '"':
		var s string
		if json.Unmarshal(v, &s, jsontext.AllowInvalidUTF8(true)) == nil {
			return s
		}
	case '0':
		return string(v)
	}
	return ""
}

// clean makes a text of another server short and printable.
func clean(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	s = strings.ToValidUTF8(s, "")
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7F {
			return ' '
		}
		return r
	}, s))
}

// retryAfter reads when a server wants to be asked again: retry-after-ms in
// milliseconds, Retry-After in seconds or as a date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return seconds(ms / 1000)
	}
	text := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(text, 64); err == nil {
		return seconds(s)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}

// seconds is s as a duration, 0 for what makes no sense.
func seconds(s float64) time.Duration {
	if !(s > 0) {
		return 0
	}
	return time.Duration(min(s, maxRetryAfter.Seconds()) * float64(time.Second))
}
